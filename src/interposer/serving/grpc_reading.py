"""`Readers`: how many gRPC messages arrive at the same time, and which senders have to yield.

gRPC does not say how large a message is, and has memory for the whole of it from its first byte on. So only a few
messages may arrive at the same time. If others wait, a message that has not arrived after a short time is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from interposer.serving.admission import give_back_memory
from interposer.serving.options import ServeOptions
from interposer.serving.protocol.errors import ServingError, Status

__all__ = ["Readers", "Streams"]

_PATIENCE: Final = 0.2
"""Seconds that a message may take to arrive if others wait."""
_PENALTY: Final = 5.0
"""Seconds in which a connection that was refused may not send while others wait."""
_LOOK: Final = 0.05
"""Seconds between two looks at the memory of the process while streams wait."""
_MOST_WAITING: Final = 512
_MOST_PENALTIES: Final = 4096
_LEAST: Final = 4


class _Reader:
    """A message that is arriving, in the current task."""

    def __init__(self, connection: str) -> None:
        self.connection = connection
        self.began = time.monotonic()
        self.is_refused = self.is_late = False
        self._task = asyncio.current_task()

    def refuse(self) -> None:
        """Stop waiting for the message."""
        assert self._task is not None
        self.is_refused = True
        self._task.cancel()

    def expire(self) -> None:
        """Stop waiting for the message, because its time has passed."""
        if not self.is_refused:
            self.is_late = True
            self.refuse()

    def resume(self) -> None:
        """Let the task go on, after it was cancelled by `refuse`."""
        assert self._task is not None
        self._task.uncancel()


class Readers:
    """The messages that are arriving over gRPC. Used from the thread of the event loop only.

    Args:
        options: the limits.
    """

    def __init__(self, options: ServeOptions) -> None:
        self._limit = max(_LEAST, options.memory // (2 * options.max_body))
        self._seconds = options.timeout
        self._reading: OrderedDict[_Reader, None] = OrderedDict()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._penalties: OrderedDict[str, float] = OrderedDict()

    async def read(self, context: Any, seconds: float | None) -> Any:
        """Return the next message of a call.

        Args:
            context: the context of the call.
            seconds: the time until the client's deadline; None if there is none.

        Raises:
            ServingError: the message arrives too slowly while others wait, or not until the deadline; or too many wait.
        """
        limit = self._seconds if seconds is None else min(seconds, self._seconds)
        connection = context.peer()
        await self._enter(connection, limit)
        reader = _Reader(connection)
        self._reading[reader] = None
        timer = asyncio.get_running_loop().call_later(limit, reader.expire)
        try:
            return await context.read()
        except asyncio.CancelledError:
            if not reader.is_refused:
                raise
            reader.resume()
            if reader.is_late:
                raise ServingError(
                    Status.TIMEOUT_OF_BODY, f"the message did not arrive within {limit:.3g} seconds"
                ) from None
            raise _busy("this message arrives too slowly") from None
        finally:
            timer.cancel()
            self._reading.pop(reader, None)
            if self._waiting:
                self._admit()

    async def _enter(self, connection: str, seconds: float) -> None:
        """Wait until a message of a connection may arrive."""
        if len(self._reading) < self._limit and not self._waiting:
            return
        self._check_penalty(connection)
        if len(self._waiting) >= _MOST_WAITING:
            raise _busy("too many messages wait")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(seconds):
                while not turn.done():
                    self._refuse_slow()
                    await asyncio.wait([turn], timeout=_PATIENCE / 4)
        except TimeoutError:
            raise _busy("too many messages wait") from None
        finally:
            with suppress(ValueError):
                self._waiting.remove(turn)
            turn.cancel()

    def _check_penalty(self, connection: str) -> None:
        if time.monotonic() < self._penalties.get(connection, 0.0):
            raise _busy("a message of this connection arrived too slowly")

    def _refuse_slow(self) -> None:
        """Refuse the message that has been arriving for longest, if that is long."""
        reader = next(iter(self._reading), None)
        if reader is not None and time.monotonic() - reader.began > _PATIENCE:
            self._reading.pop(reader)
            reader.refuse()
            self._penalties[reader.connection] = time.monotonic() + _PENALTY
            self._penalties.move_to_end(reader.connection)
            if len(self._penalties) > _MOST_PENALTIES:
                self._penalties.popitem(last=False)

    def _admit(self) -> None:
        """Let the message that has waited for longest arrive, if there is room."""
        while self._waiting and len(self._reading) < self._limit:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class Streams:
    """The streams that wait for their next messages, which may be idle for long.

    gRPC does not say which of them are receiving a large message. So the memory of the process is looked at while
    streams wait; if it has grown by more than the budget of requests, the streams that came last are refused.

    Args:
        options: the limits.
        accounted: returns the bytes that the server accounts for.
        models: returns what is loaded; the growth is measured again when that changes.
    """

    def __init__(self, options: ServeOptions, accounted: Callable[[], int], models: Callable[[], Any]) -> None:
        self._budget, self._accounted, self._models = options.memory, accounted, models
        self._waiting: OrderedDict[_Reader, None] = OrderedDict()
        self._guard: asyncio.Task[None] | None = None

    async def read(self, context: Any) -> Any:
        """Return the next message of a stream; raise `ServingError` if the stream has to yield."""
        reader = _Reader(context.peer())
        self._waiting[reader] = None
        if self._guard is None or self._guard.done():
            self._guard = asyncio.create_task(self._watch())
        try:
            return await context.read()
        except asyncio.CancelledError:
            if not reader.is_refused:
                raise
            reader.resume()
            raise _busy("streams have to yield") from None
        finally:
            self._waiting.pop(reader, None)

    async def _watch(self) -> None:
        models, base = None, 0
        while self._waiting:
            if models != (models := self._models()):
                base = anonymous_memory()
            if anonymous_memory() - base - self._accounted() > self._budget:
                reader, _ = self._waiting.popitem()
                reader.refuse()
                give_back_memory()
            await asyncio.sleep(_LOOK)


def anonymous_memory() -> int:
    """Return the bytes of memory of this process that are not from files; 0 if the system does not say."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            line = next((line for line in file if line.startswith("RssAnon:")), "RssAnon: 0 kB")
    except OSError:
        return 0
    return int(line.split()[1]) << 10


def _busy(reason: str) -> ServingError:
    return ServingError(Status.TOO_MANY, f"the server receives as many messages as it may, and {reason}", retry_after=1)

"""`Readers`: how many gRPC messages arrive at the same time, and which senders have to yield; and `Calls` of clients.

gRPC does not say how large a message is, and has memory for the whole of it from its first byte on. So only a few
messages may arrive at the same time. If others wait, a message that has not arrived after a short time is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from interposer.serving.admission import give_back_memory
from interposer.serving.options import ServeOptions
from interposer.serving.peers import crowding_client
from interposer.serving.protocol.errors import ServingError, Status

__all__ = ["Calls", "Readers", "Streams"]

_PATIENCE: Final = 0.2
"""Seconds that a message may take to arrive if others wait."""
_PENALTY: Final = 5.0
"""Seconds in which a connection that was refused may not send while others wait."""
_LOOK: Final = 0.05
"""Seconds between two looks at the memory of the process while streams wait."""
_MOST_WAITING: Final = 512
_MOST_PENALTIES: Final = 4096
_LEAST: Final = 4
_CALLS: Final = 4
"""Calls that may be open for each HTTP connection that may be. gRPC needs about 24 KiB for each."""


class Calls:
    """The calls that are open, of which one client may have half. Used from the thread of the event loop only.

    Args:
        options: the limits.
    """

    def __init__(self, options: ServeOptions) -> None:
        self._max_calls = _CALLS * options.max_connections
        self._count = 0
        self._open: dict[str, int] = {}

    def enter(self, client: str) -> None:
        """Count a call of a client, for which `leave` must be called; raise `ServingError` if there are too many."""
        count = self._open.get(client, 0)
        if count >= self._max_calls // 2:
            raise ServingError(Status.TOO_MANY, f"{count} calls of this client are open already", 1)
        if self._count >= self._max_calls:
            raise ServingError(Status.TOO_MANY, f"{self._count} calls are open already", 1)
        self._open[client] = count + 1
        self._count += 1

    def leave(self, client: str) -> None:
        """Note that a call of a client has ended."""
        self._count -= 1
        if self._open[client] == 1:
            del self._open[client]
        else:
            self._open[client] -= 1

    @contextmanager
    def of(self, client: str) -> Iterator[None]:
        """Count a call of a client in a ``with`` block; raise `ServingError` if there are too many."""
        self.enter(client)
        try:
            yield
        finally:
            self.leave(client)


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
        self._waiting: OrderedDict[str, deque[asyncio.Future[bool]]] = OrderedDict()
        """Those that wait, by the addresses of their clients, who take turns; True lets a message arrive."""
        self._look: asyncio.TimerHandle | None = None
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
        address = connection.rpartition(":")[0]
        self._check_number(address)
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        self._waiting.setdefault(address, deque()).append(turn)
        timer = loop.call_later(seconds, _end, turn)
        if self._look is None:
            self._look_for_slow()
        try:
            if not await turn:
                raise _busy("too many messages wait")
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.result():  # the call ended between its turn and its first byte
                self._admit()
            raise
        finally:
            timer.cancel()
            self._forget(address, turn)

    def _look_for_slow(self) -> None:
        """Refuse slow messages from now on, while others wait."""
        self._look = None
        if self._waiting:
            self._refuse_slow()
            self._look = asyncio.get_running_loop().call_later(_PATIENCE / 4, self._look_for_slow)

    def _check_number(self, address: str) -> None:
        """Raise `ServingError` if too many messages wait, and no client has to make room for one of this address."""
        if sum(map(len, self._waiting.values())) < _MOST_WAITING:
            return
        crowding = crowding_client({client: len(turns) for client, turns in self._waiting.items()}, address)
        if crowding is None:
            raise _busy("too many messages wait")
        _end(self._waiting[crowding].pop())

    def _forget(self, address: str, turn: asyncio.Future[bool]) -> None:
        turns = self._waiting.get(address)
        if turns is not None:
            with suppress(ValueError):
                turns.remove(turn)
            if not turns:
                del self._waiting[address]

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
        """Let the message arrive that has waited for longest of those of the next client, if there is room."""
        while self._waiting and len(self._reading) < self._limit:
            address, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[address] = turns
            if not turn.done():
                turn.set_result(True)
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


def _end(turn: asyncio.Future[bool]) -> None:
    """End the wait of a message that may not arrive."""
    if not turn.done():
        turn.set_result(False)


def _busy(reason: str) -> ServingError:
    return ServingError(Status.TOO_MANY, f"the server receives as many messages as it may, and {reason}", retry_after=1)

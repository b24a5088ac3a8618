"""`Admission`: how many bytes the requests of a process may hold, and which request has to yield if there are more.

A request holds bytes from the first byte that arrives of its body until its answer is sent. Bodies that have not
arrived completely may hold half of the budget. If they need more, the slowest sender is refused, so that senders that
stall cannot keep the others out. If the whole budget is in use, the connection of a client that reads its answer slowly
is closed.
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final

from interposer.serving.options import ServeOptions
from interposer.serving.protocol.errors import ServingError, Status

__all__ = ["Admission", "Holding", "give_back_memory"]

_GRACE: Final = 5.0
"""Seconds from the first byte on in which a body need not arrive at any rate."""
_WINDOW: Final = 1.0
"""Seconds over which the rate of a sender is measured."""
_LARGE: Final = 1 << 22
"""Bytes of a request after whose end free memory is given back to the system."""
_SLOW: Final = 1 << 18
"""Bytes per second below which a client reads its answer so slowly that it may have to make room."""
_RETRY: Final = 1
"""Seconds after which a client may try again."""


class Admission:
    """The budget of bytes of a process, and what each client holds of it. Thread safe.

    Args:
        options: the limits.

    Attributes:
        budget: the most bytes that all requests hold together.
        discards: how many refused bodies are read and forgotten now.
        turn: locked while a piece of a body is decompressed.
    """

    def __init__(self, options: ServeOptions) -> None:
        self.budget = options.memory
        self._share = int(options.client_share * self.budget)
        self._min_rate = options.min_rate
        self._held = 0
        self._unfinished_bytes = 0
        self._held_by_client: dict[str, int] = {}
        self._senders: set[Holding] = set()
        self._readers: set[Holding] = set()
        self._lock = threading.Lock()
        self.discards = 0
        self._released_at = 0.0
        self.turn = asyncio.Lock()

    @property
    def held(self) -> int:
        """The bytes that all requests hold now."""
        return self._held

    def holding(self, client: str) -> Holding:
        """Return what a request of a client holds, nothing at first; use it in a ``with`` block."""
        return Holding(self, client)

    def check_pace(self, holding: Holding) -> None:
        """Refuse a body whose bytes arrive too slowly, or that has not arrived in its time."""
        if holding.is_late:
            reason = f"the body of the request did not arrive within {holding.seconds:.3g} seconds"
            holding.refuse(ServingError(Status.TIMEOUT_OF_BODY, reason))
        elif holding.rate() < self._min_rate:
            reason = f"the body of the request arrives at less than {self._min_rate} bytes per second"
            holding.refuse(ServingError(Status.TIMEOUT_OF_BODY, reason))

    def add(self, holding: Holding, size: int) -> None:
        """Count bytes of a request; raise `ServingError` if there is no room for them."""
        if holding.size + size > self._share:
            raise ServingError(
                Status.TOO_LARGE,
                f"the request and its answer need more than {self._share:,} bytes, which is all that a client may hold",
            )
        with self._lock:
            self._make_room_of_client(holding, size)
            self._make_room(holding, size)
            self._count(holding, size)

    def _make_room_of_client(self, holding: Holding, size: int) -> None:
        """Refuse the bodies of a client of which the least has arrived, so that the others can arrive completely.

        A body that has arrived completely is refused only if no other body of its client is arriving.
        """
        while self._held_by_client.get(holding.client, 0) + size > self._share:
            senders = {sender for sender in self._senders if sender.client == holding.client}
            if holding.is_unfinished:
                senders.add(holding)
            least_holding = min(senders, key=lambda sender: (sender.size, -sender.began), default=holding)
            reason = ServingError(
                Status.TOO_MANY, f"the requests of this client hold {self._share:,} bytes already", _RETRY
            )
            if least_holding is holding:
                raise reason
            self._release(least_holding)
            least_holding.refuse(reason)

    def _make_room(self, holding: Holding, size: int) -> None:
        while self._is_crowded(holding, size) or self._held + size > self.budget:
            slowest_holding = min(self._slow(holding, size), key=Holding.rate, default=None)
            if slowest_holding is None:
                raise _full()
            self._release(slowest_holding)
            slowest_holding.refuse(_full())

    def _is_crowded(self, holding: Holding, size: int) -> bool:
        """Return True if the body of a request has no room beside the other bodies that are arriving."""
        return holding.is_unfinished and self._unfinished_bytes + size > self.budget // 2

    def _slow(self, holding: Holding, size: int) -> list[Holding]:
        """Return the other requests that may have to make room for this one."""
        senders = [sender for sender in self._senders if sender is not holding and sender.is_measured]
        if self._is_crowded(holding, size):
            return senders
        readers = [reader for reader in self._readers if reader.is_measured and reader.rate() < _SLOW]
        return senders + readers if holding.is_unfinished else readers

    def sends(self, holding: Holding) -> None:
        """Note that the answer of a request is being sent."""
        with self._lock:
            self._readers.add(holding)

    def _count(self, holding: Holding, size: int) -> None:
        holding.size += size
        self._held += size
        self._held_by_client[holding.client] = self._held_by_client.get(holding.client, 0) + size
        if holding.is_unfinished:
            self._unfinished_bytes += size
            self._senders.add(holding)

    def finished(self, holding: Holding) -> None:
        """Note that the body of a request has arrived completely."""
        with self._lock:
            if holding.is_unfinished:
                holding.is_unfinished = False
                self._unfinished_bytes -= holding.size
                self._senders.discard(holding)

    def release(self, holding: Holding) -> None:
        """Forget what a request holds, at the latest when its answer has been sent.

        A refused request is released before its error is sent, because the rest of its body may be read for seconds.
        """
        is_large = holding.size >= _LARGE
        with self._lock:
            self._release(holding)
        now = time.monotonic()
        if is_large and now - self._released_at > _WINDOW:  # the C library keeps freed memory between blocks in use
            self._released_at = now
            asyncio.get_running_loop().run_in_executor(None, give_back_memory)

    def give_back(self, holding: Holding, size: int) -> None:
        """Forget some of the bytes of a request, unless all of them are forgotten already."""
        with self._lock:
            self._subtract(holding, min(size, holding.size))

    def _release(self, holding: Holding) -> None:
        self._senders.discard(holding)
        self._readers.discard(holding)
        self._subtract(holding, holding.size)

    def _subtract(self, holding: Holding, size: int) -> None:
        if not size:
            return
        self._held -= size
        if holding.is_unfinished:
            self._unfinished_bytes -= size
        bytes_left = self._held_by_client[holding.client] - size
        if bytes_left:
            self._held_by_client[holding.client] = bytes_left
        else:
            del self._held_by_client[holding.client]
        holding.size -= size


def give_back_memory() -> None:
    """Let the C library give free memory back to the system, if it can."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Return True in the thread that runs this event loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _full() -> ServingError:
    return ServingError(Status.FULL, "the server holds as many bytes of requests as it may", _RETRY)


class Holding:
    """The bytes that one request holds.

    `take` and `refuse` may be called in any thread, the others in that of the event loop.

    Attributes:
        began: when the request began to arrive, as `time.monotonic` says.
        client: who sends the request: its name, or its address.
        size: the bytes that it holds.
        is_unfinished: whether its body has not arrived completely.
        seconds: the time in which its body must arrive.
        reason: why the request was refused while its body arrived; None if it was not.
    """

    def __init__(self, admission: Admission, client: str) -> None:
        self._admission, self.client = admission, client
        self.size = 0
        self.is_unfinished = True
        self.reason: ServingError | None = None
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._abort: Callable[[], None] | None = None
        self._window = self.began = time.monotonic()
        self.seconds = math.inf
        self._arrived_bytes, self._rate = 0, math.inf

    def __enter__(self) -> Holding:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()
        self._admission.release(self)

    def take(self, size: int) -> None:
        """Hold so many bytes more.

        Raises:
            ServingError: the client or the process holds too many bytes already.
        """
        self._admission.add(self, size)

    @contextmanager
    def also(self, size: int) -> Iterator[None]:
        """Hold so many bytes more in a ``with`` block; raise `ServingError` as `take` does."""
        self._admission.add(self, size)
        try:
            yield
        finally:
            self._admission.give_back(self, size)

    def arrived(self, size: int) -> None:
        """Measure the rate at which a body arrives, or an answer is read, of which these bytes are the next."""
        now = time.monotonic()
        if now - self._window >= _WINDOW:
            self._rate = self._arrived_bytes / (now - self._window)
            self._window, self._arrived_bytes = now, 0
        self._arrived_bytes += size

    def sends(self, abort: Callable[[], None] | None, patience: float = 0.0) -> None:
        """Measure from now on how quickly the client reads its answer, whose bytes `arrived` counts.

        Args:
            abort: closes the connection, if the client reads so slowly that it has to make room for others; called in
                any thread. None lets it read as slowly as it likes.
            patience: seconds until the measurement begins.
        """
        if abort is not None:
            self._abort, self._rate = abort, math.inf
            self._window, self._arrived_bytes = time.monotonic() + patience, 0
            self._admission.sends(self)

    @property
    def turn(self) -> asyncio.Lock:
        """The lock under which a piece of a body is decompressed."""
        return self._admission.turn

    @property
    def is_measured(self) -> bool:
        """True if the body has been arriving for long enough to know its rate."""
        return self._rate < math.inf or time.monotonic() - self._window >= _WINDOW

    def rate(self) -> float:
        """Return the bytes per second of about the last second; infinity in the first one."""
        elapsed_seconds = time.monotonic() - self._window
        return self._arrived_bytes / elapsed_seconds if elapsed_seconds >= _WINDOW else self._rate

    @property
    def is_late(self) -> bool:
        """True if the time has passed in which the body must arrive."""
        return time.monotonic() >= self.began + self.seconds

    def watch(self, seconds: float) -> None:
        """Refuse the request if its body does not arrive in time, or too slowly.

        This cancels the task that reads the body, which is the current one. It must turn the cancellation into
        `reason`.

        Args:
            seconds: the time from the beginning of the request in which the body must arrive.
        """
        if self._timer is None:
            self.seconds = seconds
            self._task = asyncio.current_task()
            self._timer = asyncio.get_running_loop().call_later(min(_GRACE, self._seconds_left), self._look)

    @property
    def _seconds_left(self) -> float:
        return max(0.0, self.began + self.seconds - time.monotonic())

    def _look(self) -> None:
        self._admission.check_pace(self)
        self._timer = asyncio.get_running_loop().call_later(min(_WINDOW, self._seconds_left), self._look)

    def refuse(self, reason: ServingError) -> None:
        """Refuse the request whose body is arriving, or close the connection whose answer is being read.

        May be called in any thread. In another thread than that of the event loop, the body is refused soon after.
        """
        task = self._task
        if self._abort is not None:
            self._abort()
        elif task is not None and _is_running(task.get_loop()):
            self._cancel(reason)
        elif task is not None:
            task.get_loop().call_soon_threadsafe(self._cancel, reason)

    def _cancel(self, reason: ServingError) -> None:
        if self.reason is None and self._task is not None:
            self.reason = reason
            self._task.cancel()

    def finish(self) -> None:
        """Note that the body has arrived completely, or is not read any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._task = None
        self._admission.finished(self)

"""`Admission`: how many bytes the requests of a process may hold, and which request has to yield if there are more.

A request holds bytes from the first byte that arrives of its body until its answer is sent. Bodies that have not
arrived completely may hold half of the budget. If they need more, the slowest sender is refused, so that senders that
stall cannot keep the others out.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Final

from interposer.serving.options import ServeOptions
from interposer.serving.protocol.errors import ServingError, Status

__all__ = ["Admission", "Holding"]

_GRACE: Final = 5.0
"""Seconds from the first byte on in which a body need not arrive at any rate."""
_WINDOW: Final = 1.0
"""Seconds over which the rate of a sender is measured."""
_RETRY: Final = 1
"""Seconds after which a client may try again."""


class Admission:
    """The budget of bytes of a process, and what each client holds of it. Thread safe.

    Args:
        options: the limits.

    Attributes:
        budget: the most bytes that all requests hold together.
        turn: locked while a piece of a body is decompressed.
    """

    def __init__(self, options: ServeOptions) -> None:
        self.budget = options.memory
        self._share = int(options.client_share * self.budget)
        self._min_rate = options.min_rate
        self._held = 0
        self._unfinished = 0
        self._of_client: Counter[str] = Counter()
        self._senders: set[Holding] = set()
        self._lock = threading.Lock()
        self.turn = asyncio.Lock()

    @property
    def held(self) -> int:
        """The bytes that all requests hold now."""
        return self._held

    def holding(self, client: str) -> Holding:
        """Return what a request of a client holds, nothing at first; use it in a ``with`` block."""
        return Holding(self, client)

    def check_pace(self, holding: Holding) -> None:
        """Refuse a body whose bytes arrive too slowly."""
        if holding.rate() < self._min_rate:
            reason = f"the body of the request arrives at less than {self._min_rate} bytes per second"
            holding.refuse(ServingError(Status.TIMEOUT_OF_BODY, reason))

    def add(self, holding: Holding, size: int) -> None:
        """Count bytes of a request; raise `ServingError` if there is no room for them."""
        with self._lock:
            if self._of_client[holding.client] + size > self._share:
                raise ServingError(
                    Status.TOO_MANY, f"the requests of this client hold {self._share:,} bytes already", _RETRY
                )
            self._make_room(holding, size)
            self._count(holding, size)

    def _make_room(self, holding: Holding, size: int) -> None:
        while self._lacks_room(holding, size):
            others = [sender for sender in self._senders if sender is not holding and sender.is_measured]
            slowest = min(others, key=Holding.rate, default=None)
            if slowest is None or not holding.is_unfinished:
                raise _full()
            self._release(slowest)
            slowest.refuse(_full())

    def _lacks_room(self, holding: Holding, size: int) -> bool:
        is_crowded = holding.is_unfinished and self._unfinished + size > self.budget // 2
        return is_crowded or self._held + size > self.budget

    def _count(self, holding: Holding, size: int) -> None:
        holding.size += size
        self._held += size
        self._of_client[holding.client] += size
        if holding.is_unfinished:
            self._unfinished += size
            self._senders.add(holding)

    def finished(self, holding: Holding) -> None:
        """Note that the body of a request has arrived completely."""
        with self._lock:
            if holding.is_unfinished:
                holding.is_unfinished = False
                self._unfinished -= holding.size
                self._senders.discard(holding)

    def release(self, holding: Holding) -> None:
        """Forget what a request holds."""
        with self._lock:
            self._release(holding)

    def _release(self, holding: Holding) -> None:
        self._held -= holding.size
        if holding.is_unfinished:
            self._unfinished -= holding.size
        self._of_client[holding.client] -= holding.size
        if not self._of_client[holding.client]:
            del self._of_client[holding.client]
        self._senders.discard(holding)
        holding.size = 0


def _full() -> ServingError:
    return ServingError(Status.FULL, "the server holds as many bytes of requests as it may", _RETRY)


class Holding:
    """The bytes that one request holds. `take` may be called in any thread, the others in that of the event loop.

    Attributes:
        client: who sends the request: its name, or its address.
        size: the bytes that it holds.
        is_unfinished: whether its body has not arrived completely.
        reason: why the request was refused while its body arrived; None if it was not.
    """

    def __init__(self, admission: Admission, client: str) -> None:
        self._admission, self.client = admission, client
        self.size = 0
        self.is_unfinished = True
        self.reason: ServingError | None = None
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._window = time.monotonic()
        self._arrived, self._rate = 0, float("inf")

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

    def arrived(self, size: int) -> None:
        """Measure the rate at which a body arrives, of which these bytes are the next."""
        now = time.monotonic()
        if now - self._window >= _WINDOW:
            self._rate = self._arrived / (now - self._window)
            self._window, self._arrived = now, 0
        self._arrived += size

    @property
    def turn(self) -> asyncio.Lock:
        """The lock under which a piece of a body is decompressed."""
        return self._admission.turn

    @property
    def is_measured(self) -> bool:
        """True if the body has been arriving for long enough to know its rate."""
        return self._rate < float("inf") or time.monotonic() - self._window >= _WINDOW

    def rate(self) -> float:
        """Return the bytes per second of about the last second; infinity in the first one."""
        elapsed = time.monotonic() - self._window
        return self._arrived / elapsed if elapsed >= _WINDOW else self._rate

    def watch(self) -> None:
        """Refuse the request if its body arrives too slowly: cancel the task that reads it, which is the current one.

        That task must turn the cancellation into `reason`.
        """
        if self._timer is None:
            self._task = asyncio.current_task()
            self._timer = asyncio.get_running_loop().call_later(_GRACE, self._look)

    def _look(self) -> None:
        self._admission.check_pace(self)
        self._timer = asyncio.get_running_loop().call_later(_WINDOW, self._look)

    def refuse(self, reason: ServingError) -> None:
        """Refuse the request whose body is arriving."""
        if self.reason is None and self._task is not None:
            self.reason = reason
            self._task.cancel()

    def finish(self) -> None:
        """Note that the body has arrived completely, or is not read any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._task = None
        self._admission.finished(self)

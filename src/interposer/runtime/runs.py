"""Runs that are watched: they can be cancelled, must be done by a deadline, or are done by a thread of the runtime."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from interposer.core.errors import DeadlineExceededError, InvalidArgumentError, RunCancelledError, expect
from interposer.ir.graph import Layer

__all__ = ["PendingRun", "RunControl", "Workers", "run_within"]


class RunControl:
    """Tells one run when to stop. It looks before every layer, those in loops too, and before every iteration.

    A layer that runs is not interrupted.

    Args:
        deadline: seconds from now; None for as long as it takes.
    """

    def __init__(self, deadline: float | None = None) -> None:
        expect(deadline, int | float | None, "a deadline must be a number of seconds above 0")
        if deadline is not None and not deadline > 0:
            raise InvalidArgumentError(f"a deadline must be a number of seconds above 0, not {deadline!r}")
        self.deadline = deadline
        self._stops = None if deadline is None else time.monotonic() + deadline
        self._cancelled = threading.Event()
        self._at: dict[int, tuple[Layer, str]] = {}
        self.given_up = False

    def cancel(self) -> None:
        """Let the run stop before its next layer."""
        self._cancelled.set()

    def check(self, layer: Layer, place: str) -> None:
        """Called before a layer runs, and before each of its iterations; `place` is its name with those around it.

        Raises:
            RunCancelledError: the run was cancelled.
            DeadlineExceededError: it is late.
        """
        self._at[threading.get_ident()] = layer, place
        if self._cancelled.is_set():
            raise RunCancelledError(f"the run was cancelled before layer {place!r} ({layer.kind})", layer=place)
        if self._stops is not None and time.monotonic() > self._stops:
            raise self.late()

    def ran(self, place: str, seconds: float) -> None:
        """Called after a layer has run; `place` is as for `check`. For those who keep it; from several threads."""

    def leave(self) -> None:
        """Called when this thread has run a layer and there may be others that have not: they are what is late."""
        if len(self._at) > 1:
            self._at.pop(threading.get_ident(), None)

    def check_waiting(self, what: str) -> None:
        """Called while the run waits for something else before it begins.

        Raises:
            RunCancelledError: the run was cancelled.
            DeadlineExceededError: it is late.
        """
        if self._cancelled.is_set():
            raise RunCancelledError(f"the run was cancelled while it waited for {what}")
        if self._stops is not None and time.monotonic() > self._stops:
            raise DeadlineExceededError(f"the run took longer than {self.deadline:g} seconds; it waited for {what}")

    def late(self) -> DeadlineExceededError:
        """Return the error of a run that is late, naming the layer that it is at."""
        text = f"the run took longer than {self.deadline:g} seconds"
        at = list(self._at.values())
        if not at:
            return DeadlineExceededError(text)
        layer, place = at[0]
        where = f"{text}; it was at layer {place!r} ({layer.kind}) on backend {layer.backend}"
        return DeadlineExceededError(where, layer=place, backend=str(layer.backend))


class PendingRun(Future[Any]):
    """A run that was submitted: a `concurrent.futures.Future` of its outputs.

    `cancel` keeps a run from beginning; one that has begun stops before its next layer and ends with
    `RunCancelledError`, and `cancel` is False then.
    """

    def __init__(self, control: RunControl) -> None:
        super().__init__()
        self._control = control

    def cancel(self) -> bool:
        """Do not begin, or stop before the next layer."""
        if super().cancel():
            return True
        self._control.cancel()
        return False


class Workers:
    """Threads that do what they are given, in order; made when they are needed, `limit` at most.

    They keep no process alive. Thread safe.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tasks: deque[tuple[PendingRun, Callable[[], Any]]] = deque()
        self._changed = threading.Condition()
        self._threads = self._idle = 0
        self._closed = False

    def submit(self, work: Callable[[RunControl], Any]) -> PendingRun:
        """Let a thread do the work; gives a future of its result.

        Raises:
            InvalidArgumentError: they are closed.
        """
        control = RunControl()
        run = PendingRun(control)
        with self._changed:
            if self._closed:
                raise InvalidArgumentError("the runtime is closed, and runs nothing that is submitted")
            self._tasks.append((run, lambda: work(control)))
            if self._idle < len(self._tasks) and self._threads < self._limit:
                self._threads += 1
                threading.Thread(target=self._serve, name="interposer-worker", daemon=True).start()
            self._changed.notify()
        return run

    def help(self, work: Callable[[], None]) -> None:
        """Let a thread do something, if one gets round to it; nothing is said of what comes of it."""
        with suppress(InvalidArgumentError):
            self.submit(lambda control: work())

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._tasks or self._closed)
                self._idle -= 1
                if not self._tasks:
                    self._threads -= 1
                    return
                run, work = self._tasks.popleft()
            _settle(run, work)
            del run, work  # what they hold is not kept until the next ones come

    def close(self) -> None:
        """Let the threads end when nothing is left to do."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _settle(run: Future[Any], work: Callable[[], Any]) -> None:
    if not run.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:
        run.set_exception(error)
    else:
        run.set_result(result)


def run_within(control: RunControl, work: Callable[[], Any], give_up: Callable[[RunControl], None]) -> Any:
    """Do the work in a thread of its own, and wait for it until the deadline; then call `give_up`.

    Raises:
        DeadlineExceededError: it was not done in time. The thread goes on with it, on memory that nobody else uses.
    """
    done: Future[Any] = Future()
    threading.Thread(target=_settle, args=(done, work), name="interposer-run", daemon=True).start()
    try:
        return done.result(None if control.deadline is None else min(control.deadline, threading.TIMEOUT_MAX))
    except TimeoutError as error:
        if done.done():  # just now, or it raised this itself
            return done.result()
        control.cancel()
        give_up(control)
        raise control.late() from error

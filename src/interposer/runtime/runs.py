"""Control of runs: cancellation, deadlines, and the worker threads of a runtime."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from interposer.core.errors import DeadlineExceededError, InvalidArgumentError, RunCancelledError, as_float
from interposer.ir.graph import Layer

__all__ = ["PendingRun", "RunControl", "Workers", "run_within"]


class RunControl:
    """Stops one run on request or at a deadline. It is checked before every layer and iteration, including inner loops.

    A layer that is already running is not interrupted.

    `thread` is the id of the thread that created the control, which recorders of profiles count as the one that began
    the run. `is_watched` says that another thread ends the run at its deadline, and calls `abandon`, which the run has
    set, if a layer hangs.

    Args:
        deadline: seconds from now, greater than 0; None means no deadline.
    """

    def __init__(self, deadline: float | None = None) -> None:
        requirement = "a deadline must be a number of seconds above 0"
        self.deadline = None if deadline is None else as_float(deadline, requirement)
        if self.deadline is not None and not self.deadline > 0:
            raise InvalidArgumentError(f"{requirement}, not {deadline!r}")
        self._deadline_time = None if self.deadline is None else time.monotonic() + self.deadline
        self._cancelled = threading.Event()
        self._running_at: dict[int, tuple[Layer, str]] = {}
        self.given_up = False
        self.is_watched = False
        self.abandon: Callable[[RunControl], None] | None = None
        self.thread = threading.get_ident()
        self._stop: Callable[[], object] | None = None
        self._awaited: Callable[[], tuple[Layer, str] | None] | None = None

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline, 0 or less once it has passed; None if there is no deadline."""
        return None if self._deadline_time is None else self._deadline_time - time.monotonic()

    def cancel(self) -> None:
        """Stop the run before its next layer, and cancel what it has submitted to queues."""
        self._cancelled.set()
        stop = self._stop
        if stop is not None:
            stop()

    @property
    def is_stopped(self) -> bool:
        """True if the run was cancelled."""
        return self._cancelled.is_set()

    def watch_queues(self, stop: Callable[[], object], awaited: Callable[[], tuple[Layer, str] | None]) -> None:
        """Let `cancel` call `stop`, now if the run was cancelled already, and `deadline_error` call `awaited`.

        `awaited` returns a layer that was submitted and is not over, with its place as in `check`; None if the run does
        not wait for one.
        """
        self._stop, self._awaited = stop, awaited
        if self._cancelled.is_set():
            stop()

    def forget_queues(self) -> None:
        """Let `cancel` and `deadline_error` call nothing any more."""
        self._stop = self._awaited = None

    def check(self, layer: Layer, place: str) -> None:
        """Check the run before a layer or iteration.

        `place` is the layer's name, prefixed with the names of outer regions.

        Raises:
            RunCancelledError: the run was cancelled.
            DeadlineExceededError: the deadline has passed.
        """
        self._running_at[threading.get_ident()] = layer, place
        if self._cancelled.is_set():
            raise RunCancelledError(f"the run was cancelled before layer {place!r} ({layer.kind})", layer=place)
        if self._deadline_time is not None and time.monotonic() > self._deadline_time:
            raise self.deadline_error()

    def ran(self, place: str, seconds: float) -> None:
        """Take note that a layer has run, with its full name and the seconds that it took; called by several threads.

        The default does nothing; subclasses that measure override it.
        """

    @property
    def measures(self) -> bool:
        """True if a subclass overrides `ran`, so that each layer has to be timed without the others."""
        return type(self).ran is not RunControl.ran

    def leave(self) -> None:
        """Forget which layer this thread ran last, if other threads of the run are running layers.

        The error for a missed deadline (see `deadline_error`) then names a layer that is running.
        """
        if len(self._running_at) > 1:
            self._running_at.pop(threading.get_ident(), None)

    def check_waiting(self, awaited: str) -> None:
        """Check the run while it waits before it begins; `awaited` describes what it waits for.

        Raises:
            RunCancelledError: the run was cancelled.
            DeadlineExceededError: the deadline has passed.
        """
        if self._cancelled.is_set():
            raise RunCancelledError(f"the run was cancelled while it waited for {awaited}")
        if self._deadline_time is not None and time.monotonic() > self._deadline_time:
            raise DeadlineExceededError(f"the run took longer than {self.deadline:g} seconds; it waited for {awaited}")

    def deadline_error(self) -> DeadlineExceededError:
        """Return the error for a run beyond its deadline, with the layer that it was running."""
        text = f"the run took longer than {self.deadline:g} seconds"
        awaited_place = None if self._awaited is None else self._awaited()
        places = list(self._running_at.values()) if awaited_place is None else [awaited_place]
        if not places:
            return DeadlineExceededError(text)
        layer, place = places[0]
        message = f"{text}; it was at layer {place!r} ({layer.kind}) on backend {layer.backend}"
        return DeadlineExceededError(message, layer=place, backend=str(layer.backend))


class PendingRun(Future[Any]):
    """A submitted run: a `concurrent.futures.Future` of its outputs.

    `cancel` prevents a run from beginning and returns True. A run that has begun stops before its next layer and ends
    with `RunCancelledError`; `cancel` returns False then.

    `began` is the time of `time.monotonic` at which the run began; None while it waits for a thread.
    """

    def __init__(self, control: RunControl) -> None:
        super().__init__()
        self._control = control
        self._num_attempts = 0
        self.began: float | None = None
        self._was_cancelled = False

    def cancel(self) -> bool:
        """Cancel the run; return True if it had not begun, or False if it stops before its next layer."""
        if super().cancel():
            return True
        self._was_cancelled = True
        self._control.cancel()
        return False

    def next_control(self) -> RunControl:
        """Return the control of the next attempt to run.

        The deadline of the first attempt counts from the submission. Each further attempt, on fewer backends, has the
        whole time again.
        """
        self._num_attempts += 1
        if self._num_attempts > 1 and self._control.deadline is not None:
            is_watched = self._control.is_watched
            self._control = RunControl(self._control.deadline)
            self._control.is_watched = is_watched
            if self._was_cancelled or self.done():  # `cancel` or `end_late` may have stopped the attempt before
                self._control.cancel()
        return self._control

    @property
    def stops(self) -> float:
        """The time of `time.monotonic` at which the deadline of the current attempt passes; infinite without one."""
        seconds_left = self._control.remaining
        return math.inf if seconds_left is None else time.monotonic() + seconds_left

    @property
    def is_watched(self) -> bool:
        """True if `end_late` ends the run at its deadline, and not the thread that runs it."""
        return self._control.is_watched

    def end_late(self) -> bool:
        """End a run that has begun with the error of a missed deadline; return False if it has ended already.

        The thread of the run goes on until its current layer has ended, on memory that nothing else uses.
        """
        control = self._control
        try:
            self.set_exception(control.deadline_error())
        except InvalidStateError:
            return False
        control.cancel()
        if control.abandon is not None:
            control.abandon(control)
        return True

    def expire(self) -> None:
        """End a run that has not begun with the error of a missed deadline."""
        if self.set_running_or_notify_cancel():
            seconds = self._control.deadline
            self.set_exception(
                DeadlineExceededError(f"the run took longer than {seconds:g} seconds; it waited for a free thread")
            )


class Workers:
    """A pool of daemon threads that run submitted tasks in order of submission. Thread-safe.

    Threads are created on demand, `limit` at most. They do not keep the process alive. One more thread ends tasks whose
    deadline has passed; it is created with the first deadline. A thread that hangs beyond a deadline is replaced.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tasks: deque[tuple[PendingRun, Callable[[], Any]]] = deque()
        self._watched_runs: set[PendingRun] = set()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._wake_time_changed = threading.Condition(self._lock)
        self._wake_time: float | None = None
        self._threads = self._num_idle = 0
        self._closed = False

    @property
    def limit(self) -> int:
        """The largest number of tasks that run concurrently."""
        return self._limit

    def submit(
        self,
        work: Callable[[Callable[[], RunControl]], Any],
        deadline: float | None = None,
        *,
        repeats: bool = False,
    ) -> PendingRun:
        """Schedule the work on a thread; return a future of its result.

        Args:
            work: called with a function that returns the control of the next attempt to run.
            deadline: seconds from now after which the task fails, whether it has begun or not; None means no deadline.
            repeats: whether `work` goes on after an attempt that was too late. It must then notice this itself.

        Raises:
            InvalidArgumentError: the runtime is closed, or the deadline is not a number of seconds above 0.
        """
        control = RunControl(deadline)
        control.is_watched = deadline is not None and not repeats
        run = PendingRun(control)
        with self._lock:
            if self._closed:
                raise InvalidArgumentError("the runtime is closed, and runs nothing that is submitted")
            self._tasks.append((run, lambda: work(run.next_control)))
            if deadline is not None:
                self._wake_by(run.stops)
            if self._num_idle < len(self._tasks) and self._threads < self._limit:
                self._start_thread()
            self._changed.notify()
        return run

    def help(self, work: Callable[[], None]) -> None:
        """Schedule work on a thread without returning a result; do nothing if the runtime is closed."""
        with suppress(InvalidArgumentError):
            self.submit(lambda controls: work())

    def _wake_by(self, stops: float) -> None:
        """Let the thread that ends late tasks look at the queue at `stops`, or earlier. The lock must be held."""
        if self._wake_time is None:
            threading.Thread(target=self._end_late_tasks, name="interposer-deadlines", daemon=True).start()
        if self._wake_time is None or stops < self._wake_time:
            self._wake_time = stops
            self._wake_time_changed.notify()

    def _end_late_tasks(self) -> None:
        while True:
            with self._lock:
                if self._closed and not self._tasks:
                    return
                now = time.monotonic()
                late_tasks = [task for task in self._tasks if task[0].stops <= now]
                for task in late_tasks:
                    self._tasks.remove(task)
                hanging_runs = [run for run in self._watched_runs if run.stops <= now]
                self._watched_runs.difference_update(hanging_runs)
                watched_runs = [*(run for run, _ in self._tasks), *self._watched_runs]
                self._wake_time = min((run.stops for run in watched_runs), default=math.inf)
                if not (late_tasks or hanging_runs):
                    del watched_runs  # not to keep their results while waiting
                    self._wake_time_changed.wait(min(self._wake_time - now, threading.TIMEOUT_MAX))
                    continue
            for run, _ in late_tasks:
                run.expire()
            for run in hanging_runs:
                if run.end_late():
                    self._replace_thread()
            late_tasks, hanging_runs, watched_runs = [], [], []

    def _replace_thread(self) -> None:
        """Start a thread in place of one that hangs, which ends when its run returns."""
        with self._lock:
            self._threads -= 1
            if self._tasks and self._num_idle < len(self._tasks):
                self._start_thread()

    def _start_thread(self) -> None:
        self._threads += 1
        threading.Thread(target=self._serve, name="interposer-worker", daemon=True).start()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._num_idle += 1
                self._changed.wait_for(lambda: self._tasks or self._closed)
                self._num_idle -= 1
                if not self._tasks:
                    self._threads -= 1
                    return
                run, work = self._tasks.popleft()
                run.began = time.monotonic()
                begins = run.set_running_or_notify_cancel()
                if begins and run.is_watched:
                    self._watched_runs.add(run)
            if begins and not _finish(run, work):
                return  # another thread has taken the place of this one
            if run.is_watched:
                with self._lock:
                    self._watched_runs.discard(run)
            del run, work  # release their memory before waiting for the next task

    def close(self) -> None:
        """Let the threads end when no tasks are left."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._wake_time_changed.notify_all()


def _settle(run: Future[Any], work: Callable[[], Any]) -> None:
    if run.set_running_or_notify_cancel():
        _finish(run, work)


def _finish(run: Future[Any], work: Callable[[], Any]) -> bool:
    """Set the result of a run that has begun; return False if another thread has set an error at its deadline."""
    try:
        try:
            run_result = work()
        except BaseException as error:
            run.set_exception(error)
        else:
            run.set_result(run_result)
    except InvalidStateError:
        return False
    return True


def run_within(control: RunControl, work: Callable[[], Any], give_up: Callable[[RunControl], None]) -> Any:
    """Call `work` in a separate thread and return its result.

    At the deadline of `control`, cancel the run, call `give_up` with `control`, and raise.

    Raises:
        DeadlineExceededError: the deadline has passed. The thread continues, on memory that nothing else uses.
    """
    remaining_seconds = control.remaining
    if remaining_seconds is not None and remaining_seconds <= 0:
        raise control.deadline_error()
    result_future: Future[Any] = Future()
    threading.Thread(target=_settle, args=(result_future, work), name="interposer-run", daemon=True).start()
    try:
        return result_future.result(
            None if remaining_seconds is None else min(remaining_seconds, threading.TIMEOUT_MAX)
        )
    except TimeoutError as error:
        if result_future.done():  # just now, or it raised this itself
            return result_future.result()
        control.cancel()
        give_up(control)
        raise control.deadline_error() from error

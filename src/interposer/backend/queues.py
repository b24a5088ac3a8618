"""Events and queues: workloads that are submitted and complete later."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from interposer.backend.memory import TensorHandle
from interposer.backend.workload import Workload
from interposer.core.errors import (
    DeadlineExceededError,
    ExecutionError,
    InterposerError,
    InvalidArgumentError,
    RunCancelledError,
)

__all__ = ["READY", "Event", "Queue", "SkippedError", "ThreadQueue"]

_GLANCE: Final = 0.05
"""Seconds between two looks at the cancellation of a queue while it waits for an event of another one."""


class SkippedError(ExecutionError):
    """A submission that did not run, because one that it depends on failed. The message has the cause."""


class Event(ABC):
    """The end of a submission to a `Queue`. Thread-safe.

    An event that is over stays over. It is over whether the submission ended well or not: `error` says which.
    """

    @abstractmethod
    def done(self) -> bool:
        """Return True if the submission is over, without waiting."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the submission is over, for `timeout` seconds at most; return False if it is not over then.

        Raises:
            InterposerError: what the submission failed with; the same as `error`.
        """

    @abstractmethod
    def error(self) -> InterposerError | None:
        """Return what the submission failed with; None if it ended well, or is not over.

        This is a `SkippedError` if another submission is the cause, a `RunCancelledError` after `Queue.cancel`, and an
        `InvalidValueError` if the values of the inputs are.
        """

    def fileno(self) -> int | None:
        """Return a descriptor that becomes readable when the submission is over, for `select.poll` and asyncio.

        It belongs to the event or to its queue: read from it, but do not close it. It may become readable earlier, so
        ask `done` then. None if there is none, as by default; use `wait` in that case.
        """
        return None


class _Ready(Event):
    """An event that is over from the start."""

    def done(self) -> bool:
        return True

    def wait(self, timeout: float | None = None) -> bool:
        return True

    def error(self) -> None:
        return None


READY: Final[Event] = _Ready()
"""The event that is over from the start, such as that of a workload that was executed at once."""


class Queue(ABC):
    """Runs workloads of one backend in the order in which they are submitted. `Backend.create_queue` creates it.

    The runtime creates a queue for each working memory, and uses it in one run after the other. `submit` and `reset`
    are called by one thread at a time, the other methods by any thread.

    After a submission has failed, all later ones are skipped until `reset`.
    """

    takes_all_events: bool = True
    """True if `submit` never waits for the events that it is given, whichever queue they are of."""

    @abstractmethod
    def submit(
        self,
        workload: Workload,
        inputs: Sequence[TensorHandle | None],
        outputs: Sequence[TensorHandle],
        after: Sequence[Event] = (),
        deadline: float | None = None,
    ) -> Event:
        """Submit an `asynchronous` workload of the backend, and return an event that is over when the workload is.

        It should return at once, without waiting for the workload.

        Args:
            workload: the workload.
            inputs: handles as in `Workload.execute`; their memory stays in use until the event is over.
            outputs: the same.
            after: what must be over before the workload begins. If one of them fails, the workload is skipped. Events
                of this queue may be among them.
            deadline: the time of `time.monotonic` after which the workload may give up with `DeadlineExceededError`.

        Raises:
            InterposerError: nothing was submitted.
        """

    @abstractmethod
    def cancel(self) -> None:
        """End all submissions that have not begun with `RunCancelledError`; the one that runs should end soon."""

    @abstractmethod
    def reset(self) -> None:
        """Forget a failure, so that later submissions run again. Everything that was submitted is over."""

    def destroy(self) -> None:
        """Free the queue. Called once, when everything that was submitted is over. The default does nothing."""


class ThreadQueue(Queue):
    """A queue that executes workloads on a thread of its own, for backends in Python.

    The thread calls `Workload.execute`. It begins with the first submission, and does not keep the process alive.
    `name` is part of the name of the thread, and of messages; such as the id of the backend.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._changed = threading.Condition()
        self._pending_submissions: deque[_Submission] = deque()
        self._running_submission: _Submission | None = None
        self._cause: tuple[int, InterposerError] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._count = 0

    def submit(
        self,
        workload: Workload,
        inputs: Sequence[TensorHandle | None],
        outputs: Sequence[TensorHandle],
        after: Sequence[Event] = (),
        deadline: float | None = None,
    ) -> Event:
        """Schedule ``workload.execute(inputs, outputs)`` on the thread of the queue."""
        return self.call(lambda: workload.execute(inputs, outputs), after, deadline)

    def call(self, work: Callable[[], object], after: Sequence[Event] = (), deadline: float | None = None) -> Event:
        """Schedule a function on the thread of the queue, and return its end; the other arguments are as in `submit`.

        Raises:
            InvalidArgumentError: the queue is destroyed.
        """
        with self._changed:
            if self._closed:
                raise InvalidArgumentError(f"the queue {self.name!r} is destroyed, and runs nothing any more")
            self._count += 1
            submission = _Submission(self._count, work, tuple(after), deadline)
            self._pending_submissions.append(submission)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=f"interposer-{self.name}", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return submission

    def cancel(self) -> None:
        """End what has not begun with `RunCancelledError`; a workload that runs is not interrupted."""
        with self._changed:
            for submission in self._pending_submissions:
                submission.cancelled = True
            if self._running_submission is not None:
                self._running_submission.cancelled = True

    def reset(self) -> None:
        """Forget a failure."""
        with self._changed:
            self._cause = None

    def destroy(self) -> None:
        """Let the thread end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _serve(self) -> None:
        while (submission := self._next()) is not None:
            error = self._outcome(submission)
            with self._changed:
                self._running_submission = None
                if error is not None and self._cause is None:
                    self._cause = submission.number, error
            submission.end(error)
            del submission, error  # their memory is released before the next wait

    def _next(self) -> _Submission | None:
        with self._changed:
            self._changed.wait_for(lambda: self._pending_submissions or self._closed)
            if not self._pending_submissions:
                return None
            self._running_submission = self._pending_submissions.popleft()
            return self._running_submission

    def _outcome(self, submission: _Submission) -> InterposerError | None:
        """Run a submission, and return what it failed with; None if it ended well."""
        try:
            self._await(submission)
            submission.work()
        except InterposerError as error:
            return error
        except BaseException as error:  # also SystemExit: a thread that waits for the event must not wait for ever
            failure = ExecutionError(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            return failure
        return None

    def _await(self, submission: _Submission) -> None:
        """Wait for what a submission depends on; raise if it must not run."""
        for event in submission.after:
            while not submission.cancelled and not _is_over(event, _GLANCE):
                self._check_deadline(submission)
            error = event.error()
            if error is not None:
                raise SkippedError(f"it was not run, as something that it depends on failed: {error}") from error
        if submission.cancelled:
            raise RunCancelledError(f"it was cancelled before it began in the queue {self.name!r}")
        if self._cause is not None:
            number, error = self._cause
            raise SkippedError(f"it was not run, as submission {number} of its queue failed: {error}") from error
        self._check_deadline(submission)

    def _check_deadline(self, submission: _Submission) -> None:
        if submission.deadline is not None and time.monotonic() > submission.deadline:
            raise DeadlineExceededError(f"its deadline had passed before it began in the queue {self.name!r}")


def _is_over(event: Event, seconds: float) -> bool:
    """Wait for an event for some seconds at most, and return whether it is over; errors are not raised."""
    with suppress(InterposerError):
        event.wait(seconds)
    return event.done()


class _Submission(Event):
    """A function in a `ThreadQueue`, and its end."""

    def __init__(
        self, number: int, work: Callable[[], object], after: tuple[Event, ...], deadline: float | None
    ) -> None:
        self.number, self.after, self.deadline = number, after, deadline
        self.work: Callable[[], object] = work
        self.cancelled = False
        self._over = threading.Event()
        self._error: InterposerError | None = None
        self._descriptor = -1
        self._lock = threading.Lock()

    def end(self, error: InterposerError | None) -> None:
        """Let the event be over."""
        self.work, self.after = _nothing, ()
        with self._lock:
            self._error = error
            self._over.set()
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, 1)

    def done(self) -> bool:
        return self._over.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        is_over = self._over.wait(timeout)
        if is_over and self._error is not None:
            raise self._error
        return is_over

    def error(self) -> InterposerError | None:
        return self._error if self._over.is_set() else None

    def fileno(self) -> int:
        """Return the descriptor of an eventfd, which is closed with the event."""
        with self._lock:
            if self._descriptor < 0:
                self._descriptor = os.eventfd(int(self.done()), os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            return self._descriptor

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def _nothing() -> None:
    """Do nothing; the work of a submission that is over, whose own work may refer to much memory."""

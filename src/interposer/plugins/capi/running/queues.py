"""The extension ``ipr.async/1``: queues of a plug-in, and events as points on their timelines."""

from __future__ import annotations

import ctypes
import os
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from interposer.backend.memory import TensorHandle
from interposer.backend.queues import READY, Event, Queue, SkippedError
from interposer.backend.workload import Workload
from interposer.core.errors import (
    BackendContractError,
    BackendUnavailableError,
    DeadlineExceededError,
    InterposerError,
    RunCancelledError,
)
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.calls import CallError
from interposer.plugins.capi.library.option_tables import OptionTable
from interposer.plugins.capi.running.handles import NativeCopy
from interposer.plugins.capi.running.queue_functions import Queues
from interposer.plugins.capi.running.workload import DynamicWorkload, RunTables

__all__ = ["NativeEvent", "NativeQueue"]

_SLICE: Final = 0.1
"""Seconds of one wait inside of a plug-in; signals such as SIGINT are only handled between two waits."""


class NativeQueue(Queue):
    """A queue of a plug-in, on the device that the options name. It keeps `owner`, the backend, alive.

    Raises:
        CallError: the plug-in could not create the queue.
    """

    def __init__(self, queues: Queues, options: OptionTable, owner: object = None) -> None:
        self.queues, self.options, self._owner = queues, options, owner
        self.timeline = _new_timeline()
        self.submitted = 0
        self.is_destroyed = False
        self._pending_submissions: deque[_Pending] = deque()
        self._cancelled = False
        out, library = ctypes.c_void_p(), queues.library
        try:
            with library.serialized():
                queues.call("create_queue", options.address, ctypes.addressof(self.timeline), ctypes.addressof(out))
        except BaseException:
            os.close(self.timeline.wake_fd)
            raise
        self.handle = out.value or 0
        destroy = partial(queues.functions["destroy_queue"], library.self, self.handle)
        self._end = _End(self.timeline, destroy, library.queue_ends)
        number = library.hold_call(self._end, (self.timeline, options))
        self._destroy = weakref.finalize(self, library.let_go, number)
        self._destroy.atexit = False  # the library releases at exit whatever is left

    @property
    def takes_all_events(self) -> bool:  # type: ignore[override] # a question of the plug-in
        """True if the plug-in has gates, which this process opens when events of others are over."""
        return bool(self.queues.wait_kinds & abi.POINT_GATE)

    def submit(
        self,
        workload: Workload,
        inputs: Sequence[TensorHandle | None],
        outputs: Sequence[TensorHandle],
        after: Sequence[Event] = (),
        deadline: float | None = None,
    ) -> Event:
        """Submit a compiled part or a copy to the plug-in.

        If the plug-in cannot use the memory of a tensor without a copy, this waits for `after`, and executes the
        workload at once.

        Raises:
            CallError: the plug-in did not accept it.
            SkippedError: something in `after` failed that the plug-in cannot wait for itself.
        """
        self._retire()
        if isinstance(workload, DynamicWorkload):
            with workload.executable.alone_in(self):
                return self._submit_part(workload, inputs, outputs, after, deadline)
        if isinstance(workload, NativeCopy) and self.queues.copies:
            return self._submit_copy(workload, inputs, outputs, after)
        return self._execute_now(workload, inputs, outputs, after)

    def _submit_part(
        self,
        workload: DynamicWorkload,
        inputs: Sequence[TensorHandle | None],
        outputs: Sequence[TensorHandle],
        after: Sequence[Event],
        deadline: float | None,
    ) -> Event:
        tables = workload.bound_tables(inputs, outputs)
        if tables is None:
            return self._execute_now(workload, inputs, outputs, after)
        tables.set_deadline(deadline)
        submission = abi.Submission(
            struct_size=ctypes.sizeof(abi.Submission), executable=workload.executable.handle, run=tables.address
        )
        try:
            event = self._submit(submission, after, workload.executable.translated, (inputs, outputs, workload))
        except BaseException:
            workload.free.append(tables)
            raise
        self._pending_submissions.append(_Pending(event.number, partial(_give_back, workload, tables)))
        workload.executable.last_event = NativeEvent(self, event.number)  # `event` refers to the executable
        return event

    def _submit_copy(
        self,
        workload: NativeCopy,
        inputs: Sequence[TensorHandle | None],
        outputs: Sequence[TensorHandle],
        after: Sequence[Event],
    ) -> Event:
        tensors = workload.tensors(inputs, outputs)
        if tensors is None:
            return self._execute_now(workload, inputs, outputs, after)
        submission = abi.Submission(
            struct_size=ctypes.sizeof(abi.Submission), pool=tensors.pool,
            source=tensors.source.address, target=tensors.target.address,
        )  # fmt: skip
        return self._submit(submission, after, _unchanged, (inputs, outputs, tensors))

    def _submit(
        self,
        submission: abi.Submission,
        after: Sequence[Event],
        translated: Callable[[CallError], InterposerError],
        retained: object,
    ) -> NativeEvent:
        number, waits = ctypes.c_uint64(), _Waits(self)
        try:
            points = waits.points(after)
            submission.wait_count, submission.wait_stride = len(points), ctypes.sizeof(abi.Point)
            submission.waits = ctypes.addressof(points) if points else None
            self.queues.call("submit", self.handle, ctypes.addressof(submission), ctypes.addressof(number))
        except BaseException:
            waits.discard()
            raise
        if number.value != self.submitted + 1:
            raise BackendContractError(
                f"submit gave the number {number.value}; expected {self.submitted + 1}", backend=self.queues.library.id
            )
        self.submitted = self._end.submitted = number.value
        self._pending_submissions.append(_Pending(number.value, waits.discard, (retained, after)))
        waits.watch()
        if "flush" in self.queues.functions:
            self.queues.call("flush", self.handle)
        return NativeEvent(self, number.value, translated)

    def _execute_now(
        self,
        workload: Workload,
        inputs: Sequence[TensorHandle | None],
        outputs: Sequence[TensorHandle],
        after: Sequence[Event],
    ) -> Event:
        for event in (*after, NativeEvent(self, self.submitted)):
            self.await_on_host(event)
        workload.execute(inputs, outputs)
        return READY

    def await_on_host(self, event: Event) -> None:
        """Wait in this thread for an event that the plug-in cannot wait for.

        Raises:
            SkippedError: what it belongs to failed.
            RunCancelledError: the queue was cancelled in the meantime.
        """
        while not event.done():
            if self._cancelled:
                raise RunCancelledError("it was cancelled before it began")
            with suppress(InterposerError):
                event.wait(_SLICE)
        error = event.error()
        if error is not None:
            raise SkippedError(f"it was not run, as something that it depends on failed: {error}") from error

    def is_over(self, number: int) -> bool:
        """Return True if the submission with this number is over."""
        return bool(self.timeline.completed >= number)

    def _retire(self) -> None:
        """Give back what submissions used that are over."""
        completed = self.timeline.completed
        if completed > self.submitted:
            raise BackendContractError(
                f"the timeline says that submission {completed} is over, but {self.submitted} were made",
                backend=self.queues.library.id,
            )
        while self._pending_submissions and self._pending_submissions[0].number <= completed:
            self._pending_submissions.popleft().end()

    def cancel(self) -> None:
        """Let the plug-in cancel what has not begun."""
        self._cancelled = True
        self.queues.call("cancel", self.handle)

    def reset(self) -> None:
        """Let the plug-in forget a failure."""
        self._retire()
        self._cancelled = False
        self.queues.call("reset", self.handle)
        if self.timeline.failed:
            raise BackendContractError(
                f"reset left the failure of submission {self.timeline.failed}", backend=self.queues.library.id
            )

    def destroy(self) -> None:
        """Destroy the queue in the plug-in: now, or after the current call."""
        try:
            self._retire()
        finally:
            self.is_destroyed = True
            self._destroy()


class NativeEvent(Event):
    """The end of a submission to a queue of a plug-in: a point on its timeline.

    `translated` turns an error of the plug-in into that of the layer.
    """

    __slots__ = ("_error", "_translated", "number", "queue")

    def __init__(
        self, queue: NativeQueue, number: int, translated: Callable[[CallError], InterposerError] | None = None
    ) -> None:
        self.queue, self.number = queue, number
        self._translated = translated or _unchanged
        self._error: InterposerError | None = None

    def done(self) -> bool:
        return self.queue.is_over(self.number)

    def wait(self, timeout: float | None = None) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        while not self.queue.is_over(self.number):
            now = time.monotonic()
            if end is not None and now >= end:
                return False
            self._wait_until(now + _SLICE if end is None else min(end, now + _SLICE))
        error = self.error()
        if error is not None:
            raise error
        return True

    def _wait_until(self, moment: float) -> None:
        """Wait inside of the plug-in until the submission is over, or until a time of `time.monotonic`."""
        queues = self.queue.queues
        try:
            queues.call("wait", self.queue.handle, self.number, max(1, int(moment * 1e9)))
        except CallError as error:
            if error.status != abi.DEADLINE:
                raise
            return
        if not self.queue.is_over(self.number):
            raise BackendContractError(
                f"wait returned before submission {self.number} was over", backend=queues.library.id
            )

    def error(self) -> InterposerError | None:
        first_failed = self.queue.timeline.failed
        if self._error is None and first_failed and first_failed <= self.number and self.done():
            self._error = self._result()
        return self._error

    def _result(self) -> InterposerError:
        queues = self.queue.queues
        if self.queue.is_destroyed:
            return SkippedError(f"submission {self.number} failed; its queue has been destroyed since")
        try:
            read_result = queues.functions["result"]
            queues.library.call("queue", read_result, queues.library.self, self.queue.handle, self.number)
        except CallError as error:
            return _as_python(error, self._translated)
        except BackendUnavailableError as error:  # the device hangs, and is not called any more
            return error
        return BackendContractError(
            f"result of submission {self.number} is IPR_OK, although {self.queue.timeline.failed} failed before",
            backend=queues.library.id,
        )

    def fileno(self) -> int | None:
        """Return the descriptor of the queue's timeline; it may become readable for other events of the queue."""
        if not self.done():
            self.queue.queues.call("notify", self.queue.handle, self.number)
        else:
            os.eventfd_write(self.queue.timeline.wake_fd, 1)
        return int(self.queue.timeline.wake_fd)


def _as_python(error: CallError, translated: Callable[[CallError], InterposerError]) -> InterposerError:
    """Return the error of a submission for its status."""
    kinds = {abi.SKIPPED: SkippedError, abi.CANCELLED: RunCancelledError, abi.DEADLINE: DeadlineExceededError}
    kind = kinds.get(error.status)
    if kind is None:
        return translated(error)
    python_error = kind(error.message or error.reason, backend=error.backend)
    python_error.__cause__ = error
    return python_error


def _unchanged(error: CallError) -> InterposerError:
    return error


def _give_back(workload: DynamicWorkload, tables: RunTables) -> None:
    workload.free.append(tables)


class _Pending(NamedTuple):
    """What a submission uses until it is over: `end` is called then. `retained` are objects that must stay alive."""

    number: int
    end: Callable[[], object]
    retained: object = None


class _End:
    """Destroys a queue of a plug-in, unless something in it is not over: it is then never destroyed.

    `submitted` is the number of the last submission. Until it is destroyed, this object is in `ends`.
    """

    def __init__(self, timeline: abi.Timeline, destroy: Callable[[], None], ends: set[Any]) -> None:
        self._timeline, self._destroy, self._ends = timeline, destroy, ends
        self.submitted = 0
        ends.add(self)

    @property
    def is_open(self) -> bool:
        """True while something that was submitted is not over."""
        return bool(self._timeline.completed < self.submitted)

    def __call__(self, close: Callable[[int], None] = os.close) -> None:
        if not self.is_open:
            self._destroy()
            self._ends.discard(self)
            close(self._timeline.wake_fd)


def _new_timeline() -> abi.Timeline:
    wake = ctypes.cast(ctypes.CDLL(None).eventfd_write, ctypes.c_void_p).value
    descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    return abi.Timeline(struct_size=ctypes.sizeof(abi.Timeline), wake_fd=descriptor, wake=wake)


# --- waiting for other queues -----------------------------------------------------------------------------------------


class _Waits:
    """What one submission to `queue` waits for, as points that the plug-in knows.

    An event of the same plug-in is a point of a queue. Others are, if the plug-in supports it, the timeline of another
    plug-in, or a gate that this process opens. The calling thread waits for all others.
    """

    def __init__(self, queue: NativeQueue) -> None:
        self._queue, self._gates = queue, list[tuple[int, Event]]()
        self._open_gates: set[int] = set()
        self._lock = threading.Lock()  # a gate is not opened after it was destroyed

    def points(self, after: Sequence[Event]) -> ctypes.Array[abi.Point]:
        """Return the points of all events that are not over, or that failed."""
        open_events = [event for event in after if not (event.done() and event.error() is None)]
        points = [point for event in open_events if (point := self._point(event)) is not None]
        return (abi.Point * len(points))(*points)

    def _point(self, event: Event) -> abi.Point | None:
        queues = self._queue.queues
        if isinstance(event, NativeEvent):
            if event.queue is self._queue:
                return None
            if event.queue.is_destroyed:
                self._queue.await_on_host(event)
                return None
            if event.queue.queues.library is queues.library:
                return abi.Point(kind=abi.POINT_QUEUE, handle=event.queue.handle, value=event.number)
            if queues.wait_kinds & abi.POINT_TIMELINE:
                address = ctypes.addressof(event.queue.timeline)
                return abi.Point(kind=abi.POINT_TIMELINE, handle=address, value=event.number)
        if queues.wait_kinds & abi.POINT_GATE and event.fileno() is not None:
            return abi.Point(kind=abi.POINT_GATE, handle=self._new_gate(event))
        self._queue.await_on_host(event)
        return None

    def _new_gate(self, event: Event) -> int:
        out = ctypes.c_uint64()
        self._queue.queues.call("create_gate", self._queue.options.address, ctypes.addressof(out))
        self._gates.append((out.value, event))
        self._open_gates.add(out.value)
        return out.value

    def watch(self) -> None:
        """Let the gates be opened when their events are over."""
        for gate, event in self._gates:
            _gatekeeper.open_after(event, partial(self._open, gate))

    def _open(self, gate: int, status: int) -> None:
        library = self._queue.queues.library
        with self._lock:
            if gate in self._open_gates and not library.refuses:
                self._queue.queues.functions["open_gate"](library.self, gate, status)

    def discard(self) -> None:
        """Destroy the gates, for which nothing waits any more."""
        library = self._queue.queues.library
        with self._lock:
            for gate, _ in self._gates if not library.refuses else ():
                self._queue.queues.functions["destroy_gate"](library.self, gate)
            self._gates, self._open_gates = [], set()


class _Gatekeeper:
    """Opens gates when events are over. One thread of the process polls the descriptors of all these events."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events_and_calls: list[tuple[Event, Callable[[int], None]]] = []
        self._thread: threading.Thread | None = None
        self._alarm = -1

    def open_after(self, event: Event, open_gate: Callable[[int], None]) -> None:
        """Call `open_gate` with ``abi.OK``, or with the status of a failure, when an event is over."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._alarm = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                self._thread = threading.Thread(target=self._serve, name="interposer-gates", daemon=True)
                self._thread.start()
            self._events_and_calls.append((event, open_gate))
            os.eventfd_write(self._alarm, 1)

    def _serve(self) -> None:
        while True:
            _drain(self._alarm)
            with self._lock:
                watched_pairs = list(self._events_and_calls)
            poll = select.poll()
            poll.register(self._alarm, select.POLLIN)
            for descriptor in {
                descriptor for event, _ in watched_pairs if (descriptor := _open_descriptor(event)) is not None
            }:
                poll.register(descriptor, select.POLLIN)
            del watched_pairs
            if not self._open_all():
                poll.poll(1000 * _SLICE if self._events_and_calls else None)  # others may have emptied a descriptor

    def _open_all(self) -> bool:
        """Open the gates of all events that are over; return True if there were some."""
        with self._lock:
            done_pairs = [pair for pair in self._events_and_calls if pair[0].done()]
            self._events_and_calls = [pair for pair in self._events_and_calls if pair not in done_pairs]
        for event, open_gate in done_pairs:
            open_gate(abi.OK if event.error() is None else abi.SKIPPED)
        return bool(done_pairs)

    def after_fork(self) -> None:
        """Forget, in a child process, the thread and the events of the parent."""
        self._lock, self._events_and_calls, self._thread = threading.Lock(), [], None


def _open_descriptor(event: Event) -> int | None:
    """Return the descriptor of an event after emptying it, so that only news make it readable; None if it is over."""
    if event.done():
        return None
    descriptor = event.fileno()
    if descriptor is not None and isinstance(event, NativeEvent):
        _drain(descriptor)
        event.fileno()  # asks for news again, in case the event has ended between the two
    return descriptor


def _drain(descriptor: int) -> None:
    with suppress(BlockingIOError):
        os.eventfd_read(descriptor)


_gatekeeper: Final = _Gatekeeper()
os.register_at_fork(after_in_child=_gatekeeper.after_fork)

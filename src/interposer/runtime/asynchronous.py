"""`AsynchronousSteps`: the steps of a program some of whose workloads are submitted to queues."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from threading import get_ident
from time import perf_counter_ns
from typing import Final, NamedTuple

from interposer.backend import READY, Event, Queue, SkippedError, TensorHandle, Workload
from interposer.core.errors import DeadlineExceededError, ExecutionError, InterposerError, RunCancelledError
from interposer.ir.graph import Layer
from interposer.profiling.marks import active_marks, call_marked, marked
from interposer.profiling.recorder import RunTrace, on_this_thread
from interposer.runtime.factories import Factories
from interposer.runtime.late import LateHandles
from interposer.runtime.patience import Patience
from interposer.runtime.program import Program
from interposer.runtime.runs import RunControl, Workers
from interposer.runtime.schedule import QueueKey, Schedule
from interposer.runtime.step import Step
from interposer.runtime.steps import BoundSteps, Steps, failure
from interposer.runtime.workloads import DeviceCopyWorkload

__all__ = ["AsynchronousSteps", "DeviceHungError", "each_alone", "steps_of"]

GRACE: Final = 2.0
"""Seconds after a cancellation in which the queues must end their work; a run is given up afterwards. A machine that is
too busy to run the threads of the process extends them, as `Patience` describes."""
_GLANCE: Final = 0.1
"""Seconds between two looks at the control of a run while it waits."""
_measuring: Final[set[int]] = set()
"""The ids of threads whose runs wait after each layer."""
_given_up: Final[list[object]] = []
"""What devices that hang may still use. It is never freed."""


def steps_of(program: Program, factories: Factories, workers: Workers | None = None) -> Steps:
    """Return the steps of a program, which use queues if the program has workloads for them."""
    if program.schedule is None:
        return Steps(program, factories, workers)
    return AsynchronousSteps(program, factories, program.schedule, workers)


class DeviceHungError(ExecutionError):
    """A run that was given up, because a device did not end its work long after it was cancelled."""


@contextmanager
def each_alone() -> Iterator[None]:
    """A context manager in which runs of this thread wait after each layer, so that its time is not that of others."""
    _measuring.add(get_ident())
    try:
        yield
    finally:
        _measuring.discard(get_ident())


class _Task(NamedTuple):
    """One layer of a run on handles.

    `call` executes the layer on this thread; it is None if `workload` is submitted to the queue of `factories` with the
    key `queue` instead. `before` has the numbers of the layers that must be over first. `note` is called after each
    submission.
    """

    number: int
    layer: Layer
    place: str
    before: tuple[int, ...]
    call: Callable[[], None] | None
    queue: QueueKey
    workload: Workload
    inputs: Sequence[TensorHandle | None]
    outputs: Sequence[TensorHandle]
    note: Callable[[], None]


class AsynchronousSteps(Steps):
    """The layers of a program in the order in which they are submitted or executed, with handles for their tensors.

    A layer with an asynchronous workload is submitted with the events of the layers before it. Any other layer waits
    for these events, and is executed. A run waits once more at its end. If a layer fails, everything else is cancelled,
    and the run ends when all queues have ended their work.
    """

    def __init__(
        self, program: Program, factories: Factories, schedule: Schedule, workers: Workers | None = None
    ) -> None:
        self._schedule = schedule
        super().__init__(program, factories, workers)
        self._tasks = self._new_tasks()
        self.is_hung = False

    @property
    def only_step(self) -> None:
        """None: a run uses queues, even if the network is only one compiled part."""
        return

    @property
    def is_chain(self) -> bool:
        """False: layers overlap."""
        return False

    def _new_tasks(self) -> list[_Task]:
        """Return the tasks of all layers on the present handles, in the order in which they are issued."""
        return [self._task(number) for number in self._schedule.order]

    def _task(self, number: int) -> _Task:
        layer = self.program.running[number]
        step = self.program.step(layer)
        assert isinstance(step, Step)
        inputs = tuple(None if value is None else self._input(layer, value) for value in layer.inputs)
        outputs = tuple(self.handles[value] for value in layer.outputs)
        place, before = f"{self._prefix}{layer.name}", self._schedule.before[number]
        queue, workload = self._schedule.queues.get(layer), step.workload
        if queue is None:
            call = partial(step.execute, inputs, outputs)
            return _Task(number, layer, place, before, call, ("", False), workload, inputs, outputs, _nothing)
        if isinstance(workload, DeviceCopyWorkload):
            note = partial(workload.count, outputs)
            return _Task(number, layer, place, before, None, queue, workload.workload, inputs, outputs, note)
        return _Task(number, layer, place, before, None, queue, workload, inputs, outputs, _nothing)

    def _bound_steps(self) -> BoundSteps:
        tasks = self._new_tasks()
        return BoundSteps(partial(self._run_tasks, tasks, None, None), partial(self._run_bound_traced, tasks), None)

    def _run_bound_traced(self, tasks: Sequence[_Task], trace: RunTrace) -> None:
        self._run_tasks(tasks, None, trace)

    def execute(self, late_handles: LateHandles, control: RunControl | None = None) -> None:
        """Run all layers once, on inputs that `fill` has set, and wait until they are over."""
        self._run_tasks(self._tasks, control, self.trace)

    def _run_tasks(self, tasks: Sequence[_Task], control: RunControl | None, trace: RunTrace | None) -> None:
        run = _Run(self, self._factories, control, trace, len(tasks))
        try:
            if self.program.flow is not None and self._workers is not None and self._schedule.overlaps_on_host:
                by_number = {task.number: task for task in tasks}
                self.program.flow.run(lambda number: run.issue(by_number[number]), self._workers.help)
            else:
                for task in tasks:
                    run.issue(task)
            run.finish()
        except BaseException as error:
            run.fail(error)
            raise

    def earlier(self, number: int) -> Sequence[int]:
        """Return the numbers of the layers that must be over before the layer with this number begins."""
        return self._schedule.before[number]

    def forget(self) -> None:
        """Drop the references to the caller's memory, unless a device that hangs may still use it."""
        if not self.is_hung:
            super().forget()


class _Run:
    """One run of `AsynchronousSteps`: the events of its layers, and the queues that it uses."""

    def __init__(
        self,
        steps: AsynchronousSteps,
        factories: Factories,
        control: RunControl | None,
        trace: RunTrace | None,
        count: int,
    ) -> None:
        self._steps, self._factories, self._control, self._trace = steps, factories, control, trace
        self._events: list[Event] = [READY] * count
        self._tasks: list[_Task | None] = [None] * count
        self._begins, self._ends = [0] * count, [0] * count
        self._is_alone = get_ident() in _measuring or (control is not None and control.measures)
        self._last_submissions: dict[QueueKey, tuple[Queue, int]] = {}
        seconds_left = None if control is None else control.remaining
        self._deadline = None if seconds_left is None else time.monotonic() + seconds_left
        self._patience: Patience | None = None  # after a cancellation
        self._is_waiting = False
        self._submitting = threading.Lock()  # branches on the host may be on several threads
        if control is not None:
            control.watch_queues(self._cancel, self._awaited)

    def issue(self, task: _Task) -> None:
        """Submit a layer, or wait for what it needs and execute it.

        Raises:
            ExecutionError: the layer failed, or `control` stopped the run.
        """
        if self._control is not None:
            self._control.check(task.layer, task.place)
        self._tasks[task.number] = task
        try:
            if task.call is None:
                self._submit(task)
            else:
                self._execute(task, task.call)
        except (RunCancelledError, DeadlineExceededError, DeviceHungError, _EarlierFailureError):
            raise
        except Exception as error:
            raise failure(task.layer, "failed", error) from error

    def _submit(self, task: _Task) -> None:
        queue = self._factories.queue(task.queue)
        earlier_events = [event for number in task.before if (event := self._events[number]) is not READY]
        self._begins[task.number] = perf_counter_ns()
        with self._submitting, marked(self._steps._mark_of(task.layer)) if active_marks else nullcontext():
            event = queue.submit(task.workload, task.inputs, task.outputs, earlier_events, self._deadline)
            self._events[task.number], self._last_submissions[task.queue] = event, (queue, task.number)
        task.note()
        if self._is_alone or event is READY:
            self._finish_alone(task)

    def _execute(self, task: _Task, call: Callable[[], None]) -> None:
        for number in task.before:
            self._await(self._events[number], task.layer)
            if self._events[number].error() is not None:
                raise _EarlierFailureError
        call = partial(call_marked, self._steps._mark_of(task.layer), call) if active_marks else call
        begin = perf_counter_ns()
        if self._trace is None:
            call()
        else:
            with on_this_thread(self._trace):
                try:
                    call()
                finally:
                    self._trace.add(self._steps.sites[task.number], begin)
        self._ends[task.number] = end = perf_counter_ns()
        if self._control is not None:
            self._control.ran(task.place, (end - begin) / 1e9)
            self._control.leave()

    def finish(self) -> None:
        """Wait for all events.

        Raises:
            ExecutionError: a layer failed, or `control` stopped the run.
            DeviceHungError: a queue does not end its work although it was cancelled.
        """
        if self._trace is not None:
            self._record_ends(self._trace)
        for _, number in self._last_submissions.values():
            self._await(self._events[number], self._steps.program.running[number])
        if any(self._events[number].error() is not None for _, number in self._last_submissions.values()):
            raise _EarlierFailureError
        if self._control is not None:
            self._control.forget_queues()

    def _await(self, event: Event, layer: Layer) -> None:
        """Wait until an event is over, well or not; cancel everything if the control says so."""
        self._is_waiting = True
        while not event.done():
            with suppress(InterposerError):
                event.wait(_GLANCE if self._control is not None or self._patience is not None else None)
            if not event.done():
                self._check_time(layer)
        self._is_waiting = False

    def _awaited(self) -> tuple[Layer, str] | None:
        """Return the layer that the run waits for, and its place; None if it does not wait."""
        for task in filter(None, self._tasks) if self._is_waiting else ():
            is_open = not self._events[task.number].done()
            if is_open and all(self._events[earlier].done() for earlier in task.before):
                return task.layer, task.place
        return None

    def _stop_if_late(self) -> None:
        is_late = self._deadline is not None and time.monotonic() > self._deadline
        if self._patience is None and (is_late or (self._control is not None and self._control.is_stopped)):
            self._cancel()

    def _check_time(self, layer: Layer) -> None:
        self._stop_if_late()
        if self._patience is not None and self._patience.is_over:
            layer, place = self._awaited() or (layer, layer.name)
            seconds = f"{self._patience.elapsed:.1f}"
            message = f"its device did not end its work within {seconds} seconds after it was cancelled"
            raise DeviceHungError(
                f"layer {layer} on backend {layer.backend}: {message}", layer=place, backend=str(layer.backend)
            )

    def _cancel(self) -> None:
        """Let all queues cancel what has not begun; called by any thread."""
        if self._patience is None:
            self._patience = Patience(GRACE)
        for queue, _ in list(self._last_submissions.values()):
            with suppress(Exception):  # the device may be lost, or the plug-in closed
                queue.cancel()

    def fail(self, error: BaseException) -> None:
        """End a run that has failed: cancel everything, wait until it is over, and raise the error of its cause."""
        if self._control is not None:
            self._control.forget_queues()
        self._cancel()
        try:
            for _, number in self._last_submissions.values():
                self._await(self._events[number], self._steps.program.running[number])
        except DeviceHungError as hung:
            self._give_up(hung)
            raise hung from error
        try:
            cause = self._cause(error)
        finally:
            self._reset()
        if cause is not None:
            raise cause from cause.__cause__

    def _cause(self, error: BaseException) -> InterposerError | None:
        """Return the error of the layer that failed first; None if it is `error`."""
        if not isinstance(error, _EarlierFailureError):
            return None
        failed_tasks = [
            (task, layer_error)
            for task, event in zip(self._tasks, self._events, strict=True)
            if task is not None and (layer_error := event.error()) is not None
        ]
        causes = [
            pair for pair in failed_tasks if not isinstance(pair[1], SkippedError | RunCancelledError)
        ] or failed_tasks
        task, layer_error = causes[0]
        if self._control is not None:  # it was stopped, perhaps
            self._control.check(task.layer, task.place)
        if isinstance(layer_error, RunCancelledError | DeadlineExceededError):
            kind, message = type(layer_error), f"layer {task.layer} on backend {task.layer.backend}: {layer_error}"
            cause: InterposerError = kind(message, layer=task.place, backend=str(task.layer.backend))
        else:
            cause = failure(task.layer, "failed", layer_error)
        cause.__cause__ = layer_error
        return cause

    def _reset(self) -> None:
        """Let the queues that have failed run again; those that cannot are destroyed."""
        for key, (queue, _) in self._last_submissions.items():
            try:
                queue.reset()
            except Exception:
                self._factories.drop_queue(key)

    def _give_up(self, error: DeviceHungError) -> None:
        """Keep everything that devices may still use, and let the backends that hang be used no more."""
        self._steps.is_hung = True
        _given_up.append((self._steps, self._factories, self._events, self._tasks))
        for (backend, _), (_, number) in self._last_submissions.items():
            if not self._events[number].done():
                self._factories.abandon(backend, str(error))

    # --- profiles -----------------------------------------------------------------------------------------------------

    def _record_ends(self, trace: RunTrace) -> None:
        """Add the times of submitted layers to a trace: from the end of what they wait for, to their own end."""
        numbers_of_queue: dict[QueueKey, list[int]] = {}
        for task in filter(None, self._tasks):
            if task.call is None and not self._ends[task.number]:
                numbers_of_queue.setdefault(task.queue, []).append(task.number)
        observers = [
            threading.Thread(target=self._observe, args=(numbers,)) for numbers in list(numbers_of_queue.values())[1:]
        ]
        for thread in observers:
            thread.start()
        for numbers in list(numbers_of_queue.values())[:1]:
            self._observe(numbers)
        for thread in observers:
            thread.join()
        for numbers in numbers_of_queue.values():
            for number, before in zip(numbers, (None, *numbers), strict=False):
                earlier = [*self._steps.earlier(number), *([] if before is None else [before])]
                begin = max([self._begins[number], *(self._ends[each] for each in earlier if self._tasks[each])])
                if end := self._ends[number]:  # the thread of another queue may have noted an earlier end late
                    trace.fields += (self._steps.sites[number], min(begin, end), end, trace.thread)

    def _observe(self, numbers: Sequence[int]) -> None:
        """Note when layers of one queue end, in their order; give up after a cancellation."""
        for number in numbers:
            while not self._events[number].done() and self._patience is None:
                with suppress(InterposerError):
                    self._events[number].wait(_GLANCE)
                if not self._events[number].done():
                    self._stop_if_late()
            if self._patience is not None:
                return
            self._ends[number] = perf_counter_ns()

    def _finish_alone(self, task: _Task) -> None:
        """Wait for a layer that was just submitted, and report its time."""
        self._await(self._events[task.number], task.layer)
        begin, end = self._begins[task.number], perf_counter_ns()
        self._ends[task.number] = end
        if self._trace is not None:
            self._trace.fields += (self._steps.sites[task.number], begin, end, self._trace.thread)
        if self._control is not None:
            self._control.ran(task.place, (end - begin) / 1e9)


def _nothing() -> None:
    """Do nothing, as for a submission that is not counted."""


class _EarlierFailureError(ExecutionError):
    """Raised where a run cannot go on, as a layer has failed that was submitted before."""

    def __init__(self) -> None:
        super().__init__("a layer has failed that was submitted before")

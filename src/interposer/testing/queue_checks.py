"""Checks of asynchronous backends: order, waits, failures, cancellation, wakes and ends of queues; and of devices."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np

from interposer.backend import Event, Queue, SkippedError, TensorHandleFactoryRegistry
from interposer.core.errors import ExecutionError, InterposerError, RunCancelledError
from interposer.core.types import Array
from interposer.ir.graph import binding_id
from interposer.ir.subgraph import is_placed_by_a_backend
from interposer.optimizer import OptimizerOptions, optimize
from interposer.plugins import BackendRegistry, DeviceSpec
from interposer.runtime import Runtime
from interposer.runtime.asynchronous import AsynchronousSteps
from interposer.runtime.loaded import LoadedNetwork
from interposer.testing.bench import Bench
from interposer.testing.contracts import grown, on_backend
from interposer.testing.outcome import Refused
from interposer.testing.progress import note
from interposer.testing.tolerances import same

__all__: list[str] = []

_PATIENCE: Final = 30.0
"""Seconds in which a submission must be over that nothing holds back."""
_SOON: Final = 5.0
"""Seconds in which `submit` and `cancel` must return, and a descriptor must become readable."""
_PAUSE: Final = 0.05
"""Seconds after which something is looked at again that must not have changed."""
_TURNS: Final = 8
_CHAIN: Final = "chain-0"


@on_backend("order", "waits", "results", "failures", "cancel", "wakes", "ends", "runs")
def queues(bench: Bench, variant: str) -> Iterator[str]:
    """Yield an error if submissions to queues do not begin and end as they must.

    Submissions of a queue run in their order, and those of different queues wait for the events that they are given.
    Results are complete when an event is over, and are not written later. What depends on a failure is skipped until
    the queue is reset. A cancellation ends what has not begun. Descriptors become readable. Queues can be destroyed in
    any order, used or not, and runs that are submitted together do not disturb each other.
    """
    if not bench.backend.asynchronous:
        raise Refused("the backend has no queues")
    note("checking queues")
    yield from dict.fromkeys(_CHECKS[variant](bench))


@on_backend("list", "each", "together")
def devices(bench: Bench, variant: str) -> Iterator[str]:
    """Yield an error if devices are described differently in a second call, differ in results, or cannot be mixed."""
    listed_devices = bench.backend.devices()
    if not listed_devices:
        raise Refused("the backend has no devices to choose from")
    yield from dict.fromkeys(_DEVICE_CHECKS[variant](bench))


# --- a network whose layers are submitted by hand ---------------------------------------------------------------------


class _Held(Event):
    """An event of the check itself, which is over when `release` is called."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._error: InterposerError | None = None
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def release(self, error: InterposerError | None = None) -> None:
        self._error = error
        self._over.set()
        os.eventfd_write(self._descriptor, 1)

    def done(self) -> bool:
        return self._over.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._over.wait(timeout)

    def error(self) -> InterposerError | None:
        return self._error if self.done() else None

    def fileno(self) -> int:
        return self._descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)


class _Job:
    """A small network on the backend under test, in memory of its own, whose layers are submitted by hand."""

    def __init__(self, bench: Bench) -> None:
        growth = grown(bench, _CHAIN)
        self.feeds, self.events = growth.feeds, list[Event]()
        self.submitting: Future[Event] | None = None
        self._later: list[Callable[[], None]] = []
        self._loaded = LoadedNetwork(bench.optimize(growth.network))
        memory = self._loaded.idle_memories[0]
        if not isinstance(memory._steps, AsynchronousSteps):
            self._loaded.release()
            raise Refused("the backend submits none of the supported samples")
        self._steps = memory._steps
        memory._factories.acquire()
        for _, handle in memory._direct.values():
            handle.allocate()  # outputs that a run would write to memory of the caller

    def fill(self, feeds: Mapping[int, Array]) -> None:
        """Set the inputs."""
        for layer in self._steps.inputs:
            self._steps.fill(layer, feeds[binding_id(layer)], {})

    def submit(self, queue: Queue, after: Sequence[Event] = ()) -> Event:
        """Submit all layers to one queue, and return the last event; the first layer waits for `after`.

        Copies that the host makes before are made now, and those after it by `outputs`.
        """
        event: Event | None = None
        self._later = []
        for task in self._steps._tasks:
            if task.call is None and not self._later:
                event = queue.submit(task.workload, task.inputs, task.outputs, [*after] if event is None else [event])
                self.events.append(event)
            elif task.call is None:
                raise Refused("the host executes a layer between two layers of the backend")
            elif event is None:
                task.call()
            else:
                self._later.append(task.call)
        assert event is not None
        return event

    def outputs(self) -> dict[int, Array]:
        """Return copies of the present outputs."""
        for call in self._later:
            call()
        return {binding_id(layer): self._copied(layer) for layer in self._steps.outputs}

    def _copied(self, layer: Any) -> Array:
        handle = self._steps.handle(layer.values[0], {})
        array = np.empty(tuple(handle.info.shape), handle.info.dtype.numpy)
        handle.copy_out(array)
        return array

    def is_over(self) -> bool:
        """Return True if all that was submitted is over, and no thread submits any more; wait for a short time."""
        if self.submitting is not None:
            wait([self.submitting], _SOON)
        is_idle = self.submitting is None or self.submitting.done()
        return is_idle and all([_is_over(event, _SOON) for event in self.events])

    def destroy(self) -> None:
        """Free the memory; nothing that was submitted uses it any more."""
        self._steps.forget()
        self._loaded.release()


def _changed(feeds: Mapping[int, Array]) -> dict[int, Array]:
    """Return inputs in another order of their elements, so that the results differ."""
    return {key: array.reshape(-1)[::-1].reshape(array.shape).copy() for key, array in feeds.items()}


@contextmanager
def _scene(bench: Bench, num_jobs: int, num_queues: int) -> Iterator[tuple[list[_Job], list[Queue]]]:
    """Give some jobs and queues, which are ended when everything in them is over; what hangs is left as it is.

    An error of the check is reported rather than those that follow from it at the end.
    """
    jobs: list[_Job] = []
    queues: list[Queue] = []
    try:
        for _ in range(num_jobs):
            jobs.append(_Job(bench))
        queues += [bench.backend.create_queue(bench.settings.options) for _ in range(num_queues)]
        yield jobs, queues
    except BaseException:
        with suppress(InterposerError):
            _end(jobs, queues)
        raise
    _end(jobs, queues)


def _end(jobs: Sequence[_Job], queues: Sequence[Queue]) -> None:
    for queue in queues:
        with suppress(InterposerError):
            queue.cancel()
    if not all([job.is_over() for job in jobs]):
        return
    ends: list[_Job | Queue] = [*jobs, *queues]
    with ExitStack() as stack:
        for end in ends:  # from the last one on: queues before what they use
            stack.callback(end.destroy)


def _is_over(event: Event, seconds: float = _PATIENCE) -> bool:
    with suppress(InterposerError):
        event.wait(seconds)
    return event.done()


def _require_end(event: Event, what: str) -> None:
    """Raise `ExecutionError` unless an event is over within the time, and well."""
    try:
        is_over = event.wait(_PATIENCE)
    except InterposerError as error:
        raise ExecutionError(f"{what} ended with {_shown(error)}") from error
    if not is_over:
        raise ExecutionError(f"{what} is not over after {_PATIENCE:g} seconds")


def _shown(error: object) -> str:
    return f"{type(error).__name__}: {error}"


def _difference(found_arrays: Mapping[int, Array], expected: Mapping[int, Array]) -> str | None:
    """Return how results differ from those of another run, or None."""
    wrong_keys = [key for key, array in expected.items() if not same(found_arrays[key], array)]
    if not wrong_keys:
        return None
    key = wrong_keys[0]
    return f"output {key} begins with {found_arrays[key].reshape(-1)[:4]}; expected {expected[key].reshape(-1)[:4]}"


def _expected(bench: Bench, feeds: Mapping[int, Array]) -> dict[int, Array]:
    """Return the results of a run without queues."""
    optimized = bench.optimize(grown(bench, _CHAIN).network)
    vars(optimized.backends[bench.backend.id])["asynchronous"] = False  # of the wrapper that belongs to the bench
    with bench.loaded(optimized) as loaded_network:
        return loaded_network.run(feeds)


def _held_back(job: _Job, queue: Queue, held_event: _Held) -> Event:
    """Submit a job that waits for `held_event`.

    Raises:
        ExecutionError: `submit` waits too.
        Refused: the backend does not claim to wait for events that are not its own.
    """
    if not queue.takes_all_events:
        raise Refused("submit waits for events of others, as the backend can neither wait for gates nor for timelines")
    submitted_event = job.submitting = Future()
    threading.Thread(target=_settle, args=(submitted_event, job, queue, held_event), daemon=True).start()
    try:
        return submitted_event.result(_SOON)
    except TimeoutError:
        held_event.release()
        raise ExecutionError("submit waited for the events that it was given") from None


def _settle(submitted_event: Future[Event], job: _Job, queue: Queue, held_event: _Held) -> None:
    try:
        submitted_event.set_result(job.submit(queue, [held_event]))
    except BaseException as error:
        submitted_event.set_exception(error)


# --- the checks -------------------------------------------------------------------------------------------------------


def _order(bench: Bench) -> Iterator[str]:
    errors: list[str] = []
    with _scene(bench, 2, 1) as ((first, second), [queue]):
        first.fill(first.feeds)
        second.fill(_changed(second.feeds))
        events = [(first if turn % 2 else second).submit(queue) for turn in range(_TURNS)]
        end = time.monotonic() + _PATIENCE
        while not events[-1].done() and not errors and time.monotonic() < end:
            states = [event.done() for event in events]
            if states != sorted(states, reverse=True):
                errors.append(f"submissions were over in another order: {states}")
            _is_over(events[-1], _PAUSE / 10)
        for number, event in enumerate(events):
            _require_end(event, f"submission {number + 1}")
        held_event = _Held()
        slow_event, fast_event = _held_back(first, queue, held_event), second.submit(queue)
        time.sleep(_PAUSE)
        if fast_event.done():
            errors.append("a submission was over before an earlier one of its queue")
        held_event.release()
        _require_end(slow_event, "a submission whose wait is over")
        _require_end(fast_event, "the submission after it")
        yield from errors


def _waits(bench: Bench) -> Iterator[str]:
    errors: list[str] = []
    with _scene(bench, 2, 2) as ((first, second), (first_queue, second_queue)):
        changed_feeds = _changed(first.feeds)
        expected = _expected(bench, changed_feeds)
        first.fill(changed_feeds)
        second.fill(changed_feeds)
        held_event = _Held()
        held_submission = _held_back(first, first_queue, held_event)
        later_submission = second.submit(second_queue, [held_submission])
        time.sleep(_PAUSE)
        if held_submission.done() or later_submission.done():
            errors.append("a submission was over before an event that it waits for")
        held_event.release()
        _require_end(held_submission, "a submission whose wait is over")
        _require_end(later_submission, "a submission to another queue that waits for it")
        for job in (first, second):
            difference = _difference(job.outputs(), expected)
            if difference:
                errors.append(f"after waits, {difference}")
        yield from errors
    with _scene(bench, 2, 1) as ((first, second), [queue]):
        first.fill(first.feeds)
        second.fill(second.feeds)
        ended_queue = bench.backend.create_queue(bench.settings.options)
        held_event, last_held = _Held(), _Held()
        awaited_submission = _held_back(first, ended_queue, held_event)
        _held_back(second, queue, last_held)
        dependent_submission = second.submit(queue, [awaited_submission])
        held_event.release()
        _require_end(awaited_submission, "a submission whose wait is over")
        ended_queue.destroy()
        last_held.release()
        _require_end(
            dependent_submission, "a submission that waits for one of a queue that was destroyed when it was over"
        )


def _results(bench: Bench) -> Iterator[str]:
    with _scene(bench, 1, 1) as ([job], [queue]):
        variants = [job.feeds, _changed(job.feeds)]
        expected = [_expected(bench, feeds) for feeds in variants]
        for turn in range(_TURNS):
            job.fill(variants[turn % 2])
            event = job.submit(queue)
            _require_end(event, "a submission")
            difference = _difference(job.outputs(), expected[turn % 2])
            if difference:
                yield f"when its event was over, {difference}"
            time.sleep(_PAUSE)
            if _difference(job.outputs(), expected[turn % 2]) and not difference:
                yield "an output has changed after its event was over"


def _failures(bench: Bench) -> Iterator[str]:
    errors: list[str] = []
    with _scene(bench, 2, 2) as ((first, second), (first_queue, second_queue)):
        changed_feeds = _changed(first.feeds)
        expected_before, expected = _expected(bench, first.feeds), _expected(bench, changed_feeds)
        first.fill(first.feeds)
        _require_end(first.submit(first_queue), "a submission")
        first.fill(changed_feeds)
        second.fill(changed_feeds)
        held_event = _Held()
        failing_event = _held_back(first, first_queue, held_event)
        dependents = {
            "after it in its queue": first.submit(first_queue),
            "that waits for it": second.submit(second_queue, [failing_event]),
        }
        held_event.release(ExecutionError("an error of the check"))
        for what, event in {"that waits for it": failing_event, **dependents}.items():
            yield from _skipped(event, what)
        if _difference(first.outputs(), expected_before):
            errors.append("a submission was run although what it waits for had failed")
        for queue, job in ((first_queue, first), (second_queue, second)):
            queue.reset()
            _require_end(job.submit(queue), "a submission after reset")
            difference = _difference(job.outputs(), expected)
            if difference:
                errors.append(f"after a failure and reset, {difference}")
        yield from errors


def _skipped(event: Event, what: str) -> Iterator[str]:
    if not _is_over(event):
        yield f"after a failure, the submission {what} is not over after {_PATIENCE:g} seconds"
        return
    error = event.error()
    if not isinstance(error, SkippedError):
        yield f"after a failure, the submission {what} ended with {_shown(error)}; expected SkippedError"
    elif not str(error).strip() or "without a message" in str(error):
        yield f"after a failure, the error of the submission {what} does not say what failed"


def _cancel(bench: Bench) -> Iterator[str]:
    errors: list[str] = []
    with _scene(bench, 1, 1) as ([job], [queue]):
        job.fill(job.feeds)
        held_event = _Held()
        events = [_held_back(job, queue, held_event), job.submit(queue)]
        begin = time.monotonic()
        queue.cancel()
        if time.monotonic() - begin > _SOON:
            errors.append("cancel waited")
        for event in events:
            if not _is_over(event, _SOON):
                errors.append("after cancel, a submission that had not begun is not over")
                held_event.release()
                _is_over(event)
            elif not isinstance(event.error(), RunCancelledError | SkippedError):
                errors.append(f"a cancelled submission ended with {_shown(event.error())}; expected RunCancelledError")
        held_event.release()
        queue.reset()
        _require_end(job.submit(queue), "a submission after cancel and reset")
        if _difference(job.outputs(), _expected(bench, job.feeds)):
            errors.append("after cancel and reset, the results are wrong")
        yield from errors


def _wakes(bench: Bench) -> Iterator[str]:
    errors: list[str] = []
    with _scene(bench, 1, 1) as ([job], [queue]):
        job.fill(job.feeds)
        held_event = _Held()
        event = _held_back(job, queue, held_event)
        descriptor = event.fileno()
        if descriptor is None:
            raise Refused("the events have no descriptors")
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if event.done():
            errors.append("a submission was over before an event that it waits for")
        held_event.release()
        _require_end(event, "a submission whose wait is over")
        if not poll.poll(1000 * _SOON):
            errors.append(f"the descriptor of an event is not readable {_SOON:g} seconds after its end")
        if not event.wait(0):
            errors.append("an event that was over is not over any more")
        yield from errors


def _ends(bench: Bench) -> Iterator[str]:
    unused_queue = bench.backend.create_queue(bench.settings.options)
    unused_queue.destroy()
    queues = [bench.backend.create_queue(bench.settings.options) for _ in range(3)]
    jobs = [_Job(bench) for _ in queues]
    for queue, job in zip(queues, jobs, strict=True):
        job.fill(job.feeds)
        _require_end(job.submit(queue), "a submission")
    ends: list[Queue | _Job] = [queues[1], jobs[0], queues[2], jobs[2], queues[0], jobs[1]]
    for end in ends:
        end.destroy()
    network = grown(bench, _CHAIN).network
    expected = _expected(bench, grown(bench, _CHAIN).feeds)
    optimized = bench.optimize(network)
    for _ in range(_TURNS):
        number = bench.runtime.load_network(optimized)
        run = bench.runtime.submit(number, grown(bench, _CHAIN).feeds)
        bench.runtime.unload_network(number)
        with suppress(ExecutionError):  # it had not begun yet
            if _difference(run.result(_PATIENCE), expected):
                yield "a run has wrong results while its network is unloaded"


def _runs(bench: Bench) -> Iterator[str]:
    growth = grown(bench, _CHAIN)
    variants = [growth.feeds, _changed(growth.feeds)]
    expected = [_expected(bench, feeds) for feeds in variants]
    with bench.loaded(bench.optimize(growth.network)) as loaded_network:
        runs = [loaded_network.runtime.submit(loaded_network.id, variants[turn % 2]) for turn in range(2 * _TURNS)]
        for turn, run in enumerate(runs):
            difference = _difference(run.result(_PATIENCE), expected[turn % 2])
            if difference:
                yield f"while several runs were in progress, {difference}"


_CHECKS: Final[dict[str, Callable[[Bench], Iterator[str]]]] = {
    "order": _order, "waits": _waits, "results": _results, "failures": _failures, "cancel": _cancel, "wakes": _wakes,
    "ends": _ends, "runs": _runs,
}  # fmt: skip


# --- devices ----------------------------------------------------------------------------------------------------------


def _list(bench: Bench) -> Iterator[str]:
    first, second = bench.backend.devices(), bench.backend.devices()
    if [replace(device, memory_free=0) for device in first] != [replace(device, memory_free=0) for device in second]:
        yield "the devices are described differently in a second call"
    if [device.index for device in first] != list(range(len(first))):
        yield f"the devices have the numbers {[device.index for device in first]}; expected 0 to {len(first) - 1}"
    if len({device.id for device in first}) < len(first) or not all(device.id for device in first):
        yield f"the devices have the ids {[device.id for device in first]}; expected different ones"
    for device in first:
        if device.memory_free > device.memory > 0:
            yield f"device {device.index} has {device.memory_free:,} bytes free of {device.memory:,}"


def _on_devices(bench: Bench, ids: Sequence[str], hints: Mapping[str, str]) -> dict[int, Array]:
    """Return the results of a small network on some devices of the backend."""
    registry = BackendRegistry()
    registry.register(bench.backend.id, lambda: bench.backend)
    growth = grown(bench, _CHAIN)
    model_options = {name: bench.settings.options for name in ids} if bench.settings.options else {}
    options = OptimizerOptions(rewrite=False, hints=hints, model_options=model_options)
    with Runtime() as runtime:
        number = runtime.load_network(optimize(growth.network, ids, DeviceSpec(registry), options))
        return runtime.enqueue_workload(number, growth.feeds)


def _each(bench: Bench) -> Iterator[str]:
    names = [f"{bench.backend.id}:{device.index}" for device in bench.backend.devices()]
    expected = _on_devices(bench, [bench.backend.id], {})
    for name in names:
        difference = _difference(_on_devices(bench, [name], {}), expected)
        if difference:
            yield f"on {name}, {difference}"
    yield from _shared_memory(bench)


def _shared_memory(bench: Bench) -> Iterator[str]:
    """Yield an error if two devices have a tensor handle factory with the same id."""
    owner_of: dict[str, int] = {}
    for device in bench.backend.devices():
        backend = bench.backend.on_device(device.index, f"{bench.backend.id}:{device.index}")
        registry = TensorHandleFactoryRegistry()
        backend.register_tensor_handle_factories(registry, bench.settings.options)
        for factory in registry:
            other_index = owner_of.setdefault(factory.id, device.index)
            if other_index != device.index:
                yield f"devices {other_index} and {device.index} both have the tensor handle factory {factory.id!r}"


def _together(bench: Bench) -> Iterator[str]:
    names = [f"{bench.backend.id}:{device.index}" for device in bench.backend.devices()]
    if len(names) < 2:
        raise Refused("the backend has only one device here")
    layers = [layer.name for layer in grown(bench, _CHAIN).network.graph if is_placed_by_a_backend(layer)]
    hints = {name: names[number % 2] for number, name in enumerate(layers)}
    difference = _difference(_on_devices(bench, names[:2], hints), _on_devices(bench, [bench.backend.id], {}))
    if difference:
        yield f"with layers on {names[0]} and {names[1]} in turn, {difference}"


_DEVICE_CHECKS: Final[dict[str, Callable[[Bench], Iterator[str]]]] = {
    "list": _list, "each": _each, "together": _together,
}  # fmt: skip

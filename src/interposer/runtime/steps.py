"""`Steps`: one program with the tensors of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from time import perf_counter, perf_counter_ns
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from interposer.backend import ArrayHandle, TensorHandle, Workload
from interposer.backend.workload import prepare_recording_of
from interposer.core.errors import (
    DeadlineExceededError,
    ExecutionError,
    InterposerError,
    InvalidValueError,
    LimitExceededError,
    LoadError,
    RunCancelledError,
    error_text,
)
from interposer.core.room import current_room, temporarily
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ir.regions import region_title
from interposer.ir.states import direct_sinks
from interposer.ops.control import Constant
from interposer.profiling.events import Site
from interposer.profiling.marks import active_marks, call_marked
from interposer.profiling.recorder import Chain, RunTrace, on_this_thread
from interposer.runtime.control import ControlWorkload, control_workload
from interposer.runtime.factories import Factories, backend_of, constant_of, guarded
from interposer.runtime.late import LateHandles, LateStep
from interposer.runtime.owned import OwnedHandles
from interposer.runtime.program import Program
from interposer.runtime.runs import RunControl, Workers
from interposer.runtime.step import Step

__all__ = ["BoundSteps", "Steps", "failure", "guarded_view"]

_Call: TypeAlias = tuple[Callable[[Any, Any], None], Any, Any]


class BoundSteps(NamedTuple):
    """Functions that run all layers of a network once, on handles that are bound to them.

    `traced` also adds the times of the layers to the trace of the run: to those of `chain`, unless it is None.
    """

    run: Callable[[], None]
    traced: Callable[[RunTrace], None]
    chain: Callable[[], Chain] | None


class Steps:
    """The layers of a program in execution order, with handles for their tensors.

    For a region, `owner_path` is the name of its layer with the names of outer regions. `enter` fills the inputs that
    are the same in every iteration, and `run` runs the region once with the remaining inputs. Inputs that no layer
    reads are left out. Not thread-safe; with `workers`, branches on different backends run concurrently. `trace` is
    that of the current run, if it is recorded.

    Raises:
        LoadError: a backend could not create a handle.
    """

    is_hung = False
    """True if a device did not end the last run, so that the memory is never used again."""

    def __init__(
        self, program: Program, factories: Factories, workers: Workers | None = None, owner_path: str = ""
    ) -> None:
        self.program, self._factories, self._workers = program, factories, workers
        self._owner_path, self._prefix = owner_path, f"{owner_path}/{self.title}/" if owner_path else ""
        self._control: RunControl | None = None
        self.trace: RunTrace | None = None
        self._sites: list[Site] = []
        self.inputs, self.outputs = program.graph.sources, program.graph.sinks
        self.handles: dict[Value, TensorHandle] = {}
        self.imported: set[Value] = set()
        self._borrowing: list[TensorHandle] = []
        self._regions: dict[Layer, tuple[ControlWorkload, Sequence[Steps]]] = {}
        self._captured: LateHandles = {}
        self._make_handles()
        self._unguarded = {value for value in self.imported if self._is_safe(value)}
        self._calls = [self._call(layer) for layer in program.running]

    @property
    def title(self) -> str:
        """The name of the region."""
        graph = self.program.graph
        owner = graph.owner
        assert owner is not None
        return next(region_title(owner, i) for i, region in enumerate(owner.regions) if region is graph)

    @property
    def only_step(self) -> Step | None:
        """The step of the only layer that runs, if no tensor needs memory of its own; else None.

        All inputs and outputs of the layer are then those of the network, and can be in memory of the caller. Shapes of
        outputs may depend on data, and several outputs of the network may be the same one of the layer.
        """
        program = self.program
        if len(program.running) != 1 or self._regions or program.layout.pieces:
            return None
        [layer] = program.running
        own_step, inputs_read = program.step(layer), [input_layer.output for input_layer in self.inputs]
        step = own_step.ready_step() if isinstance(own_step, LateStep) else own_step
        outputs_written = [output.values[0] for output in direct_sinks(program.graph)]
        writes_only_outputs = set(map(id, outputs_written)) == set(map(id, layer.outputs))
        read_values = {value for value in layer.inputs if value is not None}
        borrowed_values = self.imported | program.shaped_by_data
        is_borrowed = borrowed_values.issuperset((*inputs_read, *outputs_written)) and read_values.issubset(inputs_read)
        return step if step and writes_only_outputs and is_borrowed and not step.takes_turns else None

    # --- making -------------------------------------------------------------------------------------------------------

    def _make_handles(self) -> None:
        pieces = self.program.layout.pieces
        for layer in self.program.order:
            for value in layer.outputs if not isinstance(layer.op, Constant) else ():
                if self._is_fixed(value) and value not in pieces and not self.program.is_idle(value):
                    is_managed = not self._may_borrow(value)
                    self.handles[value] = self._factories.handle(layer, value, managed=is_managed)
        for value in pieces:
            self._make_piece(value)
        if self.program.graph.owner is None:
            at_border = (value for value in self.program.layout.border if value in self.handles)
            self.imported = {value for value in at_border if self.handles[value].imports and self._may_borrow(value)}
            guests = (value for value in self.program.layout.guests if value in self.handles)
            borrowing = self.imported | {guest for guest in guests if self.program.layout.root(guest) in self.imported}
            self._borrowing = [self.handles[value] for value in borrowing]

    def _may_borrow(self, value: Value) -> bool:
        """Return True for an input or output of the network that may be in the caller's memory."""
        at_border = self.program.graph.owner is None and value in self.program.layout.border
        return at_border and self._factories.forbidden(value) is None

    def _is_safe(self, value: Value) -> bool:
        """Return True if no layer that reads a tensor writes to its memory.

        The caller's array then needs no guard against writing.
        """
        plain = value not in self.program.layout.wholes
        return plain and all(self.program.only_reads(layer) for layer in value.consumers)

    def _make_piece(self, value: Value, owned_handles: OwnedHandles | None = None) -> TensorHandle:
        """Return the handle of a value that is stored inside another tensor, and create the handles that are missing.

        The new handles are added to `owned_handles`; None means the handles of these steps.
        """
        if value in self.handles:
            return self.handles[value]
        piece = self.program.layout.pieces[value]
        whole_handle = self._make_piece(piece.whole, owned_handles)
        info = value.known.with_constant(None)
        handle = self._factories.sub_tensor(
            piece.whole, whole_handle, piece.origin, info, owned_handles or self._factories.handles
        )
        if handle is None:
            raise LoadError(
                f"backend {value.producer.backend} makes no sub-tensor of {whole_handle.info} for {value.name!r}"
            )
        self.handles[value] = handle
        return handle

    def _is_fixed(self, value: Value) -> bool:
        return value not in self.program.shaped_by_data

    def _call(self, layer: Layer) -> _Call:
        step = self._step(layer)
        if isinstance(step, LateStep):
            fixed_handles = {value: self._input(layer, value) for value in layer.values if self._is_fixed(value)}
            fixed_handles |= {value: self.handles[value] for value in layer.outputs if self._is_fixed(value)}
            return step.execute, fixed_handles, None
        inputs = tuple(None if value is None else self._input(layer, value) for value in layer.inputs)
        return step.execute, inputs, tuple(self.handles[value] for value in layer.outputs)

    def bound(self, imported_handles: Mapping[Value, TensorHandle], owned: OwnedHandles) -> BoundSteps | None:
        """Return functions that run all layers once, with `imported_handles` and new handles for their pieces.

        The new handles are added to `owned`. The functions may be called repeatedly while all memory stays in place,
        and raise `ExecutionError` if a layer fails. The result is None if a shape depends on data, a layer has regions,
        or a tensor imports the memory of another one.
        """
        program = self.program
        if program.shaped_by_data or self._regions or program.layout.guests:
            return None
        own_handles = self.handles
        roots = {value: program.layout.root(value) for value in program.layout.pieces}
        self.handles = {
            value: handle for value, handle in own_handles.items() if roots.get(value) not in imported_handles
        } | {**imported_handles}
        try:
            for value, root in roots.items():
                if root in imported_handles:
                    self._make_piece(value, owned)
            return self._bound_steps()
        finally:
            self.handles = own_handles

    def _bound_steps(self) -> BoundSteps:
        """Return functions that run all layers once on the present handles."""
        program = self.program
        calls = [self._bound(layer) for layer in program.running]
        if program.flow is None or self._workers is None:
            traced_call = partial(self._call_all_traced, calls)
            return BoundSteps(partial(self._call_all, calls), traced_call, lambda: self.bound_chain)
        run = partial(program.flow.run, partial(self._call_one, calls), self._workers.help)
        return BoundSteps(run, partial(self._call_flow_traced, calls), None)

    def _call_all_traced(self, calls: Sequence[Callable[[], None]], trace: RunTrace) -> None:
        clock, times = perf_counter_ns, trace.times
        append_time = times.append
        try:
            for call in self._marked(calls) if active_marks else calls:
                call()
                append_time(clock())
        except Exception as error:
            finished = len(times) - 1
            append_time(clock())
            raise failure(self.program.running[finished], "failed", error) from error

    def _call_flow_traced(self, calls: Sequence[Callable[[], None]], trace: RunTrace) -> None:
        assert self.program.flow is not None
        assert self._workers is not None

        def work(number: int) -> None:
            with on_this_thread(trace):
                begin = perf_counter_ns()
                try:
                    self._call_one(calls, number)
                finally:
                    trace.add(self.sites[number], begin)

        self.program.flow.run(work, self._workers.help)

    def tensors(self) -> Iterator[tuple[str, str, TensorHandle]]:
        """Yield the layer, the name and the handle of each tensor, including those of regions."""
        for value, handle in self.handles.items():
            yield f"{self._prefix}{value.producer.name}", value.name, handle
        for _, regions in self._regions.values():
            for region in regions:
                yield from region.tensors()

    @property
    def is_chain(self) -> bool:
        """True if the layers run one after the other on one thread."""
        return self.program.flow is None or self._workers is None

    @cached_property
    def chain(self) -> Chain:
        """The sites of runs with the caller's tensors, for recorders."""
        sites = self.program.sites
        return Chain(sites.run, sites.execute, sites.fill, self.sites, sites.give)

    @cached_property
    def bound_chain(self) -> Chain:
        """The sites of runs on imported memory, for recorders."""
        sites = self.program.sites
        return Chain(sites.run, sites.execute, None, self.sites, sites.give)

    def prepare_recording(self) -> None:
        """Create what only recorded runs need; called before each of them, so that its times do not contain this."""
        _ = self.sites
        for prepare in self._preparations:
            prepare()

    @cached_property
    def _preparations(self) -> list[Callable[[], None]]:
        """What to call before each recorded run: see `Workload.prepare_recording`."""
        own_steps = map(self.program.step, (layer for layer in self.program.running if layer not in self._regions))
        workloads = [step.workload for step in own_steps if step.workload is not None]
        regions = [region for _, regions in self._regions.values() for region in regions]
        overriding = [
            workload for workload in workloads if type(workload).prepare_recording is not Workload.prepare_recording
        ]
        own_preparations = [partial(prepare_recording_of, workload) for workload in overriding]
        return [*own_preparations, *(region.prepare_recording for region in regions)]

    @property
    def sites(self) -> list[Site]:
        """The sites of the layers, in running order, for recorders."""
        if not self._sites:
            program = self.program
            self._sites = [program.sites.layer(layer, f"{self._prefix}{layer.name}") for layer in program.running]
        return self._sites

    def _call_all(self, calls: Sequence[Callable[[], None]]) -> None:
        calls = self._marked(calls) if active_marks else calls
        try:
            for call in calls:
                call()
        except Exception as error:
            raise failure(self.program.running[calls.index(call)], "failed", error) from error

    def _call_one(self, calls: Sequence[Callable[[], None]], number: int) -> None:
        calls = self._marked(calls) if active_marks else calls
        try:
            calls[number]()
        except Exception as error:
            raise failure(self.program.running[number], "failed", error) from error

    def _mark_of(self, layer: Layer) -> str:
        """Return the name of a layer for `Marks`."""
        return f"{self._prefix}{layer.name} ({layer.backend})"

    def _marked_calls(self) -> list[_Call]:
        """Return the calls of all layers, whose times are marked."""
        layers_and_calls = zip(self.program.running, self._calls, strict=True)
        return [
            (partial(call_marked, self._mark_of(layer), call), *arguments)
            for layer, (call, *arguments) in layers_and_calls
        ]

    def _marked(self, calls: Sequence[Callable[[], None]]) -> list[Callable[[], None]]:
        layers_and_calls = zip(self.program.running, calls, strict=True)
        return [partial(call_marked, self._mark_of(layer), call) for layer, call in layers_and_calls]

    def _bound(self, layer: Layer) -> Callable[[], None]:
        step = self.program.step(layer)
        assert isinstance(step, Step)
        inputs = tuple(None if value is None else self._input(layer, value) for value in layer.inputs)
        return step.prepare(inputs, tuple(self.handles[value] for value in layer.outputs))

    def _step(self, layer: Layer) -> Step | LateStep:
        if layer not in self.program.regions:
            return self.program.step(layer)
        owner_path = f"{self._prefix}{layer.name}"
        regions = [Steps(region, self._factories, owner_path=owner_path) for region in self.program.regions[layer]]
        workload = control_workload(layer.op, regions)  # type: ignore[arg-type]
        self._regions[layer] = workload, regions
        is_late = self.program.is_late(layer)
        return LateStep(layer, self._factories.of(layer), workload) if is_late else Step.of(layer, workload)

    def _input(self, layer: Layer, value: Value) -> TensorHandle:
        return self._factories.constant(layer, value) if value.is_constant else self.handles[value]

    def plan_memory(self) -> None:
        """Notify every handle, in execution order, when the lifetime of its tensor begins and ends.

        Tensors at the network's border that can be in the caller's memory are not planned. The memory of a region is
        planned at the moment of its layer; its inputs stay alive as long as the region may run again.
        """
        self._begin_inputs()
        self._plan_layers()

    def _begin_inputs(self) -> None:
        for value in self.program.layout.values_beginning_at[0]:
            self._begin(value)

    def _plan_layers(self) -> None:
        layout, order = self.program.layout, self.program.order
        values_by_moment = zip(layout.values_beginning_at, layout.values_ending_at, strict=True)
        for number, (values_beginning, values_ending) in enumerate(values_by_moment):
            for value in values_beginning if number else ():
                self._begin(value)
            _plan_regions(self._regions_of(order[number - 1]) if 0 < number <= len(order) else ())
            for value in values_ending:
                self._end(value)

    def _end_inputs(self) -> None:
        for value in self.program.layout.values_beginning_at[0]:
            self._end(value)

    def _regions_of(self, layer: Layer) -> Sequence[Steps]:
        return self._regions[layer][1] if layer in self._regions else ()

    def _begin(self, value: Value) -> None:
        if value not in self.imported:
            guarded(value.producer, "got no memory", lambda: self._begin_handle(value))

    def _begin_handle(self, value: Value) -> None:
        handle, source = self.handles[value], self.program.layout.in_place.get(value)
        if source is None or not handle.share(self.handles[source]):
            handle.manage()

    def _end(self, value: Value) -> None:
        if value not in self.imported:
            guarded(value.producer, "got no memory", self.handles[value].allocate)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def fill(self, layer: Layer, array: Array, late_handles: LateHandles) -> None:
        """Set the input of the graph that `layer` stands for to an array of the caller, in place if possible.

        If the input's shape is only known now, a handle over the array is added to `late_handles`, the handles of such
        tensors in this run.

        Raises:
            ExecutionError: the backend's handle could not copy the array.
        """
        value = layer.output
        handle = self.handles.get(value)
        if handle is None:
            if value in self.program.shaped_by_data:
                unaliased = array.copy() if self._factories.forbidden(value) else array
                late_handles[value] = ArrayHandle(value.known.with_shape(array.shape), unaliased)
            return
        try:
            if value not in self.imported:
                handle.copy_in(array)
            elif not handle.import_memory(array if value in self._unguarded else guarded_view(array)):
                handle.allocate()
                handle.copy_in(array)
        except Exception as error:
            raise failure(layer, "could not take in its data", error) from error

    def execute(self, late_handles: LateHandles, control: RunControl | None = None) -> None:
        """Run all layers once, on inputs that `fill` has set.

        `late_handles` has the handles of tensors whose shapes are only known during this run; those of computed tensors
        are added.

        Raises:
            ExecutionError: a layer failed, or `control` stopped the run.
        """
        self._watch_regions(control)
        if self.trace is not None:
            self._execute_traced(self.trace, late_handles, control)
            return
        if self.program.flow is not None and self._workers is not None:
            execute_layer = self._execute_one if control is None else partial(self._execute_watched, control)
            self.program.flow.run(lambda number: execute_layer(number, late_handles), self._workers.help)
            return
        if control is not None:
            for number in range(len(self._calls)):
                self._execute_watched(control, number, late_handles)
            return
        num_finished = 0
        try:
            for call, inputs, outputs in self._marked_calls() if active_marks else self._calls:
                call(inputs, late_handles if outputs is None else outputs)
                num_finished += 1
        except Exception as error:
            raise failure(self.program.running[num_finished], "failed", error) from error

    def _watch_regions(self, control: RunControl | None) -> None:
        for workload, regions in self._regions.values():
            workload.watch(control)
            for region in regions:
                region.trace = self.trace

    def _execute_traced(self, trace: RunTrace, late_handles: LateHandles, control: RunControl | None) -> None:
        """Run all layers once, and add their times to a trace."""
        if self.program.flow is not None and self._workers is not None:
            execute_layer = self._execute_one if control is None else partial(self._execute_watched, control)
            self.program.flow.run(
                lambda number: self._time(trace, number, execute_layer, late_handles), self._workers.help
            )
        elif control is not None:
            for number in range(len(self._calls)):
                self._time(trace, number, partial(self._execute_watched, control), late_handles)
        else:
            times = [perf_counter_ns()]
            try:
                self._execute_timed(times, late_handles)
            finally:
                trace.add_chain(self.sites, times)

    def _time(
        self, trace: RunTrace, number: int, execute: Callable[[int, LateHandles], None], late_handles: LateHandles
    ) -> None:
        with on_this_thread(trace):
            begin = perf_counter_ns()
            try:
                execute(number, late_handles)
            finally:
                trace.add(self.sites[number], begin)

    def execute_chain(self, trace: RunTrace, late_handles: LateHandles) -> None:
        """Run all layers once on this thread, as `execute` does, and add their ends to the times of a trace."""
        if self._regions:
            self._watch_regions(None)
        self._execute_timed(trace.times, late_handles)

    def _execute_timed(self, times: list[int], late_handles: LateHandles) -> None:
        """Run all layers on this thread, and add the end of each; that of one is the begin of the next, which is fast.

        The last one of the times is the begin of the first layer.
        """
        clock, append_time, earlier_times = perf_counter_ns, times.append, len(times)
        try:
            for execute, inputs, outputs in self._marked_calls() if active_marks else self._calls:
                execute(inputs, late_handles if outputs is None else outputs)
                append_time(clock())
        except Exception as error:
            finished = len(times) - earlier_times
            append_time(clock())
            raise failure(self.program.running[finished], "failed", error) from error

    def _execute_watched(self, control: RunControl, number: int, late_handles: LateHandles) -> None:
        layer = self.program.running[number]
        place = f"{self._prefix}{layer.name}"
        control.check(layer, place)
        start = perf_counter()
        self._execute_one(number, late_handles)
        control.ran(place, perf_counter() - start)
        control.leave()

    def _execute_one(self, number: int, late_handles: LateHandles) -> None:
        layer, (execute, inputs, outputs) = self.program.running[number], self._calls[number]
        if active_marks:
            execute = partial(call_marked, self._mark_of(layer), execute)
        try:
            execute(inputs, late_handles if outputs is None else outputs)
        except (RunCancelledError, DeadlineExceededError):
            raise
        except Exception as error:
            raise failure(layer, "failed", error) from error

    def forget(self) -> None:
        """Drop the references to the caller's memory."""
        for handle in self._borrowing:
            handle.forget_memory()

    def handle(self, value: Value, late_handles: Mapping[Value, TensorHandle]) -> TensorHandle:
        """Return the handle of a value that is not a constant; `late_handles` has those that this run has created."""
        return late_handles[value] if value in late_handles else self.handles[value]

    def watch(self, control: RunControl | None) -> None:
        """Let `control` stop the following runs of a region; None removes the control."""
        self._control = control

    def enter(self, captured: Mapping[int, Array]) -> None:
        """Set the inputs of a region, by binding id, that stay the same in all runs until the next `enter`."""
        self._captured = {}
        for index, array in captured.items():
            self._fill_checked(index, array, self._captured)

    def leave(self) -> None:
        """Drop the inputs that `enter` set."""
        self._captured = {}

    def run(self, arrays: Sequence[Array], first: int = 0) -> list[Array]:
        """Run a region once and return its outputs; `arrays` are the inputs with binding ids from `first` on.

        Raises:
            ExecutionError: a layer failed, an input does not fit, or the run was stopped.
        """
        owner = self.program.graph.owner
        if self._control is not None and owner is not None:
            self._control.check(owner, self._owner_path)
        current_room().compute(self.program.operations)
        late_handles = dict(self._captured)
        for index, array in enumerate(arrays, first):
            self._fill_checked(index, array, late_handles)
        with temporarily():
            self.execute(late_handles, self._control)
        return [self._output_array(layer, late_handles) for layer in self.outputs]

    def _fill_checked(self, index: int, array: Array, late_handles: LateHandles) -> None:
        layer = self.inputs[index]
        expected = layer.output.known
        if not expected.shape.accepts(TensorInfo(array.shape).shape):
            raise InvalidValueError(
                f"layer {layer} takes {expected}, but gets a tensor of shape {list(array.shape)}", layer=layer.name
            )
        self.fill(layer, array, late_handles)

    def _output_array(self, layer: Layer, late_handles: LateHandles) -> Array:
        [value] = layer.values
        if value.is_constant:
            return constant_of(value)
        with self.handle(value, late_handles).mapped() as array:
            return array if value in late_handles else np.array(array)


def _plan_regions(regions: Sequence[Steps]) -> None:
    """Plan the memory of all regions of a control flow layer, at the moment at which the layer runs.

    The inputs of all regions are alive while any of them runs.
    """
    for region in regions:
        region._begin_inputs()
    for region in regions:
        region._plan_layers()
    for region in regions:
        region._end_inputs()


def guarded_view(array: Array) -> Array:
    """Return a read-only view of the array, as a guard against accidental writes."""
    view = array.view()
    view.setflags(write=False)
    return view


def failure(layer: Layer, failure_text: str, error: Exception) -> InterposerError:
    """Return the error of a run for a layer whose run or memory failed with `error`.

    This is an `ExecutionError`; if the values of the inputs are the cause, an `InvalidValueError` or a
    `LimitExceededError`, which no backend is blamed for. `failure_text` follows the name of the layer in the message,
    such as "failed". If the layer failed inside a region, the error names the inner layer too.
    """
    if isinstance(error, LimitExceededError):
        return LimitExceededError(error.what, error.needed, error.limit, "", f"layer {layer}: {error}")
    inner_layer = error.layer if isinstance(error, ExecutionError) else ""
    place = f"{layer.name}/{inner_layer}" if inner_layer else layer.name
    backend = error.backend if isinstance(error, ExecutionError) and inner_layer else backend_of(layer)
    if isinstance(error, InvalidValueError) and not inner_layer:
        return error.of_layer(str(layer), layer=place, backend=backend, tensor=layer.tensor_of(error.operand))
    if isinstance(error, InvalidValueError):
        # without regions, it names a layer of a compiled part, or one that has run earlier in another process
        return error.located(f"layer {layer}: {error}", layer=place, backend=backend) if layer.regions else error
    message = f"layer {layer} {failure_text} on backend {backend_of(layer)}: {error_text(error)}"
    return ExecutionError(message, layer=place, backend=backend)

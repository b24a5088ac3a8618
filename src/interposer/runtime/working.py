"""`WorkingMemHandle`: the private memory and tensor handles of one run of a loaded network."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.backend import ArenaMemoryManager, MemoryManager, TensorHandle
from interposer.core.errors import BindingError, ExecutionError
from interposer.core.room import within
from interposer.core.types import Array, TensorShape
from interposer.ir.graph import Layer, Value, binding_id
from interposer.ir.states import states_of
from interposer.kernels.table import empty
from interposer.ops.control import Input
from interposer.profiling.recorder import RunTrace, active, begin_run, current
from interposer.runtime.asynchronous import steps_of
from interposer.runtime.factories import Factories, constant_of
from interposer.runtime.imports import ImportedRun
from interposer.runtime.late import LateHandles
from interposer.runtime.overlaps import is_same_memory
from interposer.runtime.owned import OwnedHandles
from interposer.runtime.program import Program
from interposer.runtime.runs import RunControl, Workers
from interposer.runtime.states import StateMemory
from interposer.runtime.steps import BoundSteps, Steps, failure, guarded_view

__all__ = ["WorkingMemHandle", "check_shape"]

_CLOSED: Final = "this working memory is closed; make another one"
_IN_USE: Final = "this working memory is used by another run; make one for each thread"


class WorkingMemHandle:
    """Handles for the tensors of one run, with their memory.

    Several threads can run one network concurrently if each run has a separate working memory. A working memory serves
    one run at a time, of any thread. The memory is acquired in the first run and released by `free` or when the network
    is unloaded. `close`, the end of a ``with`` block, or unloading the network also destroys the tensor handles.

    The states of the network have values of their own in each working memory. `state` gives and sets them, and
    `reset_state` restores the initial values.

    Raises:
        LoadError: a backend could not create a handle or its memory plan.
    """

    def __init__(self, program: Program, factories: Factories, workers: Workers | None = None) -> None:
        self.program = program
        self._factories = factories
        self._busy = threading.Lock()
        self._closed = False
        self._prepared_runs: dict[ImportedRun, _Prepared] = {}
        self._cleared_handles: deque[OwnedHandles] = deque()
        resources = self._busy, factories.handles, self._prepared_runs, self._cleared_handles
        weakref.finalize(self, _destroy_unused, *resources).atexit = False  # at exit, the network destroys them
        self._steps = steps_of(program, factories, workers)
        self._steps.plan_memory()
        self._is_chain = self._steps.is_chain
        factories.tensors = partial(_tensors_of, weakref.ref(self._steps))
        factories.plan()
        self.state_memory = StateMemory()
        outputs = sorted(self._steps.outputs, key=lambda layer: binding_id(layer) < 0)
        self._inputs = [(binding_id(layer), layer) for layer in self._steps.inputs]
        self._outputs = [(binding_id(layer), layer) for layer in outputs]
        self._direct = self._direct_outputs()
        self.aliases = self._aliases()
        self._copied_outputs = [(binding, layer) for binding, layer in self._outputs if binding not in self._direct]

    def _direct_outputs(self) -> dict[int, tuple[Layer, TensorHandle]]:
        """Return the outputs, by binding id, that can be written directly to the caller's memory."""
        output_of: dict[Value, Layer] = {}
        for _, layer in self._outputs:
            [value] = layer.values
            if value in self._steps.imported and not isinstance(value.producer.op, Input):
                output_of.setdefault(value, layer)
        return {binding_id(layer): (layer, self._steps.handles[value]) for value, layer in output_of.items()}

    def _aliases(self) -> dict[int, int]:
        """Return the outputs that may have the memory of an input which no other layer reads, as binding ids."""
        input_of = {layer.output: binding for binding, layer in self._inputs if layer.output in self._steps.imported}
        aliases: dict[int, int] = {}
        for binding, (layer, _) in self._direct.items():
            source = self._steps.program.alias(layer.values[0])
            if source in input_of and input_of[source] not in aliases.values():
                aliases[binding] = input_of[source]
        return aliases

    def run(self, inputs: Mapping[int, Array], outputs: dict[int, Array], control: RunControl | None = None) -> None:
        """Run once, from checked inputs to checked outputs; arrays for outputs of data-dependent shape are added.

        Raises:
            BindingError: the shape of an output differs from the array that was given for it.
            InvalidValueError: a layer cannot use a value of the inputs.
            LimitExceededError: the sizes or iterations that follow from values of the inputs exceed a limit.
            ExecutionError: the memory is in use, a backend got no memory, a workload failed, or `control` stopped the
                run.
        """
        room = self.program.room
        if room is None:
            self._run_within(inputs, outputs, control)
            return
        with within(room.anew()):
            self._run_within(inputs, outputs, control)

    def _run_within(self, inputs: Mapping[int, Array], outputs: dict[int, Array], control: RunControl | None) -> None:
        self._begin()
        try:
            if active:
                self._run_traced(inputs, outputs, control)
            else:
                self._factories.acquire()
                self._run(inputs, outputs, control)
        finally:
            if not self._steps.is_hung:
                self._steps.forget()
                self._end()

    def _run_traced(self, inputs: Mapping[int, Array], outputs: dict[int, Array], control: RunControl | None) -> None:
        """Run as `run` does, and add the times to the recorders that want this run."""
        steps, sites = self._steps, self.program.sites
        trace = begin_run(sites.network, sites.inferences, None if control is None else control.thread)
        if trace is None:
            self._factories.acquire()
            self._run(inputs, outputs, control)
            return
        steps.prepare_recording()
        chain = None if control is not None or not self._is_chain or self._factories.lacks_memory else steps.chain
        trace.restart()
        steps.trace, thread = trace, trace.thread
        outer_trace, current[thread] = current.get(thread), trace
        try:
            if chain is None:
                self._run_in_phases(trace, inputs, outputs, control)
            else:
                self._run_in_chain(trace, inputs, outputs)
        except BaseException as error:
            trace.fail(sites.network, error)
            raise
        finally:
            steps.trace = None
            if outer_trace is None:
                del current[thread]
            else:
                current[thread] = outer_trace
            if chain is None:
                trace.add(sites.run, trace.begin)
                trace.finish()
            else:
                trace.finish_chain(chain)

    def _run_in_chain(self, trace: RunTrace, inputs: Mapping[int, Array], outputs: dict[int, Array]) -> None:
        """Run all layers on this thread, and add only times to the trace, which is fast: those of `Steps.chain`."""
        late_handles: LateHandles = {}
        append_time = trace.times.append
        try:
            copied_outputs = self._take_in(inputs, outputs, late_handles)
        finally:
            append_time(perf_counter_ns())
        try:
            self._steps.execute_chain(trace, late_handles)
        except ExecutionError as error:
            error.overwrites = self._overwrites(inputs, outputs)
            raise
        if copied_outputs:
            try:
                self._give_all_out(copied_outputs, inputs, outputs, late_handles)
            finally:
                append_time(perf_counter_ns())

    def _run_in_phases(
        self, trace: RunTrace, inputs: Mapping[int, Array], outputs: dict[int, Array], control: RunControl | None
    ) -> None:
        late_handles: LateHandles = {}
        sites = self.program.sites
        if self._factories.lacks_memory:
            self._factories.acquire()
            trace.add(sites.acquire, trace.begin)
        begin = perf_counter_ns()
        copied_outputs = self._take_in(inputs, outputs, late_handles)
        middle = perf_counter_ns()
        try:
            self._execute(inputs, outputs, late_handles, control)
        finally:
            end, thread = perf_counter_ns(), trace.thread
            trace.fields += (sites.fill, begin, middle, thread, sites.execute, middle, end, thread)
        if copied_outputs:
            self._give_all_out(copied_outputs, inputs, outputs, late_handles)
            trace.add(sites.give, end)

    def _begin(self) -> None:
        if not self._busy.acquire(False):
            raise ExecutionError(_IN_USE)
        if self._closed:
            self._busy.release()
            raise ExecutionError(_CLOSED)

    def _end(self) -> None:
        self._busy.release()
        if self._cleared_handles:
            self._destroy_cleared()

    def run_imported(self, imported: ImportedRun) -> bool:
        """Run once on imported memory for all inputs and outputs.

        Returns False if `run` must be used instead, with the same arrays.

        Raises:
            ExecutionError: the memory is in use, a backend got no memory, or a workload failed.
        """
        self._begin()
        try:
            prepared_run = self._prepared_runs.get(imported)
            call = self._prepare(imported) if prepared_run is None else prepared_run.call
            if call is None:
                return False
            try:
                if active:
                    self._call_traced(call)
                else:
                    call.run()
            except ExecutionError as error:
                error.overwrites = self._overwrites(imported.inputs, imported.outputs)
                raise
            return True
        finally:
            if not self._steps.is_hung:
                self._end()

    def _call_traced(self, call: BoundSteps) -> None:
        """Run prepared layers, and add their times to the recorders that want this run."""
        sites = self.program.sites
        trace = begin_run(sites.network, sites.inferences)
        if trace is None:
            call.run()
            return
        self._steps.prepare_recording()
        trace.restart()
        outer_trace = trace.enter()
        try:
            call.traced(trace)
        except BaseException as error:
            trace.fail(sites.network, error)
            raise
        finally:
            trace.leave(outer_trace)
            if call.chain is not None:
                trace.finish_chain(call.chain())
            else:
                begin, end, thread = trace.begin, perf_counter_ns(), trace.thread
                trace.fields += (sites.execute, begin, end, thread, sites.run, begin, end, thread)
                trace.finish()

    def _prepare(self, imported: ImportedRun) -> BoundSteps | None:
        """Create handles over imported memory, and return functions that run all layers on them.

        They are cached until the memory is freed or the import is forgotten. None if `run` must be used instead.
        """
        self._factories.acquire()
        owned_handles = OwnedHandles()
        try:
            call = self._bound(imported, owned_handles)
        except BaseException:
            owned_handles.destroy()
            raise
        self._prepared_runs[imported] = _Prepared(call, owned_handles)
        if imported.cleared:
            self.forget(imported)
        return call

    def _bound(self, imported_run: ImportedRun, owned_handles: OwnedHandles) -> BoundSteps | None:
        imported_handles: dict[Value, TensorHandle] = {}
        for kind, arrays in (("input", imported_run.inputs), ("output", imported_run.outputs)):
            for binding, array in arrays.items():
                moved_or_reason = self._import(kind, binding, array, owned_handles)
                if not isinstance(moved_or_reason, str):
                    imported_handles[moved_or_reason[0]] = moved_or_reason[1]
        if len(imported_handles) < len(self._steps.inputs) + len(self._steps.outputs):
            return None
        return self._steps.bound(imported_handles, owned_handles)

    def forget(self, imported: ImportedRun) -> None:
        """Drop what was prepared for runs on these imports; the handles are destroyed as soon as no run uses them."""
        prepared_run = self._prepared_runs.pop(imported, None)
        if prepared_run is not None:
            self._cleared_handles.append(prepared_run.handles)
            self._destroy_cleared()

    def _destroy_cleared(self) -> None:
        """Destroy the handles that were created for cleared imports.

        During a run, nothing is destroyed; this is called again when the run ends.
        """
        while self._cleared_handles and self._busy.acquire(False):
            try:
                _destroy_all(self._cleared_handles)
            finally:
                self._busy.release()

    def import_problem(self, kind: str, binding: int, array: Array) -> str | None:
        """Return why an input or output cannot use the caller's array in place, or None if it can.

        `kind` is "input" or "output", and `binding` its binding id.
        """
        owned_handles = OwnedHandles()
        try:
            moved_or_reason = self._import(kind, binding, array, owned_handles)
        finally:
            owned_handles.destroy()
        return moved_or_reason if isinstance(moved_or_reason, str) else None

    def _import(
        self, kind: str, binding: int, array: Array, owned_handles: OwnedHandles
    ) -> tuple[Value, TensorHandle] | str:
        """Create a handle for an input or output that uses the memory of `array`.

        Returns the value and the handle, which is added to `owned_handles`, or the reason why its backend cannot use
        the array.
        """
        layer = dict(self._inputs if kind == "input" else self._outputs)[binding]
        value = layer.output if kind == "input" else layer.values[0]
        error = self._output_problem(binding, value) if kind == "output" else None
        if error is None and value not in self._steps.imported:
            separate_memory = f"backend {value.producer.backend} stores it in separate memory"
            error = self._factories.forbidden(value) or separate_memory
        if error is not None:
            return error
        handle = self._factories.handle(value.producer, value, owned_handles, managed=False)
        if not handle.import_memory(guarded_view(array) if kind == "input" else array):
            alignment = getattr(handle, "alignment", 1)
            requirement = f"; the address must be a multiple of {alignment} bytes" if alignment > 1 else ""
            return f"backend {value.producer.backend} cannot use it without a copy{requirement}"
        return value, handle

    def _output_problem(self, binding: int, value: Value) -> str | None:
        if value.is_constant:
            return "it is a constant, which is always copied"
        if isinstance(value.producer.op, Input):
            return f"it is the input {value.producer.name!r}, which is always copied"
        first = next(output_id for output_id, layer in self._outputs if layer.values[0] is value)
        return None if first == binding else f"it is the same tensor as output {first}, and copied from there"

    def _run(self, inputs: Mapping[int, Array], outputs: dict[int, Array], control: RunControl | None) -> None:
        late_handles: LateHandles = {}
        copied_outputs = self._take_in(inputs, outputs, late_handles)
        self._execute(inputs, outputs, late_handles, control)
        self._give_all_out(copied_outputs, inputs, outputs, late_handles)

    def _take_in(
        self, inputs: Mapping[int, Array], outputs: Mapping[int, Array], late_handles: LateHandles
    ) -> Sequence[tuple[int, Layer]]:
        """Set the inputs, and let layers write outputs directly to the caller's arrays where that is possible.

        Returns the other outputs, as pairs of binding id and Output layer, which must be copied after the run.
        """
        for binding, layer in self._inputs:
            self._steps.fill(layer, inputs[binding], late_handles)
        copied_outputs = self._copied_outputs
        for binding, (layer, handle) in self._direct.items():
            target = outputs.get(binding)
            other_inputs = inputs if target is None else self._other_inputs(binding, target, inputs)
            if target is None or _overlaps(target, other_inputs) or not handle.import_memory(target):
                handle.allocate()
                copied_outputs = [*copied_outputs, (binding, layer)]
        return copied_outputs

    def _execute(
        self,
        inputs: Mapping[int, Array],
        outputs: Mapping[int, Array],
        late_handles: LateHandles,
        control: RunControl | None,
    ) -> None:
        try:
            self._steps.execute(late_handles, control)
        except ExecutionError as error:
            error.overwrites = self._overwrites(inputs, outputs)
            raise

    def _other_inputs(self, binding: int, target: Array, inputs: Mapping[int, Array]) -> Mapping[int, Array]:
        """Return the inputs that the array for an output must not overlap: all but the one whose memory it may be."""
        source = self.aliases.get(binding)
        if source is None or not is_same_memory(target, inputs[source]):
            return inputs
        return {input_id: array for input_id, array in inputs.items() if input_id != source}

    def _overwrites(self, inputs: Mapping[int, Array], outputs: Mapping[int, Array]) -> bool:
        """Return True if a run writes an output to the memory of an input, such as that of a state."""
        targets_and_arrays = ((outputs.get(binding), inputs[source]) for binding, source in self.aliases.items())
        return any(target is not None and is_same_memory(target, array) for target, array in targets_and_arrays)

    def _give_all_out(
        self,
        copied_outputs: Sequence[tuple[int, Layer]],
        inputs: Mapping[int, Array],
        outputs: dict[int, Array],
        late_handles: LateHandles,
    ) -> None:
        """Copy outputs, pairs of binding id and Output layer, to the caller's arrays in `outputs`.

        Outputs without an array get one. Arrays that overlap an input are written last, as outputs may still be read
        from it. `late_handles` has the handles of tensors whose shapes were only known during the run.
        """
        self._begin_maps(copied_outputs, late_handles)
        overlapping_arrays = set()
        if len(copied_outputs) > 1:
            overlapping_arrays = {
                output_id
                for output_id, _ in copied_outputs
                if output_id in outputs and _overlaps(outputs[output_id], inputs)
            }
        if not overlapping_arrays:
            for binding, layer in copied_outputs:
                self._give_out(binding, layer, outputs, late_handles)
            return
        separate_outputs = {
            output_id: np.empty_like(array, subok=False) if output_id in overlapping_arrays else array
            for output_id, array in outputs.items()
        }
        for binding, layer in copied_outputs:
            self._give_out(binding, layer, separate_outputs, late_handles)
        for binding in overlapping_arrays:
            np.copyto(outputs[binding], separate_outputs[binding])
        outputs.update(
            {output_id: array for output_id, array in separate_outputs.items() if output_id not in overlapping_arrays}
        )

    def _begin_maps(self, copied_outputs: Sequence[tuple[int, Layer]], late_handles: LateHandles) -> None:
        """Let devices begin to transfer the outputs in `copied_outputs`, before the first of them is waited for."""
        for _, layer in copied_outputs:
            [value] = layer.values
            if not value.is_constant:
                try:
                    self._steps.handle(value, late_handles).begin_map()
                except Exception as error:
                    raise failure(layer, "could not begin to give its data", error) from error

    def _give_out(self, binding: int, layer: Layer, outputs: dict[int, Array], late_handles: LateHandles) -> None:
        [value] = layer.values
        if value.is_constant:
            np.copyto(outputs[binding], constant_of(value))
            return
        handle = self._steps.handle(value, late_handles)
        if binding not in outputs:
            outputs[binding] = empty(handle.info)
        check_shape(binding, layer.name, handle.info.shape, outputs[binding])
        try:
            handle.copy_out(outputs[binding])
        except Exception as error:
            raise failure(layer, "could not give its data", error) from error

    @property
    def state(self) -> dict[str, Array]:
        """Copies of the values of the network's states by name; assign a mapping of arrays to set some of them."""
        return self.state_memory.snapshot(states_of(self.program.graph))

    @state.setter
    def state(self, values: Mapping[str, Any]) -> None:
        self.state_memory.assign(states_of(self.program.graph), values)

    def reset_state(self) -> None:
        """Give the network's states in this working memory their initial values."""
        self.state_memory.reset()

    @property
    def steps(self) -> Steps | None:
        """The steps of the network, if they can run without acquiring memory first; else None."""
        arenas = all(isinstance(manager, ArenaMemoryManager) for manager in self.managers.values())
        return self._steps if arenas and not self.planned_bytes else None

    @property
    def acquired(self) -> bool:
        """True while a backend holds memory for the tensors."""
        return self._factories.acquired

    @property
    def managers(self) -> Mapping[str, MemoryManager]:
        """The memory managers of the backends that have one."""
        return self._factories.managers

    @property
    def planned_bytes(self) -> int:
        """The bytes of all arenas of the memory managers that report them."""
        return self._factories.planned_bytes

    def free(self) -> None:
        """Release the memory; the next run acquires it again. A failure is only logged.

        Raises:
            ExecutionError: the memory is in use.
        """
        if not self._busy.acquire(False):
            raise ExecutionError("this working memory is used by a run; it can be freed afterwards")
        try:
            self._drop_prepared()
            self._factories.release()
        finally:
            self._end()

    def _drop_prepared(self) -> None:
        while self._prepared_runs:
            self._cleared_handles.append(self._prepared_runs.popitem()[1].handles)

    def close(self) -> None:
        """Release the memory and destroy the tensor handles; no further runs are possible. May be called again.

        A failure is only logged.

        Raises:
            ExecutionError: the memory is in use.
        """
        if not self._busy.acquire(False):
            raise ExecutionError("this working memory is used by a run; it can be closed afterwards")
        try:
            self._closed = True
            self._drop_prepared()
            self._factories.release()
            _destroy_all(self._cleared_handles)
            self._factories.handles.destroy()
        finally:
            self._end()

    @property
    def needs_interpreter(self) -> bool:
        """True if Python code destroys one of the handles; see `OwnedHandles.need_interpreter`."""
        groups = [
            self._factories.handles,
            *(prepared_run.handles for prepared_run in tuple(self._prepared_runs.values())),
        ]
        return any(group.need_interpreter for group in groups)

    @property
    def is_hung(self) -> bool:
        """True if a device may use this memory for ever, so that it must not be used or destroyed."""
        return self._steps.is_hung

    @property
    def in_use(self) -> bool:
        """True while a run uses this memory, or a device that hangs."""
        return self._busy.locked()

    def __enter__(self) -> WorkingMemHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Prepared(NamedTuple):
    """What was prepared for runs on the same imports: functions that run the layers, and the handles that they use.

    `call` is None if `WorkingMemHandle.run` must be used instead.
    """

    call: BoundSteps | None
    handles: OwnedHandles


def _tensors_of(reference: weakref.ref[Steps]) -> Sequence[tuple[str, str, TensorHandle]] | None:
    steps = reference()
    return None if steps is None else list(steps.tensors())


def _destroy_all(groups: deque[OwnedHandles]) -> None:
    while groups:
        groups.popleft().destroy()


def _destroy_unused(
    busy: threading.Lock,
    handles: OwnedHandles,
    prepared: dict[ImportedRun, _Prepared],
    cleared: deque[OwnedHandles],
) -> None:
    """Destroy the handles of a working memory that was garbage-collected without `close`.

    Nothing is destroyed if the lock `busy` is held, because a run that hangs still uses them. The other arguments are
    the memory's own handles, those prepared for imports, and those of cleared imports.
    """
    if not busy.acquire(False):
        return
    try:
        while prepared:
            cleared.append(prepared.popitem()[1].handles)
        _destroy_all(cleared)
        handles.destroy()
    finally:
        busy.release()


def check_shape(binding: int, name: str, tensor_shape: TensorShape, target: Array) -> None:
    """Raise `BindingError` if `target`, the caller's array for an output, has another shape than the computed tensor.

    `binding` and `name` are the binding id and the name of the output.
    """
    if target.shape != tuple(tensor_shape):
        title, given_shape = f"output {binding} ({name})", list(target.shape)
        raise BindingError(
            f"{title} turned out to have shape {tensor_shape}, but the array for it {given_shape}; give none"
        )


def _overlaps(target: Array, inputs: Mapping[int, Array]) -> bool:
    """Return True if an output's array may overlap one of the inputs, and False if it certainly does not."""
    owns = target.flags.owndata
    for array in inputs.values():
        is_distinct = owns and array is not target and array.flags.owndata
        if not is_distinct and np.may_share_memory(target, array):
            return True
    return False

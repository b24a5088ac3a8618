"""`LoadedNetwork`: the program of one network in a runtime, and the working memories of its runs."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from threading import get_ident
from typing import TYPE_CHECKING, Final

from interposer.backend import ArenaMemoryManager, CustomAllocator, MemoryOptimizerStrategy
from interposer.core.constants import Users, check_unchanged
from interposer.core.errors import BindingError, ExecutionError, InvalidArgumentError, expect
from interposer.core.room import Room
from interposer.core.types import Array
from interposer.ir.graph import Layer, binding_id
from interposer.ir.regions import places
from interposer.ir.states import states_of
from interposer.ops.control import Constant, PreCompiled
from interposer.profiling.events import HeldTensor, TracedNetwork
from interposer.report.optimized import OptimizedNetwork
from interposer.runtime.asynchronous import DeviceHungError
from interposer.runtime.bindings import Bindings
from interposer.runtime.direct import (
    CopyingCall,
    DirectRun,
    OnlyPart,
    RepeatingCall,
    StatefulCall,
    copying_call,
    direct_call,
    only_part,
    recorded,
    repeating_call,
)
from interposer.runtime.factories import Factories
from interposer.runtime.flow import flow_of
from interposer.runtime.imports import ImportedRun, Imports
from interposer.runtime.memory import MemoryReport
from interposer.runtime.overlaps import Constants
from interposer.runtime.program import Program, runs
from interposer.runtime.runs import RunControl, Workers
from interposer.runtime.states import StateMemory
from interposer.runtime.tracing import NetworkSites
from interposer.runtime.working import WorkingMemHandle
from interposer.runtime.workloads import DebugCallback, TransferCounts, TransferReport

if TYPE_CHECKING:
    from interposer.plugins.capi.running._direct import DirectCall
    from interposer.profiling.profiler import Profiler

__all__ = ["DirectRun", "LoadedNetwork", "check_imports"]

LEAST_IN_PLACE: Final = 1 << 16
"""The least number of bytes of states that are updated in place."""

_loaded: weakref.WeakSet[LoadedNetwork] = weakref.WeakSet()


class LoadedNetwork:
    """A network that is ready to run. Runs may be concurrent: each uses a separate `WorkingMemHandle`.

    With `workers`, branches of one run that are on different backends run concurrently. `network_id` is the id of the
    network in its runtime. `memory` has the values of the
    network's states in runs without a working memory of their own; None starts with the initial values. `room` has the
    limits of each run.

    Workloads and handles are created and planned here, in a first working memory. Tensors whose shapes depend on data
    are the exception: see `LateStep`.

    Raises:
        LoadError: a backend could not create a workload, a handle or its memory plan. Everything created until then
            is released.
    """

    def __init__(
        self,
        optimized: OptimizedNetwork,
        workers: Workers | None = None,
        allocators: Mapping[str, CustomAllocator] | None = None,
        memory: StateMemory | None = None,
        network_id: int = 0,
        strategies: Mapping[str, MemoryOptimizerStrategy] | None = None,
        room: Room | None = None,
    ) -> None:
        self.optimized, self._sites = optimized, NetworkSites(optimized, network_id)
        self.states = states_of(optimized.graph)
        self.state_memory = StateMemory() if memory is None else memory
        self._workers, self.bindings = workers, Bindings(optimized)
        self._layers = tuple(place.layer for place in places(optimized.graph))
        self._sequential = _is_sequential(optimized)
        shared_settings = allocators, self._sites, strategies
        self._factories = Factories(optimized, self._layers, self._sequential, None, *shared_settings)
        self._counts, self._runs = TransferCounts(), dict[int, RunControl | None]()
        self._lock, self._released = threading.RLock(), False
        self._runs_changed = threading.Condition(self._lock)
        self._direct: dict[tuple[int, ...], DirectCall | RepeatingCall | CopyingCall] = {}
        self.imports = Imports(self.bindings, optimized.name, weakref.WeakMethod(self._import_problem))
        try:
            self._program = Program(optimized.graph, self._factories, self._counts, self._sites, room)
            first_memory = WorkingMemHandle(self._program, self._factories, workers)
            self._idle_memories = deque([first_memory])
            self._working_memories = weakref.WeakSet(self._idle_memories)
            self._program.configure()
            self._constants = self._used_constants()
        except BaseException:
            self._factories.destroy()
            self._factories.constant_handles.destroy()
            raise
        self.bindings.constants = Constants(self._constant_arrays())
        self._steps, self.imports.aliases = first_memory.steps, first_memory.aliases
        self._record_memory()
        self._in_place_by_state = self._states_in_place()
        self._is_single_layer = len(self._program.running) == 1
        _loaded.add(self)

    def _record_memory(self) -> None:
        """Let recorders know the constants, and the memory that workloads hold."""
        constants = partial(_constants_held, self._layers)
        self._sites.memory("constants", self._constants.total, "constants", "", constants)
        for backend in dict.fromkeys(str(layer.backend) for layer in self._program.running):
            measure_workspaces = partial(_workspaces_of, weakref.ref(self._program), backend)
            self._sites.watch_memory(f"workspaces of {backend}", "workspaces", backend, measure_workspaces)

    def _states_in_place(self) -> dict[str, bool]:
        """Return how states are written, by name, for `StateMemory.turn`.

        True means in place, and False that a run allocates the next value. Small states are not updated in place, so
        that a run that fails leaves them as they were.
        """
        shaped_by_data = self._program.shaped_by_data
        in_place_by_state = {
            state.name: False for state in self.states if state.target and state.target.values[0] in shaped_by_data
        }
        large_states = (state for state in self.states if state.info.num_bytes >= LEAST_IN_PLACE)
        name_of = {binding_id(state.source): state.name for state in large_states}
        return in_place_by_state | {
            name_of[output_id]: True
            for output_id, input_id in self.imports.aliases.items()
            if output_id == input_id and output_id in name_of
        }

    def _states_in_place_under(self, control: RunControl | None) -> Mapping[str, bool]:
        """Return how a run writes states, as `_states_in_place` does.

        No state is updated in place if `control` can stop the run before its end, since states must then stay as they
        were.
        """
        if control is None or (control.deadline is None and self._is_single_layer):
            return self._in_place_by_state
        return {name: in_place for name, in_place in self._in_place_by_state.items() if not in_place}

    def _constant_arrays(self) -> list[Array]:
        """Return all constants of the network, including those of which only backends have a copy."""
        values = (value for layer in self._layers for value in layer.outputs)
        return [*self.constants_read, *(value.known.constant for value in values if value.known.constant is not None)]

    @property
    def constants_read(self) -> list[Array]:
        """The arrays of constants that workloads read directly; copies that backends made are left out."""
        compiled_objects = [layer.op.object for layer in self._layers if isinstance(layer.op, PreCompiled)]
        return [
            *self._factories.constant_arrays,
            *(
                constant
                for compiled_object in compiled_objects
                for constant in getattr(compiled_object, "constants", ())
            ),
        ]

    def _used_constants(self) -> Users:
        arrays = self.constants_read
        check_unchanged(arrays)
        return Users(arrays)

    @property
    def acquired(self) -> bool:
        """True while a backend holds memory for the network's tensors and no run uses it."""
        return any(idle_memory.acquired for idle_memory in self.idle_memories)

    @property
    def idle_memories(self) -> tuple[WorkingMemHandle, ...]:
        """The working memories that no run uses; the number grows with the number of concurrent runs."""
        return tuple(self._idle_memories)

    @property
    def steps(self) -> tuple[tuple[str, str], ...]:
        """The names of the layers that run, in order, each with its backend id; without layers in regions."""
        return tuple((layer.name, str(layer.backend)) for layer in self._program.running)

    @property
    def traced(self) -> TracedNetwork:
        """The network as it is named in profiles."""
        return self._sites.network

    @cached_property
    def profiler(self) -> Profiler:
        """The profiler of the network's runs."""
        from interposer.profiling.profiler import Profiler  # noqa: PLC0415 - seldom needed

        return Profiler(self._sites.network)

    def memory(self) -> MemoryReport:
        """Return how much memory the network uses now, without the working memories of runs in progress."""
        idle_memories = self.idle_memories
        managers = idle_memories[0].managers if idle_memories else {}
        arenas = {backend: manager for backend, manager in managers.items() if isinstance(manager, ArenaMemoryManager)}
        named_parts = list(self._program.memory_of_parts())
        held_by: Counter[str] = Counter()
        for name, held_bytes, _ in named_parts:
            held_by[name] += held_bytes or 0
        return MemoryReport(
            arenas={backend: manager.planned_bytes for backend, manager in arenas.items()},
            lower_bounds={backend: manager.plan.lower_bound for backend, manager in arenas.items()},
            working_memories=len(idle_memories),
            constants=self._constants.total,
            mapped_constants=self._constants.mapped,
            shared_constants=self._constants.shared,
            parts=dict(held_by),
            unknown=tuple(sorted({name for name, held_bytes, _ in named_parts if held_bytes is None})),
            estimated=tuple(
                sorted(
                    {name for name, held_bytes, is_estimated in named_parts if is_estimated and held_bytes is not None}
                )
            ),
        )

    @property
    def transfers(self) -> TransferReport:
        """The numbers of copies and imports of tensors between kinds of memory, in all runs so far."""
        return self._counts.report

    def set_debug_callback(self, callback: DebugCallback | None) -> None:
        """Let Debug layers call `callback` instead of printing; None lets them print again.

        It is called with the layer's name, the number of the output, and the array.
        """
        self._program.set_debug_callback(callback)

    def new_working_memory(self) -> WorkingMemHandle:
        """Return handles and memory for one additional concurrent run.

        Raises:
            LoadError: a backend could not create them.
        """
        factories = Factories(self.optimized, self._layers, self._sequential, self._factories)
        try:
            working_mem_handle = WorkingMemHandle(self._program, factories, self._workers)
        except BaseException:
            factories.destroy()
            raise
        with self._lock:
            self._working_memories.add(working_mem_handle)
        return working_mem_handle

    def _import_problem(self, kind: str, binding: int, array: Array) -> str | None:
        """Return why the network cannot use the caller's array in place for an input or output, or None if it can.

        `kind` is "input" or "output", and `binding` its binding id.
        """
        if kind == "output":
            try:
                self.bindings.constants.refuse([("it", array)])
            except BindingError as error:
                return str(error)
        with self._lock:
            working_memory = next(iter(self._working_memories), None)
        return (working_memory or self.new_working_memory()).import_problem(kind, binding, array)

    def clear_imported(self, kind: str, import_ids: Iterable[int]) -> None:
        """Clear the imported inputs or outputs (as `kind` says) with these ids; runs in progress keep using them.

        Raises:
            BindingError: an import id is unknown.
        """
        self._forget(self.imports.clear(kind, import_ids))

    def _forget(self, imported_runs: Iterable[ImportedRun]) -> None:
        with self._lock:
            memories = list(self._working_memories)
        for imported_run in imported_runs:
            for memory in memories:
                memory.forget(imported_run)

    def check_own(self, working: WorkingMemHandle) -> None:
        """Raise `InvalidArgumentError` if a working memory was not created for this network."""
        expect(working, WorkingMemHandle, "a run needs what create_working_mem_handle gave")
        if working.program is not self._program:
            raise InvalidArgumentError(f"this working memory was not made for the network {self.optimized.name!r}")

    def run(
        self,
        inputs: Mapping[int, Array],
        outputs: dict[int, Array],
        working: WorkingMemHandle | None = None,
        control: RunControl | None = None,
    ) -> None:
        """Run once, in the given working memory, or else in an idle or new one.

        Raises:
            BindingError: the shape of an output differs from the array that was given for it.
            ExecutionError: a backend got no memory, a workload failed, the network was unloaded before the run began,
                or `control` stopped the run.
        """
        self._enter(control)
        try:
            if self.states:
                self._run_with_states(inputs, outputs, working, control)
            elif working is not None:
                working.run(inputs, outputs, control)
            else:
                self._run_in_any(inputs, outputs, control)
        finally:
            self._leave()

    def _run_with_states(
        self,
        inputs: Mapping[int, Array],
        outputs: dict[int, Array],
        working: WorkingMemHandle | None,
        control: RunControl | None,
    ) -> None:
        memory = self.state_memory if working is None else working.state_memory
        with memory.turn(self.states, control, self._states_in_place_under(control)) as turn:
            feeds, targets = {**inputs, **turn.values}, {**outputs, **turn.targets}
            if working is not None:
                working.run(feeds, targets, control)
            else:
                self._run_in_any(feeds, targets, control)
            turn.targets.update(targets)
        outputs.update({output_id: array for output_id, array in targets.items() if output_id not in turn.values})

    def direct_call(self, inputs: Sequence[int]) -> DirectRun | None:
        """Return a function that runs the network with minimal overhead, or None: see `Runtime.direct_call`.

        `inputs` are the binding ids of the inputs, in the order of the calls.
        """
        self._check_order(inputs)
        if self._steps is None:
            return None
        if self.states:
            return self._stateful_call(tuple(inputs))
        with self._lock:
            call = self._direct.get(tuple(inputs))
            if call is None:
                on_leaving = partial(_notify, self._runs_changed)
                call = direct_call(self._steps, self.bindings, inputs, self._runs, on_leaving)
                call = call or repeating_call(self._steps, self.bindings, inputs, self._runs, on_leaving)
                call = call or copying_call(self._steps, self.bindings, inputs)
            if call is None or self._released:
                return None
            self._direct[tuple(inputs)] = call
        return call.run

    def only_part(self) -> OnlyPart | None:
        """Return the compiled part that the network consists of, or None: see `Runtime.only_part`."""
        if self._steps is None or self.states:
            return None
        inputs = sorted(self.bindings.inputs)
        return only_part(self._steps, self.bindings, inputs, self._runs, partial(_notify, self._runs_changed))

    def recorded(self, call: DirectRun) -> DirectRun:
        """Return a function that makes direct calls by `call`, a result of `direct_call`, and records them."""
        assert self._steps is not None
        return recorded(call, self._steps)

    def _stateful_call(self, inputs: tuple[int, ...]) -> DirectRun | None:
        """Return the function of `direct_call` for a network with states.

        None if a state is updated in place, or a shape of an output depends on data.
        """
        if self._steps is None or True in self._in_place_by_state.values():
            return None
        if not all(output.info.is_concrete for output in self.bindings.outputs.values()):
            return None
        bindings = Bindings(self.optimized, states=True)
        bindings.constants = self.bindings.constants
        input_order = (*inputs, *(number for number in bindings.inputs if number < 0))
        with self._lock:
            call = direct_call(self._steps, bindings, input_order, self._runs, partial(_notify, self._runs_changed))
            if call is None or self._released:
                return None
            self._direct[input_order] = call
        stateful_call = StatefulCall(call, bindings, input_order, self.states)
        return partial(stateful_call.run, self.state_memory)

    def _check_order(self, inputs: object) -> None:
        input_bindings = self.bindings.inputs
        ids = (
            inputs if isinstance(inputs, list | tuple) and all(isinstance(input_id, int) for input_id in inputs) else ()
        )
        if len(ids) != len(input_bindings) or set(ids) != set(input_bindings):
            expected_ids = ", ".join(map(str, input_bindings)) or "none"
            raise BindingError(
                f"a direct call takes each input once, by its binding id ({expected_ids}), not {inputs!r}"
            )

    def run_imported(self, imported: ImportedRun, working: WorkingMemHandle | None = None) -> bool:
        """Run once on imported memory for all inputs and outputs, in `working` or in an idle or new working memory.

        Returns False without running if `run` must be used instead, with the arrays of the imports.

        Raises:
            ExecutionError: any reason of `run`; or an import was cleared, or the memory of a descriptor is gone.
        """
        if self.states:
            check_imports(imported, None)
            self.run(imported.inputs, dict(imported.outputs), working)
            return True
        thread_id = get_ident()
        if thread_id in self._runs:
            self.refuse_in_own_run("run again")
        self._runs[thread_id] = None  # inlined `_enter` and `_leave`, as the calls are too slow here
        try:
            if self._released or imported.cleared or imported.watched:
                self._check_open()
                check_imports(imported, None)
            if working is not None:
                return working.run_imported(imported)
            try:
                working = self._idle_memories.pop()
            except IndexError:
                working = self.new_working_memory()
            try:
                return working.run_imported(imported)
            except DeviceHungError:
                working = None
                raise
            finally:
                if working is not None:
                    self._idle_memories.append(working)
        finally:
            del self._runs[thread_id]
            if self._released:
                self._announce_end()

    def _run_in_any(self, inputs: Mapping[int, Array], outputs: dict[int, Array], control: RunControl | None) -> None:
        try:
            working = self._idle_memories.pop()
        except IndexError:
            working = self.new_working_memory()
        try:
            working.run(inputs, outputs, control)
        except DeviceHungError:
            raise  # the device may use the memory for ever
        except BaseException:
            self._idle_memories.append(working)
            raise
        self._idle_memories.append(working)

    def _enter(self, control: RunControl | None) -> None:
        """Register that this thread begins a run, which `control` can stop.

        This needs no lock, because `release` checks for registered runs after it forbids new ones.

        Raises:
            ExecutionError: the network is released, or this thread is inside a run of it already.
        """
        thread_id = get_ident()
        if thread_id in self._runs:
            self.refuse_in_own_run("run again")
        self._runs[thread_id] = control
        try:
            self._check_open()
        except ExecutionError:
            self._leave()
            raise

    def _check_open(self) -> None:
        if self._released:
            raise ExecutionError(f"the network {self.optimized.name!r} was unloaded before the run began")

    def _leave(self) -> None:
        del self._runs[get_ident()]
        if self._released:
            self._announce_end()

    def _announce_end(self) -> None:
        with self._runs_changed:
            self._runs_changed.notify_all()
            self._free()

    def give_up(self, control: RunControl) -> None:
        """Mark the run of `control` as hanging, so that nothing waits for it.

        Its memory is released when the run returns.
        """
        with self._runs_changed:
            control.given_up = True
            self._runs_changed.notify_all()
        self.state_memory.give_up(control)

    def refuse_in_own_run(self, action: str) -> None:
        """Raise `ExecutionError` if this thread is inside a run of the network, such as in a callback.

        `action` is what cannot be done with the network then, such as "unloaded".
        """
        if get_ident() in self._runs:
            raise ExecutionError(f"the network {self.optimized.name!r} cannot be {action} from within its own run")

    def release(self) -> None:
        """Release the memory when no run uses it; the network cannot run any more. Failures are only logged.

        Runs that were given up are not waited for: their memory is released when they return.
        """
        with self._runs_changed:
            self._forbid_runs()
            self._runs_changed.wait_for(self._is_idle)
            self._free()

    def end(self) -> None:
        """Destroy the handles of Python backends at interpreter exit; the network cannot run any more then.

        A network without such handles can run until the interpreter has ended: a plug-in destroys its tensors itself.
        """
        memories = list(self._working_memories)
        need_interpreter = self._factories.constant_handles.need_interpreter or any(
            memory.needs_interpreter for memory in memories
        )
        with self._runs_changed:
            if need_interpreter and not self._runs and not self._released:
                self._forbid_runs()
                self._free()

    def _forbid_runs(self) -> None:
        self._released = True
        while self._direct:
            self._direct.popitem()[1].close()

    def _is_idle(self) -> bool:
        return all(control is not None and control.given_up for control in list(self._runs.values()))

    def _free(self) -> None:
        while self._idle_memories:
            self._idle_memories.pop().close()
        if self._runs:
            return
        memories = list(self._working_memories)
        for memory in memories:
            if not memory.in_use:
                memory.close()
        if any(memory.in_use for memory in memories):
            return  # a device hangs, and may still use what is left
        self._forget(self.imports.clear_all())
        self._factories.constant_handles.destroy()
        self._sites.forget_memory()


def _is_sequential(optimized: OptimizedNetwork) -> bool:
    """Return True if no two layers of a network ever run at the same time."""
    if any(backend.asynchronous for backend in optimized.backends.values()):
        return False
    return flow_of([layer for layer in optimized.graph.topological() if runs(layer)]) is None


def _constants_held(layers: Sequence[Layer]) -> list[HeldTensor]:
    """Return the constants of a network, each array once, and those that compiled partitions read."""
    held_by_array: dict[int, HeldTensor] = {}
    for layer in layers:
        arrays = [layer.op.value] if isinstance(layer.op, Constant) else []
        if isinstance(layer.op, PreCompiled):
            arrays = list(getattr(layer.op.object, "constants", ()))
        for array in arrays:
            held_by_array.setdefault(id(array), HeldTensor(layer.name, layer.name, array.nbytes))
    return list(held_by_array.values())


def _workspaces_of(reference: weakref.ref[Program], backend: str) -> list[HeldTensor] | None:
    """Return the memory that the workloads of a backend hold; None if the network is gone."""
    program = reference()
    if program is None:
        return None
    layers_and_bytes = (
        (layer, held_bytes or 0) for layer, held_bytes, _ in program.held_by_parts() if str(layer.backend) == backend
    )
    return [HeldTensor("", layer.name, held_bytes) for layer, held_bytes in layers_and_bytes if held_bytes]


def _notify(condition: threading.Condition) -> None:
    with condition:
        condition.notify_all()


def check_imports(imported: ImportedRun, control: RunControl | None) -> None:
    """Check before a run that its imports are not cleared, and that the memory of descriptors is ready and complete.

    This waits for pending fences; `control` can end the wait.

    Raises:
        ExecutionError: the memory is not ready and never will be, or was cleared, or `control` stopped the run.
    """
    if imported.cleared:
        raise ExecutionError("the imported tensors of this run are closed; import it again")
    for title, memory in imported.watched:
        check = partial(control.check_waiting, f"the fence of {title}") if control is not None else _never_stop
        try:
            memory.ready(check)
        except ValueError as error:
            raise ExecutionError(f"{title}: {error}") from error


def _never_stop() -> None:
    """Do nothing; used as the check of runs without a control, which cannot be stopped."""


@atexit.register
def _end_all() -> None:
    for network in list(_loaded):
        network.end()

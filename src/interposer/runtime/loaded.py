"""`LoadedNetwork`: the workloads of one network in a runtime, and the working memories that its runs use."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping

from interposer.backend import Backend, MemoryManager, TensorHandle, Workload, WorkloadFactory, WorkloadInfo
from interposer.backend.registry import checked
from interposer.errors import ExecutionError, LoadError
from interposer.ir.graph import Layer, Value
from interposer.ir.inference import shaped_by_data
from interposer.ir.optimized import OptimizedNetwork
from interposer.ops.control import Constant, Input, Output
from interposer.runtime.bindings import Bindings
from interposer.runtime.late import LateStep
from interposer.runtime.layout import Layout, layout_of
from interposer.runtime.steps import Step
from interposer.runtime.working import WorkingMemHandle, checked_handle, constant_of, guarded, said
from interposer.runtime.workloads import DebugCallback, DebugWorkload, runtime_workload
from interposer.types import Array

__all__ = ["LoadedNetwork", "said"]

Factories = tuple[dict[str, MemoryManager], dict[str, WorkloadFactory]]


class LoadedNetwork:
    """One network made ready to run. Runs may go side by side: each has a `WorkingMemHandle` for itself.

    Everything is made here, and planned in a first working memory, but what concerns tensors whose shapes depend on
    data: see `LateStep`.

    Raises:
        LoadError: a backend could not make a workload, a handle or its memory plan; nothing stays behind.
    """

    def __init__(self, optimized: OptimizedNetwork) -> None:
        self.optimized = optimized
        self.bindings = Bindings(optimized)
        self.late = shaped_by_data(optimized.graph)
        self.order = optimized.graph.topological()
        self._used = dict.fromkeys(layer.backend for layer in self.order if layer.backend is not None)
        self._constants: dict[tuple[Value, str], TensorHandle] = {}
        self._runs: Counter[int] = Counter()
        self._changed = threading.Condition()
        self._released = False
        managers, self._factories = self._new_factories()
        steps = {
            layer: self._step(layer) for layer in self.order if not isinstance(layer.op, Input | Output | Constant)
        }
        self.layout = self._layout(steps)
        self.steps = tuple(step for layer, step in steps.items() if layer not in self.layout.joined)
        self._idle = deque([WorkingMemHandle(self, managers, self._factories)])
        for step in steps.values():
            if step.workload is not None:
                guarded(step.layer, "could not be configured", step.workload.post_allocation_configure)

    def _new_factories(self) -> Factories:
        managers: dict[str, MemoryManager] = {}
        factories: dict[str, WorkloadFactory] = {}
        for backend_id in self._used:
            backend: Backend = self.optimized.backends[backend_id]
            options = self.optimized.model_options.get(backend_id, {})
            try:
                manager = backend.create_memory_manager()
                if manager is not None:
                    managers[backend_id] = checked(manager, MemoryManager, "create_memory_manager", backend_id)
                factory = backend.create_workload_factory(manager, options)
                factories[backend_id] = checked(factory, WorkloadFactory, "create_workload_factory", backend_id)
            except Exception as error:
                raise LoadError(f"backend {backend_id} could not make its workload factory: {said(error)}") from error
        return managers, factories

    def _step(self, layer: Layer) -> Step | LateStep:
        factory = self._factories[str(layer.backend)]
        if not self.late.isdisjoint((*layer.values, *layer.outputs)):
            return LateStep(layer, factory)
        workload = runtime_workload(layer)
        if workload is None:
            workload = guarded(layer, "got no workload", lambda: _made(factory, layer))
        return Step.of(layer, workload)

    def _layout(self, steps: Mapping[Layer, Step | LateStep]) -> Layout:
        def may_join(layer: Layer) -> bool:
            step = steps.get(layer)
            if step is None:
                return isinstance(layer.op, Input | Output)
            factory = self._factories[str(layer.backend)]
            return isinstance(step, Step) and step.workload.strided and factory.supports_sub_tensors

        def may_overwrite(layer: Layer) -> bool:
            step = steps.get(layer)
            return isinstance(step, Step) and step.workload.in_place

        return layout_of(self.optimized.graph, self.order, self.late, may_join, may_overwrite)

    def constant(self, layer: Layer, value: Value) -> TensorHandle:
        """The handle of a constant on the backend of a layer, filled once."""
        backend, info = str(layer.backend), value.known
        if (value, backend) not in self._constants:
            array, make = constant_of(value), self._factories[backend].create_constant_handle
            self._constants[value, backend] = guarded(
                layer, "got no constant",
                lambda: checked_handle(make(info, array), info, "create_constant_handle", backend),
            )  # fmt: skip
        return self._constants[value, backend]

    @property
    def acquired(self) -> bool:
        """True while a backend holds memory for the network's tensors."""
        return any(one.acquired for one in self._idle)

    def set_debug_callback(self, callback: DebugCallback | None) -> None:
        """Let Debug layers call this instead of printing."""
        for step in self.steps:
            if isinstance(step.workload, DebugWorkload):
                step.workload.callback = callback

    # --- running ------------------------------------------------------------------------------------------------------

    def new_working_memory(self) -> WorkingMemHandle:
        """Handles and memory for one more run at the same time."""
        return WorkingMemHandle(self, *self._new_factories())

    def run(self, inputs: Mapping[int, Array], outputs: dict[int, Array]) -> None:
        """Run once in a working memory that is free, or in a new one; see `WorkingMemHandle.run`.

        Raises:
            ExecutionError: also where the network was unloaded before.
        """
        self.refuse_in_own_run("run again")
        self._enter()
        try:
            working = self._borrowed()
            try:
                working.run(inputs, outputs)
            finally:
                self._idle.append(working)
        finally:
            self._leave()

    def run_in(self, working: WorkingMemHandle, inputs: Mapping[int, Array], outputs: dict[int, Array]) -> None:
        """Run once in a working memory of this network."""
        self.refuse_in_own_run("run again")
        self._enter()
        try:
            working.run(inputs, outputs)
        finally:
            self._leave()

    def _borrowed(self) -> WorkingMemHandle:
        try:
            return self._idle.pop()
        except IndexError:
            return self.new_working_memory()

    def _enter(self) -> None:
        with self._changed:
            if self._released:
                raise ExecutionError(f"the network {self.optimized.name!r} was unloaded before the run began")
            self._runs[threading.get_ident()] += 1

    def _leave(self) -> None:
        thread = threading.get_ident()
        with self._changed:
            self._runs[thread] -= 1
            if not self._runs[thread]:
                del self._runs[thread]
            self._changed.notify_all()

    def refuse_in_own_run(self, what: str) -> None:
        """Raise `ExecutionError` where this thread runs the network already, as a callback may be called from there."""
        if threading.get_ident() in self._runs:
            raise ExecutionError(f"the network {self.optimized.name!r} cannot be {what} from within its own run")

    def release(self) -> None:
        """Give the memory back once no run uses it; the network cannot run any more. A failure is only logged."""
        with self._changed:
            self._released = True
            self._changed.wait_for(lambda: not self._runs)
        while self._idle:
            self._idle.pop().free()


def _made(factory: WorkloadFactory, layer: Layer) -> Workload:
    made = factory.create_workload(layer, WorkloadInfo.of(layer))
    return checked(made, Workload, "create_workload", str(layer.backend))

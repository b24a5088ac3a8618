"""`LoadedNetwork`: the workloads, handles and memory of one network in a runtime."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from interposer.backend import Backend, MemoryManager, TensorHandle, Workload, WorkloadFactory, WorkloadInfo
from interposer.backend.registry import checked
from interposer.errors import BackendContractError, BindingError, ExecutionError, InterposerError, LoadError
from interposer.ir.graph import Layer, Value
from interposer.ir.inference import shaped_by_data
from interposer.ir.optimized import OptimizedNetwork
from interposer.kernels.table import empty
from interposer.ops.control import Constant, Input, Output
from interposer.runtime.bindings import Bindings
from interposer.runtime.late import LateHandles, LateStep
from interposer.runtime.workloads import DebugCallback, DebugWorkload, runtime_workload
from interposer.types import Array, TensorInfo

__all__ = ["LoadedNetwork", "said"]

_T = TypeVar("_T")
_log = logging.getLogger("interposer.runtime")


@dataclass(frozen=True, slots=True)
class _Step:
    layer: Layer
    workload: Workload
    inputs: tuple[TensorHandle | None, ...]
    outputs: tuple[TensorHandle, ...]

    def execute(self, late: LateHandles) -> None:
        self.workload.execute(self.inputs, self.outputs)


class LoadedNetwork:
    """One network made ready to run. Runs of one network come one after the other; networks run side by side.

    Everything is made and planned here but what concerns tensors whose shapes depend on data: see `LateStep`.

    Raises:
        LoadError: a backend could not make a workload, a handle or its memory plan; nothing stays behind.
    """

    def __init__(self, optimized: OptimizedNetwork) -> None:
        self.optimized = optimized
        self.bindings = Bindings(optimized)
        self._lock = threading.Lock()
        self._runner: int | None = None
        self._acquired: set[str] = set()
        self._released = False
        self._managers: dict[str, MemoryManager] = {}
        self._factories: dict[str, WorkloadFactory] = {}
        self._handles: dict[Value, TensorHandle] = {}
        self._constants: dict[tuple[Value, str], TensorHandle] = {}
        self._late = shaped_by_data(optimized.graph)
        order = optimized.graph.topological()
        self._make_factories(order)
        self._make_handles(order)
        self._steps = [self._step(layer) for layer in order if not isinstance(layer.op, Input | Output | Constant)]
        self._plan_memory(order)
        for step in self._steps:
            if step.workload is not None:
                _guarded(step.layer, "could not be configured", step.workload.post_allocation_configure)

    def _make_factories(self, order: Iterable[Layer]) -> None:
        used = dict.fromkeys(layer.backend for layer in order if layer.backend is not None)
        for backend_id in used:
            backend: Backend = self.optimized.backends[backend_id]
            options = self.optimized.model_options.get(backend_id, {})
            try:
                manager = backend.create_memory_manager()
                if manager is not None:
                    self._managers[backend_id] = checked(manager, MemoryManager, "create_memory_manager", backend_id)
                factory = backend.create_workload_factory(manager, options)
                self._factories[backend_id] = checked(factory, WorkloadFactory, "create_workload_factory", backend_id)
            except Exception as error:
                raise LoadError(f"backend {backend_id} could not make its workload factory: {said(error)}") from error

    def _make_handles(self, order: Iterable[Layer]) -> None:
        for layer in order:
            for value in layer.outputs if not isinstance(layer.op, Constant) else ():
                if value not in self._late:
                    self._handles[value] = self._new_handle(layer, value)

    def _new_handle(self, layer: Layer, value: Value) -> TensorHandle:
        info = value.known
        if not info.is_concrete:
            raise LoadError(
                f"the tensor {value.name!r} of shape {info.shape} has unknown extents; give the inputs' shapes"
            )
        backend, plain = str(layer.backend), info.with_constant(None)
        make = self._factories[backend].create_tensor_handle
        return _guarded(
            layer, "got no tensor handle", lambda: _handle(make(plain), plain, "create_tensor_handle", backend)
        )

    def _step(self, layer: Layer) -> _Step | LateStep:
        factory = self._factories[str(layer.backend)]
        if not self._late.isdisjoint((*layer.values, *layer.outputs)):
            return LateStep(layer, factory, self._fixed_handles(layer))
        info = WorkloadInfo.of(layer)
        workload = runtime_workload(layer) or _guarded(
            layer, "got no workload", lambda: checked(
                factory.create_workload(layer, info), Workload, "create_workload", str(layer.backend)
            ),
        )  # fmt: skip
        inputs = tuple(None if value is None else self._input_handle(layer, value) for value in layer.inputs)
        return _Step(layer, workload, inputs, tuple(self._handles[value] for value in layer.outputs))

    def _fixed_handles(self, layer: Layer) -> dict[Value, TensorHandle]:
        fixed = {value: self._input_handle(layer, value) for value in layer.values if value not in self._late}
        return fixed | {value: self._handles[value] for value in layer.outputs if value not in self._late}

    def _input_handle(self, layer: Layer, value: Value) -> TensorHandle:
        if not value.is_constant:
            return self._handles[value]
        backend, info = str(layer.backend), value.known
        if (value, backend) not in self._constants:
            array, make = _constant(value), self._factories[backend].create_constant_handle
            self._constants[value, backend] = _guarded(
                layer, "got no constant", lambda: _handle(make(info, array), info, "create_constant_handle", backend)
            )
        return self._constants[value, backend]

    def _plan_memory(self, order: list[Layer]) -> None:
        """Tell every handle, in running order, when its tensor begins to live and when it was read for the last time.

        At moment 0 the network's inputs are filled, at 1 the first layer runs, and after the last one outputs are read.
        """
        moment = {layer.guid: number for number, layer in enumerate(order, 1)}
        moment |= {layer.guid: len(order) + 1 for layer in self.optimized.outputs}
        begins: list[list[Value]] = [[] for _ in range(len(order) + 2)]
        ends: list[list[Value]] = [[] for _ in begins]
        for value in self._handles:
            made = moment[value.producer.guid]
            begins[0 if isinstance(value.producer.op, Input) else made].append(value)
            ends[max((moment[use.layer.guid] for use in value.uses), default=made)].append(value)
        for beginning, ending in zip(begins, ends, strict=True):
            for value in beginning:
                _guarded(value.producer, "got no memory", self._handles[value].manage)
            for value in ending:
                _guarded(value.producer, "got no memory", self._handles[value].allocate)

    @property
    def acquired(self) -> bool:
        """True while a backend holds memory for the network's tensors."""
        return bool(self._acquired)

    @property
    def steps(self) -> tuple[tuple[str, str], ...]:
        """The layers that run, in order, each with its backend."""
        return tuple((step.layer.name, str(step.layer.backend)) for step in self._steps)

    def set_debug_callback(self, callback: DebugCallback | None) -> None:
        """Let Debug layers call this instead of printing."""
        for step in self._steps:
            if isinstance(step.workload, DebugWorkload):
                step.workload.callback = callback

    def run(self, inputs: Mapping[int, Array], outputs: dict[int, Array]) -> None:
        """Run once, from checked inputs into checked outputs; where a shape depends on data, arrays are added to them.

        Raises:
            BindingError: an output has another shape than the array that was given for it.
            ExecutionError: a backend got no memory, a workload failed, or the network was released meanwhile.
        """
        self.refuse_in_own_run("run again")
        with self._lock, np.errstate(all="ignore"):
            if self._released:
                raise ExecutionError(f"the network {self.optimized.name!r} was unloaded before the run began")
            self._runner = threading.get_ident()
            try:
                self._run(inputs, outputs)
            finally:
                self._runner = None

    def refuse_in_own_run(self, what: str) -> None:
        """Raise `ExecutionError` where this thread runs the network already, as a callback may be called from there."""
        if self._runner == threading.get_ident():
            raise ExecutionError(f"the network {self.optimized.name!r} cannot be {what} from within its own run")

    def _run(self, inputs: Mapping[int, Array], outputs: dict[int, Array]) -> None:
        self._acquire()
        for layer in self.optimized.inputs:
            array = inputs[_binding(layer)]
            _guarded_run(layer, "could not take in its data", lambda: self._handles[layer.output].copy_in(array))  # noqa: B023
        late: LateHandles = {}
        for step in self._steps:
            _guarded_run(step.layer, "failed", lambda: step.execute(late))  # noqa: B023
        for layer in self.optimized.outputs:
            self._give_out(layer, outputs, late)

    def _give_out(self, layer: Layer, outputs: dict[int, Array], late: LateHandles) -> None:
        [value], binding = layer.values, _binding(layer)
        if value.is_constant:
            np.copyto(outputs[binding], _constant(value))
            return
        handle = late[value] if value in late else self._handles[value]
        if binding not in outputs:
            outputs[binding] = empty(handle.info)
        target, found = outputs[binding], handle.info.shape
        if target.shape != tuple(found):
            title, given = f"output {binding} ({layer.name})", list(target.shape)
            raise BindingError(f"{title} turned out to have shape {found}, but the array for it {given}; give none")
        _guarded_run(layer, "could not give its data", lambda: handle.copy_out(target))

    def _acquire(self) -> None:
        for backend, manager in self._managers.items():
            if backend in self._acquired:
                continue
            try:
                manager.acquire()
            except Exception as error:
                raise ExecutionError(f"backend {backend} got no memory: {said(error)}", backend=backend) from error
            self._acquired.add(backend)

    def release(self) -> None:
        """Give the memory back once no run uses it; the network cannot run any more. A failure is only logged."""
        with self._lock:
            self._released = True
            while self._acquired:
                backend = self._acquired.pop()
                try:
                    self._managers[backend].release()
                except Exception as error:
                    _log.warning("backend %s could not release its memory: %s", backend, said(error))


def _handle(made: object, info: TensorInfo, what: str, backend: str) -> TensorHandle:
    handle = checked(made, TensorHandle, what, backend)
    if handle.info != info:
        raise BackendContractError(f"{what} gave a handle of {handle.info}; expected {info}", backend=backend)
    return handle


def _binding(layer: Layer) -> int:
    op: Any = layer.op
    return int(op.binding_id)


def _constant(value: Value) -> Array:
    op = value.producer.op
    assert isinstance(op, Constant)
    return op.value


def said(error: BaseException) -> str:
    """What an error says, with its type where it is none of ours."""
    return str(error) if isinstance(error, InterposerError) else f"{type(error).__name__}: {error}"


def _guarded(layer: Layer, what: str, call: Callable[[], _T]) -> _T:
    try:
        return call()
    except Exception as error:
        raise LoadError(f"layer {layer} {what} on backend {layer.backend}: {said(error)}") from error


def _guarded_run(layer: Layer, what: str, call: Callable[[], None]) -> None:
    try:
        call()
    except Exception as error:
        raise ExecutionError(
            f"layer {layer} {what} on backend {layer.backend}: {said(error)}",
            layer=layer.name,
            backend=str(layer.backend),
        ) from error

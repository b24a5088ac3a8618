"""`LoadedNetwork`: the workloads, handles and memory of one network in a runtime."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from interposer.backend import Backend, MemoryManager, TensorHandle, Workload, WorkloadFactory, WorkloadInfo
from interposer.backend.registry import checked
from interposer.errors import ExecutionError, InterposerError, LoadError
from interposer.ir.graph import Layer, Value
from interposer.ir.optimized import OptimizedNetwork
from interposer.ops.control import Constant, Input, Output
from interposer.runtime.bindings import Bindings
from interposer.runtime.workloads import DebugCallback, DebugWorkload, runtime_workload
from interposer.types import Array

__all__ = ["LoadedNetwork"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Step:
    layer: Layer
    workload: Workload
    inputs: tuple[TensorHandle | None, ...]
    outputs: tuple[TensorHandle, ...]


class LoadedNetwork:
    """One network made ready to run. Runs of one network come one after the other; networks run side by side.

    Raises:
        LoadError: a backend could not make a workload, a handle or its memory plan; nothing stays behind.
    """

    def __init__(self, optimized: OptimizedNetwork) -> None:
        self.optimized = optimized
        self.bindings = Bindings(optimized)
        self._lock = threading.Lock()
        self._acquired = False
        self._managers: dict[str, MemoryManager] = {}
        self._factories: dict[str, WorkloadFactory] = {}
        self._handles: dict[Value, TensorHandle] = {}
        self._constants: dict[tuple[Value, str], TensorHandle] = {}
        order = optimized.graph.topological()
        self._make_factories(order)
        self._make_handles(order)
        self._steps = [self._step(layer) for layer in order if not isinstance(layer.op, Input | Output | Constant)]
        self._plan_memory(order)
        for step in self._steps:
            _guarded(step.layer, "could not be configured", step.workload.post_allocation_configure)

    def _make_factories(self, order: Iterable[Layer]) -> None:
        used = dict.fromkeys(layer.backend for layer in order if layer.backend is not None)
        for backend_id in used:
            backend: Backend = self.optimized.backends[backend_id]
            options = self.optimized.model_options.get(backend_id, {})
            try:
                manager = backend.create_memory_manager()
                factory = backend.create_workload_factory(manager, options)
                self._factories[backend_id] = checked(factory, WorkloadFactory, "create_workload_factory", backend_id)
            except Exception as error:
                raise LoadError(f"backend {backend_id} could not make its workload factory: {_said(error)}") from error
            if manager is not None:
                self._managers[backend_id] = checked(manager, MemoryManager, "create_memory_manager", backend_id)

    def _make_handles(self, order: Iterable[Layer]) -> None:
        for layer in order:
            for value in layer.outputs if not isinstance(layer.op, Constant) else ():
                self._handles[value] = self._new_handle(layer, value)

    def _new_handle(self, layer: Layer, value: Value) -> TensorHandle:
        info = value.known
        if not info.is_concrete:
            raise LoadError(
                f"the tensor {value.name!r} of shape {info.shape} has unknown extents; give the inputs' shapes"
            )
        factory = self._factories[str(layer.backend)]
        return _guarded(layer, "got no tensor handle", lambda: factory.create_tensor_handle(info.with_constant(None)))

    def _step(self, layer: Layer) -> _Step:
        factory = self._factories[str(layer.backend)]
        info = WorkloadInfo.of(layer)
        workload = runtime_workload(layer) or _guarded(
            layer, "got no workload", lambda: checked(
                factory.create_workload(layer, info), Workload, "create_workload", str(layer.backend)
            ),
        )  # fmt: skip
        inputs = tuple(None if value is None else self._input_handle(layer, value) for value in layer.inputs)
        return _Step(layer, workload, inputs, tuple(self._handles[value] for value in layer.outputs))

    def _input_handle(self, layer: Layer, value: Value) -> TensorHandle:
        if not value.is_constant:
            return self._handles[value]
        key = (value, str(layer.backend))
        if key not in self._constants:
            array, factory = _constant(value), self._factories[key[1]]
            self._constants[key] = _guarded(
                layer, "got no constant", lambda: factory.create_constant_handle(value.known, array)
            )
        return self._constants[key]

    def _plan_memory(self, order: list[Layer]) -> None:
        position = {layer.guid: index for index, layer in enumerate(order)}
        last = {value: max((position[use.layer.guid] for use in value.uses), default=-1) for value in self._handles}
        for layer in order:
            if isinstance(layer.op, Input):
                _guarded(layer, "got no memory", self._handles[layer.output].manage)
        for index, layer in enumerate(order):
            self._live(layer, index, last)

    def _live(self, layer: Layer, index: int, last: Mapping[Value, int]) -> None:
        if isinstance(layer.op, Constant | Output):
            return
        if not isinstance(layer.op, Input):
            for value in layer.outputs:
                _guarded(layer, "got no memory", self._handles[value].manage)
        ending = [value for value in dict.fromkeys((*layer.values, *layer.outputs)) if not value.is_constant]
        for value in ending:
            used_later = last[value] > index or (isinstance(layer.op, Input) and last[value] >= 0)
            if not used_later:
                _guarded(layer, "got no memory", self._handles[value].allocate)

    @property
    def acquired(self) -> bool:
        """True while the network holds memory for its tensors."""
        return self._acquired

    @property
    def steps(self) -> tuple[tuple[str, str], ...]:
        """The layers that run, in order, each with its backend."""
        return tuple((step.layer.name, str(step.layer.backend)) for step in self._steps)

    def set_debug_callback(self, callback: DebugCallback | None) -> None:
        """Let Debug layers call this instead of printing."""
        for step in self._steps:
            if isinstance(step.workload, DebugWorkload):
                step.workload.callback = callback

    def run(self, inputs: Mapping[int, Array], outputs: Mapping[int, Array]) -> None:
        """Run once, from checked inputs into checked outputs."""
        with self._lock, np.errstate(all="ignore"):
            self._acquire()
            for layer in self.optimized.inputs:
                array = inputs[_binding(layer)]
                _guarded_run(layer, "could not take in its data", lambda: self._handles[layer.output].copy_in(array))  # noqa: B023
            for step in self._steps:
                _guarded_run(step.layer, "failed", lambda: step.workload.execute(step.inputs, step.outputs))  # noqa: B023
            for layer in self.optimized.outputs:
                self._copy_out(layer, outputs[_binding(layer)])

    def _copy_out(self, layer: Layer, target: Array) -> None:
        [value] = layer.values
        if value.is_constant:
            np.copyto(target, _constant(value))
        else:
            _guarded_run(layer, "could not give its data", lambda: self._handles[value].copy_out(target))

    def _acquire(self) -> None:
        if not self._acquired:
            for backend, manager in self._managers.items():
                try:
                    manager.acquire()
                except Exception as error:
                    raise ExecutionError(f"backend {backend} got no memory: {_said(error)}", backend=backend) from error
            self._acquired = True

    def release(self) -> None:
        """Give the memory back; the next run would acquire it again."""
        with self._lock:
            for manager in self._managers.values() if self._acquired else ():
                manager.release()
            self._acquired = False


def _binding(layer: Layer) -> int:
    op: Any = layer.op
    return int(op.binding_id)


def _constant(value: Value) -> Array:
    op = value.producer.op
    assert isinstance(op, Constant)
    return op.value


def _said(error: BaseException) -> str:
    return str(error) if isinstance(error, InterposerError) else f"{type(error).__name__}: {error}"


def _guarded(layer: Layer, what: str, call: Callable[[], _T]) -> _T:
    try:
        return call()
    except Exception as error:
        raise LoadError(f"layer {layer} {what} on backend {layer.backend}: {_said(error)}") from error


def _guarded_run(layer: Layer, what: str, call: Callable[[], None]) -> None:
    try:
        call()
    except Exception as error:
        raise ExecutionError(
            f"layer {layer} {what} on backend {layer.backend}: {_said(error)}",
            layer=layer.name,
            backend=str(layer.backend),
        ) from error

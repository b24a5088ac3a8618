"""What the backends of one loaded network make for it: factories, memory managers, handles and workloads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from interposer.backend import (
    ArrayHandle,
    Backend,
    MemoryManager,
    TensorHandle,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
)
from interposer.backend.registry import checked
from interposer.errors import BackendContractError, ExecutionError, InterposerError, LoadError
from interposer.ir.graph import Layer, Value
from interposer.ir.optimized import OptimizedNetwork
from interposer.ops.control import Constant
from interposer.types import Array, TensorInfo

__all__ = ["Factories", "constant_of", "guarded", "said"]

_T = TypeVar("_T")
_log = logging.getLogger("interposer.runtime")


class Factories:
    """The workload factories and memory managers of a network and of all regions in it, for one run at a time.

    Constants are those of `first`, the factories that the network's workloads come from.

    Raises:
        LoadError: a backend could not make its memory manager or its factory.
    """

    def __init__(self, optimized: OptimizedNetwork, layers: Iterable[Layer], first: Factories | None = None) -> None:
        self._optimized = optimized
        self._first = first or self
        self.managers: dict[str, MemoryManager] = {}
        self._factories: dict[str, WorkloadFactory] = {}
        self._constants: dict[tuple[int, TensorInfo, str], TensorHandle] = {}
        self._acquired: set[str] = set()
        for backend_id in dict.fromkeys(layer.backend for layer in layers if layer.backend is not None):
            self._add(backend_id)

    def _add(self, backend_id: str) -> None:
        backend: Backend = self._optimized.backends[backend_id]
        options = self._optimized.model_options.get(backend_id, {})
        try:
            manager = backend.create_memory_manager()
            if manager is not None:
                self.managers[backend_id] = checked(manager, MemoryManager, "create_memory_manager", backend_id)
            factory = backend.create_workload_factory(manager, options)
            self._factories[backend_id] = checked(factory, WorkloadFactory, "create_workload_factory", backend_id)
        except Exception as error:
            text = f"backend {backend_id} could not make its workload factory: {said(error)}"
            raise LoadError(text, backend=backend_id) from error

    def of(self, layer: Layer) -> WorkloadFactory:
        """The factory of the layer's backend."""
        return self._factories[str(layer.backend)]

    def workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        """The workload of a layer that a backend runs."""
        made = self.of(layer).create_workload(layer, info)
        return checked(made, Workload, "create_workload", str(layer.backend))

    def handle(self, layer: Layer, value: Value) -> TensorHandle:
        """A handle for what a layer gives; `LoadError` where its shape is not known.

        What is no tensor lies in ordinary memory, whichever backend has the layer.
        """
        info = value.known
        if not info.is_concrete:
            raise LoadError(
                f"the tensor {value.name!r} of shape {info.shape} has unknown extents; give the inputs' shapes"
            )
        plain = info.with_constant(None)
        make = self.of(layer).create_tensor_handle if info.is_tensor else ArrayHandle
        return guarded(
            layer, "got no tensor handle", lambda: _checked(make(plain), plain, "create_tensor_handle", layer)
        )

    def constant(self, layer: Layer, value: Value) -> TensorHandle:
        """The handle of a constant that a layer takes; one for all layers of a backend that take the same array."""
        array, info = constant_of(value), value.known
        key, known = (id(array), info, str(layer.backend)), self._first._constants
        if key not in known:
            make = self._first.of(layer).create_constant_handle
            known[key] = guarded(
                layer, "got no constant", lambda: _checked(make(info, array), info, "create_constant_handle", layer)
            )
        return known[key]

    @property
    def planned_bytes(self) -> int:
        """The bytes of all arenas, as far as the backends' memory managers tell."""
        return sum(int(getattr(manager, "planned_bytes", 0)) for manager in self.managers.values())

    @property
    def constant_bytes(self) -> int:
        """The bytes of all constants, each array counted once."""
        arrays = {key[0]: key[1] for key in self._first._constants}
        return sum(int(info.num_bytes) for info in arrays.values() if info.dtype.bits)

    @property
    def acquired(self) -> bool:
        """True while a backend holds memory for the network's tensors."""
        return bool(self._acquired)

    def acquire(self) -> None:
        """Let the backends get the memory that was planned, if they have not yet.

        Raises:
            ExecutionError: one could not.
        """
        if len(self._acquired) == len(self.managers):
            return
        for backend, manager in self.managers.items():
            if backend in self._acquired:
                continue
            try:
                manager.acquire()
            except Exception as error:
                raise ExecutionError(f"backend {backend} got no memory: {said(error)}", backend=backend) from error
            self._acquired.add(backend)

    def release(self) -> None:
        """Let the backends give their memory back; a failure is only logged."""
        while self._acquired:
            backend = self._acquired.pop()
            try:
                self.managers[backend].release()
            except Exception as error:
                _log.warning("backend %s could not release its memory: %s", backend, said(error))


def _checked(made: object, info: TensorInfo, what: str, layer: Layer) -> TensorHandle:
    backend = str(layer.backend)
    handle = checked(made, TensorHandle, what, backend)
    if handle.info != info:
        raise BackendContractError(f"{what} gave a handle of {handle.info}; expected {info}", backend=backend)
    return handle


def constant_of(value: Value) -> Array:
    """The array of a Constant layer's output."""
    op = value.producer.op
    assert isinstance(op, Constant)
    return op.value


def said(error: BaseException) -> str:
    """What an error says, with its type where it is none of ours."""
    return str(error) if isinstance(error, InterposerError) else f"{type(error).__name__}: {error}"


def guarded(layer: Layer, what: str, call: Callable[[], _T]) -> _T:
    """What `call` gives; a `LoadError` that names the layer where it fails."""
    try:
        return call()
    except Exception as error:
        text = f"layer {layer} {what} on backend {layer.backend}: {said(error)}"
        raise LoadError(text, backend=str(layer.backend)) from error

"""Backends for tests: they really compute, and one keeps its tensors in a heap of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from interposer.backend import (
    Backend,
    BackendContext,
    KernelTable,
    KernelWorkloadFactory,
    MemoryManager,
    Options,
    TensorHandle,
    WorkloadFactory,
)
from interposer.core.types import Array, DataType, TensorInfo
from interposer.ops import Activation, ActivationFunction, Addition, Multiplication

FLOAT = {DataType.FLOAT32}
relu_table = KernelTable()
sums = KernelTable()


def _only_relu(op: Activation, info: object) -> str | None:
    return None if op.function is ActivationFunction.RELU else f"{op.function.name} is not RELU"


@relu_table(Activation, dtypes=FLOAT, when=_only_relu)
def relu(op: Activation, x: Array, *, out: Array) -> None:
    np.maximum(x, 0, out=out)


@sums(Addition, dtypes=FLOAT)
def add(op: Addition, a: Array, b: Array, *, out: Array) -> None:
    np.add(a, b, out=out)


@sums(Multiplication, dtypes=FLOAT)
def multiply(op: Multiplication, a: Array, b: Array, *, out: Array) -> None:
    np.multiply(a, b, out=out)


class Sums(Backend):
    """Adds and multiplies float32 tensors, in ordinary memory."""

    id: ClassVar = "Sums"
    kernels: ClassVar = sums


class Heap(MemoryManager):
    """The memory of a device that the host cannot read: every byte is stored inverted."""

    def __init__(self) -> None:
        self.bytes: dict[int, Array] | None = None
        self.constants: dict[int, Array] = {}
        self.log: list[str] = []

    def acquire(self) -> None:
        self.log.append("acquire")
        self.bytes = {}

    def release(self) -> None:
        self.log.append("release")
        self.bytes = None


class HeapHandle(TensorHandle):
    """A tensor on the heap; mapping decodes it, unmapping encodes what the host wrote."""

    def __init__(self, info: TensorInfo, heap: Heap, constant: bool = False) -> None:
        super().__init__(info)
        self._heap, self._constant = heap, constant
        self._mapped: Array | None = None

    def map(self) -> Array:
        stored = self._store().get(id(self))
        if stored is None:
            self._mapped = np.zeros(tuple(self.info.shape), self.info.dtype.numpy)
        else:
            self._mapped = (~stored).view(self.info.dtype.numpy).reshape(tuple(self.info.shape)).copy()
        return self._mapped

    def unmap(self) -> None:
        if self._mapped is not None:
            self._store()[id(self)] = ~np.frombuffer(self._mapped.tobytes(), np.uint8)
            self._mapped = None

    def _store(self) -> dict[int, Array]:
        if self._constant:
            return self._heap.constants
        assert self._heap.bytes is not None, "the heap is used while it is released"
        return self._heap.bytes


class DeviceFactory(KernelWorkloadFactory):
    """Makes handles on the heap."""

    def create_tensor_handle(self, info: TensorInfo) -> TensorHandle:
        assert isinstance(self.memory_manager, Heap)
        return HeapHandle(info, self.memory_manager)

    def create_constant_handle(self, info: TensorInfo, array: Array) -> TensorHandle:
        assert isinstance(self.memory_manager, Heap)
        handle = HeapHandle(info, self.memory_manager, constant=True)
        handle.copy_in(array)
        return handle


class Notes(BackendContext):
    """Records its calls, and refuses those that the test names."""

    def __init__(self, noes: Sequence[str] = ()) -> None:
        self.noes = set(noes)
        self.log: list[tuple[str, int]] = []

    def _note(self, what: str, network_id: int) -> bool:
        self.log.append((what, network_id))
        return what not in self.noes

    def before_load_network(self, network_id: int) -> bool:
        return self._note("before_load", network_id)

    def after_load_network(self, network_id: int) -> bool:
        return self._note("after_load", network_id)

    def before_unload_network(self, network_id: int) -> bool:
        return self._note("before_unload", network_id)

    def after_unload_network(self, network_id: int) -> bool:
        return self._note("after_unload", network_id)


class Device(Backend):
    """A device with a heap of its own that can only compute ReLU in float32."""

    id: ClassVar = "Device"
    kernels: ClassVar = relu_table

    def __init__(self, noes: Sequence[str] = ()) -> None:
        self.heaps: list[Heap] = []
        self.notes = Notes(noes)
        self.options: Options = {}

    def create_memory_manager(self) -> MemoryManager:
        self.heaps.append(Heap())
        return self.heaps[-1]

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return DeviceFactory(self.kernels, memory_manager)

    def create_backend_context(self, options: Options) -> BackendContext:
        self.options = options
        return self.notes


def single(backend: Backend) -> Callable[[], Backend]:
    """A factory that always gives this backend, so that a test can look into it."""
    return lambda: backend

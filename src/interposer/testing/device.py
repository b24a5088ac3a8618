"""A discrete device to test with: it really computes, in memory of its own that the host cannot look into.

Its tensors have rows that begin at multiples of 32 bytes, and only the device's own copies bring them in and out. These
are counted, and a cost is worked out for them as a bus would have it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np

from interposer.backend.base import Backend
from interposer.backend.capabilities import Options
from interposer.backend.handles import TensorHandleFactory, TensorHandleFactoryRegistry
from interposer.backend.memory import MemoryManager, TensorHandle
from interposer.backend.planner import Lifetime, MemoryPlan, plan
from interposer.backend.workload import Workload, WorkloadFactory, WorkloadInfo
from interposer.core.errors import BackendContractError
from interposer.core.schema import Op
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Layer
from interposer.kernels import reference
from interposer.kernels.table import Kernel, KernelInfo, KernelTable

__all__ = ["Bus", "DeviceHandle", "DiscreteBackend"]

ROW: Final = 32
"""Bytes to which rows of tensors in the device's memory are padded."""


class Bus:
    """Counts what crosses between the device and the host, and what that would cost; safe to use from several threads.

    Args:
        latency: seconds that every copy takes at least.
        bandwidth: bytes in a second.
        waits: whether copies really take that long, or are only counted.
    """

    def __init__(self, latency: float = 10e-6, bandwidth: float = 12e9, waits: bool = False) -> None:
        self.latency, self.bandwidth, self.waits = latency, bandwidth, waits
        self.uploads = self.downloads = self.uploaded_bytes = self.downloaded_bytes = 0
        self.seconds = 0.0
        self._lock = threading.Lock()

    def upload(self, size: int) -> None:
        """Count bytes that go to the device."""
        with self._lock:
            self.uploads, self.uploaded_bytes = self.uploads + 1, self.uploaded_bytes + size
        self._take(size)

    def download(self, size: int) -> None:
        """Count bytes that come from the device."""
        with self._lock:
            self.downloads, self.downloaded_bytes = self.downloads + 1, self.downloaded_bytes + size
        self._take(size)

    def _take(self, size: int) -> None:
        seconds = self.latency + size / self.bandwidth
        with self._lock:
            self.seconds += seconds
        if self.waits:
            time.sleep(seconds)


class DeviceMemory(MemoryManager):
    """The memory of the tensors of one run, in which those share room that do not live at the same time."""

    def __init__(self) -> None:
        self.handles: list[DeviceHandle] = []
        self.lives: list[Lifetime] = []
        self.heap: Array | None = None
        self._moment = 0

    def begin(self, handle: DeviceHandle) -> int:
        """Begin the life of a tensor; its number."""
        self._moment += 1
        self.handles.append(handle)
        self.lives.append(Lifetime(handle.room, self._moment, self._moment))
        return len(self.lives) - 1

    def end(self, number: int) -> None:
        """End the life of a tensor."""
        self._moment += 1
        self.lives[number] = replace(self.lives[number], ends=self._moment)

    @property
    def plan(self) -> MemoryPlan:
        """Where the tensors lie."""
        return plan(self.lives, ROW)

    @property
    def planned_bytes(self) -> int:
        """How much memory of the device is needed."""
        return self.plan.size

    def acquire(self) -> None:
        """Get the memory, filled with noise."""
        created = self.plan
        self.heap = np.full(created.size, 0xA5, np.uint8)
        for handle, offset in zip(self.handles, created.offsets, strict=True):
            handle.lie_in(self.heap, offset)

    def release(self) -> None:
        """Give it back."""
        self.heap = None
        for handle in self.handles:
            handle.lie_in(None, 0)


class DeviceHandle(TensorHandle):
    """A tensor in the device's memory, or a piece of one."""

    def __init__(self, info: TensorInfo, memory: DeviceMemory | None) -> None:
        super().__init__(info)
        self._memory = memory
        self._number = -1
        self._heap: Array | None = None
        self._offset = 0
        shape, size = tuple(map(int, info.shape)), info.dtype.numpy.itemsize
        self.row = -(-shape[-1] * size // ROW) * ROW if shape else ROW
        self.room = self.row * math.prod(shape[:-1])

    @property
    def strides(self) -> tuple[int, ...]:
        """The bytes between indices of each axis."""
        shape, size = tuple(map(int, self.info.shape)), self.info.dtype.numpy.itemsize
        outer = [self.row * math.prod(shape[axis + 1 : -1]) for axis in range(len(shape) - 1)]
        return (*outer, size) if shape else ()

    def manage(self) -> None:
        """Begin the tensor's life."""
        if self._memory is not None:
            self._number = self._memory.begin(self)

    def allocate(self) -> None:
        """End the tensor's life, or get memory for it alone."""
        if self._memory is not None and self._number >= 0:
            self._memory.end(self._number)
        else:
            self.lie_in(np.full(self.room, 0xA5, np.uint8), 0)

    def lie_in(self, heap: Array | None, offset: int) -> None:
        """Lie in this memory from now on."""
        self._heap, self._offset = heap, offset

    def create_sub_tensor(self, origin: Sequence[int], info: TensorInfo) -> TensorHandle:
        """Return a piece of the tensor, with the same strides."""
        return _Piece(self, tuple(origin), info)

    def map(self) -> Array:
        """Return the host cannot look into the device.

        Raises:
            BackendContractError: always.
        """
        raise BackendContractError("the memory of the discrete device cannot be mapped")

    def on_device(self) -> Array:
        """Return the tensor as the device's own code sees it."""
        if self._heap is None:
            raise BackendContractError(f"the tensor {self.info} is used while the device has no memory for it")
        shape = tuple(map(int, self.info.shape))
        return np.ndarray(shape, self.info.dtype.numpy, self._heap.data, self._offset, self.strides)


class _Piece(DeviceHandle):
    def __init__(self, whole: DeviceHandle, origin: tuple[int, ...], info: TensorInfo) -> None:
        super().__init__(info, None)
        self._whole = whole
        self._place = tuple(slice(start, start + int(n)) for start, n in zip(origin, info.shape, strict=True))

    def allocate(self) -> None:
        """The whole is allocated."""

    def on_device(self) -> Array:
        """Return a part of the whole."""
        place: tuple[Any, ...] = (..., *self._place)
        view: Array = self._whole.on_device()[place]
        return view


class DeviceHandleFactory(TensorHandleFactory):
    """Makes tensors in the device's memory; only the device copies to and from it."""

    supports_map = False
    supports_device_copy = True

    def __init__(self, backend: DiscreteBackend, memory: DeviceMemory) -> None:
        self.id = f"Interposer/{backend.id}/Rows"
        self.supports_sub_tensors = backend.sub_tensors
        self._memory, self._bus = memory, backend.bus

    def create(self, info: TensorInfo) -> TensorHandle:
        """Return a tensor on the device."""
        return DeviceHandle(info, self._memory)

    def create_constant(self, info: TensorInfo, array: Array) -> TensorHandle:
        """Return a constant, which goes to the device once."""
        handle = DeviceHandle(info, None)
        handle.allocate()
        handle.on_device()[...] = array
        self._bus.upload(array.nbytes)
        return handle

    def create_device_copy(self) -> Workload:
        """Return the device's copy engine."""
        return _DeviceCopy(self._bus)


class _DeviceCopy(Workload):
    concurrent = strided = True

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        [source], [target] = inputs, outputs
        if isinstance(target, DeviceHandle) and source is not None:
            with source.mapped() as array:
                target.on_device()[...] = array
                self._bus.upload(array.nbytes)
        elif isinstance(source, DeviceHandle):
            with target.mapped() as array:
                array[...] = source.on_device()
                self._bus.download(array.nbytes)


class _DeviceWorkload(Workload):
    concurrent = strided = True

    def __init__(self, op: Op, kernel: Kernel, info: KernelInfo) -> None:
        self.op, self.kernel, self.info = op, kernel, info
        self.prepared = kernel.make_ready(op, info)

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        arrays = [None if item is None else _device(item).on_device() for item in inputs]
        result = [_device(output).on_device() for output in outputs]
        self.kernel.call(self.op, arrays, self.info, result, self.prepared)


def _device(handle: TensorHandle) -> DeviceHandle:
    if not isinstance(handle, DeviceHandle):
        raise BackendContractError(f"the discrete device was given a {type(handle).__name__}, which it cannot read")
    return handle


class _DeviceWorkloadFactory(WorkloadFactory):
    def __init__(self, kernels: KernelTable, memory_manager: MemoryManager | None) -> None:
        super().__init__(memory_manager)
        self.kernels = kernels

    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        kernel_info = KernelInfo.of(layer.op, info.inputs, info.outputs)
        result = self.kernels.find(layer.op, kernel_info)
        if result is None:
            why = "; ".join(self.kernels.reasons(layer.op, kernel_info))
            raise BackendContractError(f"the discrete device has no kernel for layer {layer}: {why}")
        return _DeviceWorkload(layer.op, result, kernel_info)


class DiscreteBackend(Backend):
    """A device that runs what its kernels can, by default all that the reference has, on memory of its own.

    Args:
        kernels: what it can compute.
        bus: what counts its copies; one of its own by default.
        sub_tensors: whether pieces of its tensors can be tensors.
        id: its id, where several are to be there at once.
    """

    id: ClassVar = "Discrete"

    def __init__(
        self,
        kernels: KernelTable | None = None,
        bus: Bus | None = None,
        sub_tensors: bool = False,
        id: str = "Discrete",
    ) -> None:
        self.id = id  # type: ignore[misc] # several devices may be there
        self.kernels = reference() if kernels is None else kernels  # type: ignore[misc]
        self.bus, self.sub_tensors = Bus() if bus is None else bus, sub_tensors

    @property
    def handle_factory_preferences(self) -> Sequence[str]:
        """Its own memory, and nothing else."""
        return (f"Interposer/{self.id}/Rows",)

    def register_tensor_handle_factories(self, registry: TensorHandleFactoryRegistry, options: Options) -> None:
        """Bring the device's memory."""
        memory = DeviceMemory()
        registry.register_memory_manager(memory)
        registry.register_factory(DeviceHandleFactory(self, memory))

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        """Makes workloads that read and write the device's memory."""
        return _DeviceWorkloadFactory(self.kernels, memory_manager)

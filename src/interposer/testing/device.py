"""A simulated discrete device for tests: it computes real results, in memory that the host cannot map.

Rows of its tensors are aligned to 32 bytes, and only the device's own copy workloads transfer data in and out. The
simulated bus counts the copies and models their cost from a latency and a bandwidth.
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
    """A counter of the transfers between device and host, with a model of their cost. Thread-safe.

    Args:
        latency: the minimum duration of every copy, in seconds.
        bandwidth: bytes per second.
        waits: True to sleep for the modelled duration of each copy; False to count only.
    """

    def __init__(self, latency: float = 10e-6, bandwidth: float = 12e9, waits: bool = False) -> None:
        self.latency, self.bandwidth, self.waits = latency, bandwidth, waits
        self.uploads = self.downloads = self.uploaded_bytes = self.downloaded_bytes = 0
        self.seconds = 0.0
        self._lock = threading.Lock()

    def upload(self, size: int) -> None:
        """Count a transfer of `size` bytes to the device."""
        with self._lock:
            self.uploads, self.uploaded_bytes = self.uploads + 1, self.uploaded_bytes + size
        self._take(size)

    def download(self, size: int) -> None:
        """Count a transfer of `size` bytes from the device."""
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
    """The memory manager of the simulated device: the memory of all tensors of one run.

    Tensors whose lifetimes do not overlap may share memory.
    """

    def __init__(self) -> None:
        self.handles: list[DeviceHandle] = []
        self.lives: list[Lifetime] = []
        self.heap: Array | None = None
        self._moment = 0

    def begin(self, handle: DeviceHandle) -> int:
        """Begin the lifetime of a tensor; return its number in the memory plan."""
        self._moment += 1
        self.handles.append(handle)
        self.lives.append(Lifetime(handle.room, self._moment, self._moment))
        return len(self.lives) - 1

    def end(self, number: int) -> None:
        """End the lifetime of the tensor with this number."""
        self._moment += 1
        self.lives[number] = replace(self.lives[number], ends=self._moment)

    @property
    def plan(self) -> MemoryPlan:
        """Return the memory plan: the offset of each tensor."""
        return plan(self.lives, ROW)

    @property
    def planned_bytes(self) -> int:
        """The size of the device memory that the plan needs, in bytes."""
        return self.plan.size

    def acquire(self) -> None:
        """Allocate the memory and fill it with noise."""
        plan = self.plan
        self.heap = np.full(plan.size, 0xA5, np.uint8)
        for handle, offset in zip(self.handles, plan.offsets, strict=True):
            handle.lie_in(self.heap, offset)

    def release(self) -> None:
        """Free the memory."""
        self.heap = None
        for handle in self.handles:
            handle.lie_in(None, 0)


class DeviceHandle(TensorHandle):
    """The handle of a tensor, or of a sub-tensor, in the device's memory."""

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
        """The strides of each axis, in bytes."""
        shape, size = tuple(map(int, self.info.shape)), self.info.dtype.numpy.itemsize
        outer_strides = [self.row * math.prod(shape[axis + 1 : -1]) for axis in range(len(shape) - 1)]
        return (*outer_strides, size) if shape else ()

    def manage(self) -> None:
        """Begin the tensor's lifetime in the memory plan."""
        if self._memory is not None:
            self._number = self._memory.begin(self)

    def allocate(self) -> None:
        """End the tensor's lifetime in the memory plan, or allocate memory for an unmanaged tensor."""
        if self._memory is not None and self._number >= 0:
            self._memory.end(self._number)
        else:
            self.lie_in(np.full(self.room, 0xA5, np.uint8), 0)

    def lie_in(self, heap: Array | None, offset: int) -> None:
        """Place the tensor at an offset (in bytes) of the device's memory `heap`; None takes its memory away."""
        self._heap, self._offset = heap, offset

    def create_sub_tensor(self, origin: Sequence[int], info: TensorInfo) -> TensorHandle:
        """Return the handle of a region of the tensor, with the same strides."""
        return _Piece(self, tuple(origin), info)

    def map(self) -> Array:
        """Refuse to map the tensor, since the host cannot access the device's memory.

        Raises:
            BackendContractError: always.
        """
        raise BackendContractError("the memory of the discrete device cannot be mapped")

    def on_device(self) -> Array:
        """Return the tensor as an array in the simulated device's memory, for the device's own kernels."""
        if self._heap is None:
            raise BackendContractError(f"the tensor {self.info} is used while the device has no memory for it")
        shape = tuple(map(int, self.info.shape))
        return np.ndarray(shape, self.info.dtype.numpy, self._heap.data, self._offset, self.strides)


class _Piece(DeviceHandle):
    def __init__(self, parent: DeviceHandle, origin: tuple[int, ...], info: TensorInfo) -> None:
        super().__init__(info, None)
        self._whole = parent
        self._place = tuple(slice(start, start + int(size)) for start, size in zip(origin, info.shape, strict=True))

    def allocate(self) -> None:
        """Do nothing: the parent tensor owns the memory."""

    def on_device(self) -> Array:
        """Return the region of the parent's array."""
        region: tuple[Any, ...] = (..., *self._place)
        view: Array = self._whole.on_device()[region]
        return view


class DeviceHandleFactory(TensorHandleFactory):
    """A factory of tensors in the device's memory. Only the device's copy workloads transfer data to and from them."""

    supports_map = False
    supports_device_copy = True

    def __init__(self, backend: DiscreteBackend, memory: DeviceMemory) -> None:
        self.id = f"Interposer/{backend.id}/Rows"
        self.supports_sub_tensors = backend.sub_tensors
        self._memory, self._bus = memory, backend.bus

    def create(self, info: TensorInfo) -> TensorHandle:
        """Create a tensor on the device."""
        return DeviceHandle(info, self._memory)

    def create_constant(self, info: TensorInfo, array: Array) -> TensorHandle:
        """Create a constant; its data is transferred to the device once."""
        handle = DeviceHandle(info, None)
        handle.allocate()
        handle.on_device()[...] = array
        self._bus.upload(array.nbytes)
        return handle

    def create_device_copy(self) -> Workload:
        """Return the copy workload of the device."""
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
        arrays = [None if handle is None else _device(handle).on_device() for handle in inputs]
        targets = [_device(output).on_device() for output in outputs]
        self.kernel.call(self.op, arrays, self.info, targets, self.prepared)


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
        kernel = self.kernels.find(layer.op, kernel_info)
        if kernel is None:
            reasons = "; ".join(self.kernels.reasons(layer.op, kernel_info))
            raise BackendContractError(f"the discrete device has no kernel for layer {layer}: {reasons}")
        return _DeviceWorkload(layer.op, kernel, kernel_info)


class DiscreteBackend(Backend):
    """A backend for the simulated device. It runs the given kernels, by default all kernels of the reference backend.

    Args:
        kernels: the kernels that the device can compute.
        bus: the counter of copies; by default a new one.
        sub_tensors: whether its tensor handles support sub-tensors.
        id: the backend's id, for tests that need several devices.
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
        """The factory of the device's memory only."""
        return (f"Interposer/{self.id}/Rows",)

    def register_tensor_handle_factories(self, registry: TensorHandleFactoryRegistry, options: Options) -> None:
        """Register the factory of the device's memory."""
        memory = DeviceMemory()
        registry.register_memory_manager(memory)
        registry.register_factory(DeviceHandleFactory(self, memory))

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        """Return a factory of workloads that read and write the device's memory."""
        return _DeviceWorkloadFactory(self.kernels, memory_manager)

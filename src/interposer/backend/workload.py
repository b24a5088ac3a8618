"""Workloads, which execute layers, and the factories that create them."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from interposer.backend.memory import ArenaMemoryManager, ArrayHandle, MemoryManager, TensorHandle
from interposer.core.errors import BackendContractError
from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.core.types import Array, DataLayout, TensorInfo
from interposer.ir.graph import Layer
from interposer.kernels.table import Kernel, KernelInfo, KernelTable

__all__ = [
    "KernelWorkload", "KernelWorkloadFactory", "Workload", "WorkloadFactory", "WorkloadInfo", "prepare_recording_of",
]  # fmt: skip

_log: Final = logging.getLogger("interposer.profiling")


@dataclass(frozen=True, slots=True)
class WorkloadInfo:
    """The infos of the tensors that a workload reads and writes, in the order of the layer's operands and results.

    An absent optional input is None. The info of a constant includes its value.
    """

    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo, ...]

    @classmethod
    def of(cls, layer: Layer) -> WorkloadInfo:
        """Return the infos of a layer's tensors."""
        return cls(layer.input_infos, layer.output_infos)


class Workload(ABC):
    """What runs one layer of a loaded network, in every run.

    It keeps no state between runs but what it was created with.
    """

    concurrent: bool = False
    """True if several threads may execute the workload concurrently, on different tensors."""
    in_place: bool = False
    """True if the output may use the memory of an input that the operator lists in `Op.in_place`."""
    only_reads: bool = False
    """True if the workload never writes to an input. Inputs of other workloads are passed as read-only arrays, which is
    slower."""
    strided: bool = False
    """True if tensors may be sub-tensors, which map to arrays that are not contiguous."""
    asynchronous: bool = False
    """True if the workload can be submitted to a queue of the backend (`Backend.create_queue`).

    It must be `concurrent` as well. `execute` remains synchronous.
    """
    estimates_memory: bool = False
    """True if `memory` is an estimate instead of a measured value."""

    @property
    def aliases(self) -> Mapping[int, int]:
        """The outputs that may have the memory of an input of the same size: positions of operands by those of results.

        `execute` then has the right results whether the two are in the same memory or not. If they are, only what
        differs from the input is written.
        """
        return {}

    @property
    def memory(self) -> int | None:
        """The bytes that the workload holds in addition to its tensors and the network's constants; None if unknown.

        For a compiled subgraph, 0 means that the size is unknown.
        """
        return 0

    def post_allocation_configure(self) -> None:
        """Called once, after all workloads of the network are created and its memory is planned."""

    def prepare_recording(self) -> None:
        """Prepare to measure steps inside of the workload; called before each run that a profile records.

        The recorded times do not contain this call. It may be made by several threads at the same time.
        """

    @abstractmethod
    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Compute the outputs from the inputs, both in the order of the layer's operands and results."""

    def prepare(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> Callable[[], None]:
        """Return a function that executes the workload on these handles, as long as their memory stays the same.

        The handles have memory when this is called, and only one run at a time calls the result. Override this method
        to map the handles once instead of in every run.
        """
        return partial(self.execute, inputs, outputs)


def prepare_recording_of(workload: Workload) -> None:
    """Let a workload prepare to be measured; an exception is logged, since it need not prevent the run."""
    try:
        workload.prepare_recording()
    except Exception as error:
        _log.warning("a workload cannot prepare a recording: %s: %s", type(error).__name__, error)


class WorkloadFactory:
    """Creates the workloads and the tensor handles of one backend for one network.

    Its handles are arrays in ordinary memory: in the arena of the memory manager if it is an `ArenaMemoryManager`, else
    separate arrays. Override `create_tensor_handle` for other kinds of memory.
    """

    alignment: int = 1
    """Alignment in bytes, a power of two, that memory must have to be used without a copy."""

    def __init__(self, memory_manager: MemoryManager | None = None) -> None:
        self.memory_manager = memory_manager

    @property
    def makes_arrays(self) -> bool:
        """True if tensor handles are arrays in ordinary memory, because the methods that create them are inherited."""
        factory_class, base = type(self), WorkloadFactory
        return (
            factory_class.create_tensor_handle is base.create_tensor_handle
            and factory_class.new_handle is base.new_handle
        )

    @property
    def supports_sub_tensors(self) -> bool:
        """True if handles can create handles for parts of themselves: see `TensorHandle.create_sub_tensor`."""
        return self.makes_arrays

    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        """Return the workload of a layer that is assigned to the backend; its descriptor is ``layer.op``.

        Raises:
            BackendContractError: this factory cannot create a workload for the layer.
        """
        raise BackendContractError(f"{type(self).__name__} creates no workload for layer {layer}")

    def create_tensor_handle(self, info: TensorInfo) -> TensorHandle:
        """Return a new handle for a layer's output, or for an input of the network, with this info."""
        manager = self.memory_manager
        arena = manager if isinstance(manager, ArenaMemoryManager) else None
        return ArrayHandle(info, manager=arena, alignment=self.alignment)

    def new_handle(self, info: TensorInfo, layout: DataLayout | None, managed: bool) -> TensorHandle:
        """Return a new handle like `create_tensor_handle`, which this calls by default.

        Override it to use the other arguments, which `TensorHandleFactory.new_handle` describes.
        """
        return self.create_tensor_handle(info)

    def create_constant_handle(self, info: TensorInfo, array: Array) -> TensorHandle:
        """Return a handle for a constant, filled with `array`; array handles use the constant without a copy.

        Constants are not part of the memory plan: override this too if the handles get their memory from a manager.
        """
        if self.makes_arrays:
            return ArrayHandle(info, array)
        handle = self.create_tensor_handle(info)
        handle.allocate()
        handle.copy_in(array)
        return handle


class KernelWorkload(Workload):
    """The workload of a layer that is computed by a kernel (a function on NumPy arrays).

    Outputs whose shape depends on data are resized to what the kernel returns.
    """

    concurrent = in_place = strided = True

    def __init__(self, op: Op, kernel: Kernel, info: KernelInfo) -> None:
        self.op, self.kernel, self.info = op, kernel, info
        self.prepared = kernel.make_ready(op, info)
        self._has_unknown_shapes = not all(output.is_concrete for output in info.outputs)

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Map the handles of all tensors to arrays, call the kernel on them, and unmap them."""
        with ExitStack() as stack:
            mapped_handles: list[TensorHandle] = []
            stack.callback(_unmap, mapped_handles)
            arrays = [None if handle is None else _array(handle, stack, mapped_handles) for handle in inputs]
            if self._has_unknown_shapes:
                self._compute_unknown_shapes(arrays, outputs)
                return
            out = [_array(handle, stack, mapped_handles) for handle in outputs]
            self.kernel.call(self.op, arrays, self.info, out, self.prepared)

    def prepare(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> Callable[[], None]:
        """Return a function that calls the kernel on the arrays of these handles.

        Handles in ordinary memory are mapped only once; with others, the function maps them in every call.
        """
        if self._has_unknown_shapes or any(
            type(handle) is not ArrayHandle for handle in (*inputs, *outputs) if handle is not None
        ):
            return super().prepare(inputs, outputs)
        arrays = [None if handle is None else _mapped_array(handle) for handle in inputs]
        out = [_mapped_array(handle) for handle in outputs]
        return partial(self.kernel.call, self.op, arrays, self.info, out, self.prepared)

    def _compute_unknown_shapes(self, arrays: Sequence[Array | None], outputs: Sequence[TensorHandle]) -> None:
        output_arrays = self.kernel.values(self.op, arrays, self.info, self.prepared)
        for handle, array in zip(outputs, output_arrays, strict=True):
            if not handle.info.is_concrete:
                handle.resize(array.shape)
            handle.copy_in(array)


def _array(handle: TensorHandle, stack: ExitStack, mapped_handles: list[TensorHandle]) -> Array:
    """Map a tensor handle for the duration of one execution, and return its array.

    A plain `ArrayHandle` needs no check and is added to `mapped_handles`, which the caller unmaps together. Other
    handles are unmapped by `stack`.
    """
    if type(handle) is not ArrayHandle:
        return stack.enter_context(handle.mapped())
    array = handle.map()
    mapped_handles.append(handle)
    return array


def _mapped_array(handle: TensorHandle) -> Array:
    """Return the array of an `ArrayHandle` after unmapping it; the array stays valid as long as the handle's memory."""
    with handle.mapped() as array:
        return array


def _unmap(handles: Sequence[TensorHandle]) -> None:
    for handle in handles:
        handle.unmap()


class KernelWorkloadFactory(WorkloadFactory):
    """Creates the workloads of a backend with a kernel table: a `KernelWorkload` for every layer that has a kernel."""

    def __init__(self, kernels: KernelTable, memory_manager: MemoryManager | None = None) -> None:
        super().__init__(memory_manager)
        self.kernels = kernels

    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        """Return a workload with the first kernel that accepts the layer; raise `BackendContractError` if none does."""
        kernel_info = KernelInfo.of(layer.op, info.inputs, info.outputs)
        kernel = self.kernels.find(layer.op, kernel_info)
        if kernel is None:
            reasons = "; ".join(self.kernels.reasons(layer.op, kernel_info))
            raise BackendContractError(f"no kernel takes layer {layer}: {reasons}")
        return KernelWorkload(layer.op, kernel, kernel_info)

"""Workloads, which run layers, and the factories that make them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from interposer.backend.memory import ArenaMemoryManager, ArrayHandle, MemoryManager, TensorHandle
from interposer.core.errors import BackendContractError
from interposer.core.schema import Op
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Layer
from interposer.kernels.table import Kernel, KernelInfo, KernelTable

__all__ = ["KernelWorkload", "KernelWorkloadFactory", "Workload", "WorkloadFactory", "WorkloadInfo"]


@dataclass(frozen=True, slots=True)
class WorkloadInfo:
    """The infos of a workload's tensors; an absent optional input is None, a constant one carries its value."""

    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo, ...]

    @classmethod
    def of(cls, layer: Layer) -> WorkloadInfo:
        """Return the infos of a layer's tensors."""
        return cls(layer.input_infos, layer.output_infos)


class Workload(ABC):
    """One layer made ready to run. It keeps no state between runs beyond what it was made with."""

    concurrent: bool = False
    """True if several threads may execute it at the same time, on different tensors; else one after the other."""
    in_place: bool = False
    """True if the output may lie in the memory of an input that the operator names in `Op.in_place`."""
    only_reads: bool = False
    """True if it is sure to write to no array of an input; others are given arrays that forbid it, at some cost."""
    strided: bool = False
    """True if tensors may be pieces of others, mapped to arrays with gaps between their rows."""
    estimates_memory: bool = False
    """True if `memory` is an estimate, and not what was counted."""

    @property
    def memory(self) -> int | None:
        """Bytes that it holds beside its tensors and the constants of the network; None if that is not known.

        Of a compiled part, 0 means that it is not known.
        """
        return 0

    def post_allocation_configure(self) -> None:
        """Called once, when all workloads of the network are made and its memory is planned."""

    @abstractmethod
    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Compute the outputs from the inputs, both in the order of the layer's operands and results."""

    def prepare(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> Callable[[], None]:
        """What executes the workload on these very handles, run after run, while all of them stay where they are.

        The handles have their memory and keep it for as long as the result is used, by one run at a time. Override this
        to look at them once, instead of in every run.
        """
        return partial(self.execute, inputs, outputs)


class WorkloadFactory:
    """Makes the workloads and the tensor handles of one backend for one network.

    The handles made here lie in ordinary memory: in the arena of the memory manager where that is an
    `ArenaMemoryManager`, else each in an array of its own. Override `create_tensor_handle` for memory of another kind.
    """

    alignment: int = 1
    """The bytes, a power of two, at a multiple of which memory must begin to be used where it lies."""

    def __init__(self, memory_manager: MemoryManager | None = None) -> None:
        self.memory_manager = memory_manager

    @property
    def makes_arrays(self) -> bool:
        """True if tensor handles are what they are by default: arrays in ordinary memory."""
        return type(self).create_tensor_handle is WorkloadFactory.create_tensor_handle

    @property
    def supports_sub_tensors(self) -> bool:
        """True if handles give others for pieces of themselves: see `TensorHandle.create_sub_tensor`."""
        return self.makes_arrays

    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        """Return the workload of a layer that the backend was given; its descriptor is ``layer.op``.

        Raises:
            BackendContractError: this factory makes no workload for the layer.
        """
        raise BackendContractError(f"{type(self).__name__} makes no workload for layer {layer}")

    def create_tensor_handle(self, info: TensorInfo) -> TensorHandle:
        """Return the handle of a tensor that a layer of this backend gives or the network's caller brings."""
        manager = self.memory_manager
        arena = manager if isinstance(manager, ArenaMemoryManager) else None
        return ArrayHandle(info, manager=arena, alignment=self.alignment)

    def create_constant_handle(self, info: TensorInfo, array: Array) -> TensorHandle:
        """Return the handle of a constant, filled once; a factory whose handles are arrays uses the constant in place.

        Constants are no part of the memory plan: a factory whose handles get their memory from the manager overrides
        this too.
        """
        if self.makes_arrays:
            return ArrayHandle(info, array)
        handle = self.create_tensor_handle(info)
        handle.allocate()
        handle.copy_in(array)
        return handle


class KernelWorkload(Workload):
    """Runs a kernel on mapped arrays. Outputs of unknown shape are resized to what the kernel finds."""

    concurrent = in_place = strided = True

    def __init__(self, op: Op, kernel: Kernel, info: KernelInfo) -> None:
        self.op, self.kernel, self.info = op, kernel, info
        self.prepared = kernel.make_ready(op, info)
        self._open = not all(output.is_concrete for output in info.outputs)

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Map everything, compute, and unmap."""
        with ExitStack() as stack:
            mapped: list[TensorHandle] = []
            stack.callback(_unmap, mapped)
            arrays = [None if handle is None else _array(handle, stack, mapped) for handle in inputs]
            if self._open:
                self._find(arrays, outputs)
                return
            out = [_array(handle, stack, mapped) for handle in outputs]
            self.kernel.call(self.op, arrays, self.info, out, self.prepared)

    def prepare(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> Callable[[], None]:
        """Map what is ordinary memory once."""
        if self._open or any(type(item) is not ArrayHandle for item in (*inputs, *outputs) if item is not None):
            return super().prepare(inputs, outputs)
        arrays = [None if handle is None else _seen(handle) for handle in inputs]
        out = [_seen(handle) for handle in outputs]
        return partial(self.kernel.call, self.op, arrays, self.info, out, self.prepared)

    def _find(self, arrays: Sequence[Array | None], outputs: Sequence[TensorHandle]) -> None:
        result = self.kernel.values(self.op, arrays, self.info, self.prepared)
        for handle, array in zip(outputs, result, strict=True):
            if not handle.info.is_concrete:
                handle.resize(array.shape)
            handle.copy_in(array)


def _array(handle: TensorHandle, stack: ExitStack, mapped: list[TensorHandle]) -> Array:
    """Return what a handle maps to; our own handles need no check, and are unmapped all at once."""
    if type(handle) is not ArrayHandle:
        return stack.enter_context(handle.mapped())
    array = handle.map()
    mapped.append(handle)
    return array


def _seen(handle: TensorHandle) -> Array:
    """Return the array that a handle of ours lies in, which stays the same as long as its memory does."""
    with handle.mapped() as array:
        return array


def _unmap(handles: Sequence[TensorHandle]) -> None:
    for handle in handles:
        handle.unmap()


class KernelWorkloadFactory(WorkloadFactory):
    """Makes a `KernelWorkload` for every layer that its table has a kernel for."""

    def __init__(self, kernels: KernelTable, memory_manager: MemoryManager | None = None) -> None:
        super().__init__(memory_manager)
        self.kernels = kernels

    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        """Return the kernel that takes the layer, made ready."""
        kernel_info = KernelInfo.of(layer.op, info.inputs, info.outputs)
        result = self.kernels.find(layer.op, kernel_info)
        if result is None:
            why = "; ".join(self.kernels.reasons(layer.op, kernel_info))
            raise BackendContractError(f"no kernel takes layer {layer}: {why}")
        return KernelWorkload(layer.op, result, kernel_info)

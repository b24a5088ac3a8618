"""The tensors of one run as ``ipr_tensor``, with copies of the tensors that the plug-in cannot use directly."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from interposer.core.addresses import address_of, aligned_empty
from interposer.core.types import FLOATS, SIGNED_INTEGERS, Array, DataType, TensorInfo
from interposer.plugins.capi.abi import structs as abi

__all__ = ["TensorTable", "describe"]

_SIZE: Final = ctypes.sizeof(abi.Tensor)


class TensorTable:
    """An array of ``ipr_tensor``, the input or the output tensors of runs: `bind` all tensors, run, then `finish`.

    The table keeps no reference to the caller's arrays.

    Args:
        infos: the infos of the tensors.
        alignment: the alignment in bytes that the plug-in requires.
        inputs: True for tensors that the plug-in only reads.
        strided: True if the plug-in accepts arrays that are not contiguous (``IPR_CAP_STRIDED``).
    """

    def __init__(self, infos: Sequence[TensorInfo], alignment: int, *, inputs: bool, strided: bool = False) -> None:
        self.infos = tuple(infos)
        self._inputs, self._strided = inputs, strided
        self._strides: dict[int, ctypes.Array[ctypes.c_int64]] = {}
        self._memory = (abi.Tensor * len(self.infos))()
        self._structs = list(self._memory)
        self._shapes = [(ctypes.c_int64 * info.rank)(*info.shape) for info in self.infos]
        self._alignment = [max(alignment, info.dtype.numpy.alignment) for info in self.infos]
        self._copies: dict[int, Array] = {}
        self.address = ctypes.addressof(self._memory)
        for struct, info, shape in zip(self._structs, self.infos, self._shapes, strict=True):
            describe(struct, info, shape, abi.TENSOR_READ_ONLY if inputs else 0)

    def bind(self, index: int, array: Array) -> None:
        """Let the tensor at an index use the memory of an array, or of a copy if the plug-in cannot use this memory.

        That depends on the array's alignment and strides.
        """
        address, is_contiguous = address_of(array), array.flags.c_contiguous
        if address % self._alignment[index] or not (is_contiguous or self._accepts_strides(array)):
            address, is_contiguous = self._bind_copy(index, array), True
        if not is_contiguous or self._strides:
            self._bind_strides(index, array, compact=is_contiguous)
        self._structs[index].data = address

    def bind_private(self, index: int, number: int) -> None:
        """Bind the tensor at an index to a tensor in the plug-in's private memory, which has this number there."""
        struct = self._structs[index]
        struct.memory_kind, struct.native_handle, struct.data = abi.MEMORY_PRIVATE, number, None
        struct.strides = None
        self._strides.pop(index, None)

    def _accepts_strides(self, array: Array) -> bool:
        """Return True if the plug-in can use an array that is not compact.

        Strides must be a multiple of the element size and not negative, and those of an output must not be 0.
        """
        least_stride = 0 if self._inputs else 1
        return self._strided and all(
            size == 1 or (stride >= least_stride and stride % array.itemsize == 0)
            for size, stride in zip(array.shape, array.strides, strict=True)
        )

    def _bind_strides(self, index: int, array: Array, *, compact: bool) -> None:
        struct = self._structs[index]
        if not compact:
            byte_strides = [0 if size == 1 else stride for size, stride in zip(array.shape, array.strides, strict=True)]
            strides = (ctypes.c_int64 * array.ndim)(*(step // array.itemsize for step in byte_strides))
            self._strides[index], struct.strides = strides, ctypes.addressof(strides)
            last_offset = sum((size - 1) * step for size, step in zip(array.shape, byte_strides, strict=True))
            struct.size = last_offset + array.itemsize
        elif self._strides.pop(index, None) is not None:
            struct.strides, struct.size = None, array.nbytes

    def takes(self, arrays: Sequence[Array]) -> bool:
        """Return True if `bind` would not copy any of the arrays."""
        return all(
            array.flags.c_contiguous and address_of(array) % alignment == 0
            for array, alignment in zip(arrays, self._alignment, strict=True)
        )

    def accepts(self, index: int, array: Array) -> bool:
        """Return True if `bind` would not copy an array for the tensor at an index."""
        is_aligned = address_of(array) % self._alignment[index] == 0
        return is_aligned and (array.flags.c_contiguous or self._accepts_strides(array))

    def _bind_copy(self, index: int, array: Array) -> int:
        copy = self._copies.get(index)
        if copy is None or copy.shape != array.shape:
            copy = self._copies[index] = aligned_empty(array.shape, array.dtype, self._alignment[index])
        if self._inputs:
            np.copyto(copy, array)
        return address_of(copy)

    def finish(self, arrays: Sequence[Array] | Mapping[int, Array]) -> None:
        """Copy results to the caller's arrays after a run, for the tensors that `bind` bound to a copy.

        `arrays` are the arrays that were passed to `bind`, by index.
        """
        for index, copy in self._copies.items():
            if self._structs[index].data == address_of(copy):
                np.copyto(arrays[index], copy)

    def reshape(self, index: int, shape: Sequence[int]) -> None:
        """Set the shape of the tensor at an index for the next run; the rank does not change."""
        self._shapes[index][:] = list(shape)
        self._structs[index].size = self.infos[index].with_shape(shape).num_bytes

    def reset(self) -> None:
        """Prepare tensors of unknown shape for the next run: give them their declared shapes again, and no data."""
        for index, info in enumerate(self.infos):
            if not info.is_concrete:
                self._shapes[index][:] = list(info.shape)
                self._structs[index].data, self._structs[index].size = None, 0


def describe(struct: Any, info: TensorInfo, shape: Any, flags: int) -> None:
    """Fill in an ``ipr_tensor`` in host memory, except for its address.

    Args:
        struct: the struct.
        info: the type and shape of the tensor.
        shape: the shape as an array of ctypes, which must stay alive as long as the struct.
        flags: ``abi.TENSOR_...``.
    """
    code, bits = dlpack_type(info.dtype)
    struct.device_type, struct.ndim = 1, info.rank
    struct.dtype_code, struct.dtype_bits, struct.dtype_lanes = code, bits, 1
    struct.shape = ctypes.addressof(shape)
    struct.dtype = abi.DTYPES[info.dtype]
    struct.memory_kind, struct.fence, struct.flags = abi.MEMORY_HOST, -1, flags
    struct.size = info.num_bytes if info.is_concrete else 0


def dlpack_type(dtype: DataType) -> tuple[int, int]:
    """Return the DLPack type code and the number of bits of a data type."""
    default_code = 2 if dtype in FLOATS else 0 if dtype in SIGNED_INTEGERS else 1
    return abi.DLPACK_CODES.get(dtype, default_code), dtype.bits

"""The tensors of one run as ``ipr_tensor``, with copies for those that lie where the plug-in cannot take them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from interposer.backend.dynamic import abi
from interposer.backend.dynamic.arrays import address_of, aligned_empty
from interposer.types import FLOATS, SIGNED_INTEGERS, Array, DataType, TensorInfo

__all__ = ["TensorTable", "describe"]

_SIZE: Final = ctypes.sizeof(abi.Tensor)


class TensorTable:
    """An array of ``ipr_tensor`` that is used for run after run: `bind` all, run, `finish`.

    `inputs` are read only for the plug-in; outputs are written by it. Keeps no array of the caller.
    """

    def __init__(self, infos: Sequence[TensorInfo], alignment: int, *, inputs: bool) -> None:
        self.infos = tuple(infos)
        self._inputs = inputs
        self._memory = (abi.Tensor * len(self.infos))()
        self._items = list(self._memory)
        self._shapes = [(ctypes.c_int64 * info.rank)(*info.shape) for info in self.infos]
        self._alignment = [max(alignment, info.dtype.numpy.alignment) for info in self.infos]
        self._places = [0] * len(self.infos)
        self._copies: dict[int, Array] = {}
        self.address = ctypes.addressof(self._memory)
        for item, info, shape in zip(self._items, self.infos, self._shapes, strict=True):
            describe(item, info, shape, abi.TENSOR_READ_ONLY if inputs else 0)

    def bind(self, index: int, array: Array) -> None:
        """Let a tensor lie in an array, or in a copy of it where it is not compact or not aligned as is needed."""
        place = address_of(array)
        if place % self._alignment[index] or not array.flags.c_contiguous:
            place = self._bind_copy(index, array)
        if place != self._places[index]:
            self._places[index] = self._items[index].data = place

    def bind_private(self, index: int, number: int) -> None:
        """Let a tensor be the one that the plug-in knows by this number."""
        item = self._items[index]
        item.memory_kind, item.native_handle, item.data = abi.MEMORY_PRIVATE, number, None
        self._places[index] = 0

    def takes(self, arrays: Sequence[Array]) -> bool:
        """True where `bind` would copy none of them."""
        return all(
            array.flags.c_contiguous and address_of(array) % alignment == 0
            for array, alignment in zip(arrays, self._alignment, strict=True)
        )

    def _bind_copy(self, index: int, array: Array) -> int:
        copy = self._copies.get(index)
        if copy is None or copy.shape != array.shape:
            copy = self._copies[index] = aligned_empty(array.shape, array.dtype, self._alignment[index])
        if self._inputs:
            np.copyto(copy, array)
        return address_of(copy)

    def finish(self, arrays: Sequence[Array] | Mapping[int, Array]) -> None:
        """After a run: what was written to copies goes to the arrays that were bound."""
        for index, copy in self._copies.items():
            if self._places[index] == address_of(copy):
                np.copyto(arrays[index], copy)

    def reshape(self, index: int, shape: Sequence[int]) -> None:
        """Give a tensor another shape of the same rank."""
        self._shapes[index][:] = list(shape)
        self._items[index].size = self.infos[index].with_shape(shape).num_bytes

    def reset(self) -> None:
        """Give tensors the shapes again that they had at first, and no data where that is not known."""
        for index, info in enumerate(self.infos):
            if not info.is_concrete:
                self._shapes[index][:] = list(info.shape)
                self._items[index].data, self._items[index].size, self._places[index] = None, 0, 0


def describe(item: Any, info: TensorInfo, shape: Any, flags: int) -> None:
    """Fill in an ``ipr_tensor`` in memory of the host, but for where it lies."""
    code, bits = dlpack_type(info.dtype)
    item.device_type, item.ndim = 1, info.rank
    item.dtype_code, item.dtype_bits, item.dtype_lanes = code, bits, 1
    item.shape = ctypes.addressof(shape)
    item.dtype = abi.DTYPES[info.dtype]
    item.memory_kind, item.fence, item.flags = abi.MEMORY_HOST, -1, flags
    item.size = info.num_bytes if info.is_concrete else 0


def dlpack_type(dtype: DataType) -> tuple[int, int]:
    """DLPack's code of a type, and its number of bits."""
    plain = 2 if dtype in FLOATS else 0 if dtype in SIGNED_INTEGERS else 1
    return abi.DLPACK_CODES.get(dtype, plain), dtype.bits

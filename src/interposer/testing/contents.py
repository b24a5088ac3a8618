"""Contents of tensors: read and written by mapping, or by a device's copy workloads where the host cannot map them."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from interposer.backend import ArrayHandle, TensorHandle, TensorHandleFactory, Workload
from interposer.core.addresses import aligned_empty
from interposer.core.errors import BackendContractError
from interposer.core.types import Array, DataType, TensorInfo
from interposer.kernels.table import empty

__all__ = ["Contents", "Guarded", "rubbish", "unlike"]

_MARGIN: Final = 256
_CANARY: Final = 0xA5


class Contents:
    """Reads and writes the contents of tensors in any kind of memory.

    `origins` maps the `id` of a handle to the tensor handle factory of a backend that created it.
    """

    def __init__(self) -> None:
        self.origins: dict[int, TensorHandleFactory] = {}
        self._copiers: dict[int, Workload] = {}

    def read(self, handle: TensorHandle) -> Array:
        """Return a copy of a tensor's contents; exceptions of the handle propagate."""
        copier = self._copier(handle)
        if copier is not None:
            copy = empty(handle.info)
            copier.execute([handle], [ArrayHandle(handle.info, copy)])
            return copy
        with handle.mapped() as array:
            return array.copy()

    def fill(self, handle: TensorHandle, array: Array) -> None:
        """Write an array to a tensor; exceptions of the handle propagate."""
        copier = self._copier(handle)
        if copier is not None:
            copier.execute([ArrayHandle(handle.info, array)], [handle])
            return
        with handle.mapped() as contents:
            contents[...] = array

    def _copier(self, handle: TensorHandle) -> Workload | None:
        """Return a workload that copies a tensor which the host cannot map; None if the tensor can be mapped."""
        origin = self.origins.get(id(handle))
        if origin is None or origin.supports_map or not origin.supports_device_copy:
            return None
        if id(origin) not in self._copiers:
            self._copiers[id(origin)] = origin.create_device_copy()
        return self._copiers[id(origin)]


class Guarded:
    """An output array for a run, filled with garbage, between guard margins that the backend must not write to."""

    def __init__(self, info: TensorInfo) -> None:
        dtype, shape = info.dtype.numpy, tuple(int(size) for size in info.shape)
        if dtype.hasobject:
            self._field = np.empty(0, np.uint8)
            self.array: Array = np.full(shape, rubbish(info.dtype))
            return
        size = dtype.itemsize * math.prod(shape)
        self._field = aligned_empty((size + 2 * _MARGIN,), np.dtype(np.uint8), _MARGIN)
        self._field.fill(_CANARY)
        self.array = self._field[_MARGIN : _MARGIN + size].view(dtype).reshape(shape)
        self.array[...] = rubbish(info.dtype)

    def check(self, output: int) -> None:
        """Raise `BackendContractError` if a byte next to the array of this output has changed."""
        is_changed = self._field != _CANARY
        is_changed[_MARGIN : len(is_changed) - _MARGIN] = False
        if is_changed.any():
            offset, size = int(is_changed.argmax()) - _MARGIN, self.array.nbytes
            raise BackendContractError(f"something wrote outside of output {output}, at byte {offset:,} of {size:,}")


def unlike(array: Array, expected: Array) -> str:
    """Return how many elements of two arrays differ, and the index of the first one."""
    if array.shape != expected.shape or array.dtype != expected.dtype:
        return f"{array.dtype}{list(array.shape)}, not {expected.dtype}{list(expected.shape)}"
    both_nan = np.isnan(array) & np.isnan(expected) if array.dtype.kind == "f" else np.False_
    wrong_positions = np.argwhere((array != expected) & ~both_nan)
    first = f"; the first at {[int(index) for index in wrong_positions[0]]}" if len(wrong_positions) else ""
    return f"{len(wrong_positions)} of {array.size} elements differ{first}"


def rubbish(dtype: DataType) -> Array:
    """Return the garbage element with which checks fill memory, so that no result relies on initial contents."""
    if dtype is DataType.STRING:
        return np.array("rubbish", object)
    number = np.nan if dtype.is_float else 5
    return np.asarray(number).astype(dtype.numpy)

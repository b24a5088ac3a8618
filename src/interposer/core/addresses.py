"""Memory addresses of arrays, and arrays whose memory is aligned as a plug-in requires."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

from interposer.core.types import Array

__all__ = ["address_of", "aligned_empty", "suitable"]

_HEAD: Final = object.__basicsize__
_pointer_at = ctypes.c_void_p.from_address


def address_of(array: Array) -> int:
    """Return the memory address of the first element; five times as fast as ``array.ctypes.data``.

    Source: NumPy's C API, ``PyArrayObject``: the pointer to the data follows the object's head.
    """
    return _pointer_at(id(array) + _HEAD).value or 0


_probe: Final = np.zeros(1)
if address_of(_probe) != _probe.ctypes.data:
    raise ImportError("NumPy arrays do not store their data pointer where NumPy's C API documents it")


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any], alignment: int) -> Array:
    """Return an uninitialized array of this shape and type, C-contiguous and with an aligned address.

    The address is a multiple of `alignment` bytes, which is a power of two.
    """
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    buffer = np.empty(size + alignment, np.uint8)
    padding_bytes = -address_of(buffer) % alignment
    return buffer[padding_bytes : padding_bytes + size].view(dtype).reshape(shape)


def suitable(array: Array, alignment: int) -> Array:
    """Return `array` if it is C-contiguous and aligned to its element size and to `alignment` bytes, else such a copy.

    `alignment` must be a power of two.
    """
    required_alignment = max(alignment, array.dtype.alignment)
    if array.flags.c_contiguous and address_of(array) % required_alignment == 0:
        return array
    copy = aligned_empty(array.shape, array.dtype, required_alignment)
    np.copyto(copy, array)
    return copy

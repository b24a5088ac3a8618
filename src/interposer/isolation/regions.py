"""Memory regions of fixed size that the host creates and shares with a child process."""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from interposer.core.types import Array, DataType, TensorInfo, TensorShape

__all__ = ["ALIGNMENT", "Place", "Region", "aligned", "array_at", "array_bytes", "info_bytes", "map_region"]

ALIGNMENT: Final = 64
Place = Sequence[Any]
"""The location of an array: number of the region, offset in bytes, data type, shape."""
_FUTURE_WRITE: Final = 0x10  # F_SEAL_FUTURE_WRITE, Linux 5.1
_SIZES: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW if hasattr(fcntl, "F_SEAL_GROW") else 0


def aligned(size: int) -> int:
    """Return the size rounded up to the alignment of tensors."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Region:
    """Anonymous shared memory, which is freed when no process maps it any more.

    If it is not `writable`, a child can only map it for reading. Pages use physical memory once they are touched.
    """

    _numbers: Final = itertools.count(1)

    def __init__(self, size: int, *, writable: bool) -> None:
        self.number = next(self._numbers)
        self.size, self.writable = max(size, 1), writable
        self.fd = os.memfd_create(f"interposer-{self.number}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        weakref.finalize(self, os.close, self.fd).atexit = False
        os.ftruncate(self.fd, self.size)
        self.bytes: Array = np.frombuffer(mmap.mmap(self.fd, self.size), np.uint8)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SIZES)
        if not writable:
            _forbid_writing(self.fd)

    def place(self, offset: int, array: Array) -> Place:
        """Return the location of an array in this region, as it is sent to the child: (region, offset, type, shape).

        Only the type and the shape of `array` are used; `offset` is in bytes.
        """
        return (self.number, offset, str(DataType.of(array.dtype)), list(array.shape))


def _forbid_writing(fd: int) -> None:
    try:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _FUTURE_WRITE)
    except OSError:  # an older kernel: not enforced, but the child still maps it read-only
        return


def map_region(fd: int, size: int, writable: bool) -> Array:
    """Map a region into the child process, and return its bytes; the child may close `fd` afterwards."""
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    return np.frombuffer(mmap.mmap(fd, size, mmap.MAP_SHARED, protection), np.uint8)


def array_bytes(array: Array) -> int:
    """Return the size of the elements of an array in bytes."""
    return array.size * array.dtype.itemsize


def info_bytes(info: TensorInfo) -> int:
    """Return the size of a tensor of known shape in bytes."""
    return int(info.num_elements) * info.dtype.itemsize


def array_at(memory: Array, offset: int, dtype: DataType, shape: Sequence[int]) -> Array:
    """Return the array at an offset in bytes; raise ValueError if it does not fit into the memory."""
    count = int(np.prod(tuple(TensorShape(shape)), dtype=np.int64))
    size = count * dtype.itemsize
    if dtype.bits == 0 or offset < 0 or offset + size > memory.size:
        raise ValueError(f"{dtype}{list(shape)} at {offset} does not lie within {memory.size} bytes")
    return memory[offset : offset + size].view(dtype.numpy).reshape(tuple(shape))

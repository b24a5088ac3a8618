"""Memory that the host shares with a child process: it belongs to the host, and cannot change its size."""

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
"""Where an array lies: number of the region, offset in bytes, data type, shape."""
_FUTURE_WRITE: Final = 0x10  # F_SEAL_FUTURE_WRITE, Linux 5.1
_SIZES: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW if hasattr(fcntl, "F_SEAL_GROW") else 0


def aligned(size: int) -> int:
    """`size`, rounded up to where the next tensor may begin."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Region:
    """Some bytes of memory without a name in any file system, freed when nobody has them any more.

    Where it is not `writable`, a child can only map it for reading. Its pages take memory once they are touched.
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
        """Return where an array of that type and shape lies, from `offset` on."""
        return (self.number, offset, str(DataType.of(array.dtype)), list(array.shape))


def _forbid_writing(fd: int) -> None:
    try:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _FUTURE_WRITE)
    except OSError:  # an older kernel: the child maps it for reading all the same
        return


def map_region(fd: int, size: int, writable: bool) -> Array:
    """Return the bytes of a region in the child, which may close `fd` then."""
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    return np.frombuffer(mmap.mmap(fd, size, mmap.MAP_SHARED, protection), np.uint8)


def array_bytes(array: Array) -> int:
    """Return the bytes that the elements of an array take."""
    return array.size * array.dtype.itemsize


def info_bytes(info: TensorInfo) -> int:
    """Return the bytes that the array of a tensor of known shape takes."""
    return int(info.num_elements) * info.dtype.itemsize


def array_at(memory: Array, offset: int, dtype: DataType, shape: Sequence[int]) -> Array:
    """Return the array that lies at `offset`; ValueError if it would reach beyond the memory."""
    count = int(np.prod(tuple(TensorShape(shape)), dtype=np.int64))
    size = count * dtype.itemsize
    if dtype.bits == 0 or offset < 0 or offset + size > memory.size:
        raise ValueError(f"{dtype}{list(shape)} at {offset} does not lie within {memory.size} bytes")
    return memory[offset : offset + size].view(dtype.numpy).reshape(tuple(shape))

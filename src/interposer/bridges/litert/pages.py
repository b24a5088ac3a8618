"""Memory of constants that backends have packed: the pages of the model file that the host has mapped."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

__all__ = ["give_back_pages"]

_LEAST: Final = 1 << 20
"""The fewest bytes of a constant whose pages are given back."""


def give_back_pages(constants: Iterable[memoryview | None]) -> None:
    """Unload the pages under large constants from memory if they are those of a file that is mapped for reading.

    The constants remain valid: a page is loaded again, usually from the system's cache, when it is read.
    """
    large_constants = [constant for constant in constants if constant is not None and constant.nbytes >= _LEAST]
    if not large_constants or not hasattr(mmap, "MADV_DONTNEED"):
        return
    files = list(_mapped_files())
    for constant in large_constants:
        begin = ctypes.addressof(ctypes.c_char.from_buffer(constant.obj))
        if any(first <= begin and begin + constant.nbytes <= last for first, last in files):
            _give_back(begin, begin + constant.nbytes)


def _mapped_files() -> Iterator[tuple[int, int]]:
    """Yield the ranges of addresses at which this process has mapped files that it can read and not write."""
    with suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            addresses, access, _, _, inode, *_ = line.split()
            if access.startswith("r-") and inode != "0":
                first, last = addresses.split("-")
                yield int(first, 16), int(last, 16)


def _give_back(begin: int, end: int) -> None:
    """Unload the pages that are completely inside a range of addresses."""
    page = mmap.PAGESIZE
    first, last = -(-begin // page) * page, end // page * page
    if first < last:
        madvise = ctypes.CDLL(None).madvise
        madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_DONTNEED)

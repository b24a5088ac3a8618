"""Reading of memory that a plug-in points to, without trusting it: an invalid address is an error, not a crash.

The kernel copies the memory (process_vm_readv on this process) and reports addresses that are not mapped. If this
system call is not permitted, memory is read directly.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from interposer.core.errors import BackendContractError
from interposer.core.types import Array
from interposer.plugins.capi.abi import structs as abi

__all__ = [
    "MAX_TEXT",
    "code_fault",
    "forget_code",
    "read",
    "read_array",
    "read_integers",
    "read_table",
    "read_text",
    "read_versioned",
]

MAX_TEXT: Final = 1 << 16
"""The largest number of bytes of a string; longer strings are truncated."""
MAX_BYTES: Final = 1 << 32
_NOT_ALLOWED: Final = (errno.EPERM, errno.ENOSYS, errno.EACCES)
_S = TypeVar("_S", bound=ctypes.Structure)


class _Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


@cache
def _copier() -> Any:
    function = getattr(ctypes.CDLL(None, use_errno=True), "process_vm_readv", None)
    if function is not None:
        spans = ctypes.POINTER(_Span)
        function.argtypes = [ctypes.c_int, spans, ctypes.c_ulong, spans, ctypes.c_ulong, ctypes.c_ulong]
        function.restype = ctypes.c_ssize_t
    return function


def read(address: int | None, size: int, subject: str) -> bytes:
    """Return a copy of `size` bytes of memory.

    Raises:
        BackendContractError: the address is not mapped; the message begins with `subject`.
    """
    if size == 0:
        return b""
    if not address:
        raise BackendContractError(f"{subject}: the pointer is NULL, but {size:,} bytes were announced")
    if size > MAX_BYTES or address + size > 1 << 64:
        raise BackendContractError(f"{subject}: {size:,} bytes at {address:#x} cannot be meant")
    copy = _copier()
    if copy is None:
        return ctypes.string_at(address, size)
    buffer, num_read = ctypes.create_string_buffer(size), 0
    while num_read < size:  # the kernel copies at most 2 GiB at once
        local, remote = (
            _Span(ctypes.addressof(buffer) + num_read, size - num_read),
            _Span(address + num_read, size - num_read),
        )
        num_copied = copy(os.getpid(), local, 1, remote, 1, 0)
        if num_copied <= 0 and ctypes.get_errno() in _NOT_ALLOWED:
            return ctypes.string_at(address, size)
        if num_copied <= 0:
            raise BackendContractError(f"{subject}: {size:,} bytes at {address:#x} cannot be read")
        num_read += num_copied
    return buffer.raw


def read_versioned(kind: type[_S], address: int | None, least: int, subject: str) -> _S:
    """Return a copy of the struct of type `kind` at an address; the struct begins with its own size in bytes.

    A plug-in of another version may have a shorter or longer struct: missing members are zero.

    Raises:
        BackendContractError: the struct cannot be read, or its size is less than `least` or absurdly large. The message
            begins with `subject`.
    """
    declared_size = int.from_bytes(read(address, 8, subject), "little")
    if not least <= declared_size <= abi.MAX_STRUCT_SIZE:
        raise BackendContractError(
            f"{subject} has struct_size {declared_size:,}; expected {least} to {abi.MAX_STRUCT_SIZE:,}"
        )
    size = ctypes.sizeof(kind)
    return kind.from_buffer_copy(read(address, min(declared_size, size), subject).ljust(size, b"\0"))


def read_array(kind: type[_S], address: int | None, count: int, stride: int, subject: str) -> list[_S]:
    """Return copies of the `count` structs of type `kind` in an array of the plug-in; missing members are zero.

    Args:
        kind: the type of the structs.
        address: the address of the first one.
        count: their number.
        stride: the distance in bytes between two of them, which depends on the plug-in's version of the struct.
        subject: a description for error messages.

    Raises:
        BackendContractError: the array cannot be read, or the stride is impossible.
    """
    content, stride = _elements(kind, address, count, stride, subject)
    return [kind.from_buffer_copy(content, index * stride) for index in range(count)]


def read_table(kind: type[ctypes.Structure], address: int | None, count: int, stride: int, subject: str) -> Array:
    """Return what `read_array` returns, as one structured NumPy array with a field per member.

    Faster for long arrays.
    """
    content, stride = _elements(kind, address, count, stride, subject)
    struct_dtype = np.dtype(kind)
    fields: Any = struct_dtype.fields or {}
    names = [*fields]
    layout: Any = {
        "names": names, "formats": [fields[name][0] for name in names],
        "offsets": [fields[name][1] for name in names], "itemsize": stride if count else struct_dtype.itemsize,
    }  # fmt: skip
    return np.frombuffer(content, np.dtype(layout))


def _elements(
    kind: type[ctypes.Structure], address: int | None, count: int, stride: int, subject: str
) -> tuple[bytes, int]:
    """Return the bytes of an array of structs and the stride in them; see `read_array` for the arguments.

    Structs of an older version, which are shorter, are padded with zeros to the size of `kind`.
    """
    if count == 0:
        return b"", stride
    size, alignment = ctypes.sizeof(kind), ctypes.alignment(kind)
    least_stride = abi.ELEMENT_SIZES.get(kind.__name__, size)
    if not least_stride <= stride <= abi.MAX_STRUCT_SIZE or stride % alignment:
        raise BackendContractError(
            f"{subject} has the stride {stride:,}; expected a multiple of {alignment} from {least_stride} to "
            f"{abi.MAX_STRUCT_SIZE:,}"
        )
    content = read(address, count * stride, subject)
    if stride >= size:
        return content, stride
    return b"".join(content[at : at + stride].ljust(size, b"\0") for at in range(0, len(content), stride)), size


def read_integers(address: int | None, count: int, limit: int, subject: str) -> Sequence[int]:
    """Return a copy of `count` numbers of type int64 at an address.

    Raises:
        BackendContractError: the memory cannot be read, or `count` is above `limit`. The message begins with `subject`.
    """
    if count > limit:
        raise BackendContractError(f"{subject}: {count:,} numbers; at most {limit:,} can be meant")
    return struct.unpack(f"={count}q", read(address, 8 * count, subject))


def read_text(text: Any, subject: str) -> str:
    """Return the string in an ``ipr_string`` of the plug-in; invalid UTF-8 becomes replacement characters."""
    size = min(int(text.size), MAX_TEXT)
    return read(text.data, size, subject).decode("utf-8", "replace")


_known_code: tuple[tuple[int, int], ...] = ()
"""The address ranges of executable code when the memory map of the process was read last, in ascending order.

Reading the map takes a millisecond or more, and the functions of a plug-in nearly always lie in the same range.
"""


def code_fault(address: int | None) -> str | None:
    """Return why an address cannot be that of a function, such as "is NULL", for error messages.

    None if it can be, or if the system does not list the address ranges of the process.
    """
    if not address:
        return "is NULL"
    return None if _is_known_code(address) else _fault_in_map(address)


def forget_code() -> None:
    """Let `code_fault` read the memory map again, which is necessary after a library was unloaded."""
    _know_code([])


def _is_known_code(address: int) -> bool:
    ranges = _known_code  # another thread may replace it
    index = bisect_right(ranges, address, key=itemgetter(0)) - 1
    return index >= 0 and address < ranges[index][1]


def _fault_in_map(address: int) -> str | None:
    ranges = _mapped_ranges()
    _know_code(ranges)
    for start, stop, is_code in ranges:
        if start <= address < stop:
            return None if is_code else f"is {address:#x}, which is no code"
    return f"is {address:#x}, where there is nothing" if ranges else None


def _know_code(ranges: list[tuple[int, int, bool]]) -> None:
    global _known_code  # noqa: PLW0603 - replaced as a whole, so that other threads see all of it or none
    _known_code = tuple(sorted((start, stop) for start, stop, is_code in ranges if is_code))


def _mapped_ranges() -> list[tuple[int, int, bool]]:
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return []
    ranges = []
    for line in lines:
        addresses, rights = line.split(maxsplit=2)[:2]
        start, _, stop = addresses.partition("-")
        ranges.append((int(start, 16), int(stop, 16), "x" in rights))
    return ranges

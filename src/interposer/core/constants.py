"""Memory of constants: data mapped from files, and one shared copy of equal data, for all networks of the process."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.core.addresses import address_of, aligned_empty, suitable
from interposer.core.errors import LoadError
from interposer.core.types import Array

__all__ = [
    "LEAST_MAPPED",
    "LEAST_SHARED",
    "Place",
    "Users",
    "aligned",
    "changed_file",
    "check_unchanged",
    "give_back_pages",
    "mapped",
    "place_of",
    "private_copies",
    "share",
]

LEAST_MAPPED: Final = 1 << 20
"""Size in bytes from which on a file is mapped; a smaller file is read."""
LEAST_SHARED: Final = 1 << 14
"""Size in bytes from which on a constant is shared with an equal one."""
_PIECE: Final = 1 << 30
"""The largest number of bytes that one call reads from a file."""
_SAMPLES: Final = 16
_SAMPLE: Final = 64  # bytes
_lock = threading.RLock()


# --- files ------------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where data lies in a file: a descriptor, which is open as long as the data is mapped, and an offset in bytes."""

    fd: int
    offset: int


class _Map(mmap.mmap):
    """A read-only mapping of a whole file; its descriptor stays open until the mapping is garbage-collected."""

    fd: int
    path: str
    address: int
    state: tuple[int, ...]


_maps: dict[tuple[int, ...], weakref.ref[_Map]] = {}
"""Mappings by the state of the file and whether the mapping is one of a copy."""


def mapped(path: str | os.PathLike[str]) -> Array:
    """Return the bytes of a file that is not empty, mapped read-only. Repeated calls share one mapping per file.

    If another program replaces the file by renaming a new one, the mapping keeps the old content. If a program writes
    to the file in place, the constants of loaded networks change. If the file is truncated, reading past its new end
    kills the process (SIGBUS). In a block of `private_copies`, the mapping is one of a copy, which nobody can change.

    Raises:
        OSError: the file cannot be opened, copied or mapped, or another program writes to it while it is copied.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        is_copy = _makes_copies.get()
        key = (*_state(fd), is_copy)
        with _lock:
            reference = _maps.get(key)
            mapping = reference() if reference is not None else None
            if mapping is None:
                if is_copy:
                    original, fd = fd, _copied(fd)
                    os.close(original)
                mapping = _new_map(fd, os.fsdecode(path), key)
                fd = -1
            return np.frombuffer(mapping, np.uint8)
    finally:
        if fd >= 0:
            os.close(fd)


@contextmanager
def private_copies() -> Iterator[None]:
    """Return a context in which `mapped` maps copies of files, for programs whose files others may change.

    A copy is a file without a name in the folder for temporary files, so it needs room on a disk and not in memory. The
    context is that of a thread or a task, and of threads to which it is passed on.
    """
    token = _makes_copies.set(True)
    try:
        yield
    finally:
        _makes_copies.reset(token)


_makes_copies: Final[ContextVar[bool]] = ContextVar("makes_copies", default=False)


def _copied(fd: int) -> int:
    """Return the descriptor of a copy of a file that has no name.

    Raises:
        OSError: there is no room, or the file was written to while it was copied.
    """
    state_before = _state(fd)
    import tempfile  # noqa: PLC0415 - few constants are moved to a file, and it imports readers of archives

    with tempfile.TemporaryFile(prefix="interposer-") as file:
        offset = 0
        while offset < state_before[2]:
            count = os.sendfile(file.fileno(), fd, offset, min(_PIECE, state_before[2] - offset))
            if not count:
                break
            offset += count
        if offset < state_before[2] or _state(fd) != state_before:
            raise OSError(errno.EBUSY, "another program writes to the file")
        return os.dup(file.fileno())


def _state(fd: int) -> tuple[int, ...]:
    """Return a key of the file that a descriptor refers to, which changes if the file is replaced or written to.

    It has device, inode, size and modification time.
    """
    status = os.fstat(fd)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _new_map(fd: int, path: str, key: tuple[int, ...]) -> _Map:
    file_state = _state(fd)
    mapping = _Map(fd, file_state[2], mmap.MAP_SHARED, mmap.PROT_READ)
    mapping.fd, mapping.path, mapping.state = fd, path, file_state
    mapping.address = address_of(np.frombuffer(mapping, np.uint8))
    weakref.finalize(mapping, _forget, fd, key).atexit = False
    _maps[key] = weakref.ref(mapping)
    return mapping


def _forget(fd: int, key: tuple[int, ...]) -> None:
    os.close(fd)
    reference = _maps.get(key)
    if reference is not None and reference() is None:
        _maps.pop(key, None)


def _map_of(array: Array) -> _Map | None:
    if not _maps:
        return None
    begin = address_of(array)
    for reference in list(_maps.values()):
        mapping = reference()
        if (
            mapping is not None
            and mapping.address <= begin
            and begin + array.nbytes <= mapping.address + mapping.state[2]
        ):
            return mapping
    return None


def place_of(array: Array) -> Place | None:
    """Return the position of a contiguous array in a file that `mapped` has mapped; None for ordinary memory."""
    mapping = _map_of(array) if array.nbytes else None
    return None if mapping is None else Place(mapping.fd, address_of(array) - mapping.address)


def changed_file(arrays: Iterable[Array]) -> str | None:
    """Return the path of the first mapped file under the arrays that was written to since it was mapped, or None."""
    maps = {id(mapping): mapping for mapping in map(_map_of, arrays) if mapping is not None}
    return next((mapping_.path for mapping_ in maps.values() if _state(mapping_.fd) != mapping_.state), None)


def check_unchanged(arrays: Iterable[Array]) -> None:
    """Raise `LoadError` if a mapped file under the arrays was written to since it was mapped."""
    changed_path = changed_file(arrays)
    if changed_path is not None:
        raise LoadError(
            f"the file {changed_path!r} was written to after its constants were mapped; read the model again"
        )


def aligned(array: Array, alignment: int = 1) -> Array:
    """Return `array` if it is C-contiguous and aligned to its elements and to `alignment` bytes, else such a copy.

    Bytes of a mapped file are read from the file, not from the mapping: reading a mapping beyond the end of a file that
    was truncated would end the process, and all pages that are read from a mapping count as memory of the process.

    Raises:
        LoadError: the file was written to or truncated, or cannot be read.
    """
    mapping = _map_of(array) if array.nbytes >= LEAST_SHARED and array.flags.c_contiguous else None
    if mapping is None or address_of(array) % max(alignment, array.dtype.alignment) == 0:
        return suitable(array, alignment)
    copy = aligned_empty(array.shape, array.dtype, max(alignment, array.dtype.alignment))
    try:
        _read(mapping.fd, copy.reshape(-1).view(np.uint8).data, address_of(array) - mapping.address)
    except OSError as error:
        raise LoadError(f"the file {mapping.path!r} cannot be read: {error.strerror}") from error
    check_unchanged([array])
    return copy


def _read(fd: int, memory: memoryview, offset: int) -> None:
    """Fill `memory` with the bytes of the file `fd` from `offset` on, or with fewer if the file ends before."""
    while memory and (count := os.preadv(fd, [memory[:_PIECE]], offset)):
        memory, offset = memory[count:], offset + count


def give_back_pages(arrays: Iterable[Array]) -> None:
    """Unload the pages of the mapped files under the arrays from memory.

    The mappings remain valid: a page is loaded again, usually from the system's cache, when it is read.
    """
    maps = {id(mapping): mapping for mapping in map(_map_of, arrays) if mapping is not None}
    for mapping in maps.values():
        with suppress(OSError, ValueError):  # a system without this advice
            mapping.madvise(mmap.MADV_DONTNEED)


# --- equal data -------------------------------------------------------------------------------------------------------


class _SharedBytes(NamedTuple):
    """Bytes in memory that `share` can use again: a weak reference to the array that owns them, and their address."""

    owner: weakref.ref[Array]
    address: int


_shared_bytes: dict[tuple[int, bytes], list[_SharedBytes]] = {}
_sweep_threshold = 64


def share(array: Array, alignment: int = 1) -> Array:
    """Return `array`, or a read-only array over equal bytes that are in memory already.

    Neither array may be changed afterwards.

    Args:
        array: returned as it is if it holds objects, is not C-contiguous, or is smaller than `LEAST_SHARED` bytes. So
            is a view of memory of another library, which may release it while the array exists.
        alignment: the result's address is a multiple of this many bytes; the address of `array` must be one.
    """
    if array.nbytes < LEAST_SHARED or not array.flags.c_contiguous or array.dtype.kind == "O" or _is_borrowed(array):
        return array
    array_bytes = array.reshape(-1).view(np.uint8)
    key = array.nbytes, _sample(array_bytes)
    with _lock:
        for candidate in _shared_bytes.get(key, ()):
            candidate_bytes = _view_of(candidate, array.nbytes) if candidate.address % alignment == 0 else None
            if candidate_bytes is not None and (
                candidate.address == address_of(array) or np.array_equal(candidate_bytes, array_bytes)
            ):
                return candidate_bytes.view(array.dtype).reshape(array.shape)
        _sweep()
        _shared_bytes.setdefault(key, []).append(_SharedBytes(weakref.ref(_owner(array)), address_of(array)))
    return array


def _is_borrowed(array: Array) -> bool:
    """Return True if an array views memory at an address that ctypes was given, which no object of Python owns."""
    base: object = _owner(array).base
    exporter = base.obj if isinstance(base, memoryview) else base
    return isinstance(exporter, ctypes.Array) and not getattr(exporter, "_b_needsfree_", 1)


def _sample(raw: Array) -> bytes:
    step = max(1, (raw.size - _SAMPLE) // (_SAMPLES - 1))
    return b"".join(raw[start : start + _SAMPLE].tobytes() for start in range(0, step * _SAMPLES, step))


def _owner(array: Array) -> Array:
    """Return the array that owns the memory of a view, by following `base`."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _view_of(shared_bytes: _SharedBytes, size: int) -> Array | None:
    """Return a read-only view of `size` known bytes, as uint8.

    None if the array that owns them is gone or resized, or if the file that they are mapped from was written to.
    """
    owner = shared_bytes.owner()
    if owner is None or not owner.flags.c_contiguous:
        return None
    start_offset = shared_bytes.address - address_of(owner)
    view = owner.reshape(-1).view(np.uint8)[start_offset : start_offset + size]
    view.flags.writeable = False
    return view if changed_file([view]) is None else None


def _sweep() -> None:
    """Remove the entries of garbage-collected arrays from the table of known bytes, once it has doubled in size."""
    global _sweep_threshold  # noqa: PLW0603 - the threshold belongs to the table _shared_bytes
    if len(_shared_bytes) < _sweep_threshold:
        return
    for key, entries in list(_shared_bytes.items()):
        live_entries = [entry for entry in entries if entry.owner() is not None]
        if live_entries:
            _shared_bytes[key] = live_entries
        else:
            del _shared_bytes[key]
    _sweep_threshold = max(64, 2 * len(_shared_bytes))


# --- users of constants -----------------------------------------------------------------------------------------------

_users: Counter[tuple[int, int]] = Counter()


class Users:
    """Counts who uses which arrays, such as one loaded network its constants, to report memory that is shared.

    The arrays count as used until this object is garbage-collected. Arrays of objects are ignored.
    """

    def __init__(self, arrays: Iterable[Array]) -> None:
        self._arrays = {(address_of(array), array.nbytes): array for array in arrays if array.dtype.kind != "O"}
        with _lock:
            _users.update(self._arrays.keys())
        weakref.finalize(self, _release_users, tuple(self._arrays)).atexit = False

    @property
    def total(self) -> int:
        """The size of all arrays in bytes, each memory range counted once."""
        return sum(size for _, size in self._arrays)

    @property
    def mapped(self) -> int:
        """The size in bytes of the arrays that are in mapped files."""
        return sum(array.nbytes for array in self._arrays.values() if place_of(array) is not None)

    @property
    def shared(self) -> int:
        """The size in bytes of the arrays that other `Users` have too, without those in mapped files."""
        return sum(array.nbytes for key, array in self._arrays.items() if _users[key] > 1 and place_of(array) is None)


def _release_users(keys: tuple[Any, ...]) -> None:
    with _lock:
        for key in keys:
            _users[key] -= 1
            if not _users[key]:
                del _users[key]

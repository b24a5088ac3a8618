"""Imported memory: buffers that are described by a file descriptor, such as a dma-buf, mapped as arrays."""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import stat
import weakref
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from interposer.backend.memory import MemorySource
from interposer.core.errors import InvalidArgumentError, as_int, expect
from interposer.core.records import dataclass
from interposer.core.types import Array, TensorInfo

__all__ = ["ExternalMemory", "MemoryDescriptor", "machine_sources", "source_problem"]

_SHRINK: Final = getattr(fcntl, "F_SEAL_SHRINK", 2)
_GET_SEALS: Final = getattr(fcntl, "F_GET_SEALS", 1034)
_SINGLE_SOURCES: Final = tuple(item for item in MemorySource if item)
_SOURCE_REQUIREMENTS: Final = {
    MemorySource.DMA_BUF: "needs memory that can be mapped by a file descriptor",
    MemorySource.DMA_BUF_PROTECTED: "must not be read by the processor, and this machine has no device for it",
    MemorySource.GRALLOC: "is Android's",
}
_KINDS: Final = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}
_POLL_MILLISECONDS: Final = 50  # milliseconds between checks whether the run is cancelled


@dataclass(frozen=True, slots=True)
class MemoryDescriptor:
    """Memory that a file descriptor refers to: a dma-buf, a memfd, or a file.

    Args:
        fd: the file descriptor.
        source: the kind of memory; a memfd or a file counts as `MemorySource.DMA_BUF`.
        offset: offset of the tensor in bytes.
        size: size in bytes from `offset` on; None for the rest of the memory.
        protected: True if the processor must not read the memory; the same as the source `DMA_BUF_PROTECTED`.
        owned: True to transfer the ownership of the descriptors: they are closed when the import is released. If an
            import fails, the caller still owns them.
        fence: descriptor of a sync file that signals when the memory may be used; the first run after the import waits
            for it. None if the memory may be used at once.

    Raises:
        InvalidArgumentError: a value is not valid.
    """

    fd: int
    source: MemorySource = MemorySource.DMA_BUF
    offset: int = 0
    size: int | None = None
    protected: bool = False
    owned: bool = False
    fence: int | None = None

    def __post_init__(self) -> None:
        expect(self.source, MemorySource, "the source must be a MemorySource")
        if self.source not in _SINGLE_SOURCES:
            source_names = ", ".join(source.name or "" for source in _SINGLE_SOURCES)
            raise InvalidArgumentError(f"a descriptor has one memory source of {source_names}, not {self.source!r}")
        if self.source is MemorySource.MALLOC:
            raise InvalidArgumentError("memory of the source MALLOC has no file descriptor; pass the array itself")
        for name, minimum in (("fd", 0), ("offset", 0), ("size", 1), ("fence", 0)):
            if getattr(self, name) is not None or name in {"fd", "offset"}:
                object.__setattr__(self, name, _checked_number(name, getattr(self, name), minimum))
        if self.protected and self.source is MemorySource.DMA_BUF:
            object.__setattr__(self, "source", MemorySource.DMA_BUF_PROTECTED)
        elif self.source is MemorySource.DMA_BUF_PROTECTED:
            object.__setattr__(self, "protected", True)


def _checked_number(name: str, number: Any, minimum: int) -> int:
    requirement = f"{name} must be a whole number from {minimum} on"
    whole_number = as_int(number, requirement)
    if whole_number < minimum:
        raise InvalidArgumentError(f"{requirement}, not {whole_number}")
    return whole_number


def machine_sources() -> MemorySource:
    """Return the memory sources that this machine supports."""
    has_memfd = hasattr(os, "memfd_create")
    return MemorySource.MALLOC | (MemorySource.DMA_BUF if has_memfd else MemorySource.UNDEFINED)


def source_problem(source: MemorySource) -> str | None:
    """Return why memory of a source cannot be used on this machine, or None if it can."""
    available_sources = machine_sources()
    if source in available_sources:
        return None
    names = " and ".join(flag.name or "" for flag in _SINGLE_SOURCES if flag in available_sources)
    return f"memory of the source {source.name} {_SOURCE_REQUIREMENTS[source]}; this machine has {names}"


class ExternalMemory:
    """An array over the memory of a descriptor, until `release` is called.

    Args:
        descriptor: the memory to map.
        info: the tensor in it, of known shape.
        writable: whether the array must be writable.

    Raises:
        ValueError: the memory cannot be mapped, or does not hold the tensor; the message says why. No descriptor is
            closed then.
    """

    def __init__(self, descriptor: MemoryDescriptor, info: TensorInfo, *, writable: bool) -> None:
        self.descriptor = descriptor
        error = source_problem(descriptor.source)
        if error is not None:
            raise ValueError(error)
        self._tensor_bytes = _needed_bytes(descriptor, info)
        _check_room(descriptor, descriptor.fd, self._tensor_bytes)
        _check_fence(descriptor.fence)
        may_shrink = not _is_sealed(descriptor.fd)
        status = os.fstat(descriptor.fd)
        self._file = status.st_dev, status.st_ino
        self.array: Array | None = _mapped(descriptor, info, self._tensor_bytes, writable)
        to_close = _descriptors_to_close(descriptor, may_shrink)
        self._watched = to_close[0] if may_shrink else None
        self._fence = None if descriptor.fence is None else to_close[-1]
        self._close = weakref.finalize(self, _close_all, tuple(to_close))
        self._close.atexit = False

    def overlaps(self, other: ExternalMemory) -> bool:
        """Return True if both tensors overlap in the same file, even if they are mapped to different addresses."""
        if self._file != other._file:
            return False
        begin, other_begin = self.descriptor.offset, other.descriptor.offset
        return begin < other_begin + other._tensor_bytes and other_begin < begin + self._tensor_bytes

    @property
    def settled(self) -> bool:
        """True if `ready` has nothing to do: no fence is pending, and the memory cannot shrink."""
        return self._fence is None and self._watched is None

    def ready(self, check: Callable[[], None]) -> None:
        """Wait for the fence, if it is pending, and check that the memory has not shrunk. Called before a run.

        Args:
            check: called repeatedly during the wait; its exceptions end the wait.

        Raises:
            ValueError: the fence failed, or the memory has shrunk.
        """
        if self._fence is not None:
            _wait(self._fence, check)
            self._fence = None
        if self._watched is not None:
            _check_room(self.descriptor, self._watched, self._tensor_bytes)

    def release(self, *, undone: bool = False) -> None:
        """Release the memory, which stays mapped while the array is referenced, and close owned descriptors.

        Args:
            undone: return the ownership of the descriptors to the caller, because the import failed.
        """
        self.array = self._watched = self._fence = None
        if undone and self.descriptor.owned and self._close.detach():
            _owned.difference_update((self.descriptor.fd, self.descriptor.fence))
        self._close()


_owned: set[int] = set()


def _descriptors_to_close(descriptor: MemoryDescriptor, may_shrink: bool) -> list[int]:
    """Return the descriptors to close at release: the memory's, if it is owned or may shrink, and the fence's."""
    descriptors = [descriptor.fd] if may_shrink or descriptor.owned else []
    descriptors += [] if descriptor.fence is None else [descriptor.fence]
    if not descriptor.owned:
        return _copies(descriptors)
    already_owned = _owned.intersection(descriptors)
    if already_owned:
        raise ValueError(f"the descriptor {min(already_owned)} is owned by another import already")
    _owned.update(descriptors)
    return descriptors


def _copies(descriptors: list[int]) -> list[int]:
    """Return duplicates of file descriptors, since the caller may close the originals.

    Raises ValueError if a descriptor is not valid.
    """
    duplicates: list[int] = []
    try:
        for fd in descriptors:
            duplicates.append(os.dup(fd))
    except OSError as error:
        _close_all(tuple(duplicates))
        raise ValueError(f"the descriptor {fd} cannot be used: {error.strerror}") from error
    return duplicates


def _close_all(descriptors: tuple[int, ...]) -> None:
    for fd in descriptors:
        _owned.discard(fd)
        try:
            os.close(fd)
        except OSError:  # the descriptor is closed already
            continue


def _needed_bytes(descriptor: MemoryDescriptor, info: TensorInfo) -> int:
    if not info.dtype.bits:
        raise ValueError(f"elements of type {info.dtype} have no byte representation in memory")
    needed_bytes = int(info.num_bytes)
    alignment = info.dtype.numpy.alignment
    if descriptor.offset % alignment:
        raise ValueError(f"it begins at byte {descriptor.offset}; {info.dtype} needs a multiple of {alignment}")
    if descriptor.size is not None and descriptor.size < needed_bytes:
        raise ValueError(f"the descriptor has a size of {descriptor.size:,} bytes; the tensor needs {needed_bytes:,}")
    return needed_bytes


def _check_room(descriptor: MemoryDescriptor, fd: int, needed_bytes: int) -> None:
    size, tensor_end = _size_of(fd), descriptor.offset + max(needed_bytes, descriptor.size or 0)
    if tensor_end > size:
        raise ValueError(f"the descriptor {descriptor.fd} has {size:,} bytes; the tensor ends at {tensor_end:,}")


def _size_of(fd: int) -> int:
    try:
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode):
            return status.st_size
        kind = _KINDS.get(stat.S_IFMT(status.st_mode))
        if kind is None:  # a dma-buf, whose size is the end position of a seek
            size = os.lseek(fd, 0, os.SEEK_END)
            os.lseek(fd, 0, os.SEEK_SET)
            return size
    except OSError as error:
        raise ValueError(f"the descriptor {fd} cannot be used: {error.strerror}") from error
    raise ValueError(f"the descriptor {fd} is {kind}; expected a dma-buf, a memfd, or a file")


def _mapped(descriptor: MemoryDescriptor, info: TensorInfo, needed_bytes: int, writable: bool) -> Array:
    shape, dtype = tuple(info.shape), info.dtype.numpy
    if not needed_bytes:
        return np.empty(shape, dtype)
    begin = descriptor.offset % mmap.ALLOCATIONGRANULARITY
    memory = _map(descriptor.fd, begin + needed_bytes, descriptor.offset - begin, writable)
    array: Array = np.frombuffer(memory, np.uint8, needed_bytes, begin).view(dtype).reshape(shape)
    return array


def _map(fd: int, size: int, offset: int, writable: bool) -> mmap.mmap:
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    try:
        try:
            return mmap.mmap(fd, size, mmap.MAP_SHARED, protection, offset=offset)
        except PermissionError:
            if writable:
                raise
            return mmap.mmap(fd, size, mmap.MAP_PRIVATE, protection, offset=offset)  # sealed against writing
    except (OSError, ValueError) as error:
        access = "read and written" if writable else "read"
        opened_as = {os.O_RDONLY: "opened for reading only", os.O_WRONLY: "opened for writing only"}.get(_access(fd))
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"the descriptor {fd} cannot be mapped to be {access}: {opened_as or reason}") from error


def _access(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE


def _is_sealed(fd: int) -> bool:
    """Return True if the memory of a file descriptor can never shrink: a sealed memfd or a dma-buf, but no file."""
    try:
        return bool(fcntl.fcntl(fd, _GET_SEALS) & _SHRINK)
    except OSError:  # not a memfd: a file may shrink, a dma-buf never does
        return not stat.S_ISREG(os.fstat(fd).st_mode)


def _check_fence(fence: int | None) -> None:
    if fence is not None:
        try:
            os.fstat(fence)
        except OSError as error:
            raise ValueError(f"the fence {fence} cannot be used: {error.strerror}") from error


def _wait(fence: int, check: Callable[[], None]) -> None:
    poll = select.poll()
    poll.register(fence, select.POLLIN)
    while True:
        check()
        for _, events in poll.poll(_POLL_MILLISECONDS):
            if events & select.POLLIN:
                return
            raise ValueError(f"the fence {fence} {'is closed' if events & select.POLLNVAL else 'failed'}")

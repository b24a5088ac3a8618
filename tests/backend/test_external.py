"""Memory that a file descriptor stands for."""

from __future__ import annotations

import fcntl
import gc
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interposer.backend import ExternalMemory, MemoryDescriptor, MemorySource, machine_sources
from interposer.core.errors import InvalidArgumentError
from interposer.core.types import TensorInfo

INFO = TensorInfo((2, 3))
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def fd() -> Iterator[int]:
    created = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(created, 8192)
    yield created
    os.close(created)


def go_on() -> None:
    pass


def test_an_array_lies_in_the_memory_of_a_descriptor(fd: int) -> None:
    os.pwrite(fd, X.tobytes(), 4100)
    memory = ExternalMemory(MemoryDescriptor(fd, offset=4100, size=24), INFO, writable=True)
    assert memory.array is not None
    np.testing.assert_array_equal(memory.array, X)
    memory.array += 1
    np.testing.assert_array_equal(np.frombuffer(os.pread(fd, 24, 4100), np.float32).reshape(2, 3), X + 1)


def test_what_is_only_read_cannot_be_written_to(fd: int) -> None:
    memory = ExternalMemory(MemoryDescriptor(fd), INFO, writable=False)
    assert memory.array is not None
    assert not memory.array.flags.writeable


def test_a_sealed_memfd_can_be_read_and_needs_no_second_look(fd: int) -> None:
    os.pwrite(fd, X.tobytes(), 0)
    assert not ExternalMemory(MemoryDescriptor(fd), INFO, writable=False).settled
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    memory = ExternalMemory(MemoryDescriptor(fd), INFO, writable=False)
    assert memory.settled
    np.testing.assert_array_equal(memory.array, X)
    with pytest.raises(ValueError, match="cannot be mapped to be read and written: Operation not permitted"):
        ExternalMemory(MemoryDescriptor(fd), INFO, writable=True)


def test_owned_descriptors_are_closed_once_when_the_memory_is_let_go_of() -> None:
    numbers = [os.memfd_create("test") for _ in range(2)]
    for number in numbers:
        os.ftruncate(number, 24)
    first, second = (ExternalMemory(MemoryDescriptor(number, owned=True), INFO, writable=False) for number in numbers)
    array = first.array
    first.release()
    first.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(numbers[0])
    assert array is not None
    assert array.sum() == 0  # it stays mapped while somebody has it
    del second
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(numbers[1])


def test_a_descriptor_has_one_owner(fd: int) -> None:
    own = os.dup(fd)
    memory = ExternalMemory(MemoryDescriptor(own, owned=True), INFO, writable=False)
    with pytest.raises(ValueError, match=f"the descriptor {own} is owned by another import already"):
        ExternalMemory(MemoryDescriptor(own, owned=True), INFO, writable=False)
    memory.release(undone=True)
    os.fstat(own)
    ExternalMemory(MemoryDescriptor(own, owned=True), INFO, writable=False).release()


def test_a_caller_may_close_what_it_owns_at_once(fd: int) -> None:
    own = os.dup(fd)
    memory = ExternalMemory(MemoryDescriptor(own, fence=own), INFO, writable=False)
    os.close(own)
    memory.ready(go_on)
    assert memory.array is not None


def _closed(folder: Path) -> dict[str, Any]:
    number = os.memfd_create("test")
    os.close(number)
    return {"fd": number}


def _pipe(folder: Path) -> dict[str, Any]:
    ours, other = os.pipe()
    os.close(other)
    return {"fd": ours}


def _socket(folder: Path) -> dict[str, Any]:
    with socket.socket() as item:
        return {"fd": item.detach()}


def _file(folder: Path, flags: int, size: int = 24) -> int:
    path = folder / "x.bin"
    path.write_bytes(bytes(size))
    return os.open(path, flags)


WRONG: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "closed": (_closed, "the descriptor {fd} cannot be used: Bad file descriptor"),
    "pipe": (_pipe, "the descriptor {fd} is a pipe; expected a dma-buf, a memfd, or a file"),
    "socket": (_socket, "the descriptor {fd} is a socket; expected a dma-buf, a memfd, or a file"),
    "folder": (
        lambda folder: {"fd": os.open(folder, os.O_RDONLY)},
        "the descriptor {fd} is a folder; expected a dma-buf, a memfd, or a file",
    ),
    "short": (
        lambda folder: {"fd": _file(folder, os.O_RDWR, 20)},
        "the descriptor {fd} has 20 bytes; the tensor ends at 24",
    ),
    "beyond": (
        lambda folder: {"fd": _file(folder, os.O_RDWR), "offset": 4},
        "the descriptor {fd} has 24 bytes; the tensor ends at 28",
    ),
    "says more": (
        lambda folder: {"fd": _file(folder, os.O_RDWR), "size": 100},
        "the descriptor {fd} has 24 bytes; the tensor ends at 100",
    ),
    "says less": (
        lambda folder: {"fd": _file(folder, os.O_RDWR), "size": 20},
        "the descriptor has a size of 20 bytes; the tensor needs 24",
    ),
    "misaligned": (
        lambda folder: {"fd": _file(folder, os.O_RDWR, 30), "offset": 2},
        "it begins at byte 2; float32 needs a multiple of 4",
    ),
    "only read": (
        lambda folder: {"fd": _file(folder, os.O_RDONLY)},
        "the descriptor {fd} cannot be mapped to be read and written: opened for reading only",
    ),
    "only written": (
        lambda folder: {"fd": _file(folder, os.O_WRONLY)},
        "the descriptor {fd} cannot be mapped to be read and written: opened for writing only",
    ),
    "fence": (
        lambda folder: {"fd": _file(folder, os.O_RDWR), "fence": 1 << 20},
        "the fence 1048576 cannot be used: Bad file descriptor",
    ),
    "protected": (
        lambda folder: {"fd": 0, "protected": True},
        "memory of the source DMA_BUF_PROTECTED must not be read by the processor, and this machine has no device for "
        "it; this machine has MALLOC and DMA_BUF",
    ),
    "gralloc": (
        lambda folder: {"fd": 0, "source": MemorySource.GRALLOC},
        "memory of the source GRALLOC is Android's; this machine has MALLOC and DMA_BUF",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_memory_that_cannot_be_mapped_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    make, text = WRONG[name]
    how = make(tmp_path)
    gc.collect()  # what earlier tests left is not closed in between
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError, match=f"^{re.escape(text.format(fd=how['fd']))}$"):
        ExternalMemory(MemoryDescriptor(**how), INFO, writable=True)
    assert len(os.listdir("/proc/self/fd")) == before
    if name not in {"closed", "protected", "gralloc"}:
        os.close(how["fd"])


def test_descriptors_that_cannot_be_meant_are_refused() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"fd": -1}, "fd must be a whole number from 0 on, not -1"),
        ({"fd": "x"}, "fd must be a whole number from 0 on, not 'x'"),
        ({"fd": 0, "offset": -4}, "offset must be a whole number from 0 on, not -4"),
        ({"fd": 0, "size": 0}, "size must be a whole number from 1 on, not 0"),
        ({"fd": 0, "fence": -1}, "fence must be a whole number from 0 on, not -1"),
        (
            {"fd": 0, "source": MemorySource.MALLOC},
            "memory of the source MALLOC has no file descriptor; pass the array",
        ),
        ({"fd": 0, "source": MemorySource.UNDEFINED}, "a descriptor has one memory source of MALLOC, DMA_BUF,"),
        ({"fd": 0, "source": 2}, "the source must be a MemorySource, not 2"),
    ]
    for how, text in wrong:
        with pytest.raises(InvalidArgumentError) as caught:
            MemoryDescriptor(**how)
        assert str(caught.value).startswith(text)


def test_protected_memory_is_said_in_one_way_or_the_other() -> None:
    assert MemoryDescriptor(0, protected=True) == MemoryDescriptor(0, MemorySource.DMA_BUF_PROTECTED)


def test_the_machine_says_which_sources_it_has() -> None:
    assert machine_sources() == MemorySource.MALLOC | MemorySource.DMA_BUF


def test_an_empty_tensor_needs_no_memory(fd: int) -> None:
    assert ExternalMemory(MemoryDescriptor(fd), TensorInfo((0, 3)), writable=True).array.shape == (0, 3)  # type: ignore[union-attr]


def test_texts_lie_in_no_memory(fd: int) -> None:
    with pytest.raises(ValueError, match="elements of type string have no byte representation in memory"):
        ExternalMemory(MemoryDescriptor(fd), TensorInfo((2,), "string"), writable=True)

"""Custom allocators: memory that the caller provides for the tensors of a backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

import numpy as np

from interposer.backend.memory import MemorySource
from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Array

__all__ = ["PROTECTED_CONTENT", "CustomAllocator", "allocated"]

PROTECTED_CONTENT: Final = "ProtectedContentAllocation"
"""The capability of backends whose tensors can be in protected memory, which the processor cannot read."""


class CustomAllocator(ABC):
    """Allocates memory for a backend's tensors: ``CreationOptions(custom_allocators={"Name": allocator})``.

    The backend accepts or refuses the allocator when the runtime is created: see `Backend.use_custom_memory_allocator`.
    Afterwards, all memory of tensors within and between the backend's layers comes from the allocator, and so do
    the weights that the backend packs. Several threads may call its methods concurrently.
    """

    memory_source: ClassVar[MemorySource] = MemorySource.MALLOC
    """The kind of memory that `allocate` returns: exactly one flag."""

    @abstractmethod
    def allocate(self, size: int, alignment: int) -> Array:
        """Return memory as a uint8 array of length `size` whose address is a multiple of `alignment` bytes.

        If this raises an exception, the run ends with an `ExecutionError`.
        """

    def free(self, memory: Array) -> None:
        """Free an array of `allocate` that is no longer used. By default, this is left to garbage collection."""


def allocated(allocator: CustomAllocator, size: int, alignment: int, backend: str) -> Array:
    """Return `size` bytes of an allocator, at a multiple of `alignment`; `backend` is the backend's id, for messages.

    Raises:
        InvalidArgumentError: the allocator returned something else. It is freed if it is an array.
    """
    memory: object = allocator.allocate(size, alignment)
    error = _problem(memory, size, alignment)
    if error is None:
        return memory  # type: ignore[return-value] # an array, as checked above
    if isinstance(memory, np.ndarray):
        allocator.free(memory)
    raise InvalidArgumentError(f"the custom allocator of backend {backend} gave {error}")


def _problem(memory: object, size: int, alignment: int) -> str | None:
    """Return what is wrong with memory that a custom allocator returned for `size` bytes, or None if it is valid."""
    if not isinstance(memory, np.ndarray) or memory.dtype != np.uint8 or memory.shape != (size,):
        description = f"{memory.dtype}{list(memory.shape)}" if isinstance(memory, np.ndarray) else type(memory).__name__
        return f"{description}; expected an array of {size} times uint8"
    if memory.ctypes.data % alignment or not (memory.flags.c_contiguous and memory.flags.writeable):
        requirement = f"contiguous memory that can be written to, at a multiple of {alignment}"
        return f"memory at {memory.ctypes.data:#x}; expected {requirement}"
    return None

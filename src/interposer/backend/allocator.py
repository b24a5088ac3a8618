"""Custom allocators: memory that the caller provides for the tensors of a backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

from interposer.backend.memory import MemorySource
from interposer.core.types import Array

__all__ = ["PROTECTED_CONTENT", "CustomAllocator"]

PROTECTED_CONTENT: Final = "ProtectedContentAllocation"
"""The capability of backends whose tensors can be in protected memory, which the processor cannot read."""


class CustomAllocator(ABC):
    """Allocates memory for a backend's tensors: ``CreationOptions(custom_allocators={"Name": allocator})``.

    The backend accepts or refuses the allocator when the runtime is created: see `Backend.use_custom_memory_allocator`.
    Afterwards, all memory of tensors within and between the backend's layers comes from the allocator. Several threads
    may call its methods concurrently.
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

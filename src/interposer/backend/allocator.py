"""Custom allocators: memory of the caller's own for the tensors of a backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

from interposer.backend.memory import MemorySource
from interposer.core.types import Array

__all__ = ["PROTECTED_CONTENT", "CustomAllocator"]

PROTECTED_CONTENT: Final = "ProtectedContentAllocation"
"""The capability of backends whose tensors can lie in memory that the processor cannot read."""


class CustomAllocator(ABC):
    """Gives memory for the tensors of a backend: ``CreationOptions(custom_allocators={"Name": allocator})``.

    A backend accepts or refuses it when the runtime is created: see `Backend.use_custom_memory_allocator`. From then on
    it is asked for all memory that the tensors within the backend's layers, and between them, lie in. May be called by
    several threads at once.
    """

    memory_source: ClassVar[MemorySource] = MemorySource.MALLOC
    """What kind of memory it gives: exactly one."""

    @abstractmethod
    def allocate(self, size: int, alignment: int) -> Array:
        """Memory of `size` bytes whose address is a multiple of `alignment`, as an array of uint8 of that length.

        Whatever it raises ends the run with an `ExecutionError`.
        """

    def free(self, memory: Array) -> None:
        """Take back what `allocate` gave; nobody uses it any more. By default it is left to the garbage collector."""

"""What backends say to custom allocators when a runtime is created, and which backends a protected runtime has."""

from __future__ import annotations

from collections.abc import Mapping

from interposer.backend import PROTECTED_CONTENT, Backend, CustomAllocator, MemorySource
from interposer.core.errors import BackendError, UnknownBackendError
from interposer.plugins import BackendRegistry

__all__ = ["use_allocators"]


def use_allocators(registry: BackendRegistry, allocators: Mapping[str, CustomAllocator], protected: bool) -> None:
    """Let backends accept their allocators; in protected mode, leave those out that cannot keep content protected.

    Raises:
        UnknownBackendError: an allocator is for a backend that nobody knows.
        BackendUnavailableError: it is for one that is absent.
        BackendError: the backend refuses it, or its memory and the backend's capability do not agree.
    """
    for backend_id, allocator in allocators.items():
        if backend_id not in registry:
            raise UnknownBackendError(backend_id, registry.ids)
        reason = _disagreement(registry.get(backend_id), allocator, protected)
        if reason is not None:
            text = f"backend {backend_id} does not use the custom allocator {type(allocator).__name__}: {reason}"
            raise BackendError(text, backend=backend_id)
    if protected:
        registry.restrict(allocators, "the runtime is protected, and there is no custom allocator for it")


def _disagreement(backend: Backend, allocator: CustomAllocator, protected: bool) -> str | None:
    source, able = allocator.memory_source, backend.capabilities.has(PROTECTED_CONTENT)
    if source not in list(MemorySource):  # which has single kinds only
        return f"its memory_source is {source!r}; expected one kind of memory"
    if source == MemorySource.DMA_BUF_PROTECTED and not able:
        return f"it gives protected memory, and the backend has not the capability {PROTECTED_CONTENT}"
    if protected and not able:
        return f"the runtime is protected, and the backend has not the capability {PROTECTED_CONTENT}"
    if protected and source != MemorySource.DMA_BUF_PROTECTED:
        return f"the runtime is protected, and it gives {source.name}, not {MemorySource.DMA_BUF_PROTECTED.name}"
    return backend.use_custom_memory_allocator(allocator)

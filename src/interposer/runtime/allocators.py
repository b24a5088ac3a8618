"""Custom allocators of a runtime: their acceptance by backends, and the backends that protected mode allows."""

from __future__ import annotations

from collections.abc import Mapping

from interposer.backend import PROTECTED_CONTENT, Backend, CustomAllocator, MemorySource
from interposer.core.errors import BackendError, UnknownBackendError
from interposer.plugins import BackendRegistry

__all__ = ["use_allocators"]


def use_allocators(registry: BackendRegistry, allocators: Mapping[str, CustomAllocator], protected: bool) -> None:
    """Register custom allocators with their backends; in protected mode, disable all backends without one.

    Raises:
        UnknownBackendError: an allocator is for a backend that is not registered.
        BackendUnavailableError: an allocator is for a backend that is not available.
        BackendError: the backend refuses the allocator, or lacks a capability that its memory needs.
    """
    for backend_id, allocator in allocators.items():
        if backend_id not in registry:
            raise UnknownBackendError(backend_id, registry.ids)
        reason = _disagreement(registry.get(backend_id), allocator, protected)
        if reason is not None:
            message = f"backend {backend_id} does not use the custom allocator {type(allocator).__name__}: {reason}"
            raise BackendError(message, backend=backend_id)
    if protected:
        registry.restrict(allocators, "the runtime is protected, and there is no custom allocator for it")


def _disagreement(backend: Backend, allocator: CustomAllocator, is_protected: bool) -> str | None:
    source, has_protected_content = allocator.memory_source, backend.capabilities.has(PROTECTED_CONTENT)
    if source not in list(MemorySource):  # which has single kinds only
        return f"its memory_source is {source!r}; expected one kind of memory"
    if source == MemorySource.DMA_BUF_PROTECTED and not has_protected_content:
        return f"it gives protected memory, and the backend has not the capability {PROTECTED_CONTENT}"
    if is_protected and not has_protected_content:
        return f"the runtime is protected, and the backend has not the capability {PROTECTED_CONTENT}"
    if is_protected and source != MemorySource.DMA_BUF_PROTECTED:
        return f"the runtime is protected, and it gives {source.name}, not {MemorySource.DMA_BUF_PROTECTED.name}"
    return backend.use_custom_memory_allocator(allocator)

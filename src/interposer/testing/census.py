"""`Census`: a count of the objects that a backend created and that are still alive."""

from __future__ import annotations

import weakref
from typing import Any

from interposer.backend import BackendContext, MemoryManager, TensorHandleFactory, WorkloadFactory
from interposer.testing.watched import replace_method

__all__ = ["Census"]


class Census:
    """Counts the objects that a backend created and that are still alive, by class."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, weakref.ref[Any]]] = []
        self.num_created = 0

    def alive(self) -> dict[str, int]:
        """Return the number of live objects of each class."""
        count_by_class: dict[str, int] = {}
        for class_name, reference in self._seen:
            if reference() is not None:
                count_by_class[class_name] = count_by_class.get(class_name, 0) + 1
        return count_by_class

    def manager(self, memory_manager: MemoryManager) -> None:
        """Count a memory manager."""
        self._count(memory_manager)

    def factory(self, workload_factory: WorkloadFactory, manager: MemoryManager | None) -> None:
        """Count a factory, and everything that it creates."""
        self._count(workload_factory)
        for name in ("create_tensor_handle", "create_constant_handle", "create_workload"):
            self._count_made(workload_factory, name)

    def handle_factory(self, tensor_handle_factory: TensorHandleFactory, manager: MemoryManager | None) -> None:
        """Count a tensor handle factory, and everything that it creates."""
        self._count(tensor_handle_factory)
        for name in ("create", "create_constant", "create_sub_tensor", "create_device_copy"):
            self._count_made(tensor_handle_factory, name)

    def context(self, backend_context: BackendContext) -> None:
        """Ignore a context, since it lives as long as its runtime."""

    def _count_made(self, factory: WorkloadFactory | TensorHandleFactory, name: str) -> None:
        original_method = getattr(type(factory), name)
        weak_factory = weakref.ref(factory)

        def counted(*arguments: Any) -> Any:
            instance = original_method(weak_factory(), *arguments)
            self._count(instance)
            return instance

        replace_method(factory, name, counted)

    def _count(self, created_object: object) -> None:
        self.num_created += 1
        try:
            self._seen.append((type(created_object).__name__, weakref.ref(created_object)))
        except TypeError:
            return

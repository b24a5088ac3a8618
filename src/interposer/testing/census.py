"""`Census`: counts what a backend made, and what of it is still alive."""

from __future__ import annotations

import weakref
from typing import Any

from interposer.backend import BackendContext, MemoryManager, TensorHandleFactory, WorkloadFactory
from interposer.testing.watched import replace_method

__all__ = ["Census"]


class Census:
    """Counts what a backend made and what of it is still alive, by class."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, weakref.ref[Any]]] = []
        self.made = 0

    def alive(self) -> dict[str, int]:
        """How many things of each class there still are."""
        found: dict[str, int] = {}
        for title, reference in self._seen:
            if reference() is not None:
                found[title] = found.get(title, 0) + 1
        return found

    def manager(self, made: MemoryManager) -> None:
        """Count a memory manager."""
        self._count(made)

    def factory(self, made: WorkloadFactory, manager: MemoryManager | None) -> None:
        """Count a factory, and everything that it makes."""
        self._count(made)
        for name in ("create_tensor_handle", "create_constant_handle", "create_workload"):
            self._count_made(made, name)

    def handle_factory(self, made: TensorHandleFactory, manager: MemoryManager | None) -> None:
        """Count a factory of tensor handles, and everything that it makes."""
        self._count(made)
        for name in ("create", "create_constant", "create_sub_tensor", "create_device_copy"):
            self._count_made(made, name)

    def context(self, made: BackendContext) -> None:
        """A context lives as long as its runtime, and is not counted."""

    def _count_made(self, factory: WorkloadFactory | TensorHandleFactory, name: str) -> None:
        original = getattr(type(factory), name)
        here = weakref.ref(factory)

        def counted(*arguments: Any) -> Any:
            made = original(here(), *arguments)
            self._count(made)
            return made

        replace_method(factory, name, counted)

    def _count(self, made: object) -> None:
        self.made += 1
        try:
            self._seen.append((type(made).__name__, weakref.ref(made)))
        except TypeError:
            return

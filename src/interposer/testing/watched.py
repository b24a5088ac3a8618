"""`Watched`: a backend that forwards all calls to another one, and reports the created objects to an observer."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from interposer.backend import (
    Backend,
    BackendContext,
    LayerSupport,
    MemoryManager,
    OptimizationViews,
    Options,
    Queue,
    SubgraphView,
    Support,
    TensorHandle,
    TensorHandleFactory,
    TensorHandleFactoryRegistry,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
)
from interposer.ir.graph import Layer
from interposer.testing.progress import note

__all__ = ["Observer", "Watched", "replace_method"]


class Observer(Protocol):
    """The interface by which `Recording` and `Census` are notified of every object that a backend creates."""

    def manager(self, memory_manager: MemoryManager) -> None:
        """Receive the memory manager of a network."""

    def factory(self, workload_factory: WorkloadFactory, manager: MemoryManager | None) -> None:
        """Receive a workload factory that the backend created, and the memory manager that it was created with."""

    def handle_factory(self, tensor_handle_factory: TensorHandleFactory, manager: MemoryManager | None) -> None:
        """Receive a tensor handle factory that the backend registered, and the memory manager registered with it."""

    def context(self, backend_context: BackendContext) -> None:
        """Receive the context that is notified of loading and unloading."""


class Watched(Backend):
    """A wrapper that forwards all calls to another backend, and reports the objects that this creates to an `Observer`.

    It has the same id, and refuses layers whose names are in `held_back`.
    """

    def __init__(self, inner: Backend, observer: Observer, held_back: Collection[str] = ()) -> None:
        self.inner, self.observer, self.held_back = inner, observer, frozenset(held_back)
        forwarded_names = ("id", "kernels", "capabilities", "api_version", "version", "asynchronous", "overlaps_copies")
        vars(self).update({name: getattr(inner, name) for name in forwarded_names})

    def layer_support(self, options: Options) -> LayerSupport:
        """Return the support of the wrapped backend, except for the layers in `held_back`."""
        support = self.inner.layer_support(options)
        return _Picky(support, self.held_back) if self.held_back else support

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        """Return the answer of the wrapped backend."""
        return self.inner.optimize_subgraph(view, options)

    @property
    def handle_factory_preferences(self) -> Sequence[str]:
        """The preferences of the wrapped backend."""
        return self.inner.handle_factory_preferences

    def register_tensor_handle_factories(self, registry: TensorHandleFactoryRegistry, options: Options) -> None:
        """Register the factories of the wrapped backend, and report them to the observer."""
        managers, factories = set(registry.memory_managers), set(registry)
        self.inner.register_tensor_handle_factories(registry, options)
        new_managers = [memory_manager for memory_manager in registry.memory_managers if memory_manager not in managers]
        for manager in new_managers:
            self.observer.manager(manager)
        for factory in registry:
            if factory not in factories:
                self.observer.handle_factory(factory, new_managers[-1] if new_managers else None)

    def create_memory_manager(self) -> MemoryManager | None:
        """Return the memory manager of the wrapped backend, and report it to the observer."""
        memory_manager = self.inner.create_memory_manager()
        if isinstance(memory_manager, MemoryManager):
            self.observer.manager(memory_manager)
        return memory_manager

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        """Return the workload factory of the wrapped backend, and report it to the observer."""
        workload_factory = self.inner.create_workload_factory(memory_manager, options)
        if isinstance(workload_factory, WorkloadFactory):
            self.observer.factory(workload_factory, memory_manager)
            _note_layers(workload_factory)
        return workload_factory

    def create_queue(self, options: Options) -> Queue:
        """Return a queue of the wrapped backend."""
        return self.inner.create_queue(options)

    def abandon(self, reason: str) -> None:
        """Let the wrapped backend know that a queue was given up."""
        self.inner.abandon(reason)

    def create_backend_context(self, options: Options) -> BackendContext | None:
        """Return the context of the wrapped backend, and report it to the observer."""
        backend_context = self.inner.create_backend_context(options)
        if isinstance(backend_context, BackendContext):
            self.observer.context(backend_context)
        return backend_context


def _note_layers(factory: WorkloadFactory) -> None:
    """Replace the factory's `create_workload`, so that `note` reports the beginning and end of every run of a layer."""
    make = factory.create_workload

    def create_workload(layer: Layer, info: WorkloadInfo) -> Workload:
        note(f"creating the workload of layer {layer}")
        workload = make(layer, info)
        if isinstance(workload, Workload):
            _note_runs(workload, f"running layer {layer}", f"going on after layer {layer}")
        return workload

    replace_method(factory, "create_workload", create_workload)


def _note_runs(workload: Workload, running: str, after: str) -> None:
    own_execute = vars(workload).get("execute") if hasattr(workload, "__dict__") else None
    class_execute = type(workload).execute
    weak_workload = weakref.ref(workload)  # no cycle, which would keep the workload alive

    def noted(inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        note(running)
        if own_execute is not None:
            own_execute(inputs, outputs)
        elif (workload_alive := weak_workload()) is not None:
            class_execute(workload_alive, inputs, outputs)
        note(after)

    replace_method(workload, "execute", noted)


class _Picky(LayerSupport):
    def __init__(self, inner: LayerSupport, held_back: frozenset[str]) -> None:
        self.inner, self.held_back = inner, held_back

    def query(self, view: SubgraphView) -> list[Support]:
        layers_and_verdicts = zip(view, self.inner.query(view), strict=True)
        return [
            Support.no("held back") if layer.name in self.held_back else verdict
            for layer, verdict in layers_and_verdicts
        ]


def replace_method(target: object, name: str, function: Callable[..., Any]) -> bool:
    """Set the attribute `name` of one object to a function; return False if the object has no writable attributes."""
    try:
        setattr(target, name, function)
    except AttributeError:
        return False
    return True

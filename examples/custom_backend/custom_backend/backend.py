"""The backend class: it declares its id, and creates all other objects."""

from __future__ import annotations

from typing import ClassVar
from weakref import WeakSet

from custom_backend.compiler import compiled
from custom_backend.context import CustomBackendContext
from custom_backend.memory import CustomMemoryManager
from custom_backend.support import CustomLayerSupport
from custom_backend.workloads import CustomWorkloadFactory
from interposer.backend import (
    Backend,
    BackendContext,
    BackendId,
    Capabilities,
    LayerSupport,
    MemoryManager,
    OptimizationViews,
    Options,
    SubgraphView,
    Substitution,
    WorkloadFactory,
)
from interposer.ops import PreCompiled


class CustomBackend(Backend):
    """A backend that runs additions of float32 tensors."""

    id: ClassVar = BackendId("Custom")
    version: ClassVar = "1.0.0"
    capabilities: ClassVar = Capabilities(NonConstWeights=False, ConstantTensorsAsInputs=True)

    def __init__(self) -> None:
        # A backend needs to remember nothing; this one does so that its tests can look at what it made and is in use.
        self.contexts: WeakSet[CustomBackendContext] = WeakSet()
        self.memory_managers: WeakSet[CustomMemoryManager] = WeakSet()

    def layer_support(self, options: Options) -> LayerSupport:
        """Return the object that accepts additions."""
        return CustomLayerSupport()

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        """Compile every layer separately; a real compiler would take the whole view."""
        parts = [view.part([layer]) for layer in view]
        compiled_layers = [PreCompiled(num_outputs=len(part.outputs), object=compiled(part)) for part in parts]
        substitutions = [Substitution(part, op) for part, op in zip(parts, compiled_layers, strict=True)]
        return OptimizationViews(view, substitutions=substitutions)

    def create_memory_manager(self) -> MemoryManager:
        """Return a manager for the tensors of one network."""
        custom_memory_manager = CustomMemoryManager()
        self.memory_managers.add(custom_memory_manager)
        return custom_memory_manager

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        """Return the factory of the workloads and handles of one network, which use the given memory manager."""
        return CustomWorkloadFactory(memory_manager)

    def create_backend_context(self, options: Options) -> BackendContext:
        """Return the context, which a runtime notifies of loaded and unloaded networks."""
        custom_backend_context = CustomBackendContext(options)
        self.contexts.add(custom_backend_context)
        return custom_backend_context

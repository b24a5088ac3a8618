"""`Backend`, the class that a backend author derives from, and what belongs to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from interposer._version import API_VERSION
from interposer.backend.allocator import CustomAllocator
from interposer.backend.capabilities import Capabilities, Options
from interposer.backend.handles import TensorHandleFactoryRegistry
from interposer.backend.memory import ArenaMemoryManager, MemoryManager, MemorySource
from interposer.backend.support import KernelSupport, LayerSupport
from interposer.backend.views import OptimizationViews
from interposer.backend.workload import KernelWorkloadFactory, WorkloadFactory
from interposer.core.errors import InvalidArgumentError
from interposer.ir.subgraph import SubgraphView
from interposer.kernels.table import KernelTable

__all__ = ["API_VERSION", "Backend", "BackendContext", "BackendId"]


class BackendId(str):
    """The name of a backend: not empty, not "Unknown", without blanks or commas."""

    __slots__ = ()

    def __new__(cls, name: object) -> BackendId:
        if not isinstance(name, str) or name in ("", "Unknown"):
            raise InvalidArgumentError(f"a backend id must be a text other than '' and 'Unknown', not {name!r}")
        if any(letter.isspace() or letter == "," for letter in name):
            raise InvalidArgumentError(f"a backend id must not contain blanks or commas, as {name!r} does")
        return super().__new__(cls, name)


class BackendContext:
    """Is told before and after every network is loaded and unloaded. False, or an exception, before either prevents it.

    Afterwards, and where loading fails after this context had agreed to it, it is only logged as a warning.
    """

    def before_load_network(self, network_id: int) -> bool:
        """Called before any workload of the network is made."""
        return True

    def after_load_network(self, network_id: int) -> bool:
        """Called when the network is ready to run."""
        return True

    def before_unload_network(self, network_id: int) -> bool:
        """Called before any workload of the network is dropped; False keeps the network loaded."""
        return True

    def after_unload_network(self, network_id: int) -> bool:
        """Called when nothing of the network is left."""
        return True


class Backend:
    """A device, library or engine that runs layers. Light and stateless: it may die before the objects that it made.

    A backend that only computes sets `id` and `kernels`, and everything else follows. One that compiles whole parts
    overrides `optimize_subgraph` and `create_workload_factory`; one with memory of its own registers
    tensor handle factories for it. Methods may be called by several threads at once.
    """

    id: ClassVar[str]
    """A `BackendId`; a text that a subclass gives becomes one."""
    kernels: ClassVar[KernelTable] = KernelTable()
    capabilities: ClassVar[Capabilities] = Capabilities()
    """What it says of itself, by name.

    Only a backend with ``DynamicShapes`` is offered layers with tensors whose shapes depend on data: it answers for
    them while dimensions are unknown and makes their workloads in the middle of a run; these take tensors in ordinary
    memory (`ArrayHandle`), and call `TensorHandle.resize` for outputs of unknown shape. Only one with ``Sequences`` is
    offered layers that take or give sequences and optionals; these are in ordinary memory too, as arrays of arrays.
    A backend with ``OnlyByName`` takes part only where somebody names it, not where no backends are given.
    ``Deterministic=False`` says that runs on the same inputs may differ a little.
    """
    api_version: ClassVar[tuple[int, int]] = API_VERSION
    version: ClassVar[str] = ""
    """Version of the backend itself, for people."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if isinstance(cls.__dict__.get("id"), str):
            cls.id = BackendId(cls.__dict__["id"])

    @classmethod
    def unavailable(cls) -> str | None:
        """Return why the backend cannot work on this machine (a package or driver that is missing), or None."""
        return None

    def layer_support(self, options: Options) -> LayerSupport:
        """Answers which layers it runs; `options` are the model options for this backend."""
        return KernelSupport(self.kernels)

    @property
    def handle_factory_preferences(self) -> Sequence[str]:
        """Ids of tensor handle factories that its workloads take, best first; they may be other backends' own.

        None at all is for backends that know nothing of factories: theirs are arrays in ordinary memory
        (`DEFAULT_FACTORY`), or whatever `WorkloadFactory.create_tensor_handle` makes where they override it.
        """
        return ()

    def register_tensor_handle_factories(self, registry: TensorHandleFactoryRegistry, options: Options) -> None:
        """Add the backend's tensor handle factories, and their memory managers, to those of one network.

        Called when a network is optimized, where only the factories' properties are asked for, and for each working
        memory of a loaded network.
        """

    def use_custom_memory_allocator(self, allocator: CustomAllocator) -> str | None:
        """Accept an allocator for the memory of its tensors, or say why not; asked when a runtime is created.

        A backend that leaves its tensors to the runtime accepts those of ordinary memory. One with tensor handle
        factories of its own that accepts finds it in `TensorHandleFactoryRegistry.custom_allocators`.
        """
        if type(self).create_memory_manager is not Backend.create_memory_manager or self.handle_factory_preferences:
            return "it has memory of its own"
        ordinary = allocator.memory_source == MemorySource.MALLOC
        return None if ordinary else f"it works on ordinary memory, not on {allocator.memory_source.name}"

    def create_memory_manager(self) -> MemoryManager | None:
        """Return the manager of one network's tensors, or None if its handles look after themselves."""
        return ArenaMemoryManager()

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        """Makes the workloads and handles of one network, with the manager that `create_memory_manager` gave."""
        return KernelWorkloadFactory(self.kernels, memory_manager)

    def create_backend_context(self, options: Options) -> BackendContext | None:
        """Called once in a runtime, when it first loads a network that may use the backend; None needs no telling.

        `options` are the runtime's options for this backend (``CreationOptions.backend_options``).
        """
        return None

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        """Look at a part that was given to the backend: replace, fail or leave alone pieces of it."""
        return OptimizationViews(view)

    def __repr__(self) -> str:
        return f"<Backend {self.id}>"

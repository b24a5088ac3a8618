"""`Backend`, the base class of all backends, with `BackendId` and `BackendContext`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from interposer._version import API_VERSION
from interposer.backend.allocator import CustomAllocator
from interposer.backend.caching import SavedPart
from interposer.backend.capabilities import Capabilities, Options
from interposer.backend.devices import Device, device_index
from interposer.backend.handles import TensorHandleFactoryRegistry
from interposer.backend.memory import ArenaMemoryManager, MemoryManager, MemorySource
from interposer.backend.queues import Queue
from interposer.backend.strategies import MemoryOptimizerStrategy
from interposer.backend.support import KernelSupport, LayerSupport
from interposer.backend.views import OptimizationViews
from interposer.backend.workload import KernelWorkloadFactory, WorkloadFactory
from interposer.core.errors import BackendContractError, InvalidArgumentError, UnknownBackendError
from interposer.ir.subgraph import SubgraphView
from interposer.kernels.table import KernelTable
from interposer.profiling.backends import BackendProfiling, BackendProfilingContext

__all__ = ["API_VERSION", "Backend", "BackendContext", "BackendId"]


class BackendId(str):
    """The name of a backend, such as "CpuRef".

    It is a text that is not empty, not "Unknown", and has no blanks, commas or colons. A colon separates the backend
    from one of its devices: ``"Npu:1"``.
    """

    __slots__ = ()

    def __new__(cls, name: object) -> BackendId:
        if not isinstance(name, str) or name in ("", "Unknown"):
            raise InvalidArgumentError(f"a backend id must be a text other than '' and 'Unknown', not {name!r}")
        if any(letter.isspace() or letter in ",:" for letter in name):
            raise InvalidArgumentError(f"a backend id must not contain blanks, commas or colons, as {name!r} does")
        return super().__new__(cls, name)

    @classmethod
    def or_address(cls, name: str) -> BackendId:
        """Return an id, or the address of a device, such as "Npu:1", whose backend is named by an id.

        Raises:
            InvalidArgumentError: it is neither of them.
        """
        return str.__new__(cls, cls(name.partition(":")[0]) + "".join(name.partition(":")[1:]))


class BackendContext:
    """Callbacks before and after networks are loaded and unloaded: those that may use the backend, or all networks.

    With ``CreationOptions.all_contexts``, these are all networks of the runtime.

    If a `before_*` method returns False or raises an exception, the network is not loaded or not unloaded. Failures of
    `after_*` methods are only logged as warnings, as are failures during the cleanup of a network that failed to load.
    """

    def before_load_network(self, network_id: int) -> bool:
        """Called before the first workload of the network is created; False prevents loading."""
        return True

    def after_load_network(self, network_id: int) -> bool:
        """Called when the network is ready to run."""
        return True

    def before_unload_network(self, network_id: int) -> bool:
        """Called before the first workload of the network is deleted; False keeps the network loaded."""
        return True

    def after_unload_network(self, network_id: int) -> bool:
        """Called when all resources of the network are released."""
        return True


class Backend:
    """A device, library or engine that runs layers.

    Instances are cheap and stateless; the objects that they create may outlive them. A backend that only has kernels
    sets `id` and `kernels`, and inherits everything else. A backend that compiles subgraphs overrides
    `optimize_subgraph` and `create_workload_factory`; if its compiled parts can be cached on disk, also `identity`,
    `save_compiled` and `restore_compiled`. A backend with its own memory registers tensor handle factories.
    Several threads may call the methods concurrently.
    """

    id: ClassVar[str]
    """A `BackendId`; a text that a subclass assigns is converted to one."""
    kernels: ClassVar[KernelTable] = KernelTable()
    capabilities: ClassVar[Capabilities] = Capabilities()
    """The properties that the backend declares, by name.

    - ``DynamicShapes``: the backend takes layers with tensors whose shapes depend on data. Layer support is queried
      while dimensions are unknown, and workloads are created during a run. They get tensors in ordinary memory
      (`ArrayHandle`), and call `TensorHandle.resize` for outputs of unknown shape.
    - ``Sequences``: the backend takes layers with sequences and optionals as inputs or outputs, which are arrays of
      arrays in ordinary memory.
    - ``OnlyByName``: the backend is only used if the caller names it, not by default.
    - ``Deterministic=False``: two runs on the same inputs may differ slightly.
    """
    asynchronous: bool = False
    """True if the backend has queues, to which workloads are submitted: see `create_queue`."""
    overlaps_copies: bool = False
    """True if its copies of tensors run at the same time as workloads, so that the runtime creates a queue for them."""
    api_version: ClassVar[tuple[int, int]] = API_VERSION
    version: ClassVar[str] = ""
    """The version of the backend itself, shown to users."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own_id = cls.__dict__.get("id")
        if isinstance(own_id, str) and not isinstance(own_id, BackendId):
            cls.id = BackendId(own_id)

    @classmethod
    def unavailable(cls) -> str | None:
        """Return why the backend cannot be used on this machine (for example, a package is missing), or None."""
        return None

    def layer_support(self, options: Options) -> LayerSupport:
        """Return the object that answers which layers the backend runs; `options` are its model options."""
        return KernelSupport(self.kernels)

    @property
    def handle_factory_preferences(self) -> Sequence[str]:
        """The ids of tensor handle factories that the workloads accept, best first; other backends' factories too.

        Empty for backends that do not use factories. Their tensors are arrays in ordinary memory (`DEFAULT_FACTORY`),
        or the handles of `WorkloadFactory.create_tensor_handle` if they override it.
        """
        return ()

    def register_tensor_handle_factories(self, registry: TensorHandleFactoryRegistry, options: Options) -> None:
        """Register the backend's tensor handle factories and their memory managers for one network.

        Called when a network is optimized, which only reads the properties of the factories, and once for each working
        memory of a loaded network.
        """

    def use_custom_memory_allocator(self, allocator: CustomAllocator) -> str | None:
        """Accept an allocator for the backend's tensors (return None), or return why not. Called for each new runtime.

        By default, backends without their own memory accept allocators of ordinary memory. A backend with its own
        tensor handle factories that accepts finds the allocator in `TensorHandleFactoryRegistry.custom_allocators`.
        """
        if type(self).create_memory_manager is not Backend.create_memory_manager or self.handle_factory_preferences:
            return "the backend manages its own memory"
        is_ordinary = allocator.memory_source == MemorySource.MALLOC
        return None if is_ordinary else f"the backend needs ordinary memory, not {allocator.memory_source.name}"

    def use_memory_strategy(self, strategy: MemoryOptimizerStrategy) -> str | None:
        """Accept a strategy that packs the backend's tensors into memory (return None), or return why not.

        Called for each new runtime for which the user chose a strategy. By default, backends without their own memory
        accept strategies, unless they declare its packing as a capability that they lack (``MultiAxisPacking=False``).
        """
        if type(self).create_memory_manager is not Backend.create_memory_manager:
            return "the backend manages its own memory"
        packing = strategy.packing.value
        return f"the backend does not support {packing}" if self.capabilities.has(packing, False) else None

    def create_memory_manager(self) -> MemoryManager | None:
        """Return the memory manager for the tensors of one network, or None if its handles manage themselves."""
        return ArenaMemoryManager()

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        """Return the factory that creates the workloads and tensor handles of one network on this backend.

        `memory_manager` is what `create_memory_manager` returned for the network, and `options` are the network's model
        options for this backend.
        """
        return KernelWorkloadFactory(self.kernels, memory_manager)

    def create_queue(self, options: Options) -> Queue:
        """Return a queue for the `asynchronous` workloads of a network, on the device that its options name.

        Called for each working memory of a network if the backend is `asynchronous`: when it is first needed, and again
        after a queue could not be reset. A `ThreadQueue` executes workloads on a thread of its own.

        Raises:
            BackendContractError: the backend has no queues.
        """
        raise BackendContractError(f"{type(self).__name__} creates no queues", backend=self.id)

    def abandon(self, reason: str) -> None:
        """Called when a queue did not end its work long after it was cancelled; the default does nothing.

        The queue, its workloads and the memory of the run are never used or destroyed again. A backend whose device
        hangs as a whole should raise `BackendUnavailableError` with the reason from then on.
        """

    def create_backend_context(self, options: Options) -> BackendContext | None:
        """Return an object to be notified when networks are loaded and unloaded, or None.

        Called once per runtime: before it first loads a network that may use the backend, or with
        ``CreationOptions.all_contexts``, when it is created. `options` are the runtime's options for this backend
        (``CreationOptions.backend_options``).
        """
        return None

    def create_backend_profiling_context(
        self, options: Options, profiling: BackendProfiling
    ) -> BackendProfilingContext | None:
        """Return an object that begins and ends the profiling of the backend, and has its counters; or None.

        Called once per runtime, after `create_backend_context` and with the same options. The backend reports counters
        and intervals to `profiling`, which it may use on any thread as long as the runtime exists.
        """
        return None

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        """Replace parts of a subgraph whose layers were assigned to this backend, for example by compiled layers.

        Called for each such subgraph, `view`, when a network is optimized; `options` are the network's model options
        for this backend. The result has the replacements, and the parts that the backend cannot run. By default,
        nothing is replaced.
        """
        return OptimizationViews(view)

    # --- several devices ----------------------------------------------------------------------------------------------

    def devices(self) -> Sequence[Device]:
        """Return the devices of the backend, numbered from 0; empty if users cannot choose, as by default.

        Only `Device.memory_free` may differ between calls.
        """
        return ()

    def on_device(self, index: int, address: str) -> Backend:
        """Return the backend of one of its `devices`, whose `id` is `address`, such as ``"Npu:1"``.

        It is a backend of its own in networks, options and reports. This backend is that of device 0.

        Raises:
            BackendContractError: the backend has no devices to choose from.
        """
        raise BackendContractError(f"{type(self).__name__} has no devices to choose from", backend=self.id)

    def named_device(self, name: str, address: str) -> Backend:
        """Return the backend of the device that users call `name`; its `id` is `address`, such as ``"Npu:1"``.

        By default, the name is the index or the id of one of the `devices`. A backend that does not list its devices
        overrides this method.

        Raises:
            UnknownBackendError: there is no such device.
            BackendUnavailableError: the device cannot be used here, with the reason.
        """
        devices = self.devices()
        index = device_index(devices, name)
        if index is None:
            known = [f"{self.id}:{known}" for each in devices for known in (each.index, each.id)]
            raise UnknownBackendError(address, known)
        return self.on_device(index, address)

    # --- caches on disk -----------------------------------------------------------------------------------------------

    @property
    def identity(self) -> str:
        """A text that changes if the backend would compile a network otherwise, such as its version and its driver's.

        Networks that the backend runs completely are cached under its identity, and placements are measured again if
        it changes. If it is empty, as by default, nothing that the backend compiles is cached.
        """
        return ""

    def save_compiled(self, compiled: Any) -> SavedPart | None:
        """Return the object of a `PreCompiled` layer as bytes, or None if it cannot be saved.

        Called for each compiled part of a new network, by the thread that calls `load`. If the method returns None or
        raises an exception, the network is not cached.
        """
        return None

    def restore_compiled(self, saved: SavedPart, options: Options) -> Any:
        """Return the object of a `PreCompiled` layer that `save_compiled` saved, for a network with these options.

        The content of a file is checked before, and the backend has the same identity as when it was saved. If the
        method raises an exception, the network is optimized as if it was not cached.
        """
        raise BackendContractError(f"{type(self).__name__} restores no compiled parts", backend=self.id)

    # --- saved networks -----------------------------------------------------------------------------------------------

    def fingerprint(self, options: Options) -> str:
        """Return a text that changes if compiled parts in a saved network are of no use any more, such as a version.

        It has everything on which the compiled form of a part depends: the backend's build, the kind of processor or
        device, and options. Unlike `identity` it must be the same on equal machines. If it is empty, no compiled parts
        are saved, and networks are compiled again when they are loaded. By default, it is the identity.
        """
        return self.identity

    def export_compiled(self, compiled: Any, options: Options) -> SavedPart | None:
        """Return the object of a `PreCompiled` layer as bytes for a saved network, or None if it has no such form.

        `options` are the network's model options for this backend. By default, the result of `save_compiled`.
        """
        return self.save_compiled(compiled)

    def import_compiled(self, saved: SavedPart, view: SubgraphView, options: Options) -> Any:
        """Return the object of a `PreCompiled` layer that `export_compiled` returned for the layers in `view`.

        The pieces are views of a mapped file, which stay valid as long as the result. They come from a file whose
        checksums are right, but which may still be hostile. If the method raises an exception, the part is compiled
        again with `optimize_subgraph`. By default, it calls `restore_compiled`.
        """
        return self.restore_compiled(saved, options)

    def cache_directory(self, options: Options) -> str:
        """Return the folder that a network's options name for cached files; empty for the usual cache folder."""
        return ""

    def without_directory(self, options: Options) -> Options:
        """Return a network's options without the option that names the folder for cached files (see `cache_directory`).

        The remaining options are part of the key of the network's cache entry, so that a moved folder stays valid.
        """
        return options

    def __repr__(self) -> str:
        return f"<Backend {self.id}>"

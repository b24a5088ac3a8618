"""Tensor handles, workloads and memory managers that backends create for one loaded network."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from interposer.backend import (
    DEFAULT_FACTORY,
    ArenaMemoryManager,
    ArrayHandle,
    ArrayHandleFactory,
    Backend,
    CustomAllocator,
    MemoryManager,
    MemoryOptimizerStrategy,
    MemorySource,
    Queue,
    TensorHandle,
    TensorHandleFactory,
    TensorHandleFactoryRegistry,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
    own_factory_id,
)
from interposer.backend.allocator import allocated
from interposer.backend.contracts import checked
from interposer.backend.memory import ALIGNMENT
from interposer.core.constants import aligned, share
from interposer.core.errors import (
    BackendContractError,
    ExecutionError,
    LoadError,
    error_text,
)
from interposer.core.types import Array, DataLayout, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ops.control import Constant, Debug, Input, MemCopy, MemImport, Output
from interposer.ops.control_flow import ControlFlow
from interposer.profiling.events import HeldTensor
from interposer.report.optimized import OptimizedNetwork
from interposer.runtime.owned import OwnedHandles
from interposer.runtime.schedule import QueueKey
from interposer.runtime.tracing import NetworkSites
from interposer.runtime.workloads import CopyWorkload, DebugWorkload, DeviceCopyWorkload, ImportWorkload, TransferCounts

__all__ = ["Factories", "backend_of", "constant_of", "guarded"]

_T = TypeVar("_T")
_HOST: Final = "the host"
_log = logging.getLogger("interposer.runtime")


class Factories:
    """Creates the workloads, tensor handles and arenas of a network and its regions, for one run at a time.

    Constants are shared with `first`, the factories that created the network's workloads; None if these are the first.
    Backends whose tensors are plain arrays share one arena if `sequential` is True; otherwise they have one arena each,
    because they may run concurrently, or because a custom allocator or a memory strategy is for one of them. `layers`
    are those of the network and its regions, and `allocators` and `strategies` the custom allocators and memory
    strategies by backend id.

    Raises:
        LoadError: a backend could not create its memory manager or its workload factory.
    """

    def __init__(
        self,
        optimized: OptimizedNetwork,
        layers: Iterable[Layer],
        sequential: bool,
        first: Factories | None = None,
        allocators: Mapping[str, CustomAllocator] | None = None,
        sites: NetworkSites | None = None,
        strategies: Mapping[str, MemoryOptimizerStrategy] | None = None,
    ) -> None:
        self._optimized = optimized
        self._sites: NetworkSites | None = sites if first is None else first._sites
        self._first = first
        self._strategies: Mapping[str, MemoryOptimizerStrategy] = first._strategies if first else strategies or {}
        self.sequential = sequential
        custom_allocators = allocators if first is None else first.registry.custom_allocators
        self.registry: TensorHandleFactoryRegistry = TensorHandleFactoryRegistry(custom_allocators)
        self._arenas: dict[str, ArrayHandleFactory] = {}
        self.managers: dict[str, MemoryManager] = {}
        self._factories: dict[str, WorkloadFactory] = {}
        self._constants: dict[tuple[int, TensorInfo, str], tuple[Array, Array, TensorHandle]] = {}
        self._acquired: set[str] = set()
        self._owners: dict[str, str] = {}
        self._queues: dict[QueueKey, Queue] = {}
        self.tensors: Callable[[], Iterable[tuple[str, str, TensorHandle]] | None] = _unknown
        """Returns layer, name and handle of the tensors, or None if they are gone."""
        self.handles = OwnedHandles()
        self.constant_handles: OwnedHandles = OwnedHandles() if first is None else first.constant_handles
        if first is None:
            weakref.finalize(self, self.constant_handles.destroy).atexit = False  # at exit, the network destroys them
        for backend in optimized.backends.values():
            self._register_handle_factories(backend)
        for backend_id in dict.fromkeys(layer.backend for layer in layers if layer.backend is not None):
            self._create_factory(backend_id)
        self._name_shared_arena()
        for manager in dict.fromkeys(self.managers.values()):  # the first ones have the memory of constants, too
            (self.constant_handles if first is None else self.handles).destroy_after(manager)

    @property
    def _first_factories(self) -> Factories:
        """The factories that have the constants; not an attribute, as a reference to itself would delay its end."""
        return self._first or self

    def _name_shared_arena(self) -> None:
        """Name the arena that several backends share after all of them."""
        sharing = [backend for backend in self._factories if self._has_plain_arrays(backend)]
        if self._shares_arena and len(sharing) > 1:
            self.managers["+".join(sharing)] = self.managers.pop(sharing[0])

    @property
    def _shares_arena(self) -> bool:
        """True if all backends with plain arrays share one arena."""
        return self.sequential and not self.registry.custom_allocators and not self._strategies

    def _has_plain_arrays(self, backend: str) -> bool:
        create_manager = self._optimized.backends[backend].create_memory_manager  # an instance may override it
        return getattr(create_manager, "__func__", None) is Backend.create_memory_manager

    def _create_factory(self, backend_id: str) -> None:
        backend: Backend = self._backend(backend_id, "its layers")
        options = self._optimized.model_options.get(backend_id, {})
        try:
            manager = self._memory_manager(backend)
            factory = backend.create_workload_factory(manager, options)
            self._factories[backend_id] = checked(factory, WorkloadFactory, "create_workload_factory", backend_id)
            self.registry.register_factory(_OwnHandles(backend_id, factory))
        except Exception as error:
            message = f"backend {backend_id} could not make its workload factory: {error_text(error)}"
            raise LoadError(message, backend=backend_id) from error

    def _backend(self, backend_id: str | None, user: str) -> Backend:
        """Return the network's backend with an id; `user` says in the error what needs it.

        Raises:
            LoadError: the network was divided among other backends, as a damaged saved network may say.
        """
        backend: Backend | None = None if backend_id is None else self._optimized.backends.get(backend_id)
        if backend is None:
            where = "on no backend" if backend_id is None else f"on backend {backend_id!r}"
            known_backends = ", ".join(self._optimized.backends) or "none"
            raise LoadError(
                f"{user} would run {where}, but the network was divided among these backends: {known_backends}"
            )
        return backend

    def _register_handle_factories(self, backend: Backend) -> None:
        already_registered = len(self.registry.memory_managers)
        try:
            backend.register_tensor_handle_factories(self.registry, self._optimized.model_options.get(backend.id, {}))
        except Exception as error:
            message = f"backend {backend.id} could not register its tensor handle factories: {error_text(error)}"
            raise LoadError(message, backend=backend.id) from error
        for number, manager in enumerate(self.registry.memory_managers[already_registered:]):
            self.managers[f"{backend.id}/{number}" if number else f"{backend.id}'s own"] = manager
        for factory in self.registry:
            self._owners.setdefault(factory.id, backend.id)

    def _memory_manager(self, backend: Backend) -> MemoryManager | None:
        """Return the memory manager of a backend; backends without a custom one get the arena that they share."""
        if self._has_plain_arrays(backend.id):
            return self._arena(backend.id).memory_manager
        manager = backend.create_memory_manager()
        if manager is not None:
            self.managers[backend.id] = checked(manager, MemoryManager, "create_memory_manager", backend.id)
        return manager

    def _arena(self, backend: str) -> ArrayHandleFactory:
        """Return the factory of plain arrays for a backend, whose arena may be shared with other backends."""
        allocator = self.registry.custom_allocators.get(backend)
        owner = next(iter(self._arenas), backend) if self._shares_arena else backend
        if owner not in self._arenas:
            manager = _arena(allocator, self._strategies.get(backend), backend)
            name = f"{owner}'s arrays" if owner in self.managers else owner  # the backend also has its own manager
            self._arenas[owner], self.managers[name] = ArrayHandleFactory(manager), manager
        return self._arenas[owner]

    def _handle_factory(self, layer: Layer, factory_id: str | None) -> TensorHandleFactory:
        """Return the tensor handle factory that creates the outputs of a layer.

        `factory_id` is the id that the optimizer has chosen. For plain arrays, or None, the layer's backend decides.
        """
        backend = str(layer.backend)
        if factory_id not in (None, DEFAULT_FACTORY):
            return self.registry.factory(str(factory_id))
        if self._backend(layer.backend, f"layer {layer}").handle_factory_preferences:
            return self._arena(backend)
        return self.registry.factory(own_factory_id(backend))

    def forbidden(self, value: Value) -> str | None:
        """Return why a value at the border of the network must not be in the caller's memory, or None if it may be.

        The options of the optimizer can forbid imports of inputs and exports of outputs.
        """
        option = "import_enabled" if isinstance(value.producer.op, Input) else "export_enabled"
        return None if getattr(self._optimized, option) else f"the network was optimized with {option}=False"

    def supports_sub_tensors(self, layer: Layer, value: Value) -> bool:
        """Return True if the memory of a tensor can hold other tensors as parts of it.

        `layer` is the layer that outputs the tensor, an Input if the caller passes it.
        """
        return bool(self._handle_factory(layer, value.factory).supports_sub_tensors)

    def sub_tensor(
        self, whole: Value, parent: TensorHandle, origin: Sequence[int], info: TensorInfo, owned: OwnedHandles
    ) -> TensorHandle | None:
        """Return the handle of a tensor that is stored inside another one, and add it to `owned`.

        Args:
            whole: the tensor that contains it.
            parent: the handle of `whole`.
            origin: the index in `whole` of the first element.
            info: the info of the contained tensor.
            owned: the handles that are destroyed together, to which the new one is added.

        Returns:
            The handle, or None if the backend cannot create it.
        """
        sub_tensor = self._handle_factory(whole.producer, whole.factory).create_sub_tensor(parent, origin, info)
        owned.add(sub_tensor)
        return sub_tensor

    def host_workload(self, layer: Layer, counts: TransferCounts) -> Workload | None:
        """Return the workload of a layer that copies, imports or prints a tensor, which the runtime executes itself.

        None for all other layers. `counts` counts the copies and imports.
        """
        if isinstance(layer.op, Debug):
            return DebugWorkload(layer.op)
        return self._transfer(layer, counts) if isinstance(layer.op, MemCopy | MemImport) else None

    def _transfer(self, layer: Layer, counts: TransferCounts) -> Workload:
        [source] = layer.values
        source_factory, target_factory = (
            self._handle_factory(value.producer, value.factory) for value in (source, layer.output)
        )
        if isinstance(layer.op, MemImport):
            common_sources = [
                factory
                for factory in MemorySource
                if factory and factory in source_factory.export_sources & target_factory.import_sources
            ]
            return ImportWorkload(common_sources[0], counts) if common_sources else CopyWorkload(counts)
        both_ways = (target_factory, source_factory), (source_factory, target_factory)
        device_factory = next(
            (
                factory
                for factory, other_factory in both_ways
                if factory.supports_device_copy and other_factory.supports_map
            ),
            None,
        )
        if target_factory.peers and target_factory.peers == source_factory.peers:
            device_factory = target_factory
        if device_factory is None:
            return CopyWorkload(counts)
        device_copy = checked(device_factory.create_device_copy(), Workload, "create_device_copy", str(layer.backend))
        return DeviceCopyWorkload(device_copy, counts, self._owners.get(device_factory.id, ""))

    def of(self, layer: Layer) -> WorkloadFactory:
        """Return the workload factory of the layer's backend."""
        return self._factories[str(layer.backend)]

    def workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        """Return the workload of a layer that runs on a backend, whose tensors have these infos."""
        workload = self.of(layer).create_workload(layer, info)
        return checked(workload, Workload, "create_workload", str(layer.backend))

    def handle(
        self, layer: Layer, value: Value, owned: OwnedHandles | None = None, *, managed: bool = True
    ) -> TensorHandle:
        """Return a new handle for an output of a layer, and add it to `owned`.

        None for `owned` means the handles that `destroy` destroys. `managed` is False if the tensor is to be in the
        caller's memory.

        Sequences and optionals are in ordinary host memory on every backend.

        Raises:
            LoadError: the shape of the tensor is not known, or the backend could not create the handle.
        """
        info = value.known
        if not info.is_concrete:
            raise LoadError(
                f"the tensor {value.name!r} of shape {info.shape} has unknown dimensions; give the inputs' shapes"
            )
        info_without_constant = info.with_constant(None)
        factory = self._handle_factory(layer, value.factory) if info.is_tensor else None
        owner, layout = self.handles if owned is None else owned, _layout_of(value)

        def create() -> TensorHandle:
            handle = (
                ArrayHandle(info_without_constant)
                if factory is None
                else factory.new_handle(info_without_constant, layout, managed)
            )
            owner.add(handle)
            return _checked(handle, info_without_constant, "create_tensor_handle", layer)

        return guarded(layer, "got no tensor handle", create)

    def constant(self, layer: Layer, value: Value) -> TensorHandle:
        """Return the handle of a constant that a layer reads.

        Layers of one backend share the handle of an array. A layer that the runtime executes itself gets a handle over
        the array itself.
        """
        array, info = constant_of(value), value.known
        key, cached_constants = (
            (id(array), info, _HOST if _runs_on_host(layer) else str(layer.backend)),
            self._first_factories._constants,
        )
        if key not in cached_constants:
            create_handle, memory = self._first_factories._constant_maker(layer), aligned(array)
            memory = array if memory is array else share(memory, array.dtype.alignment)

            def create() -> TensorHandle:
                handle = create_handle(info, memory)
                self.constant_handles.add(handle)
                return _checked(handle, info, "create_constant_handle", layer)

            cached_constants[key] = array, memory, guarded(layer, "got no constant", create)
        return cached_constants[key][2]

    def _constant_maker(self, layer: Layer) -> Callable[[TensorInfo, Array], TensorHandle]:
        if _runs_on_host(layer):
            return ArrayHandle
        preferred_ids = self._optimized.backends[str(layer.backend)].handle_factory_preferences
        factory_id = next(
            (
                preferred_id
                for preferred_id in preferred_ids
                if preferred_id in self.registry or preferred_id == DEFAULT_FACTORY
            ),
            None,
        )
        if factory_id is None:
            return self.of(layer).create_constant_handle
        return ArrayHandle if factory_id == DEFAULT_FACTORY else self.registry.factory(factory_id).create_constant

    # --- queues -------------------------------------------------------------------------------------------------------

    def queue_key(self, layer: Layer, workload: Workload) -> QueueKey | None:
        """Return the queue to which the workload of a layer is submitted; None if the host executes it.

        A device whose copies overlap with its workloads has a separate queue for copies.
        """
        if not (workload.asynchronous and workload.concurrent):
            return None
        is_copy = isinstance(workload, DeviceCopyWorkload)
        backend_id = workload.backend if isinstance(workload, DeviceCopyWorkload) else str(layer.backend)
        backend = self._optimized.backends.get(backend_id)
        if backend is None or not backend.asynchronous:
            return None
        return backend_id, is_copy and backend.overlaps_copies

    def queue(self, key: QueueKey) -> Queue:
        """Return a queue of this working memory, which is created on first use.

        Raises:
            ExecutionError: the backend could not create it.
        """
        queue = self._queues.get(key)
        return self._new_queue(key) if queue is None else queue

    def _new_queue(self, key: QueueKey) -> Queue:
        backend_id, _ = key
        options = self._optimized.model_options.get(backend_id, {})
        try:
            new_queue = self._optimized.backends[backend_id].create_queue(options)
            queue = checked(new_queue, Queue, "create_queue", backend_id)
        except Exception as error:
            message = f"backend {backend_id} could not create a queue: {error_text(error)}"
            raise ExecutionError(message, backend=backend_id) from error
        self._queues[key] = queue
        self.handles.destroy_after(queue)
        return queue

    def drop_queue(self, key: QueueKey) -> None:
        """Destroy a queue that cannot be used any more; the next run creates a new one."""
        queue = self._queues.pop(key, None)
        if queue is not None:
            self.handles.destroy_now(queue)

    def abandon(self, backend_id: str, reason: str) -> None:
        """Let a backend whose device hangs know that it is given up; failures are only logged."""
        try:
            self._optimized.backends[backend_id].abandon(reason)
        except Exception as error:
            _log.warning("backend %s could not be abandoned: %s", backend_id, error_text(error))

    @property
    def planned_bytes(self) -> int:
        """The bytes of all arenas of the memory managers that report them."""
        return sum(int(getattr(manager, "planned_bytes", 0)) for manager in self.managers.values())

    @property
    def constant_arrays(self) -> list[Array]:
        """The arrays of all constants that workloads read."""
        return [memory for _, memory, _ in self._first_factories._constants.values()]

    @property
    def acquired(self) -> bool:
        """True while a backend holds memory for the network's tensors."""
        return bool(self._acquired)

    @property
    def lacks_memory(self) -> bool:
        """True if `acquire` has something to do."""
        return len(self._acquired) < len(self.managers)

    def plan(self) -> None:
        """Plan the arenas that have a memory strategy, so that its errors are found before a run.

        Raises:
            LoadError: a strategy failed, or returned an invalid result.
        """
        for backend, manager in self.managers.items():
            if backend in self._strategies and isinstance(manager, ArenaMemoryManager):
                try:
                    manager.plan  # noqa: B018 - computed now, and cached
                except Exception as error:
                    message = f"the memory of backend {backend} could not be planned: {error_text(error)}"
                    raise LoadError(message, backend=backend) from error

    def acquire(self) -> None:
        """Let the backends acquire their planned memory, unless they have done so already.

        Raises:
            ExecutionError: a backend could not acquire its memory.
        """
        if len(self._acquired) == len(self.managers):
            return
        for backend, manager in self.managers.items():
            if backend in self._acquired:
                continue
            try:
                manager.acquire()
            except Exception as error:
                raise ExecutionError(
                    f"backend {backend} got no memory: {error_text(error)}", backend=backend
                ) from error
            self._acquired.add(backend)
            self._record(backend, 1)

    def _record(self, backend: str, sign: int) -> None:
        """Let recorders know that the arena of a backend is acquired (`sign` is 1) or released (-1)."""
        size = int(getattr(self.managers[backend], "planned_bytes", 0))
        if size and self._sites is not None:
            backend_of_arena = "" if "+" in backend else backend
            tensors = partial(_held, self.tensors, self.managers[backend])
            self._sites.memory(f"arena of {backend}", sign * size, "arena", backend_of_arena, tensors)

    def release(self) -> None:
        """Let the backends release their memory; failures are only logged."""
        while self._acquired:
            backend = self._acquired.pop()
            self._record(backend, -1)
            try:
                self.managers[backend].release()
            except Exception as error:
                _log.warning("backend %s could not release its memory: %s", backend, error_text(error))

    def destroy(self) -> None:
        """Release the memory, and destroy all handles except those of constants; failures are only logged."""
        self.release()
        self.handles.destroy()


def _unknown() -> None:
    """Return None, as the tensors are not known."""


def _held(
    tensors_of: Callable[[], Iterable[tuple[str, str, TensorHandle]] | None], manager: MemoryManager
) -> list[HeldTensor] | None:
    """Return the tensors in the arena of a backend; None if they are not known."""
    tensors = tensors_of()
    if tensors is None:
        return None
    if not isinstance(manager, ArenaMemoryManager):
        return []
    held_by_number: dict[int, HeldTensor] = {}
    for layer, name, handle in tensors:
        number = manager.number_of(handle) if isinstance(handle, ArrayHandle) else None
        if number is not None and number not in held_by_number:  # others share its memory
            lifetime, offset = manager.lifetimes[number], manager.plan.offsets[number]
            held_by_number[number] = HeldTensor(name, layer, lifetime.size, offset, lifetime.begins, lifetime.ends)
    return list(held_by_number.values())


def _arena(
    allocator: CustomAllocator | None, strategy: MemoryOptimizerStrategy | None, backend: str
) -> ArenaMemoryManager:
    """Return the arena of a backend, with the user's allocator and memory strategy if there are any.

    The memory that the allocator returns is checked.
    """
    if allocator is None:
        return ArenaMemoryManager(strategy=strategy)

    def allocate(size: int) -> Array:
        return allocated(allocator, size, ALIGNMENT, backend)

    return ArenaMemoryManager(allocate, allocator.free, strategy)


class _OwnHandles(TensorHandleFactory):
    """A tensor handle factory for a backend that has none: it calls `create_tensor_handle` of its workload factory."""

    def __init__(self, backend: str, factory: WorkloadFactory) -> None:
        self.id = own_factory_id(backend)
        self._factory = factory
        self.supports_sub_tensors = factory.supports_sub_tensors
        if factory.makes_arrays:
            self.import_sources = self.export_sources = MemorySource.MALLOC

    def create(self, info: TensorInfo) -> TensorHandle:
        """Return a handle for a tensor with this info, which the backend's workload factory creates."""
        return self._factory.create_tensor_handle(info)

    def new_handle(self, info: TensorInfo, layout: DataLayout | None, managed: bool) -> TensorHandle:
        """Return a handle that the backend's workload factory creates for a tensor with these properties."""
        return self._factory.new_handle(info, layout, managed)


def _layout_of(value: Value) -> DataLayout | None:
    """Return the data layout of the layer that computes a value, or of the first reader of an input."""
    layers = value.consumers[:1] if isinstance(value.producer.op, Input) else [value.producer]
    layout = getattr(layers[0].op, "data_layout", None) if layers else None
    return layout if isinstance(layout, DataLayout) else None


def _runs_on_host(layer: Layer) -> bool:
    return isinstance(layer.op, ControlFlow | Debug | MemCopy | MemImport)


def _checked(returned_object: object, info: TensorInfo, method_name: str, layer: Layer) -> TensorHandle:
    backend = str(layer.backend)
    handle = checked(returned_object, TensorHandle, method_name, backend)
    if handle.info != info:
        raise BackendContractError(f"{method_name} gave a handle of {handle.info}; expected {info}", backend=backend)
    return handle


def constant_of(value: Value) -> Array:
    """Return the array of the Constant layer that produces the value."""
    op = value.producer.op
    assert isinstance(op, Constant)
    return op.value


def backend_of(layer: Layer) -> str:
    """Return the id of the backend that an error of the layer names.

    An Output layer runs on no backend; its tensor is in the memory of the layer that computes it, whose backend is
    named.
    """
    if layer.backend is None and isinstance(layer.op, Output):
        return str(layer.values[0].producer.backend)
    return str(layer.backend)


def guarded(layer: Layer, failure_text: str, create: Callable[[], _T]) -> _T:
    """Return the result of `create`, which calls a method of the layer's backend.

    An exception becomes a `LoadError` that names the layer and the backend. `failure_text` says what failed,
    such as "got no workload".
    """
    try:
        return create()
    except Exception as error:
        message = f"layer {layer} {failure_text} on backend {backend_of(layer)}: {error_text(error)}"
        raise LoadError(message, backend=backend_of(layer)) from error

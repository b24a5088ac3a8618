"""Tensor handle factories: the kinds of memory for tensors, and how tensors are passed between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from interposer.backend.allocator import CustomAllocator
from interposer.backend.capabilities import Capabilities
from interposer.backend.memory import ArenaMemoryManager, ArrayHandle, MemoryManager, MemorySource, TensorHandle
from interposer.backend.workload import Workload
from interposer.core.errors import BackendContractError, InvalidArgumentError, did_you_mean
from interposer.core.types import Array, DataLayout, TensorInfo
from interposer.ir.graph import Layer

__all__ = [
    "DEFAULT_FACTORY",
    "ArrayHandleFactory",
    "TensorHandleFactory",
    "TensorHandleFactoryRegistry",
    "own_factory_id",
]

DEFAULT_FACTORY: Final = "Interposer/Cpu/Array"
"""The factory of arrays in ordinary memory, which backends without preferences use."""
_PARTS: Final = 3


def own_factory_id(backend: str) -> str:
    """Return the id that stands for handles of a backend that overrides `create_tensor_handle` but names no factory."""
    return f"Interposer/{backend}/Handles"


class TensorHandleFactory(ABC):
    """Creates tensor handles in one kind of memory, for one working memory of a network.

    The optimizer reads the properties to choose where each tensor is stored and how it is passed between backends. A
    property that a factory does not set is assumed to be unsupported. If the handles are in an arena, register its
    memory manager too: see `Backend.register_tensor_handle_factories`. Used by one thread at a time.
    """

    id: str
    """"Vendor/Backend/Name", as in `Backend.handle_factory_preferences`."""
    supports_map: bool = True
    """True if the host can access the memory through `TensorHandle.map`."""
    supports_sub_tensors: bool = False
    """True if `create_sub_tensor` can create handles for parts of a tensor."""
    supports_device_copy: bool = False
    """True if the device can copy between its tensors and tensors that can be mapped: `create_device_copy`."""
    peers: str = ""
    """The name of a group of kinds of memory, perhaps of several devices, between which these devices copy tensors."""
    import_sources: MemorySource = MemorySource.UNDEFINED
    """The kinds of foreign memory that a handle can use without a copy: `TensorHandle.import_memory`."""
    export_sources: MemorySource = MemorySource.UNDEFINED
    """The kinds of memory that a handle can share with others: `TensorHandle.export_memory`."""

    def capabilities(self, layer: Layer, connected: Layer) -> Capabilities:
        """Return the capabilities for a tensor that `layer` passes to `connected`.

        With ``PaddingRequired``, the tensor is neither imported nor exported, because its rows are padded. The same
        holds with ``FallbackImportDisabled``, because a failed import could not be replaced by a copy.
        """
        return Capabilities()

    @abstractmethod
    def create(self, info: TensorInfo) -> TensorHandle:
        """Return a new handle for a tensor with this info, without memory.

        The runtime marks the tensor's lifetime, and with it lets the handle get its memory: see `TensorHandle`.
        """

    def new_handle(self, info: TensorInfo, layout: DataLayout | None, managed: bool) -> TensorHandle:
        """Return a new handle like `create`, which this calls by default; override it to use the other arguments.

        The runtime calls only this method for tensors that are not constant.

        Args:
            info: the info of the tensor.
            layout: the data layout of the layer that computes the tensor, or for an input of the network, of its first
                reader; None if that layer has no such attribute.
            managed: whether the tensor is part of the memory plan: `TensorHandle.manage` will be called. False for a
                tensor that is to use the caller's memory; its handle is managed only if it does not declare `imports`.
        """
        return self.create(info)

    def create_constant(self, info: TensorInfo, array: Array) -> TensorHandle:
        """Return a handle for a constant, filled with `array`.

        By default, this creates a handle by `create`, lets it allocate its own memory, and copies the array into it.
        Constants are not part of the memory plan. Override this if the handles get their memory from a manager, or if
        they cannot be mapped.
        """
        handle = self.create(info)
        handle.allocate()
        handle.copy_in(array)
        return handle

    def create_sub_tensor(self, parent: TensorHandle, origin: Sequence[int], info: TensorInfo) -> TensorHandle | None:
        """Return a handle for the part of the tensor `parent` at index `origin` with the shape of `info`.

        The part shares the memory of `parent`. None if that is not possible.
        """
        return parent.create_sub_tensor(origin, info)

    def create_device_copy(self) -> Workload:
        """Return a workload that copies its input to its output; either is of this factory, the other can be mapped.

        Raises:
            BackendContractError: the factory has `supports_device_copy` but does not implement this.
        """
        raise BackendContractError(f"the tensor handle factory {self.id} has no workload for device copies")

    def __repr__(self) -> str:
        return f"<TensorHandleFactory {self.id}>"


class ArrayHandleFactory(TensorHandleFactory):
    """Creates tensor handles whose memory is a NumPy array: in the arena of the memory manager, or else separate."""

    id = DEFAULT_FACTORY
    supports_sub_tensors = True
    import_sources = export_sources = MemorySource.MALLOC

    def __init__(self, memory_manager: ArenaMemoryManager | None = None) -> None:
        self.memory_manager = memory_manager

    def create(self, info: TensorInfo) -> TensorHandle:
        """Return a handle whose memory is an array, in the arena of the memory manager if there is one."""
        return ArrayHandle(info, manager=self.memory_manager)

    def create_constant(self, info: TensorInfo, array: Array) -> TensorHandle:
        """Return a handle that uses the constant's array without a copy."""
        return ArrayHandle(info, array)


class TensorHandleFactoryRegistry:
    """Collects the tensor handle factories of one network's backends, by id, and their memory managers.

    Each backend adds its own in `Backend.register_tensor_handle_factories`.
    """

    def __init__(self, custom_allocators: Mapping[str, CustomAllocator] | None = None) -> None:
        self.custom_allocators: Mapping[str, CustomAllocator] = {} if custom_allocators is None else custom_allocators
        """Allocators by backend id; these backends have accepted to take their tensors' memory from them."""
        self._factories: dict[str, TensorHandleFactory] = {}
        self._managers: list[MemoryManager] = []
        self._import_id_of_copy: dict[str, str] = {}

    def register_factory(self, factory: TensorHandleFactory) -> None:
        """Add a factory. If its id is registered already, the first factory stays: backends of a vendor may share one.

        Raises:
            BackendContractError: `factory` is not a factory, or its id is not "Vendor/Backend/Name".
        """
        if not isinstance(factory, TensorHandleFactory):
            raise BackendContractError(f"{factory!r} is not a TensorHandleFactory")
        id_parts = factory.id.split("/") if isinstance(getattr(factory, "id", None), str) else []
        if len(id_parts) != _PARTS or not all(id_parts):
            factory_id = getattr(factory, "id", None)
            raise BackendContractError(
                f"a tensor handle factory has the id {factory_id!r}; expected 'Vendor/Backend/Name'"
            )
        self._factories.setdefault(factory.id, factory)

    def register_memory_manager(self, manager: MemoryManager) -> None:
        """Add a manager of the factories' memory; it is acquired before the first run and released at unloading.

        Raises:
            BackendContractError: `manager` is not a memory manager.
        """
        if not isinstance(manager, MemoryManager):
            raise BackendContractError(f"{manager!r} is not a MemoryManager")
        if manager not in self._managers:
            self._managers.append(manager)

    def register_copy_and_import_pair(self, copy_id: str, import_id: str) -> None:
        """Declare that the factory `import_id` may replace `copy_id` for the inputs and outputs of the network.

        Handles of `import_id` are like those of `copy_id`, and can use the caller's memory without a copy as well.
        """
        self._import_id_of_copy[copy_id] = import_id

    def matching_import_factory(self, copy_id: str) -> str | None:
        """Return the import factory that was registered as the pair of the factory `copy_id`, or None if there is none.

        It may replace `copy_id` for inputs and outputs of the network: see `register_copy_and_import_pair`.
        """
        import_id = self._import_id_of_copy.get(copy_id)
        return import_id if import_id in self._factories else None

    def factory(self, factory_id: str) -> TensorHandleFactory:
        """Return the factory with this id; raise `InvalidArgumentError` with the most similar id if there is none."""
        if factory_id not in self._factories:
            registered_ids = ", ".join(self._factories) or "none"
            raise InvalidArgumentError(
                f"no tensor handle factory {factory_id!r} is registered (registered: {registered_ids})"
                f"{did_you_mean(str(factory_id), self._factories)}"
            )
        return self._factories[factory_id]

    def __contains__(self, factory_id: object) -> bool:
        return factory_id in self._factories

    def __iter__(self) -> Iterator[TensorHandleFactory]:
        return iter(self._factories.values())

    @property
    def memory_managers(self) -> tuple[MemoryManager, ...]:
        """The memory managers, in the order of registration."""
        return tuple(self._managers)

"""Tensor handle factories: which kinds of memory there are, and how tensors get from one kind to another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from interposer.backend.allocator import CustomAllocator
from interposer.backend.capabilities import Capabilities
from interposer.backend.memory import ArenaMemoryManager, ArrayHandle, MemoryManager, MemorySource, TensorHandle
from interposer.backend.workload import Workload
from interposer.core.errors import BackendContractError, InvalidArgumentError, did_you_mean
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Layer

__all__ = [
    "DEFAULT_FACTORY",
    "ArrayHandleFactory",
    "TensorHandleFactory",
    "TensorHandleFactoryRegistry",
    "own_factory_id",
]

DEFAULT_FACTORY: Final = "Interposer/Cpu/Array"
"""The factory of arrays in ordinary memory: what backends get that name no preferences."""
_PARTS: Final = 3


def own_factory_id(backend: str) -> str:
    """What stands for the handles of a backend whose workload factory makes some of its own, but that names none."""
    return f"Interposer/{backend}/Handles"


class TensorHandleFactory(ABC):
    """Makes the handles of one kind of memory for one run of a network at a time.

    The optimizer asks for the properties, and chooses from them where each tensor lies and how it crosses between
    backends; nothing is assumed of a factory that it does not say. One that makes handles in an arena registers its
    memory manager beside itself: see `Backend.register_tensor_handle_factories`. Used by one thread at a time.
    """

    id: str
    """"Vendor/Backend/Name", as backends name it in their preferences."""
    supports_map: bool = True
    """True if the host can look into the memory: handles have `TensorHandle.map`."""
    supports_sub_tensors: bool = False
    """True if pieces of a tensor have handles of their own: `create_sub_tensor`."""
    supports_device_copy: bool = False
    """True if the device itself fills its tensors from any that can be mapped, and these from its own."""
    import_sources: MemorySource = MemorySource.UNDEFINED
    """Kinds of memory that a handle can lie in which somebody else owns: `TensorHandle.import_memory`."""
    export_sources: MemorySource = MemorySource.UNDEFINED
    """Kinds of memory as which a handle shows its own to others: `TensorHandle.export_memory`."""

    def capabilities(self, layer: Layer, connected: Layer) -> Capabilities:
        """Return what it says of a tensor that goes from `layer` to `connected`.

        With ``PaddingRequired`` the tensor is neither imported nor exported, as its rows have to lie apart.
        """
        return Capabilities()

    @abstractmethod
    def create(self, info: TensorInfo) -> TensorHandle:
        """Return the handle of a tensor, which the runtime manages and allocates: see `TensorHandle`."""

    def create_constant(self, info: TensorInfo, array: Array) -> TensorHandle:
        """Return the handle of a constant, filled once; by default one made like all others, with memory of its own.

        Constants are no part of the memory plan. A factory whose handles get their memory from a manager, or that
        cannot be mapped, overrides this.
        """
        handle = self.create(info)
        handle.allocate()
        handle.copy_in(array)
        return handle

    def create_sub_tensor(self, parent: TensorHandle, origin: Sequence[int], info: TensorInfo) -> TensorHandle | None:
        """Return the handle of a piece of a tensor of this factory, from `origin` on; None if there can be none."""
        return parent.create_sub_tensor(origin, info)

    def create_device_copy(self) -> Workload:
        """Return a workload with one input and one output, of which one is of this factory and the other can be mapped.

        Raises:
            BackendContractError: the factory says `supports_device_copy`, but has no such workload.
        """
        raise BackendContractError(f"the tensor handle factory {self.id} has no workload that copies")

    def __repr__(self) -> str:
        return f"<TensorHandleFactory {self.id}>"


class ArrayHandleFactory(TensorHandleFactory):
    """NumPy arrays in ordinary memory, in an arena where there is a manager."""

    id = DEFAULT_FACTORY
    supports_sub_tensors = True
    import_sources = export_sources = MemorySource.MALLOC

    def __init__(self, memory_manager: ArenaMemoryManager | None = None) -> None:
        self.memory_manager = memory_manager

    def create(self, info: TensorInfo) -> TensorHandle:
        """Return an array."""
        return ArrayHandle(info, manager=self.memory_manager)

    def create_constant(self, info: TensorInfo, array: Array) -> TensorHandle:
        """Return the constant itself, in place."""
        return ArrayHandle(info, array)


class TensorHandleFactoryRegistry:
    """The factories that the backends of one network brought, by id, with their memory managers."""

    def __init__(self, custom_allocators: Mapping[str, CustomAllocator] | None = None) -> None:
        self.custom_allocators: Mapping[str, CustomAllocator] = {} if custom_allocators is None else custom_allocators
        """For backends by id, where the memory of their tensors has to come from; they have accepted that."""
        self._factories: dict[str, TensorHandleFactory] = {}
        self._managers: list[MemoryManager] = []
        self._pairs: dict[str, str] = {}

    def register_factory(self, factory: TensorHandleFactory) -> None:
        """Add a factory; where one of this id is there already, as two backends of a vendor may share it, that stays.

        Raises:
            BackendContractError: it is no factory, or its id is not "Vendor/Backend/Name".
        """
        if not isinstance(factory, TensorHandleFactory):
            raise BackendContractError(f"{factory!r} is no TensorHandleFactory")
        parts = factory.id.split("/") if isinstance(getattr(factory, "id", None), str) else []
        if len(parts) != _PARTS or not all(parts):
            reported = getattr(factory, "id", None)
            raise BackendContractError(
                f"a tensor handle factory has the id {reported!r}; expected 'Vendor/Backend/Name'"
            )
        self._factories.setdefault(factory.id, factory)

    def register_memory_manager(self, manager: MemoryManager) -> None:
        """Add a manager of memory that factories use; it is acquired before the first run and released at the end.

        Raises:
            BackendContractError: it is no memory manager.
        """
        if not isinstance(manager, MemoryManager):
            raise BackendContractError(f"{manager!r} is no MemoryManager")
        if manager not in self._managers:
            self._managers.append(manager)

    def register_copy_and_import_pair(self, copy_id: str, import_id: str) -> None:
        """Say that, for tensors which come from the caller or go there, the second factory may stand in for the first.

        Its handles are those of the first that can lie in the caller's memory as well.
        """
        self._pairs[copy_id] = import_id

    def matching_import_factory(self, copy_id: str) -> str | None:
        """Return the id of the factory that may stand in for this one at the network's border, if it is registered."""
        result = self._pairs.get(copy_id)
        return result if result in self._factories else None

    def factory(self, factory_id: str) -> TensorHandleFactory:
        """Return the factory of this id; `InvalidArgumentError` with the nearest one where there is none."""
        if factory_id not in self._factories:
            known = ", ".join(self._factories) or "none"
            raise InvalidArgumentError(
                f"no tensor handle factory {factory_id!r} is registered (registered: {known})"
                f"{did_you_mean(str(factory_id), self._factories)}"
            )
        return self._factories[factory_id]

    def __contains__(self, factory_id: object) -> bool:
        return factory_id in self._factories

    def __iter__(self) -> Iterator[TensorHandleFactory]:
        return iter(self._factories.values())

    @property
    def memory_managers(self) -> tuple[MemoryManager, ...]:
        """The managers, in the order in which they came."""
        return tuple(self._managers)

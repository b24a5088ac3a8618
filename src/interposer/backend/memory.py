"""Tensor handles, and the memory managers that allocate their memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import IntFlag
from typing import Any, ClassVar, Final

import numpy as np

from interposer.backend.planner import Lifetime, MemoryPlan, plan
from interposer.backend.strategies import MemoryOptimizerStrategy, planned_by
from interposer.core.addresses import address_of, aligned_empty
from interposer.core.errors import BackendContractError
from interposer.core.room import current_room
from interposer.core.types import Array, TensorInfo, TensorShape

__all__ = ["ALIGNMENT", "ArenaMemoryManager", "ArrayHandle", "MemoryManager", "MemorySource", "TensorHandle"]

ALIGNMENT: Final = 64
"""Alignment of every tensor in an arena, in bytes."""


class MemorySource(IntFlag):
    """Where a tensor's memory comes from, such as ordinary memory or a dma-buf; flags with the values of Arm NN.

    A factory declares with a combination of flags what it can import or export.
    """

    UNDEFINED = 0
    MALLOC = 1
    DMA_BUF = 2
    DMA_BUF_PROTECTED = 4
    GRALLOC = 8


class TensorHandle(ABC):
    """The memory of one tensor, in the form that a backend uses.

    When a network is loaded, `manage` marks the begin of the tensor's lifetime and `allocate` its end, after its last
    reader. Both are called once, in execution order, so that a memory manager can let tensors share memory. The memory
    is available once the manager is acquired. A handle without a manager allocates its own memory in `allocate`. Every
    `map` is followed by an `unmap`; if a tensor is two inputs of a layer, two mappings exist at the same time.

    A tensor whose shape depends on data gets a new handle in every run. Its `info` has unknown dimensions until the
    workload that computes the tensor has called `resize`.
    """

    imports: ClassVar[bool] = False
    """True if the tensor can use memory of the caller without a copy: see `import_memory`."""

    def __init__(self, info: TensorInfo) -> None:
        self.info = info

    parent: TensorHandle | None = None
    """The handle of the tensor whose memory this one is a part of (`create_sub_tensor`); None for other tensors."""

    @property
    def strides(self) -> tuple[int, ...]:
        """The bytes from one element to the next along each dimension of the mapped array; compact by default.

        Raises:
            BackendContractError: a dimension is not known yet.
        """
        if not self.info.is_concrete:
            raise BackendContractError(f"the strides of {self.info} are unknown, as its shape is")
        return compact_strides([int(dim) for dim in self.info.shape], self.info.dtype.numpy.itemsize)

    def manage(self) -> None:
        """Mark the begin of the tensor's lifetime in the memory plan."""

    def allocate(self) -> None:
        """Mark the end of the tensor's lifetime in the memory plan; without a manager, allocate its own memory."""

    def resize(self, shape: Sequence[int]) -> None:
        """Set the shape of a tensor that depends on data, and allocate memory for it; `info` is updated.

        Raises:
            BackendContractError: the shape contradicts `info`, or the handle does not support resizing.
        """
        raise BackendContractError(f"the handle of {self.info} cannot be resized to {list(shape)}")

    def begin_map(self) -> None:
        """Begin to make the tensor accessible to the host, without waiting; a call of `map` follows, which waits.

        The runtime calls it for all outputs of the network that it copies to the caller, before it maps the first of
        them. A device can thus transfer several tensors concurrently. The default does nothing.
        """

    @abstractmethod
    def map(self) -> Array:
        """Return an array over the tensor's memory that the host may read and write until `unmap`."""

    def unmap(self) -> None:
        """Return the memory to the device after `map`."""

    @contextmanager
    def mapped(self) -> Iterator[Array]:
        """Return a context manager that calls `map`, provides its array, and calls `unmap` at the end.

        Raises:
            BackendContractError: `map` did not return an array of the tensor's shape and type.
        """
        array = self.map()
        try:
            if not self._fits(array):
                raise BackendContractError(f"the handle of {self.info} maps to {_described(array)}")
            yield array
        finally:
            self.unmap()

    def _fits(self, array: object) -> bool:
        info = self.info
        return isinstance(array, np.ndarray) and (array.shape, array.dtype) == (info.shape, info.dtype.numpy)

    def import_memory(self, array: Array) -> bool:
        """Use the caller's memory for the tensor until `forget_memory`; return False if this array cannot be used.

        The array has the tensor's shape and type. Called only if `imports` is True. Handles of network inputs and
        outputs that import memory are not managed; if this returns False, `allocate` gives them their own memory.
        """
        return False

    def forget_memory(self) -> None:
        """Stop using the imported memory."""

    def export_memory(self, source: MemorySource) -> Array:
        """Return the tensor's own memory, for others to use without a copy until the handle's memory changes.

        Called only with one of the `export_sources` of the handle's factory. For `MemorySource.MALLOC`, the result is
        an array that shares the memory.

        Raises:
            BackendContractError: the handle does not export memory.
        """
        raise BackendContractError(f"the handle of {self.info} does not export its memory as {source.name}")

    def share(self, source: TensorHandle) -> bool:
        """Use the memory of the tensor `source`, which is not read after this tensor is written.

        Called instead of `manage`, during the lifetime of `source`. Returns False if the memory cannot be shared.
        """
        return False

    def create_sub_tensor(self, origin: Sequence[int], info: TensorInfo) -> TensorHandle | None:
        """Return a handle for the part of this tensor at index `origin` with the shape of `info`; None if impossible.

        The part shares the memory of this tensor: it is neither managed nor allocated.
        """
        return None

    def destroy(self) -> None:
        """Free all device resources of the handle. The default does nothing.

        The runtime calls this exactly once for every handle of a backend, including constants, when the handle is no
        longer needed: the network is unloaded, loading it failed, the working memory is closed, the import that the
        handle was created for is cleared, or the interpreter exits. A sub-tensor is destroyed before its parent, and a
        constant after all other tensors. When a network is unloaded, memory managers release their memory first. No
        other method is called afterwards, and no run uses the handle at that time. Exceptions are logged.
        """

    def copy_in(self, array: Array) -> None:
        """Copy an array of the tensor's shape and type into the tensor."""
        with self.mapped() as mapped_array:
            np.copyto(mapped_array, array)

    def copy_out(self, array: Array) -> None:
        """Copy the tensor into an array of its shape and type."""
        with self.mapped() as mapped_array:
            np.copyto(array, mapped_array)


class MemoryManager(ABC):
    """Allocates the memory of a network's tensors on `acquire`, and frees it on `release`.

    The runtime calls `acquire` before a network's first run, and `release` when the network is unloaded.
    """

    @abstractmethod
    def acquire(self) -> None:
        """Allocate the planned memory and assign it to the handles."""

    @abstractmethod
    def release(self) -> None:
        """Free the memory; handles must not be mapped afterwards."""

    def destroy(self) -> None:
        """Free all other resources. Called once, after `release` and after all handles of the manager are destroyed.

        The default does nothing.
        """


class ArrayHandle(TensorHandle):
    """A tensor in ordinary memory: its own NumPy array, an array of the caller, or a part of an arena.

    The handle's own memory begins at a multiple of `alignment` bytes, a power of two. Memory of the caller must be
    aligned like that too, or it is not imported.
    """

    imports: ClassVar[bool] = True
    """Subclasses do not inherit this value: they must set it themselves if they support `import_memory`."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.imports = bool(cls.__dict__.get("imports", False))

    def __init__(
        self,
        info: TensorInfo,
        array: Array | None = None,
        manager: ArenaMemoryManager | None = None,
        alignment: int = 1,
    ) -> None:
        super().__init__(info)
        self._array, self._manager, self.alignment = array, manager, alignment
        self._managed = False

    @property
    def manager(self) -> ArenaMemoryManager | None:
        """The manager of the arena that the tensor is in, or None."""
        return self._manager

    def manage(self) -> None:
        """Mark the begin of the tensor's lifetime in the arena."""
        if self._manager is not None:
            self._manager.begin(self)
            self._managed = True

    def allocate(self) -> None:
        """Mark the end of the tensor's lifetime in the arena; without a manager, create its own array."""
        if self._managed and self._manager is not None:
            self._manager.end(self)
        elif self._array is None:
            shape, dtype = tuple(self.info.shape), self.info.dtype.numpy
            self._array = aligned_empty(shape, dtype, self.alignment) if self.alignment > 1 else np.empty(shape, dtype)

    def import_memory(self, array: Array) -> bool:
        """Use the array of the caller if it is C-contiguous and aligned to its elements and to `alignment`."""
        flags = array.flags
        if self._managed or not (flags.c_contiguous and flags.aligned):
            return False
        if self.alignment > 1 and address_of(array) % self.alignment:
            return False
        self._array = array
        return True

    def forget_memory(self) -> None:
        """Stop using the imported array; the tensor has no memory then."""
        if not self._managed:
            self._array = None

    def export_memory(self, source: MemorySource) -> Array:
        """Return the array itself for `MemorySource.MALLOC`."""
        return self.map() if source == MemorySource.MALLOC else super().export_memory(source)

    def share(self, source: TensorHandle) -> bool:
        """Use the memory of `source` if it is in the same arena and large enough; return True if so."""
        if self._manager is None or not isinstance(source, ArrayHandle) or source.manager is not self._manager:
            return False
        self._managed = self._manager.join(self, source)
        return self._managed

    def create_sub_tensor(self, origin: Sequence[int], info: TensorInfo) -> TensorHandle:
        """Return a handle for the part of this tensor at index `origin` with the shape of `info`.

        The part is a view of this handle's array.
        """
        return _SubTensorHandle(self, tuple(origin), info)

    def resize(self, shape: Sequence[int]) -> None:
        """Allocate an array of the shape if `info` has unknown dimensions; the handle must not be in an arena.

        Raises:
            LimitExceededError: the run would use more memory than its limits allow.
            BackendContractError: the shape contradicts `info`.
        """
        tensor_shape = TensorShape(shape)
        if self.info.is_concrete or not self.info.shape.accepts(tensor_shape):
            super().resize(shape)
        resized = self.info.with_shape(tensor_shape)
        current_room().check(int(resized.num_bytes))
        self.info = resized
        self.allocate()

    def bind(self, memory: Array | None) -> None:
        """Use these bytes as the tensor's memory, or none. Their number must be that of the tensor."""
        self._array = None if memory is None else memory.view(self.info.dtype.numpy).reshape(tuple(self.info.shape))

    def map(self) -> Array:
        """Return the array itself; raise `BackendContractError` if the tensor has no memory."""
        if self._array is None:
            raise BackendContractError(f"the tensor {self.info} cannot be mapped because it has no memory")
        return self._array


class _SubTensorHandle(ArrayHandle):
    """The handle of a part of another tensor, whose memory it shares; see `ArrayHandle.create_sub_tensor`."""

    imports: ClassVar[bool] = False

    def __init__(self, parent: ArrayHandle, origin: tuple[int, ...], info: TensorInfo) -> None:
        super().__init__(info)
        self.parent = self._parent = parent
        self._index = tuple(slice(start, start + int(dim)) for start, dim in zip(origin, info.shape, strict=True))

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides of the parent."""
        return self._parent.strides

    def manage(self) -> None:
        """Do nothing: the parent is managed."""

    def allocate(self) -> None:
        """Do nothing: the parent is allocated."""

    def map(self) -> Array:
        """Return a view of the parent's array."""
        index: tuple[Any, ...] = (..., *self._index)  # the Ellipsis makes the result a view even for a scalar
        view: Array = self._parent.map()[index]
        return view

    def unmap(self) -> None:
        """Unmap the parent, which `map` mapped."""
        self._parent.unmap()


class ArenaMemoryManager(MemoryManager):
    """Lets tensors in ordinary memory share one arena: tensors with overlapping lifetimes do not overlap in memory.

    Offsets are planned when all lifetimes are known: see `interposer.backend.planner`. Strings cannot be in an arena
    and get separate arrays. `plan` and `planned_bytes` are available before `acquire`.

    Args:
        allocate: returns the memory of the arena, a uint8 array of at least the requested number of bytes, aligned to
            `ALIGNMENT`; ordinary memory by default.
        free: is called with that array when the arena is released.
        strategy: packs the tensors; None means the planner of this package.
    """

    def __init__(
        self,
        allocate: Callable[[int], Array] | None = None,
        free: Callable[[Array], None] | None = None,
        strategy: MemoryOptimizerStrategy | None = None,
    ) -> None:
        self._allocate, self._free, self._strategy = allocate or _aligned_memory, free, strategy
        self._arena: Array | None = None
        self._moment = 0
        self._handles: list[list[ArrayHandle]] = []
        self._lifetimes: list[Lifetime] = []
        self._index_of: dict[ArrayHandle, int] = {}
        self._plan: MemoryPlan | None = None

    def begin(self, handle: ArrayHandle) -> None:
        """Mark the begin of a tensor's lifetime."""
        self._moment += 1
        self._index_of[handle] = len(self._lifetimes)
        self._handles.append([handle])
        self._lifetimes.append(Lifetime(_arena_bytes(handle.info), self._moment, self._moment))
        self._plan = None

    def join(self, handle: ArrayHandle, source: ArrayHandle) -> bool:
        """Let a tensor use the memory of `source`, which is managed already; return False if it needs more bytes."""
        index = self._index_of.get(source)
        if index is None or not 0 < _arena_bytes(handle.info) <= self._lifetimes[index].size:
            return False
        self._handles[index].append(handle)
        self._index_of[handle] = index
        return True

    def end(self, handle: ArrayHandle) -> None:
        """Mark the end of a tensor's lifetime: tensors that begin later may use its memory."""
        self._moment += 1
        index = self._index_of[handle]
        self._lifetimes[index] = replace(self._lifetimes[index], ends=self._moment)
        self._plan = None

    def number_of(self, handle: ArrayHandle) -> int | None:
        """Return the number of a tensor's lifetime in `lifetimes` and in the plan; None if it has none here."""
        return self._index_of.get(handle)

    @property
    def lifetimes(self) -> tuple[Lifetime, ...]:
        """The lifetimes of the tensors, in the order of the plan's offsets."""
        return tuple(self._lifetimes)

    @property
    def plan(self) -> MemoryPlan:
        """The offsets of the tensors in the arena, planned on first access.

        Raises:
            BackendContractError: the memory strategy returned an invalid result.
        """
        if self._plan is None:
            strategy = self._strategy
            lifetimes = self._lifetimes
            self._plan = plan(lifetimes, ALIGNMENT) if strategy is None else planned_by(strategy, lifetimes, ALIGNMENT)
        return self._plan

    @property
    def planned_bytes(self) -> int:
        """The size of the arena in bytes."""
        return self.plan.size

    def acquire(self) -> None:
        """Allocate the arena and assign its memory to the tensors."""
        arena = self._arena = self._allocate(self.plan.size) if self.plan.size else _aligned_memory(0)
        for handles, offset in zip(self._handles, self.plan.offsets, strict=True):
            for handle in handles:
                size = _arena_bytes(handle.info)
                handle.bind(arena[offset : offset + size] if handle.info.dtype.bits else _strings(handle.info))

    def release(self) -> None:
        """Detach all tensors from the arena and free it, by `free` or when no array refers to it any more."""
        for handle in self._index_of:
            handle.bind(None)
        arena, self._arena = self._arena, None
        if arena is not None and arena.size and self._free is not None:
            self._free(arena)


def compact_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the strides in bytes of a row-major array without gaps; `itemsize` is the size of an element."""
    strides = [itemsize]
    for dim in reversed(shape[1:]):
        strides.append(strides[-1] * dim)
    return tuple(reversed(strides)) if shape else ()


def _aligned_memory(size: int) -> Array:
    buffer = np.empty(size + ALIGNMENT, np.uint8)
    start = -address_of(buffer) % ALIGNMENT
    return buffer[start : start + size]


def _arena_bytes(info: TensorInfo) -> int:
    """Return how many bytes a tensor with this info needs in the arena; 0 for strings and collections."""
    return int(info.num_bytes) if info.dtype.bits else 0


def _strings(info: TensorInfo) -> Array:
    return np.empty(int(info.num_elements), object)


def _described(array: object) -> str:
    if not isinstance(array, np.ndarray):
        return f"{type(array).__name__}, which is not an array"
    return f"{array.dtype}{list(array.shape)}"

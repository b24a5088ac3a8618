"""Tensor handles and the memory behind them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import IntFlag
from typing import Any, ClassVar, Final

import numpy as np

from interposer.backend.planner import Lifetime, MemoryPlan, plan
from interposer.core.addresses import address_of, aligned_empty
from interposer.core.errors import BackendContractError
from interposer.core.types import Array, TensorInfo, TensorShape

__all__ = ["ALIGNMENT", "ArenaMemoryManager", "ArrayHandle", "MemoryManager", "MemorySource", "TensorHandle"]

ALIGNMENT: Final = 64
"""Bytes to which every tensor in an arena is aligned."""


class MemorySource(IntFlag):
    """Where the memory of a tensor comes from (Arm NN's values)."""

    UNDEFINED = 0
    MALLOC = 1
    DMA_BUF = 2
    DMA_BUF_PROTECTED = 4
    GRALLOC = 8


class TensorHandle(ABC):
    """The memory of one tensor, as a backend keeps it.

    While a network is loaded, `manage` tells that the tensor begins to live and `allocate` that its last reader has
    run, in running order and once each, so that a memory manager can let tensors share memory; real memory is there
    once the manager is acquired. A handle without a manager gets memory of its own in `allocate`. Every `map` is
    followed by an `unmap`; a tensor that goes into a layer twice is mapped twice at a time.

    A tensor whose shape depends on data has a handle of its own in every run, whose `info` has unknown dimensions until
    the workload that gives it has called `resize`.
    """

    imports: ClassVar[bool] = False
    """True if the tensor can lie in memory of the caller: see `import_memory`."""

    def __init__(self, info: TensorInfo) -> None:
        self.info = info

    def manage(self) -> None:
        """Begin the tensor's life in the memory plan."""

    def allocate(self) -> None:
        """End the tensor's life in the memory plan, or give it memory of its own where it has no manager."""

    def resize(self, shape: Sequence[int]) -> None:
        """Get memory for a tensor whose shape was only found by computing it; `info` knows the shape from then on.

        Raises:
            BackendContractError: the tensor has another shape, or the handle cannot do this.
        """
        raise BackendContractError(f"the handle of {self.info} cannot be given the shape {list(shape)}")

    @abstractmethod
    def map(self) -> Array:
        """Return an array over the tensor's memory that the host may read and write until `unmap`."""

    def unmap(self) -> None:
        """Give the memory back to the device after `map`."""

    @contextmanager
    def mapped(self) -> Iterator[Array]:
        """What `map` gives, for the length of a ``with`` block.

        Raises:
            BackendContractError: it is no array, or not of the tensor's shape and type.
        """
        array = self.map()
        try:
            if not self._fits(array):
                raise BackendContractError(f"the handle of {self.info} maps to {_described(array)}")
            yield array
        finally:
            self.unmap()

    def _fits(self, array: object) -> bool:
        requested = self.info
        return isinstance(array, np.ndarray) and (array.shape, array.dtype) == (requested.shape, requested.dtype.numpy)

    def import_memory(self, array: Array) -> bool:
        """Let the tensor lie in memory of the caller until `forget_memory`; False if it cannot lie in this array.

        The array has the tensor's shape and type. Asked only of handles that say `imports`, which are not managed where
        they are for a tensor at the network's border; `allocate` gives one memory of its own if it says no.
        """
        return False

    def forget_memory(self) -> None:
        """Let go of the memory that was imported."""

    def export_memory(self, source: MemorySource) -> Array:
        """Return the tensor's own memory, for others to use in place until its next change of memory.

        Asked only with a source that the handle's factory names among its `export_sources`. For `MemorySource.MALLOC`
        it is an array over the very memory.

        Raises:
            BackendContractError: the handle shows its memory to nobody.
        """
        raise BackendContractError(f"the handle of {self.info} does not export its memory as {source.name}")

    def share(self, source: TensorHandle) -> bool:
        """Lie where another tensor lies, which nobody reads any more once this one is written.

        Called instead of `manage`, while the other one lives; False if that is not possible.
        """
        return False

    def create_sub_tensor(self, origin: Sequence[int], info: TensorInfo) -> TensorHandle | None:
        """Return the handle of a piece of this tensor, from `origin` on; None if there can be none.

        Its memory is that of this tensor: it is neither managed nor allocated.
        """
        return None

    def destroy(self) -> None:
        """Free everything that the handle holds on a device. The default does nothing.

        The runtime calls this exactly once for every handle that a backend gave it, constants included, when it needs
        the handle no more: the network is unloaded, loading it failed, the working memory is closed, the import that
        the handle was created for is cleared, or the interpreter exits. A sub-tensor is destroyed before its parent,
        and a constant after all other tensors. At unloading, the memory managers have released their memory before. No
        other method is called afterwards. No run uses the handle at the same time. What this raises is logged.
        """

    def copy_in(self, array: Array) -> None:
        """Fill the tensor from an array of its shape and type."""
        with self.mapped() as own:
            np.copyto(own, array)

    def copy_out(self, array: Array) -> None:
        """Fill an array of the tensor's shape and type from it."""
        with self.mapped() as own:
            np.copyto(array, own)


class MemoryManager(ABC):
    """Gives the memory of a network's tensors when it is acquired and takes it back when it is released.

    The runtime acquires before a network's first run and releases when it is unloaded, never in between.
    """

    @abstractmethod
    def acquire(self) -> None:
        """Get the memory that was planned."""

    @abstractmethod
    def release(self) -> None:
        """Give it back; handles must not be mapped afterwards."""


class ArrayHandle(TensorHandle):
    """A tensor in ordinary memory: a NumPy array, its own, the caller's, or a piece of an arena.

    Its own memory begins at a multiple of `alignment` bytes, a power of two, and so must the caller's to be used.
    """

    imports: ClassVar[bool] = True
    """A class that derives from this one says so itself, where it keeps to what is said here."""

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
        """The manager whose arena the tensor lies in, if any."""
        return self._manager

    def manage(self) -> None:
        """Begin the tensor's life in the arena."""
        if self._manager is not None:
            self._manager.begin(self)
            self._managed = True

    def allocate(self) -> None:
        """End the tensor's life in the arena, or make an array of its own."""
        if self._managed and self._manager is not None:
            self._manager.end(self)
        elif self._array is None:
            shape, dtype = tuple(self.info.shape), self.info.dtype.numpy
            self._array = aligned_empty(shape, dtype, self.alignment) if self.alignment > 1 else np.empty(shape, dtype)

    def import_memory(self, array: Array) -> bool:
        """True for an array without gaps, whose elements are where the processor, and who takes it, wants them."""
        flags = array.flags
        if self._managed or not (flags.c_contiguous and flags.aligned):
            return False
        if self.alignment > 1 and address_of(array) % self.alignment:
            return False
        self._array = array
        return True

    def forget_memory(self) -> None:
        """The tensor lies nowhere then."""
        if not self._managed:
            self._array = None

    def export_memory(self, source: MemorySource) -> Array:
        """Return the array, as ordinary memory."""
        return self.map() if source == MemorySource.MALLOC else super().export_memory(source)

    def share(self, source: TensorHandle) -> bool:
        """Return True for a tensor of the same arena."""
        if self._manager is None or not isinstance(source, ArrayHandle) or source.manager is not self._manager:
            return False
        self._managed = self._manager.join(self, source)
        return self._managed

    def create_sub_tensor(self, origin: Sequence[int], info: TensorInfo) -> TensorHandle:
        """Return a view of the array."""
        return _SubTensorHandle(self, tuple(origin), info)

    def resize(self, shape: Sequence[int]) -> None:
        """Make an array of the shape, where that was open; the handle must not lie in an arena."""
        tensor_shape = TensorShape(shape)
        if self.info.is_concrete or not self.info.shape.accepts(tensor_shape):
            super().resize(shape)
        self.info = self.info.with_shape(tensor_shape)
        self.allocate()

    def bind(self, memory: Array | None) -> None:
        """Let the tensor lie in these bytes (of the right count), or nowhere."""
        self._array = None if memory is None else memory.view(self.info.dtype.numpy).reshape(tuple(self.info.shape))

    def map(self) -> Array:
        """Return the array itself; `BackendContractError` while there is no memory."""
        if self._array is None:
            raise BackendContractError(f"the tensor {self.info} is mapped while it has no memory")
        return self._array


class _SubTensorHandle(ArrayHandle):
    """A piece of another tensor's array."""

    imports: ClassVar[bool] = False

    def __init__(self, parent: ArrayHandle, origin: tuple[int, ...], info: TensorInfo) -> None:
        super().__init__(info)
        self._parent = parent
        self._place = tuple(slice(start, start + int(dim)) for start, dim in zip(origin, info.shape, strict=True))

    def manage(self) -> None:
        """The parent is managed."""

    def allocate(self) -> None:
        """The parent is allocated."""

    def map(self) -> Array:
        """Return a view of the parent's array."""
        place: tuple[Any, ...] = (..., *self._place)  # gives a view of a scalar too
        view: Array = self._parent.map()[place]
        return view

    def unmap(self) -> None:
        """Unmap the parent, which `map` mapped."""
        self._parent.unmap()


class ArenaMemoryManager(MemoryManager):
    """Lets tensors of ordinary memory share one arena: tensors that live at the same time do not overlap.

    The places are planned when all lives are known: see `interposer.backend.planner`. Strings cannot lie in an arena
    and get arrays of their own. `plan`, and with it `planned_bytes`, is known before `acquire`.

    Args:
        allocate: gives the memory of the arena, an array of at least as many bytes as it is asked for, aligned to
            `ALIGNMENT`; ordinary memory by default.
        free: is given that array when the arena is released.
    """

    def __init__(
        self, allocate: Callable[[int], Array] | None = None, free: Callable[[Array], None] | None = None
    ) -> None:
        self._allocate, self._free = allocate or _ordinary, free
        self._arena: Array | None = None
        self._moment = 0
        self._handles: list[list[ArrayHandle]] = []
        self._lives: list[Lifetime] = []
        self._numbers: dict[ArrayHandle, int] = {}
        self._plan: MemoryPlan | None = None

    def begin(self, handle: ArrayHandle) -> None:
        """Begin the life of a tensor."""
        self._moment += 1
        self._numbers[handle] = len(self._lives)
        self._handles.append([handle])
        self._lives.append(Lifetime(_arena_bytes(handle.info), self._moment, self._moment))
        self._plan = None

    def join(self, handle: ArrayHandle, source: ArrayHandle) -> bool:
        """Let a tensor lie where another one does that began before; False if it needs more room."""
        number = self._numbers.get(source)
        if number is None or not 0 < _arena_bytes(handle.info) <= self._lives[number].size:
            return False
        self._handles[number].append(handle)
        self._numbers[handle] = number
        return True

    def end(self, handle: ArrayHandle) -> None:
        """End the life of a tensor: its place may be used by those that begin later."""
        self._moment += 1
        number = self._numbers[handle]
        self._lives[number] = replace(self._lives[number], ends=self._moment)
        self._plan = None

    @property
    def lifetimes(self) -> tuple[Lifetime, ...]:
        """The lives of the tensors, in the order of the plan's offsets."""
        return tuple(self._lives)

    @property
    def plan(self) -> MemoryPlan:
        """Where the tensors lie."""
        if self._plan is None:
            self._plan = plan(self._lives, ALIGNMENT)
        return self._plan

    @property
    def planned_bytes(self) -> int:
        """How large the arena is."""
        return self.plan.size

    def acquire(self) -> None:
        """Get the arena and give every tensor its place."""
        arena = self._arena = self._allocate(self.plan.size) if self.plan.size else _ordinary(0)
        for handles, offset in zip(self._handles, self.plan.offsets, strict=True):
            for handle in handles:
                size = _arena_bytes(handle.info)
                handle.bind(arena[offset : offset + size] if handle.info.dtype.bits else _strings(handle.info))

    def release(self) -> None:
        """Forget the arena; it is freed when nobody holds a piece of it."""
        for handle in self._numbers:
            handle.bind(None)
        arena, self._arena = self._arena, None
        if arena is not None and arena.size and self._free is not None:
            self._free(arena)


def _ordinary(size: int) -> Array:
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -address_of(raw) % ALIGNMENT
    return raw[start : start + size]


def _arena_bytes(info: TensorInfo) -> int:
    """Return the bytes in the arena; none for what is no plain numbers."""
    return int(info.num_bytes) if info.dtype.bits else 0


def _strings(info: TensorInfo) -> Array:
    return np.empty(int(info.num_elements), object)


def _described(array: object) -> str:
    if not isinstance(array, np.ndarray):
        return f"{type(array).__name__}, which is no array"
    return f"{array.dtype}{list(array.shape)}"

"""Tensor handles and the memory behind them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntFlag
from typing import Final

import numpy as np

from interposer.errors import BackendContractError
from interposer.types import Array, TensorInfo, TensorShape

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

    A tensor whose shape depends on data has a handle of its own in every run, whose `info` has unknown extents until
    the workload that gives it has called `resize`.
    """

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
        """An array over the tensor's memory that the host may read and write until `unmap`."""

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
        wanted = self.info
        return isinstance(array, np.ndarray) and (array.shape, array.dtype) == (wanted.shape, wanted.dtype.numpy)

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
    """A tensor in ordinary memory: a NumPy array, its own or a piece of an arena."""

    def __init__(self, info: TensorInfo, array: Array | None = None, manager: ArenaMemoryManager | None = None) -> None:
        super().__init__(info)
        self._array, self._manager = array, manager

    @property
    def manager(self) -> ArenaMemoryManager | None:
        """The manager whose arena the tensor lies in, if any."""
        return self._manager

    def manage(self) -> None:
        """Begin the tensor's life in the arena."""
        if self._manager is not None:
            self._manager.begin(self)

    def allocate(self) -> None:
        """End the tensor's life in the arena, or make an array of its own."""
        if self._manager is not None:
            self._manager.end(self)
        elif self._array is None:
            self._array = np.empty(tuple(self.info.shape), self.info.dtype.numpy)

    def resize(self, shape: Sequence[int]) -> None:
        """Make an array of the shape, where that was open; the handle must not lie in an arena."""
        found = TensorShape(shape)
        if self.info.is_concrete or not self.info.shape.accepts(found):
            super().resize(shape)
        self.info = self.info.with_shape(found)
        self.allocate()

    def bind(self, memory: Array | None) -> None:
        """Let the tensor lie in these bytes (of the right count), or nowhere."""
        self._array = None if memory is None else memory.view(self.info.dtype.numpy).reshape(tuple(self.info.shape))

    def map(self) -> Array:
        """The array itself; `BackendContractError` while there is no memory."""
        if self._array is None:
            raise BackendContractError(f"the tensor {self.info} is mapped while it has no memory")
        return self._array


class ArenaMemoryManager(MemoryManager):
    """Lets tensors of ordinary memory share one arena: tensors that live at the same time do not overlap.

    Strings cannot lie in an arena and get arrays of their own. `planned_bytes` is known before `acquire`.
    """

    def __init__(self) -> None:
        self._live: dict[ArrayHandle, tuple[int, int]] = {}
        self._places: list[tuple[ArrayHandle, int, int]] = []
        self.planned_bytes = 0

    def begin(self, handle: ArrayHandle) -> None:
        """Find a place for a tensor: the lowest gap among those that live now which it fits in."""
        size = int(handle.info.num_bytes) if handle.info.dtype.bits else 0
        room = -(-size // ALIGNMENT) * ALIGNMENT
        offset = 0
        for start, stop in sorted(self._live.values()):
            if start - offset >= room:
                break
            offset = max(offset, stop)
        self._live[handle] = (offset, offset + room)
        self._places.append((handle, offset, size))
        self.planned_bytes = max(self.planned_bytes, offset + room)

    def end(self, handle: ArrayHandle) -> None:
        """Let the tensor's place be used again by those that begin later."""
        self._live.pop(handle, None)

    def acquire(self) -> None:
        """Get the arena and give every tensor its place."""
        raw = np.empty(self.planned_bytes + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        arena = raw[start : start + self.planned_bytes]
        for handle, offset, size in self._places:
            handle.bind(arena[offset : offset + size] if handle.info.dtype.bits else _strings(handle.info))

    def release(self) -> None:
        """Forget the arena; it is freed when nobody holds a piece of it."""
        for handle, _, _ in self._places:
            handle.bind(None)


def _strings(info: TensorInfo) -> Array:
    return np.empty(int(info.num_elements), object)


def _described(array: object) -> str:
    if not isinstance(array, np.ndarray):
        return f"{type(array).__name__}, which is no array"
    return f"{array.dtype}{list(array.shape)}"

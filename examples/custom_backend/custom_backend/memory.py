"""The memory of the backend: blocks, each of which tensors of the same size use one after the other."""

from __future__ import annotations

import numpy as np

from interposer.backend import MemoryManager, TensorHandle
from interposer.errors import BackendContractError
from interposer.types import Array, TensorInfo


class CustomMemoryManager(MemoryManager):
    """Plans blocks while a network is loaded, and allocates them in `acquire` until `release`."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._free: list[int] = []
        self._blocks: list[Array] = []

    def take(self, size: int) -> int:
        """Return the number of a block of this size that no tensor uses now."""
        for block in self._free:
            if self.sizes[block] == size:
                self._free.remove(block)
                return block
        self.sizes.append(size)
        return len(self.sizes) - 1

    def give_back(self, block: int) -> None:
        """Make a block available for later tensors."""
        self._free.append(block)

    def acquire(self) -> None:
        """Allocate all blocks; the runtime calls this before the network's first run."""
        self._blocks = [np.zeros(size, np.uint8) for size in self.sizes]

    def release(self) -> None:
        """Drop all blocks; the runtime calls this when the network is unloaded."""
        self._blocks = []

    def block(self, number: int) -> Array:
        """Return the bytes of a block."""
        if not self._blocks:
            raise BackendContractError("the memory is not acquired", backend="Custom")
        return self._blocks[number]


class CustomTensorHandle(TensorHandle):
    """A tensor in one of the manager's blocks."""

    def __init__(self, info: TensorInfo, manager: CustomMemoryManager) -> None:
        super().__init__(info)
        self._manager = manager
        self._block = -1

    def manage(self) -> None:
        """Start the tensor's lifetime: take a block from the memory manager."""
        self._block = self._manager.take(int(self.info.num_bytes))

    def allocate(self) -> None:
        """End the tensor's lifetime in the memory plan: return the block to the memory manager."""
        self._manager.give_back(self._block)

    def map(self) -> Array:
        """Return the block as an array; a device with separate memory would copy the tensor to the host here."""
        return self._manager.block(self._block).view(self.info.dtype.numpy).reshape(tuple(self.info.shape))

    def unmap(self) -> None:
        """End the access to the block; a device with separate memory would copy the tensor back here."""

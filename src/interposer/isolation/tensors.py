"""The tensors of one network in memory that is shared with the child."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from interposer.backend.memory import ArrayHandle, MemoryManager, TensorHandle
from interposer.backend.planner import Lifetime, plan
from interposer.core.errors import BackendError
from interposer.core.types import Array, TensorInfo
from interposer.isolation.regions import ALIGNMENT, Region, aligned, array_at, info_bytes

if TYPE_CHECKING:
    from interposer.isolation.supervisor import Supervisor

__all__ = ["GIVEN", "MADE", "ConstantHandle", "SharedHandle", "SharedMemory", "Users"]

OPEN: Final = 0
GIVEN: Final = 1
MADE: Final = 2
FIRST_CONSTANT: Final = -2
"""The source of slot numbers of constants, which are below `ABSENT` and unique in a process."""


class Users(Protocol):
    """The interface of `Steps` that `SharedMemory` calls before the host uses tensors that the child may be writing."""

    def acquire(self) -> None:
        """Called by `SharedMemory` after it has acquired the memory of the tensors: prepare for runs."""

    def release(self) -> None:
        """Called by `SharedMemory` before it releases the memory of the tensors: stop using them."""

    def before_host(self, handle: SharedHandle, writing: bool) -> None:
        """Run what the child has to compute before the host reads a tensor or, if `writing`, overwrites it."""


class SharedMemory(MemoryManager):
    """The tensors of a network in two arenas that the host creates and the child process maps.

    The arena `given_region` holds the tensors that the host writes; the child can only read it. The arena `made_region`
    holds the outputs of workloads. Tensors in `made_region` may reuse each other's memory if their lifetimes do not
    overlap. Each tensor in `given_region` has memory of its own, so inputs are intact when an interrupted run is
    repeated. The first write to a tensor decides its arena.
    """

    def __init__(self) -> None:
        self.handles: list[SharedHandle] = []
        self.moments: list[tuple[int, bool]] = []
        """The slots whose lifetime begins or ends, in order."""
        self.version = 0
        self.given_region: Region | None = None
        self.made_region: Region | None = None
        self._users: weakref.ref[Users] | None = None
        self._stale = False
        _memories.add(self)

    def attach(self, users: Users) -> None:
        """Register the `Steps` that must be notified before the host accesses tensors.

        Only a weak reference is stored.
        """
        self._users = weakref.ref(users)

    @property
    def users(self) -> Users:
        """The steps that run on these tensors; raises `BackendError` if their network was unloaded."""
        steps = None if self._users is None else self._users()
        if steps is None:
            raise BackendError("the tensors belong to a network that was unloaded; load it again")
        return steps

    def new_handle(self, info: TensorInfo) -> SharedHandle:
        """Return a new handle for a tensor of this network; its memory is assigned by `acquire`.

        It gets the next free slot, the number by which the child knows the tensor.
        """
        handle = SharedHandle(info, self, len(self.handles))
        self.handles.append(handle)
        return handle

    @property
    def planned_bytes(self) -> int:
        """The size in bytes of the arena for results."""
        return plan(self._lifetimes(), ALIGNMENT).size

    def acquire(self) -> None:
        """Create both arenas; pages use physical memory once they are touched."""
        offset = 0
        for handle in self.handles:
            handle.given_offset = offset
            offset += aligned(info_bytes(handle.info))
        memory_plan = plan(self._lifetimes(), ALIGNMENT)
        for handle, made_offset in zip(self.handles, memory_plan.offsets, strict=True):
            handle.made_offset = made_offset
        self.given_region = Region(offset, writable=False)
        self.made_region = Region(memory_plan.size, writable=True)
        for handle in self.handles:
            self.sort(handle, handle.mode)
        self.users.acquire()

    def _lifetimes(self) -> list[Lifetime]:
        last_moment = len(self.moments)
        begins = {slot: moment for moment, (slot, has_ended) in enumerate(self.moments) if not has_ended}
        ends = {slot: moment for moment, (slot, has_ended) in enumerate(self.moments) if has_ended}
        slots = range(len(self.handles))
        sizes = [info_bytes(handle.info) for handle in self.handles]
        return [Lifetime(sizes[slot], begins.get(slot, 0), ends.get(slot, last_moment)) for slot in slots]

    def release(self) -> None:
        """Release the arenas; they are freed when no array refers to them."""
        self.users.release()
        self.given_region = self.made_region = None
        for handle in self.handles:
            handle.bind(None)

    def sort(self, handle: SharedHandle, mode: int) -> None:
        """Put a tensor into `given_region` (mode GIVEN) or `made_region` (MADE), and bind the handle to its memory.

        The increased `version` shows that the child does not know the new location yet.
        """
        handle.mode = mode
        self.version += 1
        region = self.region(handle)
        if region is not None and mode != OPEN:
            shape = tuple(handle.info.shape)
            handle.bind(array_at(region.bytes, handle.place, handle.info.dtype, shape))

    def region(self, handle: SharedHandle) -> Region | None:
        """Return the arena of a tensor; None before `acquire` and after `release`."""
        return self.made_region if handle.mode == MADE else self.given_region

    def renew(self) -> None:
        """Copy the arenas after a fork, so that this process does not share them with its parent."""
        self._stale = False
        for name in ("given_region", "made_region"):
            old_region: Region | None = getattr(self, name)
            if old_region is not None:
                copy = Region(old_region.size, writable=old_region.writable)
                copy.bytes[:] = old_region.bytes
                setattr(self, name, copy)
        for handle in self.handles:
            self.sort(handle, handle.mode)

    @property
    def stale(self) -> bool:
        """True if the arenas belong to the parent of a forked process."""
        return self._stale


class SharedHandle(ArrayHandle):
    """A tensor in shared memory, which the host can read and write directly."""

    def __init__(self, info: TensorInfo, memory: SharedMemory, slot: int) -> None:
        super().__init__(info)
        self.memory, self.slot = memory, slot
        self.mode = OPEN
        self.made_offset = self.given_offset = 0

    @property
    def place(self) -> int:
        """The offset of the tensor in its arena, in bytes."""
        return self.made_offset if self.mode == MADE else self.given_offset

    def manage(self) -> None:
        """Begin the lifetime of the tensor in the memory plan."""
        self.memory.moments.append((self.slot, False))

    def allocate(self) -> None:
        """End the lifetime of the tensor in the memory plan."""
        self.memory.moments.append((self.slot, True))

    def resize(self, shape: Sequence[int]) -> None:
        """Raise an error, because the tensor has a fixed place in an arena."""
        TensorHandle.resize(self, shape)

    def map(self) -> Array:
        """Return the writable array of the tensor, after running all queued steps."""
        self._ready(writing=self.mode != MADE)
        return super().map()

    def copy_in(self, array: Array) -> None:
        """Copy an array into the tensor, after running all queued steps."""
        self._ready(writing=True)
        super().copy_in(array)

    def _ready(self, *, writing: bool) -> None:
        memory = self.memory
        if memory.stale:
            memory.renew()
        if self.mode == OPEN:
            memory.sort(self, GIVEN)
        memory.users.before_host(self, writing)


class ConstantHandle(ArrayHandle):
    """The handle of a constant of a network, which all its runs share; the child has a copy in shared memory.

    `slot` is the number by which the child knows the constant; it is below -1.
    """

    _numbers: Final = itertools.count(FIRST_CONSTANT, -1)

    def __init__(self, info: TensorInfo, array: Array, supervisor: Supervisor) -> None:
        super().__init__(info, array)
        self.array, self.supervisor = array, supervisor
        self.slot = next(self._numbers)
        supervisor.forget(self, "constant", self.slot)


_memories: weakref.WeakSet[SharedMemory] = weakref.WeakSet()


def _after_fork() -> None:
    for memory in _memories:
        memory._stale = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

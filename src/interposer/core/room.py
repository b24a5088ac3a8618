"""Limits of one run for what is only known while it runs: the sizes of some tensors, and the iterations of loops.

A network can compute the size of a tensor from the values of its inputs, so that no check before the run can limit it.
The runtime therefore sets the room of the current thread before it runs such a network, and whatever creates a tensor
of a computed size calls `check_room` before it allocates memory.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from interposer.core.errors import InvalidValueError, LimitExceededError

__all__ = ["Room", "check_room", "current_room", "temporarily", "within"]

MOST_BYTES = 1 << 46
"""The largest size in bytes that any tensor may have; no machine has more memory."""


class Room:
    """What one run uses beyond what was known before it, and its limits; a limit of None stands for no limit.

    Args:
        limit: the most bytes that the run may use.
        used: the bytes that it uses in any case, for its constants and for tensors of known size.
        max_operations: the most arithmetic operations of layers whose shapes are computed, and of loops.
    """

    __slots__ = ("limit", "max_operations", "operations", "used")

    def __init__(self, limit: float | None = None, used: int = 0, max_operations: float | None = None) -> None:
        self.limit, self.used = limit, used
        self.max_operations, self.operations = max_operations, 0

    @property
    def left(self) -> int:
        """The bytes that tensors of computed sizes may still take."""
        return MOST_BYTES if self.limit is None else max(0, min(MOST_BYTES, int(self.limit - self.used)))

    def anew(self) -> Room:
        """Return a room for another run with the same limits."""
        return Room(self.limit, self.used, self.max_operations)

    def check(self, size: int) -> None:
        """Check that a tensor of `size` bytes can be created beside those that exist.

        Raises:
            LimitExceededError: the run would use more memory than its limit.
            InvalidValueError: the tensor is too large for any machine.
        """
        if self.limit is not None and self.used + size > self.limit:
            raise LimitExceededError("memory", self.used + size, self.limit, "bytes")
        if size > MOST_BYTES:
            raise InvalidValueError(f"a tensor of {size:,} bytes is larger than any memory", value=size)

    def take(self, size: int) -> None:
        """Count a tensor of `size` bytes as existing, after the same check."""
        self.check(size)
        if self.limit is not None:
            self.used += size

    def compute(self, operations: int) -> None:
        """Count arithmetic operations; raise `LimitExceededError` if there are too many in this run."""
        if self.max_operations is None:
            return
        self.operations += operations
        if self.operations > self.max_operations:
            raise LimitExceededError("arithmetic", self.operations, self.max_operations, "operations")


class _Current(threading.local):
    room = Room()


_current = _Current()


def current_room() -> Room:
    """Return the room of the run that this thread executes; one without a limit outside of runs."""
    return _current.room


@contextmanager
def within(room: Room) -> Iterator[None]:
    """Make `room` that of this thread until the end of the block."""
    outer_room, _current.room = _current.room, room
    try:
        yield
    finally:
        _current.room = outer_room


@contextmanager
def temporarily() -> Iterator[None]:
    """Count what is taken in the block only until its end, as for the tensors of one iteration of a loop."""
    room = _current.room
    used_before = room.used
    try:
        yield
    finally:
        room.used = used_before


def check_room(shape: Sequence[int], itemsize: int) -> None:
    """Check that an array of this shape, with elements of `itemsize` bytes, can be created in the current run.

    Raises:
        LimitExceededError: the run would use more memory than its limit.
        InvalidValueError: the array is too large for any machine.
    """
    _current.room.check(math.prod(shape) * itemsize)

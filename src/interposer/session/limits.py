"""Limits on the memory and arithmetic of a network, checked before it runs."""

from __future__ import annotations

import math
from numbers import Real

import numpy as np

from interposer.core.errors import InvalidArgumentError, LimitExceededError, expect
from interposer.core.records import dataclass
from interposer.core.room import Room
from interposer.ir.graph import Graph
from interposer.report.estimate import Estimate, estimate

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The most memory and arithmetic that one run of a network may need; None means no limit.

    A damaged or hostile file can describe a valid network of absurd size. Therefore `load` computes both numbers before
    it runs anything. The defaults accept every ordinary network. If sizes of tensors or numbers of iterations follow
    from the values of inputs, each run counts them before it allocates memory, and fails with the same error.

    Args:
        max_bytes: bytes of constants and of tensors that are alive at the same time.
        max_operations: number of arithmetic operations, such as multiplications and additions, as the operators
            count them.
    """

    max_bytes: int | None = 16 << 30
    max_operations: int | None = 10**14

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_operations"):
            limit = getattr(self, name)
            expect(limit, Real | None, f"{name} must be a number or None")
            if isinstance(limit, float | np.floating) and math.isnan(limit):
                raise InvalidArgumentError(f"{name} must be a number or None, not nan")

    def check(self, graph: Graph) -> Estimate:
        """Return the needs of a graph with known shapes; raise `LimitExceededError` if they exceed a limit."""
        needed_resources = estimate(graph)
        self.check_needed(needed_resources)
        return needed_resources

    def room(self, needed: Estimate | None) -> Room:
        """Return the limits of runs of a network that needs this in any case, by an estimate; None if it is unknown."""
        return Room(self.max_bytes, 0 if needed is None else needed.peak_bytes, self.max_operations)

    def check_needed(self, needed: Estimate) -> None:
        """Raise `LimitExceededError` if what a run needs, by an estimate, exceeds a limit."""
        if self.max_bytes is not None and needed.peak_bytes > self.max_bytes:
            raise LimitExceededError("memory", needed.peak_bytes, self.max_bytes, "bytes")
        if self.max_operations is not None and needed.operations > self.max_operations:
            raise LimitExceededError("arithmetic", needed.operations, self.max_operations, "operations")

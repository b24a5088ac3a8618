"""Bounds on what a network may take, checked before anything is run."""

from __future__ import annotations

from dataclasses import dataclass

from interposer.core.errors import LimitExceededError, expect
from interposer.ir.graph import Graph
from interposer.report.estimate import Estimate, estimate

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The most memory and arithmetic that a network may plan for one run; None sets no bound.

    A damaged or hostile file can describe a valid network of absurd size, so `load` computes both before it runs
    anything. The defaults let every ordinary network pass. Tensors whose shapes are only known while running are in no
    plan, and so are not counted.

    Args:
        max_bytes: tensors that live at the same time, and constants.
        max_operations: multiplications, additions and the like, as the operators count them.
    """

    max_bytes: int | None = 16 << 30
    max_operations: int | None = 10**14

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_operations"):
            expect(getattr(self, name), int | float | None, f"{name} must be a number or None")

    def check(self, graph: Graph) -> Estimate:
        """Return what a graph of known shapes needs; raise `LimitExceededError` if that is more than allowed."""
        needed = estimate(graph)
        self.check_needed(needed)
        return needed

    def check_needed(self, needed: Estimate) -> None:
        """Raise `LimitExceededError` if a network that needs so much exceeds a limit."""
        if self.max_bytes is not None and needed.peak_bytes > self.max_bytes:
            raise LimitExceededError("memory", needed.peak_bytes, self.max_bytes, "bytes")
        if self.max_operations is not None and needed.operations > self.max_operations:
            raise LimitExceededError("arithmetic", needed.operations, self.max_operations, "operations")

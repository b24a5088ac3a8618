"""What memory a loaded network has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["MemoryReport"]


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """The memory of one loaded network, in bytes.

    `arenas` are those of one run, by backend, as far as the backends' memory managers tell; `lower_bounds` the least
    that any plan would need in this order of execution. There are `working_memories` of them, one for each run that
    went beside others. `constants` are the weights, each counted once, without copies that backends make: of these
    bytes, `mapped_constants` lie in mapped files, and `shared_constants` in memory that other networks use too.
    `parts` is what compiled parts hold beside, by backend, as far as they tell (weights in an order of their own,
    scratch memory); `unknown` are the backends with parts that do not tell, and `estimated` those of which some of that
    is an estimate, as of engines: copies of weights, and the largest tensors at the same time.
    What the caller gives and gets, and what kernels need for themselves, is not counted.
    """

    arenas: Mapping[str, int]
    lower_bounds: Mapping[str, int]
    working_memories: int
    constants: int
    mapped_constants: int = 0
    shared_constants: int = 0
    parts: Mapping[str, int] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    estimated: tuple[str, ...] = ()

    @property
    def own_constants(self) -> int:
        """The bytes of constants that no file and no other network has."""
        return self.constants - self.mapped_constants - self.shared_constants

    @property
    def peak(self) -> int:
        """All arenas, the constants, and what compiled parts hold as far as it is known."""
        return self.working_memories * sum(self.arenas.values()) + self.constants + sum(self.parts.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible data."""
        return {
            "arenas": dict(self.arenas),
            "lower_bounds": dict(self.lower_bounds),
            "working_memories": self.working_memories,
            "constants": self.constants,
            "mapped_constants": self.mapped_constants,
            "shared_constants": self.shared_constants,
            "own_constants": self.own_constants,
            "parts": dict(self.parts),
            "unknown": list(self.unknown),
            "estimated": list(self.estimated),
            "peak": self.peak,
        }

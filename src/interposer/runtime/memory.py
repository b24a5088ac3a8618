"""The report of the memory of a loaded network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from interposer.core.records import dataclass

__all__ = ["MemoryReport"]


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """The memory of one loaded network, in bytes.

    `arenas` has the arena bytes of one run, by backend, for memory managers that report them. `lower_bounds` has the
    minimum of any plan for this execution order. There are `working_memories` sets of arenas, one per concurrent run.
    `constants` are the weights, each counted once, without copies that backends make. Of these bytes,
    `mapped_constants` are in mapped files, and `shared_constants` in memory that other networks use too. `parts` has
    the additional bytes of compiled parts, by backend, if they report them (repacked weights, scratch memory).
    `unknown` are the backends with parts that do not report their memory. `estimated` are the backends whose numbers
    are partly estimates, such as engines: copies of weights, and the largest set of tensors alive at the same time.
    Arrays of the caller and temporary memory of kernels are not counted.
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
        """The bytes of constants that are neither in mapped files nor shared with other networks."""
        return self.constants - self.mapped_constants - self.shared_constants

    @property
    def peak(self) -> int:
        """The bytes of all arenas, the constants, and the reported memory of compiled parts."""
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

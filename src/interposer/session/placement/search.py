"""Search for the placements of least cost, from the times of parts on backends and of copies between them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Candidate", "best_plans", "with_bounds"]

Part = tuple[int, int, str]
"""The index of the first block, the index after the last block, and the backend."""


@dataclass(frozen=True, order=True)
class Candidate:
    """A plan in the search: parts that cover all blocks of the network, with the cost of one run in seconds.

    A part is given by its first block, the block after its last one, and its backend.
    """

    seconds: float
    parts: tuple[Part, ...]

    def backends(self) -> tuple[str, ...]:
        """Return the backend of each block."""
        return tuple(backend for first, last, backend in self.parts for _ in range(first, last))


def best_plans(
    count: int, parts: Mapping[Part, float], border: Callable[[int, str, str], float], keep: int
) -> list[Candidate]:
    """Return the `keep` cheapest plans for `count` blocks, exactly; they differ in the backend of at least one block.

    The cost of a plan is the sum of its measured parts and of the borders between parts on different backends. The
    plans are shortest paths from the first block to the last one, over the measured parts.

    Args:
        count: the number of blocks.
        parts: the seconds of each part that was measured. A part is given by its first block, the block after its last
            one, and its backend.
        border: called with the number of a block, a source and a target backend; returns the seconds for moving the
            tensors that enter this block from source to target.
        keep: the largest number of plans to return.
    """
    ways: list[dict[str, list[Candidate]]] = [{} for _ in range(count + 1)]
    starting: dict[int, list[tuple[Part, float]]] = {}
    for part, seconds in parts.items():
        starting.setdefault(part[0], []).append((part, seconds))
    for place in range(count):
        for part, seconds in starting.get(place, ()):
            before = [way for result in ways[place].values() for way in result] if place else [Candidate(0.0, ())]
            for way in before:
                crossed = border(place, way.parts[-1][2], part[2]) if way.parts else 0.0
                _add(ways[part[1]], part[2], Candidate(way.seconds + crossed + seconds, (*way.parts, part)), keep)
    return _different(heapq.merge(*map(sorted, ways[count].values())), keep)


def _add(result: dict[str, list[Candidate]], backend: str, way: Candidate, keep: int) -> None:
    ways = _different(sorted([*result.get(backend, ()), way]), keep)
    result[backend] = ways


def _different(ways: Iterable[Candidate], keep: int) -> list[Candidate]:
    """Return the first `keep` plans that differ in the backend of at least one block from all plans before them."""
    cached: dict[tuple[str, ...], Candidate] = {}
    for way in ways:
        cached.setdefault(way.backends(), way)
        if len(cached) == keep:
            break
    return list(cached.values())


def with_bounds(count: int, parts: Mapping[Part, float]) -> dict[Part, float]:
    """Return the parts, extended by lower bounds of the seconds of parts that were not measured.

    The bound of a part is the time of its slowest measured sub-part. Parts with a block that its backend could not run
    alone get none. `count` is the number of blocks.
    """
    result = dict(parts)
    for backend in {item for _, _, item in parts}:
        for length in range(2, count + 1):
            for first in range(count - length + 1):
                last = first + length
                inner = [result.get((first, last - 1, backend)), result.get((first + 1, last, backend))]
                known = [item for item in inner if item is not None]
                if len(known) == 2:
                    result.setdefault((first, last, backend), max(known))
    return result

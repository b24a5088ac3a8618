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
    count: int, parts: Mapping[Part, float], copies: Callable[[int, str, str], float], keep: int
) -> list[Candidate]:
    """Return the `keep` cheapest plans for `count` blocks, exactly; they differ in the backend of at least one block.

    The cost of a plan is the sum of its measured parts and of the borders between parts on different backends. The
    plans are shortest paths from the first block to the last one, over the measured parts.

    Args:
        count: the number of blocks.
        parts: the seconds of each part that was measured. A part is given by its first block, the block after its last
            one, and its backend.
        copies: called with the number of a block, a source and a target backend; returns the seconds for moving the
            tensors that enter this block from source to target.
        keep: the largest number of plans to return.
    """
    candidates_up_to: list[dict[str, list[Candidate]]] = [{} for _ in range(count + 1)]
    parts_by_start: dict[int, list[tuple[Part, float]]] = {}
    for part, seconds in parts.items():
        parts_by_start.setdefault(part[0], []).append((part, seconds))
    for block in range(count):
        for part, seconds in parts_by_start.get(block, ()):
            prefixes = (
                [candidate for candidates in candidates_up_to[block].values() for candidate in candidates]
                if block
                else [Candidate(0.0, ())]
            )
            for candidate in prefixes:
                copy_seconds = copies(block, candidate.parts[-1][2], part[2]) if candidate.parts else 0.0
                _add(
                    candidates_up_to[part[1]],
                    part[2],
                    Candidate(candidate.seconds + copy_seconds + seconds, (*candidate.parts, part)),
                    keep,
                )
    return _different(heapq.merge(*map(sorted, candidates_up_to[count].values())), keep)


def _add(by_backend: dict[str, list[Candidate]], backend: str, candidate: Candidate, keep: int) -> None:
    candidates = _different(sorted([*by_backend.get(backend, ()), candidate]), keep)
    by_backend[backend] = candidates


def _different(candidates: Iterable[Candidate], keep: int) -> list[Candidate]:
    """Return the first `keep` plans that differ in the backend of at least one block from all plans before them."""
    by_backends: dict[tuple[str, ...], Candidate] = {}
    for candidate in candidates:
        by_backends.setdefault(candidate.backends(), candidate)
        if len(by_backends) == keep:
            break
    return list(by_backends.values())


def with_bounds(count: int, parts: Mapping[Part, float]) -> dict[Part, float]:
    """Return the parts, extended by lower bounds of the seconds of parts that were not measured.

    The bound of a part is the time of its slowest measured sub-part. Parts with a block that its backend could not run
    alone get none. `count` is the number of blocks.
    """
    seconds_of_parts = dict(parts)
    for backend in {part_backend for _, _, part_backend in parts}:
        for length in range(2, count + 1):
            for first_block in range(count - length + 1):
                block_after = first_block + length
                sub_parts = [
                    seconds_of_parts.get((first_block, block_after - 1, backend)),
                    seconds_of_parts.get((first_block + 1, block_after, backend)),
                ]
                known_sub_parts = [known_seconds for known_seconds in sub_parts if known_seconds is not None]
                if len(known_sub_parts) == 2:
                    seconds_of_parts.setdefault((first_block, block_after, backend), max(known_sub_parts))
    return seconds_of_parts

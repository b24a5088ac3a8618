"""Memory planning: offsets of tensors in an arena, such that tensors with overlapping lifetimes do not overlap.

A minimal arena is hard to find (the problem is dynamic storage allocation, which is NP-hard). Several greedy strategies
are tried. If their best result is above the lower bound, variations of its order are tried; the best plan is returned.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, permutations
from typing import Final

from interposer.core.errors import InvalidArgumentError
from interposer.core.records import dataclass

__all__ = ["Lifetime", "MemoryPlan", "lower_bound", "overlapping", "plan", "problems"]

_MOST_PERMUTED: Final = 6
"""Up to this number of tensors, all orders are tried."""
_VARIATIONS: Final = 200
"""Number of variations of the best order that are tried."""
_MOST_VARIED: Final = 400
"""Up to this number of tensors, variations are tried; the time of each grows with the square of the number."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A tensor to be planned: its size in bytes, and the first and the last moment at which it is alive.

    Moments are numbers in execution order, both inclusive: tensors whose lifetimes share a moment must not overlap.
    """

    size: int
    begins: int
    ends: int

    def __post_init__(self) -> None:
        if self.size < 0 or self.begins > self.ends:
            raise InvalidArgumentError(f"a tensor of {self.size} bytes cannot live from {self.begins} to {self.ends}")


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where each tensor is stored in an arena: the result of `plan`.

    `offsets` has the offset of each lifetime in bytes, in order, and `size` the size of the arena. No plan can be
    smaller than `lower_bound`.
    """

    offsets: tuple[int, ...]
    size: int
    lower_bound: int
    strategy: str


def plan(lifetimes: Sequence[Lifetime], alignment: int = 64) -> MemoryPlan:
    """Assign each tensor an offset in one arena, such that tensors that are alive at the same time do not overlap.

    The offsets and the arena's size are multiples of `alignment` bytes. Equal lifetimes give equal plans. The lower
    bound in the result is the largest total size of tensors that are alive at one moment.
    """
    padded_sizes = [-(-lifetime.size // alignment) * alignment for lifetime in lifetimes]
    live_bytes = _live_bytes(lifetimes, padded_sizes)
    bound = max(live_bytes, default=0)
    neighbours = _neighbours(lifetimes, padded_sizes)
    best_plan: MemoryPlan | None = None
    for name, order in _orders(lifetimes, padded_sizes, live_bytes):
        for suffix, fit in (("lowest gap", _lowest_gap), ("smallest gap", _smallest_gap)):
            offsets = _offsets_in_order(order, padded_sizes, neighbours, fit)
            size = max((a + b for a, b in zip(offsets, padded_sizes, strict=True)), default=0)
            if best_plan is None or size < best_plan.size:
                best_plan, best_order = MemoryPlan(tuple(offsets), size, bound, f"{name}, {suffix}"), order
            if size == bound:
                return best_plan
    assert best_plan is not None
    if len(padded_sizes) <= _MOST_PERMUTED:
        return _best_of_all_orders(best_plan, padded_sizes, neighbours)
    return _varied(best_plan, best_order, padded_sizes, neighbours) if len(padded_sizes) <= _MOST_VARIED else best_plan


def lower_bound(lifetimes: Sequence[Lifetime], alignment: int = 64) -> int:
    """Return the bytes that every plan needs at least: the largest total size of tensors alive at one moment."""
    padded_sizes = [-(-lifetime.size // alignment) * alignment for lifetime in lifetimes]
    return max(_live_bytes(lifetimes, padded_sizes), default=0)


def overlapping(lifetimes: Sequence[Lifetime]) -> Iterator[tuple[int, int]]:
    """Yield the indices of each two tensors that are alive at the same time; those of size 0 are left out."""
    for first, overlapping_indices in enumerate(_neighbours(lifetimes, [lifetime.size for lifetime in lifetimes])):
        yield from ((first, second) for second in overlapping_indices if first < second)


def _orders(
    lifetimes: Sequence[Lifetime], padded_sizes: Sequence[int], live_bytes: Sequence[int]
) -> Iterator[tuple[str, list[int]]]:
    first = _first_moment(lifetimes)

    def peak(lifetime: Lifetime) -> int:
        return max(live_bytes[lifetime.begins - first : lifetime.ends - first + 1])

    keys: dict[str, Callable[[int], object]] = {
        "largest first": lambda i: (-padded_sizes[i], lifetimes[i].begins),
        "as they begin": lambda i: (lifetimes[i].begins, -padded_sizes[i]),
        "longest and largest first": lambda i: (-padded_sizes[i] * (lifetimes[i].ends - lifetimes[i].begins + 1), i),
        "longest first": lambda i: (lifetimes[i].begins - lifetimes[i].ends, -padded_sizes[i]),
        "busiest moment first": lambda i: (-peak(lifetimes[i]), -padded_sizes[i], i),
    }
    for name, key in keys.items():
        yield name, sorted(range(len(padded_sizes)), key=key)  # type: ignore[arg-type] # tuples of integers


def _first_moment(lifetimes: Sequence[Lifetime]) -> int:
    return min((lifetime.begins for lifetime in lifetimes), default=0)


def _live_bytes(lifetimes: Sequence[Lifetime], padded_sizes: Sequence[int]) -> list[int]:
    """Return the bytes in use at each moment, from the begin of the first lifetime to the end of the last one.

    `padded_sizes` has the size of each tensor in bytes, rounded up to the alignment.
    """
    first = _first_moment(lifetimes)
    change = [0] * (max((lifetime.ends for lifetime in lifetimes), default=-1) - first + 2)
    for lifetime, padded_size in zip(lifetimes, padded_sizes, strict=True):
        change[lifetime.begins - first] += padded_size
        change[lifetime.ends - first + 1] -= padded_size
    return list(accumulate(change))


def _neighbours(lifetimes: Sequence[Lifetime], padded_sizes: Sequence[int]) -> list[list[int]]:
    """Return for each tensor the indices of the tensors with overlapping lifetimes, which must not share memory.

    `padded_sizes` has the size of each tensor in bytes, rounded up to the alignment. Tensors of size 0 have no
    neighbours.
    """
    neighbours: list[list[int]] = [[] for _ in lifetimes]
    live: list[int] = []
    for i in sorted(range(len(lifetimes)), key=lambda i: lifetimes[i].begins):
        if not padded_sizes[i]:
            continue
        live = [j for j in live if lifetimes[j].ends >= lifetimes[i].begins]
        for j in live:
            neighbours[i].append(j)
            neighbours[j].append(i)
        live.append(i)
    return neighbours


Fit = Callable[[Iterable[tuple[int, int]], int], int]


def _offsets_in_order(
    order: Sequence[int], padded_sizes: Sequence[int], neighbours: Sequence[Sequence[int]], fit: Fit
) -> list[int]:
    offsets: list[int | None] = [None] * len(padded_sizes)
    for i in order:
        ranges_in_use = []
        for j in neighbours[i]:
            offset = offsets[j]
            if offset is not None:
                ranges_in_use.append((offset, offset + padded_sizes[j]))
        ranges_in_use.sort()
        offsets[i] = fit(ranges_in_use, padded_sizes[i])
    return [offset or 0 for offset in offsets]


def _lowest_gap(ranges_in_use: Iterable[tuple[int, int]], size: int) -> int:
    """Return the start of the lowest free gap of at least `size` bytes, or the end of all ranges if there is none.

    `ranges_in_use` has the start and the end of the ranges in use, sorted by start.
    """
    offset = 0
    for start, stop in ranges_in_use:
        if start - offset >= size:
            break
        offset = max(offset, stop)
    return offset


def _smallest_gap(ranges_in_use: Iterable[tuple[int, int]], size: int) -> int:
    """Return the start of the smallest free gap of at least `size` bytes, or the end of all ranges if there is none.

    `ranges_in_use` has the start and the end of the ranges in use, sorted by start.
    """
    offset, best_offset, waste = 0, -1, 0
    for start, stop in ranges_in_use:
        gap = start - offset - size
        if gap >= 0 and (best_offset < 0 or gap < waste):
            best_offset, waste = offset, gap
        offset = max(offset, stop)
    return offset if best_offset < 0 else best_offset


def _best_of_all_orders(
    best: MemoryPlan, padded_sizes: Sequence[int], neighbours: Sequence[Sequence[int]]
) -> MemoryPlan:
    """Return the best plan over all orders of the tensors, where each tensor is placed into the lowest free gap.

    This finds an arena of minimal size: placing the tensors of an optimal plan again, in the order of their offsets,
    moves none of them upwards. `best` is the plan to improve, `padded_sizes` has the size of each tensor in bytes, and
    `neighbours` the indices of the tensors that must not overlap it. The search ends once the lower bound is reached.
    """
    for order in permutations(range(len(padded_sizes))):
        offsets = _offsets_in_order(order, padded_sizes, neighbours, _lowest_gap)
        size = max(a + b for a, b in zip(offsets, padded_sizes, strict=True))
        if size < best.size:
            best = MemoryPlan(tuple(offsets), size, best.lower_bound, "all orders, lowest gap")
        if best.size == best.lower_bound:
            break
    return best


def _varied(
    best_plan: MemoryPlan, order: list[int], padded_sizes: Sequence[int], neighbours: Sequence[Sequence[int]]
) -> MemoryPlan:
    """Improve a plan by random changes of the order in which the tensors are placed into the lowest free gaps.

    Each change moves one of the tensors that end highest to an earlier place in `order`, and is undone if the arena
    grows. `padded_sizes` has the size of each tensor in bytes, and `neighbours` the indices of the tensors that must
    not overlap it.
    """
    draw = random.Random(len(padded_sizes))
    for _ in range(_VARIATIONS):
        if best_plan.size == best_plan.lower_bound:
            break
        highest = [i for i in order if best_plan.offsets[i] + padded_sizes[i] == best_plan.size]
        moved_tensor = draw.choice(highest)
        position = order.index(moved_tensor)
        new_order = order.copy()
        new_order.insert(draw.randint(0, max(0, position - 1)), new_order.pop(position))
        offsets = _offsets_in_order(new_order, padded_sizes, neighbours, _lowest_gap)
        size = max(a + b for a, b in zip(offsets, padded_sizes, strict=True))
        if size <= best_plan.size:
            best_plan, order = (
                MemoryPlan(tuple(offsets), size, best_plan.lower_bound, f"{best_plan.strategy.split(';')[0]}; varied"),
                new_order,
            )
    return best_plan


def problems(lifetimes: Sequence[Lifetime], memory_plan: MemoryPlan) -> Iterator[str]:
    """Check a memory plan, and yield an error message for each error in it.

    Errors are two tensors that are alive at the same time and overlap, and tensors outside of the arena.
    """
    ends = [offset + lifetime.size for offset, lifetime in zip(memory_plan.offsets, lifetimes, strict=True)]
    for i, lifetime in enumerate(lifetimes):
        if memory_plan.offsets[i] < 0 or ends[i] > memory_plan.size:
            place = f"tensor {i} is at {memory_plan.offsets[i]} to {ends[i]}"
            yield f"{place}, outside of the arena of {memory_plan.size} bytes"
        for j in range(i):
            other_lifetime = lifetimes[j]
            overlap_in_time = lifetime.begins <= other_lifetime.ends and other_lifetime.begins <= lifetime.ends
            if overlap_in_time and memory_plan.offsets[i] < ends[j] and memory_plan.offsets[j] < ends[i]:
                yield f"tensors {j} and {i} live at the same time and overlap"

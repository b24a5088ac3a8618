"""The way of one tensor from the memory that it is computed in to all those that it is read from, with least copying.

Tensors do not depend on each other, so the least for each of them is the least for the whole network.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from interposer.backend import MemorySource, TensorHandleFactory

__all__ = ["COPY", "DEVICE_COPY", "IMPORT", "Hop", "Kind", "Route", "Side", "find_route"]

COPY, DEVICE_COPY, IMPORT = "copy", "device copy", "import"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of memory: what its factory says of itself."""

    id: str
    maps: bool = True
    copies_itself: bool = False
    imports: MemorySource = MemorySource.UNDEFINED
    exports: MemorySource = MemorySource.UNDEFINED

    @classmethod
    def of(cls, factory: TensorHandleFactory) -> Kind:
        """Return the kind of memory of a tensor handle factory."""
        return cls(
            factory.id,
            bool(factory.supports_map),
            bool(factory.supports_device_copy),
            MemorySource(factory.import_sources),
            MemorySource(factory.export_sources),
        )

    def way_to(self, other: Kind, padded: bool = False) -> str | None:
        """Return how a tensor gets from here to the other kind; None if it cannot in one step."""
        if self.exports & other.imports and not padded:
            return IMPORT
        if (self.copies_itself and other.maps) or (other.copies_itself and self.maps):
            return DEVICE_COPY
        return COPY if self.maps and other.maps else None

    def __str__(self) -> str:
        able = ["can be mapped" if self.maps else "cannot be mapped"]
        able += ["copies by itself"] if self.copies_itself else []
        able += [f"imports {_named(self.imports)}"] if self.imports else []
        able += [f"exports {_named(self.exports)}"] if self.exports else []
        return f"{self.id} ({', '.join(able)})"


def _named(sources: MemorySource) -> str:
    return ", ".join(item.name or "" for item in MemorySource if item and item in sources)


@dataclass(frozen=True)
class Side:
    """One who gives or takes a tensor: the kinds of memory that it works on, each with its rank, 0 the best.

    `costs` says how often the tensor is copied beyond that, for some of these, as between a device and the caller, and
    `guest_cost` the same for what is only imported into a kind of memory, and cannot lie elsewhere.
    """

    name: str
    ranks: Mapping[str, int]
    costs: Mapping[str, int] = field(default_factory=dict)
    guest_cost: int = 0

    @cached_property
    def key(self) -> tuple[object, ...]:
        """Equal for sides that are alike."""
        return self.name, tuple(self.ranks.items()), tuple(self.costs.items()), self.guest_cost

    def best(self, kinds: Mapping[str, bool]) -> tuple[int, int, str] | None:
        """Return copies, rank and id of the kind that it would take, of those that there are; None if it can take none.

        `kinds` says of each whether the tensor is only imported there.
        """
        able = [kind for kind in kinds if kind in self.ranks]
        return min(((self._cost(kind, kinds[kind]), self.ranks[kind], kind) for kind in able), default=None)

    def _cost(self, kind: str, imported: bool) -> int:
        return max(self.costs.get(kind, 0), self.guest_cost if imported else 0)


class Hop(NamedTuple):
    """One step of a tensor from one kind of memory to another."""

    source: str
    target: str
    how: str


@dataclass(frozen=True, slots=True)
class Route:
    """Where a tensor is computed, the steps that it makes, in order, and which kind each taker reads."""

    home: str
    hops: tuple[Hop, ...]
    reads: tuple[str, ...]
    copies: int
    """How often the whole tensor is copied."""
    ranks: int
    """The sum of the ranks of all sides' kinds."""


def find_route(
    kinds: Mapping[str, Kind], giver: Side, takers: Sequence[Side], padded: frozenset[str] = frozenset()
) -> Route | None:
    """Return the best way: fewest copies first, then the best ranks, then the fewest steps; None if there is none.

    Args:
        padded: kinds that can neither import nor export this tensor.
    """
    routes = (_route(giver, takers, *state) for state in _states(kinds, giver, padded))
    result = [route for route in routes if route is not None]
    return min(result, key=lambda item: (item.copies, item.ranks, len(item.hops), item.home, item.reads), default=None)


_State = tuple[int, int, tuple[str, ...], tuple[Hop, ...]]


def _states(
    kinds: Mapping[str, Kind], giver: Side, padded: frozenset[str]
) -> Iterator[tuple[int, str, tuple[Hop, ...]]]:
    """All sets of kinds that the tensor can be in, copied or imported, each with the fewest copies that lead there."""
    queue: list[_State] = [(giver.costs.get(home, 0), 0, (home,), ()) for home in giver.ranks if home in kinds]
    heapq.heapify(queue)
    seen = set()
    while queue:
        copies, steps, reached, hops = heapq.heappop(queue)
        state = reached[0], frozenset((hop.target, hop.how == IMPORT) for hop in hops)
        if state in seen:
            continue
        seen.add(state)
        yield copies, reached[0], hops
        for target in kinds.keys() - set(reached):
            for hop in _cheapest(kinds, reached, target, padded):
                cost = copies + (hop.how != IMPORT)
                heapq.heappush(queue, (cost, steps + 1, (*reached, target), (*hops, hop)))


def _cheapest(kinds: Mapping[str, Kind], reached: Sequence[str], target: str, padded: frozenset[str]) -> list[Hop]:
    """Return an import and a copy, each where there is one: what is imported may have to be copied further on."""
    ways = [(item, kinds[item].way_to(kinds[target], item in padded or target in padded)) for item in reached]
    hops = [Hop(item, target, how) for item, how in ways if how is not None]
    hops.sort(key=lambda hop: (IMPORT, DEVICE_COPY, COPY).index(hop.how))
    return list({hop.how == IMPORT: hop for hop in reversed(hops)}.values())


def _route(giver: Side, takers: Sequence[Side], copies: int, home: str, hops: tuple[Hop, ...]) -> Route | None:
    reached = {home: False} | {hop.target: hop.how == IMPORT for hop in hops}
    best = [taker.best(reached) for taker in takers]
    taken = [item for item in best if item is not None]
    if len(taken) < len(best):
        return None
    total = copies + sum(cost for cost, _, _ in taken)
    ranks = giver.ranks[home] + sum(rank for _, rank, _ in taken)
    return Route(home, hops, tuple(kind for _, _, kind in taken), total, ranks)

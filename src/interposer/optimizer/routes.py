"""The cheapest path of one tensor from the memory where it is computed to all memories from which it is read.

Tensors are independent of each other, so minimal copies for each of them are minimal for the whole network.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import NamedTuple

from interposer.backend import MemorySource, TensorHandleFactory
from interposer.core.records import dataclass

__all__ = ["COPY", "DEVICE_COPY", "IMPORT", "Hop", "Kind", "Route", "Side", "find_route"]

COPY, DEVICE_COPY, IMPORT = "copy", "device copy", "import"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of memory, and how a tensor can get into it and out of it, as its tensor handle factory declares.

    `maps` is True if the host can map it, and `copies_itself` if its device copies from and to mapped memory. `imports`
    and `exports` are the memory sources that it can use in place, and offers to others. Devices copy between kinds with
    the same `peers`, unless it is empty.
    """

    id: str
    maps: bool = True
    copies_itself: bool = False
    imports: MemorySource = MemorySource.UNDEFINED
    exports: MemorySource = MemorySource.UNDEFINED
    peers: str = ""

    @classmethod
    def of(cls, factory: TensorHandleFactory) -> Kind:
        """Return the kind of memory in which a factory creates tensor handles, with the properties it declares."""
        return cls(
            factory.id,
            bool(factory.supports_map),
            bool(factory.supports_device_copy),
            MemorySource(factory.import_sources),
            MemorySource(factory.export_sources),
            str(factory.peers),
        )

    def way_to(self, other: Kind, padded: bool = False) -> str | None:
        """Return how a tensor gets from this kind of memory to the other one in one step, or None if it cannot.

        The result is `IMPORT`, `DEVICE_COPY` or `COPY`. A `padded` tensor can be copied, but not imported.
        """
        if self.exports & other.imports and not padded:
            return IMPORT
        if self.peers and self.peers == other.peers:
            return DEVICE_COPY
        if (self.copies_itself and other.maps) or (other.copies_itself and self.maps):
            return DEVICE_COPY
        return COPY if self.maps and other.maps else None

    def __str__(self) -> str:
        abilities = ["can be mapped" if self.maps else "cannot be mapped"]
        abilities += ["copies by itself"] if self.copies_itself else []
        abilities += [f"imports {_named(self.imports)}"] if self.imports else []
        abilities += [f"exports {_named(self.exports)}"] if self.exports else []
        return f"{self.id} ({', '.join(abilities)})"


def _named(sources: MemorySource) -> str:
    return ", ".join(source.name or "" for source in MemorySource if source and source in sources)


@dataclass(frozen=True)
class Side:
    """The writer or a reader of a tensor: the kinds of memory that it works on, each with its rank, 0 the best.

    `costs` has the number of additional copies for some kinds, such as between a device and the caller. `guest_cost` is
    that number for a tensor that is only imported into a kind of memory.
    """

    name: str
    ranks: Mapping[str, int]
    costs: Mapping[str, int] = field(default_factory=dict)
    guest_cost: int = 0

    @cached_property
    def key(self) -> tuple[object, ...]:
        """A key that is equal for sides with equal properties."""
        return self.name, tuple(self.ranks.items()), tuple(self.costs.items()), self.guest_cost

    def best(self, kinds: Mapping[str, bool]) -> tuple[int, int, str] | None:
        """Return the best of these kinds for this side: its number of additional copies, its rank and its id.

        The keys of `kinds` are ids; the values are True if the tensor is only imported there. None if this side works
        on none of them.
        """
        usable_kinds = [kind for kind in kinds if kind in self.ranks]
        return min(((self._cost(kind, kinds[kind]), self.ranks[kind], kind) for kind in usable_kinds), default=None)

    def _cost(self, kind: str, is_imported: bool) -> int:
        return max(self.costs.get(kind, 0), self.guest_cost if is_imported else 0)


class Hop(NamedTuple):
    """One step of a tensor on its route: from memory of the kind `source` to the kind `target`, by import or copy."""

    source: str
    target: str
    how: str


@dataclass(frozen=True, slots=True)
class Route:
    """How a tensor gets from its writer to all of its readers.

    `home` is the kind of memory in which it is computed, `hops` are the copies and imports in order, and `reads` has
    the kind that each reader uses.
    """

    home: str
    hops: tuple[Hop, ...]
    reads: tuple[str, ...]
    copies: int
    """The number of copies of the whole tensor."""
    ranks: int
    """The sum of the ranks of all sides' kinds."""


def find_route(
    kinds: Mapping[str, Kind], writer: Side, readers: Sequence[Side], padded: frozenset[str] = frozenset()
) -> Route | None:
    """Return the best route of a tensor, or None if there is none.

    Fewest copies come first, then the best ranks, then the fewest steps.

    Args:
        kinds: all kinds of memory by id.
        writer: the writer of the tensor.
        readers: the readers of the tensor.
        padded: kinds that can neither import nor export this tensor.
    """
    routes = (_route(writer, readers, *state) for state in _states(kinds, writer, padded))
    possible_routes = [route for route in routes if route is not None]
    return min(
        possible_routes,
        key=lambda candidate: (candidate.copies, candidate.ranks, len(candidate.hops), candidate.home, candidate.reads),
        default=None,
    )


_State = tuple[int, int, tuple[str, ...], tuple[Hop, ...]]


def _states(
    kinds: Mapping[str, Kind], writer: Side, padded: frozenset[str]
) -> Iterator[tuple[int, str, tuple[Hop, ...]]]:
    """Yield every combination of kinds of memory that can hold the tensor, reached with the fewest copies, best first.

    Each is the number of copies, the kind in which the writer computes the tensor, and the copies and imports from
    there.
    """
    queue: list[_State] = [(writer.costs.get(home, 0), 0, (home,), ()) for home in writer.ranks if home in kinds]
    heapq.heapify(queue)
    seen_states = set()
    while queue:
        copies, num_steps, reached_kinds, hops = heapq.heappop(queue)
        state = reached_kinds[0], frozenset((hop.target, hop.how == IMPORT) for hop in hops)
        if state in seen_states:
            continue
        seen_states.add(state)
        yield copies, reached_kinds[0], hops
        for target in kinds.keys() - set(reached_kinds):
            for hop in _cheapest(kinds, reached_kinds, target, padded):
                cost = copies + (hop.how != IMPORT)
                heapq.heappush(queue, (cost, num_steps + 1, (*reached_kinds, target), (*hops, hop)))


def _cheapest(
    kinds: Mapping[str, Kind], reached_kinds: Sequence[str], target: str, padded: frozenset[str]
) -> list[Hop]:
    """Return the cheapest ways of bringing a tensor into the kind of memory `target`: one by import, one by copy.

    `reached_kinds` has the kinds that the tensor is in already, and `padded` those that can neither import nor export
    it. Both ways matter, as an imported tensor may need a copy later that a copied one does not need.
    """
    ways = [
        (source, kinds[source].way_to(kinds[target], source in padded or target in padded)) for source in reached_kinds
    ]
    hops = [Hop(source, target, how) for source, how in ways if how is not None]
    hops.sort(key=lambda hop: (IMPORT, DEVICE_COPY, COPY).index(hop.how))
    return list({hop.how == IMPORT: hop for hop in reversed(hops)}.values())


def _route(writer: Side, readers: Sequence[Side], copies: int, home: str, hops: tuple[Hop, ...]) -> Route | None:
    reached_kinds = {home: False} | {hop.target: hop.how == IMPORT for hop in hops}
    best_choices = [reader.best(reached_kinds) for reader in readers]
    choices = [choice for choice in best_choices if choice is not None]
    if len(choices) < len(best_choices):
        return None
    total = copies + sum(cost for cost, _, _ in choices)
    ranks = writer.ranks[home] + sum(rank for _, rank, _ in choices)
    return Route(home, hops, tuple(kind for _, _, kind in choices), total, ranks)

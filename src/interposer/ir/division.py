"""The division of a graph into connected parts of one kind each, whose quotient graph is acyclic.

A first division takes one pass. Every layer gets a level: the largest level of its producers, plus one where the
kind changes. Connected layers of one kind and one level form a part. Every edge between two parts leads to a higher
level, so there is no cycle. Adjacent parts of one kind that have different levels are then merged one by one, unless a
path through a third part connects them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from interposer.ir.graph import Graph, Layer
from interposer.ops.control import Constant

__all__ = ["divided"]

Kind = Callable[[Layer], Hashable | None]


def divided(graph: Graph, kind: Kind) -> list[list[Layer]]:
    """Divide the layers of a graph into connected parts of one kind each, such as all layers of one backend.

    Returns the layers of each part in topological order; the parts are in the order of their first layers. `kind`
    returns the kind of a layer; layers for which it returns None, and constants, are in no part. No two adjacent parts
    of one kind could be merged without a cycle between parts.
    """
    layers = [layer for layer in graph.topological() if not isinstance(layer.op, Constant)]
    kinds = [kind(layer) for layer in layers]
    if all([layer_kind is None for layer_kind in kinds]):
        return []
    quotient = _Quotient(layers, kinds)
    quotient.merge_adjacent()
    parts: dict[int, list[Layer]] = {}
    for index, layer in enumerate(layers):
        if kinds[index] is not None:
            parts.setdefault(quotient.part(index), []).append(layer)
    return list(parts.values())


class _Quotient:
    """The graph of parts into which `divided` divides a graph: parts are merged here while no cycle results.

    A part has the number of one of its layers. Every part has a level, which is higher than the levels of all parts
    that it reads, so that a search for cycles can end early.
    """

    def __init__(self, layers: list[Layer], kinds: list[Hashable | None]) -> None:
        self._kinds = kinds
        self._parents = list(range(len(layers)))
        index_of_guid = {layer.guid: index for index, layer in enumerate(layers)}
        producers = [
            {index_of_guid[value.producer.guid] for value in layer.values if value.producer.guid in index_of_guid}
            for layer in layers
        ]
        self._levels: list[int] = []
        for index, sources in enumerate(producers):
            self._levels.append(
                max((self._levels[source] + self._step(source, index) for source in sources), default=0)
            )
        for index, sources in enumerate(producers):
            for source in sources:
                if self._levels[source] == self._levels[index]:
                    self._parents[self.part(source)] = self.part(index)
        self._producers: dict[int, set[int]] = {self.part(index): set() for index in range(len(layers))}
        self._consumers: dict[int, set[int]] = {part: set() for part in self._producers}
        for index, sources in enumerate(producers):
            self._connect(self.part(index), map(self.part, sources))

    def _step(self, producer: int, consumer: int) -> int:
        """Return how much higher the level of the layer `consumer` is: 0 if both layers may be in one part, else 1."""
        return int(self._kinds[producer] is None or self._kinds[producer] != self._kinds[consumer])

    def _connect(self, part: int, producers: Iterable[int]) -> None:
        for producer in producers:
            if producer != part:
                self._producers[part].add(producer)
                self._consumers[producer].add(part)

    def part(self, index: int) -> int:
        """Return the number of the part that has the layer with this index, after all merges so far."""
        parents = self._parents
        while parents[index] != index:
            parents[index] = index = parents[parents[index]]
        return index

    def merge_adjacent(self) -> None:
        """Merge adjacent parts of one kind, until no two of them can be merged without a cycle."""
        waiting_parts = [part for part in reversed(self._producers) if self._kinds[part] is not None]
        while waiting_parts:
            part = waiting_parts.pop()
            if part in self._producers and self._merge_into_a_producer(part):
                merged_part = self.part(part)
                waiting_parts += [
                    merged_part,
                    *(consumer for consumer in self._consumers[merged_part] if self._step(merged_part, consumer) == 0),
                ]

    def _merge_into_a_producer(self, part: int) -> bool:
        for producer in sorted(self._producers[part]):
            if self._step(producer, part) == 0 and not self._has_detour(producer, part):
                self._merge(producer, part)
                return True
        return False

    def _has_detour(self, producer: int, consumer: int) -> bool:
        """Return True if a path leads from part `producer` to its consumer `consumer` through a third part."""
        lowest_level, visited_parts = self._levels[producer], {producer, consumer}
        pending_parts = [part for part in self._producers[consumer] if part != producer]
        while pending_parts:
            part = pending_parts.pop()
            if part in visited_parts or self._levels[part] <= lowest_level:
                continue
            if producer in self._producers[part]:
                return True
            visited_parts.add(part)
            pending_parts += self._producers[part]
        return False

    def _merge(self, part_a: int, part_b: int) -> None:
        """Merge two parts, given by number, into one; the part with more connections keeps its number.

        The levels of the parts after it are raised where necessary.
        """
        level = max(self._levels[part_a], self._levels[part_b])
        connections = {part: len(self._producers[part]) + len(self._consumers[part]) for part in (part_a, part_b)}
        absorbed_part, surviving_part = sorted((part_a, part_b), key=lambda part: (connections[part], -part))
        self._parents[absorbed_part] = surviving_part
        producers, consumers = self._producers.pop(absorbed_part), self._consumers.pop(absorbed_part)
        for neighbor in producers:
            self._consumers[neighbor].remove(absorbed_part)
        for neighbor in consumers:
            self._producers[neighbor].remove(absorbed_part)
        self._connect(surviving_part, producers - {surviving_part})
        for neighbor in consumers - {surviving_part}:
            self._connect(neighbor, [surviving_part])
        self._levels[surviving_part] = level
        self._raise_levels(surviving_part)

    def _raise_levels(self, part: int) -> None:
        """Raise the levels of all parts after `part` that are not above those of their producers any more."""
        pending_parts = [part]
        while pending_parts:
            part = pending_parts.pop()
            for consumer in self._consumers[part]:
                if self._levels[consumer] <= self._levels[part]:
                    self._levels[consumer] = self._levels[part] + 1
                    pending_parts.append(consumer)

"""Which layers of a backend must be in separate parts, so that an asynchronous backend and others compute concurrently.

A part begins when all its inputs have been computed, and its outputs can be read when the whole part is over. If the
sum of two branches on two devices is in the part of the first branch, this part waits for the second branch from its
first layer on. The branches then run one after the other. They run concurrently if the sum is a part of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from interposer.backend import Backend
from interposer.core.records import dataclass
from interposer.ir.graph import Graph, Layer
from interposer.ir.subgraph import SubgraphView, is_placed_by_a_backend, select
from interposer.report.estimate import operations

__all__ = ["Neighbors", "neighbors_of_layers"]

_LARGE: Final = 0.1
"""The share of the operations of a network that a part must have, so that computing concurrently with it saves time."""

Parts = frozenset[int]


class Neighbors(NamedTuple):
    """The large parts of other backends that a layer depends on, and those that depend on the layer, by number.

    Layers of one backend with equal neighbors can be in one part: none of them would begin earlier without the others,
    and no other backend would.
    """

    before: Parts
    after: Parts


def neighbors_of_layers(graph: Graph, backends: Iterable[Backend]) -> dict[int, Neighbors]:
    """Return the neighbors of each layer by its guid; the result is empty if nothing could compute concurrently.

    A part counts as a neighbor if its backend or that of the layer is asynchronous.
    """
    asynchronous = {backend.id for backend in backends if backend.asynchronous}
    if not asynchronous:
        return {}
    parts = _large_parts(graph)
    owners = {number: str(part.layers[0].backend) for number, part in enumerate(parts)}
    if len(set(owners.values())) < 2 or not asynchronous & set(owners.values()):
        return {}
    return _Neighborhood(owners, asynchronous).of(graph, parts)


def _large_parts(graph: Graph) -> list[SubgraphView]:
    """Return the parts of all backends that have a considerable share of the operations of the graph."""
    parts = select(graph, lambda layer: layer.backend if is_placed_by_a_backend(layer) else None)
    counts = [sum(map(operations, part)) for part in parts]
    return [part for part, count in zip(parts, counts, strict=True) if count > _LARGE * sum(counts)]


@dataclass(frozen=True)
class _Neighborhood:
    """Finds neighbors; `owners` has the backends of the large parts, of which some are `asynchronous`."""

    owners: dict[int, str]
    asynchronous: Collection[str]

    def of(self, graph: Graph, parts: Iterable[SubgraphView]) -> dict[int, Neighbors]:
        own = {layer.guid: frozenset({number}) for number, part in enumerate(parts) for layer in part}
        layers = list(graph.topological())
        before = _reached(layers, own, _producers)
        after = _reached(layers[::-1], own, _users)
        return {
            layer.guid: Neighbors(*(self._others(layer, numbers[layer.guid]) for numbers in (before, after)))
            for layer in layers
        }

    def _others(self, layer: Layer, numbers: Parts) -> Parts:
        backend = str(layer.backend)
        owners = {number: self.owners[number] for number in numbers if self.owners[number] != backend}
        return frozenset(n for n, owner in owners.items() if {owner, backend} & set(self.asynchronous))


def _reached(
    layers: Iterable[Layer], own: dict[int, Parts], neighbors: Callable[[Layer], Iterable[Layer]]
) -> dict[int, Parts]:
    """Return the parts from which each layer is reached by its `neighbors`, which are earlier in `layers`."""
    reached: dict[int, Parts] = {}
    for layer in layers:
        sets = [reached[other.guid] | own.get(other.guid, frozenset()) for other in neighbors(layer)]
        reached[layer.guid] = frozenset().union(*sets)
    return reached


def _producers(layer: Layer) -> list[Layer]:
    return [value.producer for value in layer.values]


def _users(layer: Layer) -> list[Layer]:
    return [use.layer for value in layer.outputs for use in value.uses]

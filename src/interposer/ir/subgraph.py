"""Views of parts of a graph, and the division of a graph into parts.

The parts that `select` returns have three properties. Each part is connected. The quotient graph of all parts is
acyclic, where layers outside of all parts count as separate parts. No two adjacent parts of the same kind could be
merged without a cycle. The number of parts is not always minimal, since that is a hard problem.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final

from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op
from interposer.ir.division import divided
from interposer.ir.graph import Graph, Layer, Value
from interposer.ops.control import Constant, Debug, Input, MemCopy, MemImport, Output
from interposer.ops.control_flow import ControlFlow

__all__ = ["SubgraphView", "is_placed_by_a_backend", "quotient_is_acyclic", "select"]

_OF_THE_RUNTIME: Final = (Input, Output, Constant, MemCopy, MemImport, Debug, ControlFlow)


def is_placed_by_a_backend(layer: Layer) -> bool:
    """Return True unless the layer is an input, an output, a constant, or executed by the runtime itself."""
    return not isinstance(layer.op, _OF_THE_RUNTIME)


class SubgraphView:
    """A subset of a graph's layers, in topological order, with the values at its border. The graph is not changed.

    `operands` are all values from outside that the view reads, in order of first use: `inputs` are those that are not
    constant, and `constants` the others. `outputs` are the values that layers outside read. Constant layers are never
    in a view.
    """

    def __init__(self, graph: Graph, layers: Iterable[Layer], order: Iterable[Layer] | None = None) -> None:
        """Create a view of those of `layers` that are not constants.

        `order` is a topological order of at least these layers; without it, the whole graph is sorted.
        """
        requested = {layer.guid for layer in layers if not isinstance(layer.op, Constant)}
        self.graph = graph
        self.layers = tuple([layer for layer in order or graph.topological() if layer.guid in requested])
        self._guids = requested
        read = [value for layer in self.layers for value in layer._inputs if value is not None]
        entering = [value for value in read if value.producer.guid not in requested]
        self.operands: tuple[Value, ...] = tuple(dict.fromkeys(entering))
        self.inputs = tuple([value for value in self.operands if not value.is_constant])
        self.constants = tuple([value for value in self.operands if value.is_constant])
        self.outputs = tuple([value for layer in self.layers for value in layer.outputs if self._leaves(value)])

    def _leaves(self, value: Value) -> bool:
        return any([use.layer.guid not in self._guids for use in value.uses._uses])

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __contains__(self, layer: object) -> bool:
        return isinstance(layer, Layer) and layer.guid in self._guids

    def part(self, layers: Iterable[Layer]) -> SubgraphView:
        """Return a view of some of these layers.

        Raises:
            InvalidArgumentError: a layer is not in this view.
        """
        requested = tuple(layers)
        for layer in requested:
            if layer not in self:
                raise InvalidArgumentError(f"layer {layer} is not in the view")
        return SubgraphView(self.graph, requested, self.layers)

    def chains(self, *ops: type[Op]) -> list[SubgraphView]:
        """Return the disjoint chains of layers with these operators, each the only user of the layer before it."""
        taken: set[int] = set()
        result = []
        for layer in self.layers:
            run = self._run_from(layer, ops)
            if run and not taken & {item.guid for item in run}:
                taken |= {item.guid for item in run}
                result.append(self.part(run))
        return result

    def _run_from(self, layer: Layer, ops: Sequence[type[Op]]) -> list[Layer]:
        run: list[Layer] = []
        following: Layer | None = layer
        for op in ops:
            if following is None or following not in self or not isinstance(following.op, op):
                return []
            run.append(following)
            following = _only_user(following)
        return run

    def is_convex(self) -> bool:
        """Return True if no path of the graph leaves the view and reenters it."""
        return quotient_is_acyclic(self.graph, [self.layers])

    def __repr__(self) -> str:
        return f"<SubgraphView of {len(self)} layers: {', '.join(layer.name for layer in self.layers[:4])}...>"


def _only_user(layer: Layer) -> Layer | None:
    users = [use for value in layer.outputs for use in value.uses]
    return users[0].layer if len(layer.outputs) == 1 and len(users) == 1 else None


def select(graph: Graph, kind: Callable[[Layer], Hashable | None]) -> list[SubgraphView]:
    """Divide a graph into connected parts of one kind each, such as all layers of one backend, and return their views.

    `kind` returns the kind of a layer, or None for a layer that is in no part. Constant layers are left out. The parts
    are in the order of their first layers. No dependency between parts forms a cycle, and no two adjacent parts of one
    kind could be merged without one.
    """
    return [SubgraphView(graph, layers, layers) for layers in divided(graph, kind)]


def quotient_is_acyclic(layers: Iterable[Layer], parts: Sequence[Iterable[Layer]]) -> bool:
    """Return True if no dependency between parts forms a cycle: no part both feeds and reads another part.

    The path between them may lead through other parts and layers. `layers` are a whole graph, or a convex part of it,
    which contains every cycle through its layers. Layers that are in none of `parts` count as separate parts.

    Raises:
        InvalidArgumentError: a layer is in two parts.
    """
    part_of: dict[int, int] = {}
    for index, part in enumerate(parts):
        for layer in part:
            if part_of.setdefault(layer.guid, -1 - index) != -1 - index:
                raise InvalidArgumentError(f"layer {layer} is in two parts")
    edges: dict[int, set[int]] = {}
    for layer in layers:
        here = part_of.get(layer.guid, layer.guid)
        before = edges.setdefault(here, set())
        before |= {part_of.get(value.producer.guid, value.producer.guid) for value in layer.values} - {here}
    return _is_acyclic({part: before & edges.keys() for part, before in edges.items()})


def _is_acyclic(before: dict[int, set[int]]) -> bool:
    after: dict[int, list[int]] = {node: [] for node in before}
    for node, needed in before.items():
        for other in needed:
            after[other].append(node)
    waiting = {node: len(needed) for node, needed in before.items()}
    ready = [node for node, count in waiting.items() if count == 0]
    done = 0
    while ready:
        done += 1
        for node in after[ready.pop()]:
            waiting[node] -= 1
            if waiting[node] == 0:
                ready.append(node)
    return done == len(before)

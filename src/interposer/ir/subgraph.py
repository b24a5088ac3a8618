"""Views of parts of a graph, and the division of a graph into parts.

The parts that `select` returns have three properties. Each part is connected. The quotient graph of all parts is
acyclic, where layers outside of all parts count as separate parts. No two adjacent parts of the same kind could be
merged without a cycle. The number of parts is not always minimal, since that is a hard problem.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op
from interposer.ir.division import divided
from interposer.ir.graph import Graph, Layer, Value
from interposer.ops.control import Constant, PreCompiled, StandIn

__all__ = ["SubgraphView", "is_placed_by_a_backend", "quotient_is_acyclic", "select"]


def is_placed_by_a_backend(layer: Layer) -> bool:
    """Return True unless the layer is an input, an output, a constant, or executed by the runtime itself."""
    return layer.op.executable or isinstance(layer.op, PreCompiled | StandIn)


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
        guids = {layer.guid for layer in layers if not isinstance(layer.op, Constant)}
        self.graph = graph
        self.layers = tuple([layer for layer in order or graph.topological() if layer.guid in guids])
        self._guids = guids
        values_read = [value for layer in self.layers for value in layer._inputs if value is not None]
        external_values = [value for value in values_read if value.producer.guid not in guids]
        self.operands: tuple[Value, ...] = tuple(dict.fromkeys(external_values))
        self.inputs = tuple([value for value in self.operands if not value.is_constant])
        self.constants = tuple([value for value in self.operands if value.is_constant])
        self.outputs = tuple([value for layer in self.layers for value in layer.outputs if self._leaves(value)])

    def _leaves(self, value: Value) -> bool:
        return any([user.guid not in self._guids for user, _ in value.uses._uses])

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
        part_layers = tuple(layers)
        for layer in part_layers:
            if layer not in self:
                raise InvalidArgumentError(f"layer {layer} is not in the view")
        return SubgraphView(self.graph, part_layers, self.layers)

    def chains(self, *ops: type[Op]) -> list[SubgraphView]:
        """Return the disjoint chains of layers with these operators, each the only user of the layer before it."""
        used_guids: set[int] = set()
        views = []
        for layer in self.layers:
            chain = self._chain_from(layer, ops)
            if chain and not used_guids & {chain_layer.guid for chain_layer in chain}:
                used_guids |= {chain_layer.guid for chain_layer in chain}
                views.append(self.part(chain))
        return views

    def _chain_from(self, layer: Layer, ops: Sequence[type[Op]]) -> list[Layer]:
        chain: list[Layer] = []
        next_layer: Layer | None = layer
        for op in ops:
            if next_layer is None or next_layer not in self or not isinstance(next_layer.op, op):
                return []
            chain.append(next_layer)
            next_layer = _only_user(next_layer)
        return chain

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
        part_number = part_of.get(layer.guid, layer.guid)
        producers = edges.setdefault(part_number, set())
        producers |= {part_of.get(value.producer.guid, value.producer.guid) for value in layer.values} - {part_number}
    return _is_acyclic({part: producers & edges.keys() for part, producers in edges.items()})


def _is_acyclic(producers: dict[int, set[int]]) -> bool:
    consumers: dict[int, list[int]] = {node: [] for node in producers}
    for node, node_producers in producers.items():
        for producer in node_producers:
            consumers[producer].append(node)
    unvisited_counts = {node: len(node_producers) for node, node_producers in producers.items()}
    ready_nodes = [node for node, count in unvisited_counts.items() if count == 0]
    visited_count = 0
    while ready_nodes:
        visited_count += 1
        for node in consumers[ready_nodes.pop()]:
            unvisited_counts[node] -= 1
            if unvisited_counts[node] == 0:
                ready_nodes.append(node)
    return visited_count == len(producers)

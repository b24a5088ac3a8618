"""Placement of tensors in memory: the kind of memory of each tensor, and layers that copy or import tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from interposer.backend import DEFAULT_FACTORY, MemorySource
from interposer.core.errors import IncompatibleMemoryError
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import shaped_by_data
from interposer.ir.regions import named_graphs
from interposer.ir.subgraph import is_placed_by_a_backend
from interposer.ops.control import Constant, Input, MemCopy, MemImport, Output
from interposer.ops.control_flow import ControlFlow
from interposer.optimizer.offers import Offers
from interposer.optimizer.routes import IMPORT, Hop, Route, Side, find_route
from interposer.report.records import Crossing

__all__ = ["place_tensors"]

_HOST: Final = "the host"
_MANY: Final = 8
"""With more kinds of memory than this, only kinds that a layer's backend prefers by name are considered."""


def place_tensors(graph: Graph, default: str, offers: Offers) -> list[Crossing]:
    """Choose the kind of memory of every tensor, and insert a layer wherever a tensor moves to another kind.

    The choice copies as few tensors as possible, and then follows the backends' preferences. All readers of one kind
    share one copy. An Input, or a layer with control flow, gets the backend of its first consumer, or `default` without
    consumers. A control flow layer reads its operands from any memory that the host can map. Other layers of the
    runtime get the backend of the layer whose result they read. Regions are treated in the same way.

    Args:
        graph: the graph, whose layers are assigned to backends; it is changed.
        default: the id of the backend for layers of the runtime without consumers.
        offers: the kinds of memory that the backends accept.

    Returns:
        A record of each tensor that passes from one backend to another, in running order, whether copied or not.

    Raises:
        IncompatibleMemoryError: a tensor cannot be moved from one backend's memory to another's.
    """
    placer = _Placer(default, offers)
    return [crossing for prefix, subgraph in named_graphs(graph) for crossing in placer.place(subgraph, prefix)]


class _Placer:
    def __init__(self, default: str, offers: Offers) -> None:
        self._default, self._offers = default, offers
        self._routes: dict[object, Route | None] = {}
        self._mappable_ranks = {kind.id: 0 for kind in offers.kinds.values() if kind.maps}
        borrowing = {kind.id for kind in offers.kinds.values() if kind.imports & MemorySource.MALLOC}
        self._border_costs = {kind_id: int(kind_id not in borrowing) for kind_id in self._mappable_ranks}

    def place(self, graph: Graph, prefix: str) -> list[Crossing]:
        for layer in graph.topological():
            if layer.backend is None and not isinstance(layer.op, Constant | Output):
                layer.backend = _backend_of(layer, self._default)
        late_values = shaped_by_data(graph)
        values = [value for layer in graph.topological() for value in layer.outputs if not value.is_constant]
        crossings: list[Crossing] = []
        for value in values:
            if value in late_values or not value.known.is_tensor:
                value.factory = DEFAULT_FACTORY
                crossings += _direct_crossings(value, _grouped(value), prefix)
            else:
                crossings += self._cross(graph, value, prefix)
        return crossings

    def _cross(self, graph: Graph, value: Value, prefix: str) -> list[Crossing]:
        reader_groups = _grouped(value)
        writer_side = self._side(value.producer, value, graph)
        reader_sides = [self._side(layers[0], value, graph) for layers in reader_groups]
        route = self._route(value, writer_side, reader_sides)
        if route is None:
            raise IncompatibleMemoryError(
                self._refusal_text(value, reader_groups, prefix), backend=str(value.producer.backend)
            )
        value.factory = route.home
        if not route.hops:
            return _direct_crossings(value, reader_groups, prefix)
        kind_of_group = dict(zip(map(id, reader_groups), route.reads, strict=True))
        crossings, copies = [], {route.home: value}
        for hop in route.hops:
            readers = [layer for layers in reader_groups if kind_of_group[id(layers)] == hop.target for layer in layers]
            copies[hop.target], crossing = _insert_transfer(graph, value, copies[hop.source], hop, readers, prefix)
            crossings.append(crossing)
        for layers in reader_groups:
            kind = kind_of_group[id(layers)]
            if kind != route.home:
                graph.replace_uses(value, copies[kind], lambda use, layers=layers: use.layer in layers)  # type: ignore[misc]
        return crossings

    def _side(self, layer: Layer, value: Value, graph: Graph) -> Side:
        """Return the kinds of memory on which a layer of `graph` can write or read a value.

        The runtime itself, which executes some layers, needs memory that the host can map.
        """
        if isinstance(layer.op, Input | Output) and graph.owner is None:
            return Side(_HOST, self._mappable_ranks, self._border_costs, guest_cost=int(isinstance(layer.op, Output)))
        if _runs_on_host(layer):
            return Side(_HOST, self._mappable_ranks)
        is_at_border = isinstance(value.producer.op, Input) or any(
            isinstance(consumer.op, Output) for consumer in value.consumers
        )
        backend = str(layer.backend)
        return Side(backend, self._offers.at_the_border(backend) if is_at_border else self._offers.ranks(backend))

    def _route(self, value: Value, writer: Side, readers: list[Side]) -> Route | None:
        padded = self._offers.padded(value.producer, value.consumers)
        key = writer.key, tuple(taker.key for taker in readers), padded
        if key not in self._routes:
            kinds = self._offers.kinds
            if len(kinds) > _MANY:
                preferred_kinds = {kind for side in (writer, *readers) if side.name != _HOST for kind in side.ranks}
                kinds = {kind: kinds[kind] for kind in kinds if kind in preferred_kinds or kind == DEFAULT_FACTORY}
            self._routes[key] = find_route(kinds, writer, readers, padded)
        return self._routes[key]

    def _refusal_text(self, value: Value, reader_groups: list[list[Layer]], prefix: str) -> str:
        lines = [f"the tensor {prefix}{value.name!r} cannot get to all who read it:"]
        for layer, verb in [(value.producer, "gives"), *((layers[0], "takes") for layers in reader_groups)]:
            if _runs_on_host(layer):
                lines.append(
                    f"{layer} ({verb} it) is run by the host, which can only work on memory that can be mapped"
                )
            else:
                offered_text = self._offers.described(str(layer.backend))
                lines.append(f"{layer} on {layer.backend} ({verb} it) works on {offered_text}")
        return "\n  - ".join(lines)


def _runs_on_host(layer: Layer) -> bool:
    return not is_placed_by_a_backend(layer)


def _grouped(value: Value) -> list[list[Layer]]:
    """Return the layers that read a value, in groups that can share one copy of it.

    There is one group for each backend, and one for each operator that the runtime executes itself.
    """
    groups: dict[str, list[Layer]] = {}
    for layer in value.consumers:
        groups.setdefault(type(layer.op).__name__ if _runs_on_host(layer) else f"on {layer.backend}", []).append(layer)
    return list(groups.values())


def _backend_of(layer: Layer, default: str) -> str:
    looks_forward = isinstance(layer.op, Input | ControlFlow)
    consumers = (use.layer for value in layer.outputs for use in value.uses)
    neighbours: Iterable[Layer] = consumers if looks_forward else [layer.values[0].producer]
    return next((neighbour.backend for neighbour in neighbours if neighbour.backend is not None), default)


def _direct_crossings(value: Value, reader_groups: list[list[Layer]], prefix: str) -> list[Crossing]:
    """Return a record for each backend, other than the producer's, that reads a value in place, without a copy.

    The list is empty for an input of the graph. `reader_groups` has the layers that read the value, as `_grouped`
    returns them; `prefix` is put before the value's name in the records.
    """
    source, memory = str(value.producer.backend), (str(value.factory), str(value.factory))
    if isinstance(value.producer.op, Input):
        return []
    targets = dict.fromkeys(str(layers[0].backend) for layers in reader_groups if not _runs_on_host(layers[0]))
    name = f"{prefix}{value.name}"
    return [Crossing("", name, source, target, value.known, "direct", memory) for target in targets if target != source]


def _insert_transfer(
    graph: Graph, value: Value, source: Value, hop: Hop, readers: list[Layer], prefix: str
) -> tuple[Value, Crossing]:
    """Insert the layer that copies or imports a tensor in one step of its route to other memory.

    Args:
        graph: the graph that the layer is added to.
        value: the tensor as its producer computes it.
        source: the tensor as the previous step left it; `value` for the first step.
        hop: the step: the kinds of memory, and whether to copy or to import.
        readers: the layers that read the result; empty if only further steps do.
        prefix: the text before the names in the record.

    Returns:
        The output of the new layer, and the record of the step.
    """
    owner = next((layer for layer in readers if layer.backend is not None), value.producer)
    destination = readers[0].name if readers else hop.target
    op = MemImport() if hop.how == IMPORT else MemCopy()
    name = f"[ {value.producer.name} ({value.index}) -> {destination} ]"
    layer = graph.add(op, [source], name=name, outputs=[value.known])
    layer.output.info, layer.output.factory = value.known.with_constant(None), hop.target
    layer.backend = owner.backend
    source_backend = "" if isinstance(value.producer.op, Input) else str(value.producer.backend)
    target_backend = str(owner.backend) if any(layer.backend is not None for layer in readers) else ""
    memory = hop.source, hop.target
    return layer.output, Crossing(
        f"{prefix}{layer.name}", f"{prefix}{value.name}", source_backend, target_backend, value.known, hop.how, memory
    )

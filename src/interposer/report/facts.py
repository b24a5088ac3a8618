"""The facts that an explanation shows about layers and parts: tensors, work, running layers, and crossings."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from interposer.core.records import dataclass
from interposer.core.traits import Trait
from interposer.core.types import Dim, Quantization, TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.regions import Place, named_graphs, places
from interposer.ir.subgraph import SubgraphView, is_placed_by_a_backend, select
from interposer.ops.control import Debug, Input, MemCopy, MemImport
from interposer.ops.control_flow import ControlFlow
from interposer.report.estimate import operations
from interposer.report.records import Crossing

__all__ = ["Facts", "LayerFacts", "Part", "Tensor", "facts_of"]

OPERATIONS_PER_BYTE: Final = 8
"""The number of operations that are assumed to take as long as a byte read or written, if nothing was measured."""
_SHOWN_ELEMENTS: Final = 8
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 120
_short.maxlist = _short.maxtuple = 16


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand or result of a layer, described for an explanation.

    `role` is the name of the operand or result. `layer` is the name of the producing layer, which may be an Input, or
    "" for a constant, whose `value` is present if it is small. If the tensor was passed from another backend,
    `crossing` is the index of its record in the network's list of crossings, else None.
    """

    role: str
    name: str
    type: str
    shape: str
    bytes: int
    quantization: str = ""
    layer: str = ""
    value: str = ""
    crossing: int | None = None


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """What an explanation says about one layer, apart from its placement.

    `attributes` are those that differ from their defaults, as text. `operations` is the number of arithmetic operations
    of a run, and `bytes` the size of the tensors that it reads and writes. `pointwise` is True if the operator has the
    trait POINTWISE.
    """

    name: str
    kind: str
    attributes: Mapping[str, str]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    operations: int
    bytes: int
    pointwise: bool = False

    @property
    def work(self) -> float:
        """The bytes that are read and written, plus the operations converted to bytes by `OPERATIONS_PER_BYTE`."""
        return self.bytes + self.operations / OPERATIONS_PER_BYTE

    def to_dict(self) -> dict[str, Any]:
        """Return the facts about the layer as JSON-compatible data, without its name and operator."""
        return {
            "attributes": dict(self.attributes),
            "inputs": [asdict(tensor) for tensor in self.inputs],
            "outputs": [asdict(output) for output in self.outputs],
            "operations": self.operations,
            "bytes": self.bytes,
        }


@dataclass(frozen=True, slots=True)
class Part:
    """Connected layers on one backend, which the backend gets as one subgraph.

    `layers` are their names. `units` are the names of the layers that run in their place, such as one compiled
    subgraph. `incoming` and `outgoing` are indices of the tensors that enter and leave the part, in the network's list
    of crossings.
    """

    number: int
    backend: str
    layers: tuple[str, ...]
    units: tuple[str, ...]
    incoming: tuple[int, ...] = ()
    outgoing: tuple[int, ...] = ()


@dataclass(frozen=True)
class Facts:
    """What an explanation says about a network, apart from the choice of backends.

    `layers` has the layers that backends were asked about, by name, and `hosted` those that the runtime executes
    itself. `inputs` and `outputs` are those of the network. `parts` are its connected layers on one backend. `units`
    has for every layer the names of the layers that run in its place.
    """

    layers: Mapping[str, LayerFacts] = field(default_factory=dict)
    hosted: tuple[LayerFacts, ...] = ()
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    parts: tuple[Part, ...] = ()
    units: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def readers(self) -> Mapping[str, list[str]]:
        """The names of the layers that read results of each layer, by its name; "" for an output of the network."""
        readers: dict[str, list[str]] = {name: [] for name in self.layers}
        for layer in (*self.layers.values(), *self.hosted):
            for producer in dict.fromkeys(tensor.layer for tensor in layer.inputs):
                readers.setdefault(producer, []).append(layer.name)
        for tensor in self.outputs:
            readers.setdefault(tensor.layer, []).append("")
        return readers


def facts_of(graph: Graph, divided: Graph, names: Collection[str], crossings: Sequence[Crossing]) -> Facts:
    """Return the facts about the layers as they were before backends replaced them, and about their placement.

    Args:
        graph: the graph that runs.
        divided: the graph as backends were asked about it, before they replaced parts.
        names: the names of the layers that backends were asked about.
        crossings: the places where data goes from backend to backend.
    """
    all_places = (*places(graph), *places(divided))
    place_of = {
        facts.name: facts for facts in all_places if facts.name in names or isinstance(facts.layer.op, ControlFlow)
    }
    borders = _Borders(graph, crossings)
    units = _units(graph, [name for name in place_of if name in names])
    layers = {name: _layer_facts(place, borders, units) for name, place in place_of.items()}
    hosted_layers = tuple(layers[name] for name, place in place_of.items() if isinstance(place.layer.op, ControlFlow))
    return Facts(
        {name: facts for name, facts in layers.items() if name in names},
        hosted_layers,
        tuple(_tensor(layer.name, layer.output, layer.name) for layer in divided.inputs),
        tuple(_output(layer, borders, units) for layer in divided.outputs),
        tuple(_parts(graph, borders, units)),
        units,
    )


def _units(graph: Graph, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return for each of these layers, by name, the names of the layers that run in its place, in running order.

    `graph` is the graph that runs. A layer that was not replaced runs itself; a layer that was fused or compiled runs
    in the layer that has replaced it.
    """
    units_of: dict[str, list[str]] = {name: [] for name in names}
    running_layers = [(prefix, layer) for prefix, subgraph in named_graphs(graph) for layer in subgraph.topological()]
    placed_layers = [(prefix, layer) for prefix, layer in running_layers if is_placed_by_a_backend(layer)]
    for prefix, layer in placed_layers:
        for name in dict.fromkeys((layer.name, *layer.replaced)):
            if f"{prefix}{name}" in units_of:
                units_of[f"{prefix}{name}"].append(f"{prefix}{layer.name}")
    return {name: tuple(units) for name, units in units_of.items()}


# --- tensors ----------------------------------------------------------------------------------------------------------


def _layer_facts(place: Place, borders: _Borders, units: Mapping[str, Sequence[str]]) -> LayerFacts:
    layer, prefix = place.layer, place.name.removesuffix(place.layer.name)
    attributes = {name: _short_text(value) for name, value in layer.op.to_plain().items() if name != "op"}
    inputs = tuple(
        _operand(place, index, value, prefix, borders, units)
        for index, value in enumerate(layer.inputs)
        if value is not None
    )
    outputs = tuple(
        _tensor(layer.op.result_name(index), value, place.name, prefix) for index, value in enumerate(layer.outputs)
    )
    size = sum(tensor.bytes for tensor in {tensor.name: tensor for tensor in (*inputs, *outputs)}.values())
    pointwise = Trait.POINTWISE in layer.op.traits
    return LayerFacts(place.name, layer.kind, attributes, inputs, outputs, operations(layer), size, pointwise)


def _short_text(value: Any) -> str:
    return _short.repr(value).strip("'") if isinstance(value, str) else _short.repr(value)


def _operand(
    place: Place, index: int, value: Value, prefix: str, borders: _Borders, units: Mapping[str, Sequence[str]]
) -> Tensor:
    role = place.layer.op.operand_name(index)
    if value.is_constant:
        return _tensor(role, value, "", prefix, _small_constant(value))
    producer_name = f"{prefix}{value.producer.name}"
    if place.graph.owner is not None and isinstance(value.producer.op, Input):
        return _tensor(role, value, _owner(prefix), prefix)
    crossing = borders.between(
        units.get(producer_name, (producer_name,)), units.get(place.name, (place.name,)), _bytes(value.info)
    )
    return _tensor(role, value, producer_name, prefix, crossing=crossing)


def _owner(prefix: str) -> str:
    """Return the name of the layer that owns a region, from a prefix such as ``"loop/body/"``."""
    return prefix.removesuffix("/").rpartition("/")[0]


def _output(layer: Layer, borders: _Borders, units: Mapping[str, Sequence[str]]) -> Tensor:
    [value] = layer.values
    producer_name = "" if value.is_constant else value.producer.name
    crossing = borders.between(units.get(producer_name, (producer_name,)), (layer.name,), _bytes(value.info))
    return _tensor(layer.name, value, producer_name, crossing=crossing)


def _tensor(
    role: str, value: Value, layer: str, prefix: str = "", shown: str = "", crossing: int | None = None
) -> Tensor:
    info, name = value.info, f"{prefix}{value.name}"
    if info is None:
        return Tensor(role, name, "unknown", "", 0, "", layer, shown, crossing)
    shape = f"{info.shape}" if info.is_tensor else ""
    scales = _quantization(info.quantization) if info.is_tensor else ""
    kind = str(info.dtype) if info.is_tensor else str(info)
    return Tensor(role, name, kind, shape, _bytes(info), scales, layer, shown, crossing)


def _bytes(info: TensorInfo | None) -> int:
    size = 0 if info is None or not info.is_tensor else info.num_bytes
    return 0 if isinstance(size, Dim) else int(size)


def _small_constant(value: Value) -> str:
    array = value.constant
    if array is None or array.size > _SHOWN_ELEMENTS or array.dtype == object:
        return ""
    return np.array2string(array, precision=4, separator=", ").replace("\n", " ")


def _quantization(quantization: Quantization | None) -> str:
    if quantization is None:
        return ""
    if quantization.axis is None:
        return f"scale {quantization.scales[0]:.6g}, zero point {quantization.zero_points[0]}"
    low, high = min(quantization.scales), max(quantization.scales)
    return f"{len(quantization.scales)} scales along axis {quantization.axis}, from {low:.4g} to {high:.4g}"


# --- borders and parts ------------------------------------------------------------------------------------------------


class _Borders:
    """Finds out where tensors pass between backends, for two layers of the graph that runs.

    Such a passage is given by its index in `crossings`, the records of all tensors that pass between backends.
    """

    def __init__(self, graph: Graph, crossings: Sequence[Crossing]) -> None:
        self._crossings = crossings
        self._by_layer = {crossing.layer: number for number, crossing in enumerate(crossings) if crossing.layer}
        self._direct = {
            (crossing.value, crossing.target): number for number, crossing in enumerate(crossings) if not crossing.layer
        }
        self._numbers_between: dict[tuple[str, str], list[int]] = {}
        for prefix, subgraph in named_graphs(graph):
            for layer in subgraph:
                self._record_paths(prefix, layer)

    def _record_paths(self, prefix: str, layer: Layer) -> None:
        if isinstance(layer.op, MemCopy | MemImport | Debug):
            return
        for value in layer.values:
            giver, numbers = self.way(prefix, value, str(layer.backend))
            self._numbers_between.setdefault((giver, f"{prefix}{layer.name}"), []).extend(numbers)

    def way(self, prefix: str, value: Value, target: str) -> tuple[str, list[int]]:
        """Follow a value back through copies and imports to the layer that computed it.

        Returns the name of this layer, and the indices of the crossings on the path to the backend `target`, the last
        one first. `prefix` is that of the names of the graph's layers.
        """
        crossing_indices: list[int] = []
        while True:
            producer = value.producer
            direct_crossing = self._direct.get((f"{prefix}{value.name}", target))
            crossing_indices += [direct_crossing] if direct_crossing is not None and not crossing_indices else []
            if not isinstance(producer.op, MemCopy | MemImport | Debug):
                return f"{prefix}{producer.name}", crossing_indices
            crossing = self._by_layer.get(f"{prefix}{producer.name}")
            crossing_indices += [crossing] if crossing is not None else []
            [value] = producer.values

    def between(self, givers: Sequence[str], takers: Sequence[str], size: int) -> int | None:
        """Return the index of the crossing by which a tensor gets from one of the layers `givers` to one of `takers`.

        If there are several, one of `size` bytes is preferred. None if no tensor passes between backends there.
        """
        candidates = [
            crossing
            for giver in givers
            for taker in takers
            for crossing in self._numbers_between.get((giver, taker), ())
        ]
        same_size = [crossing for crossing in candidates if self._crossings[crossing].num_bytes == size]
        return next(iter(same_size or candidates), None)


def _parts(graph: Graph, borders: _Borders, units: Mapping[str, Sequence[str]]) -> Iterator[Part]:
    stands_for: dict[str, list[str]] = {}
    for name, layer_units in units.items():
        for unit in layer_units:
            stands_for.setdefault(unit, []).append(name)
    number = 0
    for prefix, subgraph in named_graphs(graph):
        for view in select(subgraph, lambda layer: layer.backend if is_placed_by_a_backend(layer) else None):
            number += 1
            yield _part(number, prefix, view, borders, stands_for)


def _part(
    number: int, prefix: str, view: SubgraphView, borders: _Borders, stands_for: Mapping[str, Sequence[str]]
) -> Part:
    backend, names = str(view.layers[0].backend), tuple(f"{prefix}{layer.name}" for layer in view)
    layers = dict.fromkeys(layer for name in names for layer in stands_for.get(name, ()))
    incoming_crossings = dict.fromkeys(
        crossing for value in view.inputs for crossing in borders.way(prefix, value, backend)[1]
    )
    leaving_uses = ((value, use.layer) for value in view.outputs for use in value.uses if use.layer not in view)
    outgoing_crossings = dict.fromkeys(
        crossing for value, layer in leaving_uses for crossing in _crossings_after(prefix, value, layer, borders)
    )
    return Part(number, backend, tuple(layers), names, tuple(incoming_crossings), tuple(outgoing_crossings))


def _crossings_after(prefix: str, value: Value, layer: Layer, borders: _Borders) -> list[int]:
    if not isinstance(layer.op, MemCopy | MemImport | Debug):
        return borders.way(prefix, value, str(layer.backend))[1]
    [copied_value] = layer.outputs
    later_crossings = [
        crossing for use in copied_value.uses for crossing in _crossings_after(prefix, copied_value, use.layer, borders)
    ]
    return later_crossings or borders.way(prefix, copied_value, str(layer.backend))[1]

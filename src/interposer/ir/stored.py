"""Graphs as flat data, so that pickling does not recurse from layer to layer."""

from __future__ import annotations

from typing import Any

from interposer.core.schema import Op
from interposer.core.types import TensorInfo
from interposer.ir.graph import Graph
from interposer.ops.control import Constant

__all__ = ["graph_of", "parts_of"]

_LAYER = ("backend", "hint", "source", "replaced")
_VALUE = ("info", "declared", "factory", "aliases")


def parts_of(graph: Graph) -> tuple[Any, ...]:
    """Return the contents of a graph as tuples, one per layer in running order, for `graph_of`."""
    order = graph.topological()
    numbers = {value: number for number, value in enumerate(value for layer in order for value in layer.outputs)}
    layers = [
        (
            layer.op, layer.name,
            [None if value is None else numbers[value] for value in layer.inputs],
            [tuple(_without_constant(getattr(value, name), layer.op) for name in _VALUE) for value in layer.outputs],
            tuple(getattr(layer, name) for name in _LAYER),
            tuple(parts_of(region) for region in layer.regions),
        )
        for layer in order
    ]  # fmt: skip
    return graph.name, layers, dict(graph.folded)


def graph_of(name: str, layers: list[tuple[Any, ...]], folded: dict[str, Any]) -> Graph:
    """Return the graph for the data that `parts_of` returned."""
    graph = Graph(name)
    graph.folded = folded
    values: list[Any] = []
    for op, title, inputs, outputs, facts, regions in layers:
        arguments = [None if number is None else values[number] for number in inputs]
        layer = graph.add(op, arguments, name=title, regions=[graph_of(*region) for region in regions])
        for fact, content in zip(_LAYER, facts, strict=True):
            setattr(layer, fact, content)
        for value, reported in zip(layer.outputs, outputs, strict=True):
            for fact, content in zip(_VALUE, reported, strict=True):
                setattr(value, fact, _with_constant(content, op))
        values += layer.outputs
    return graph


def _without_constant(fact: Any, op: Op) -> Any:
    """Return the info of a constant's output without the array, which the operator has."""
    known = isinstance(fact, TensorInfo) and isinstance(op, Constant) and fact.constant is op.value
    return (fact.with_constant(None),) if known else fact


def _with_constant(fact: Any, op: Op) -> Any:
    """Return the info of a constant's output with the operator's array, the inverse of `_without_constant`."""
    if isinstance(op, Constant) and isinstance(fact, tuple) and fact and isinstance(fact[0], TensorInfo):
        return fact[0].with_constant(op.value)
    return fact

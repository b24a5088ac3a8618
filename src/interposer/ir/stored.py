"""Graphs as flat data, so that pickling needs no recursion from layer to layer."""

from __future__ import annotations

from typing import Any

from interposer.ir.graph import Graph

__all__ = ["graph_of", "parts_of"]

_LAYER = ("backend", "hint", "source", "replaced")
_VALUE = ("info", "declared", "factory", "aliases")


def parts_of(graph: Graph) -> tuple[Any, ...]:
    """Everything that a graph holds, layer by layer in running order, for `graph_of`."""
    order = graph.topological()
    numbers = {value: number for number, value in enumerate(value for layer in order for value in layer.outputs)}
    layers = [
        (
            layer.op, layer.name,
            [None if value is None else numbers[value] for value in layer.inputs],
            [tuple(getattr(value, name) for name in _VALUE) for value in layer.outputs],
            tuple(getattr(layer, name) for name in _LAYER),
            tuple(parts_of(region) for region in layer.regions),
        )
        for layer in order
    ]  # fmt: skip
    return graph.name, layers, dict(graph.folded)


def graph_of(name: str, layers: list[tuple[Any, ...]], folded: dict[str, Any]) -> Graph:
    """The graph of such data."""
    graph = Graph(name)
    graph.folded = folded
    values: list[Any] = []
    for op, title, inputs, outputs, facts, regions in layers:
        given = [None if number is None else values[number] for number in inputs]
        layer = graph.add(op, given, name=title, regions=[graph_of(*region) for region in regions])
        for fact, content in zip(_LAYER, facts, strict=True):
            setattr(layer, fact, content)
        for value, told in zip(layer.outputs, outputs, strict=True):
            for fact, content in zip(_VALUE, told, strict=True):
                setattr(value, fact, content)
        values += layer.outputs
    return graph

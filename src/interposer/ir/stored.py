"""Graphs as flat data, so that pickling does not recurse from layer to layer."""

from __future__ import annotations

from typing import Any

from interposer.core.schema import Op
from interposer.core.types import TensorInfo
from interposer.ir.graph import Graph
from interposer.ops.control import Constant

__all__ = ["graph_of", "parts_of"]

_LAYER_FACTS = ("backend", "hint", "source", "replaced")
_VALUE_FACTS = ("info", "declared", "factory", "aliases")


def parts_of(graph: Graph) -> tuple[Any, ...]:
    """Return a graph as nested tuples that can be pickled: its name, its layers in running order, and folded constants.

    The tuple of a layer has its operator, its name, the numbers of its inputs, the facts about its outputs and itself,
    and its regions. `graph_of` creates the graph again.
    """
    order = graph.topological()
    number_of_value = {
        value: number for number, value in enumerate(value for layer in order for value in layer.outputs)
    }
    layers = [
        (
            layer.op, layer.name,
            [None if value is None else number_of_value[value] for value in layer.inputs],
            [
                tuple(_without_constant(getattr(value, name), layer.op) for name in _VALUE_FACTS)
                for value in layer.outputs
            ],
            tuple(getattr(layer, name) for name in _LAYER_FACTS),
            tuple(parts_of(region) for region in layer.regions),
        )
        for layer in order
    ]  # fmt: skip
    return graph.name, layers, dict(graph.folded)


def graph_of(name: str, layers: list[tuple[Any, ...]], folded: dict[str, Any]) -> Graph:
    """Create a graph again from the items of the tuple that `parts_of` returned for it.

    `folded` has the infos of `Graph.folded` by name.
    """
    graph = Graph(name)
    graph.folded = folded
    values: list[Any] = []
    for op, layer_name, inputs, outputs, facts, regions in layers:
        operands = [None if number is None else values[number] for number in inputs]
        layer = graph.add(op, operands, name=layer_name, regions=[graph_of(*region) for region in regions])
        for fact, content in zip(_LAYER_FACTS, facts, strict=True):
            setattr(layer, fact, content)
        for value, output_facts in zip(layer.outputs, outputs, strict=True):
            for fact, content in zip(_VALUE_FACTS, output_facts, strict=True):
                setattr(value, fact, _with_constant(content, op))
        values += layer.outputs
    return graph


def _without_constant(fact: Any, op: Op) -> Any:
    """Return a fact about a layer's output for storing; the array of a Constant is left out, as its operator has it.

    Such an info becomes a tuple with the info without its array. Every other fact is returned unchanged.
    """
    has_op_constant = isinstance(fact, TensorInfo) and isinstance(op, Constant) and fact.constant is op.value
    return (fact.with_constant(None),) if has_op_constant else fact


def _with_constant(fact: Any, op: Op) -> Any:
    """Return a stored fact about a layer's output as it was: the inverse of `_without_constant`."""
    if isinstance(op, Constant) and isinstance(fact, tuple) and fact and isinstance(fact[0], TensorInfo):
        return fact[0].with_constant(op.value)
    return fact

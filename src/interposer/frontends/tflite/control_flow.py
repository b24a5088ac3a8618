"""TFLite converters for operators that run other subgraphs of the file."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.core.types import TensorInfo
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Graph, Value
from interposer.ir.inference import infer_layer
from interposer.ops.control_flow import ControlFlow, If, While, merged_carried

__all__: list[str] = []


@operator("CALL", options=True)
def call(node: Node) -> list[Value]:
    """Convert CALL: the subgraph is inlined in place of the operator."""
    return node.importer.inlined(_named(node, "subgraph"), node.inputs(), node.where)


@operator("CALL_ONCE", options=True)
def call_once(node: Node) -> list[Value]:
    """Convert CALL_ONCE to nothing: it initializes variables and tables, whose operators are not supported."""
    return []


@operator("IF", options=True)
def if_(node: Node) -> list[Value]:
    """Convert IF; a known condition selects a branch, which is inlined."""
    condition, values = node.input(0), node.inputs()[1:]
    branches = _named(node, "then_subgraph_index"), _named(node, "else_subgraph_index")
    known = condition.known.constant
    if known is not None and known.size == 1:
        taken = branches[0 if known.reshape(-1)[0] else 1]
        return node.importer.inlined(taken, values, node.where)
    infos = [value.known for value in values]
    regions = [node.importer.region(number, infos, node.where) for number in branches]
    return _layer(node, If(max(1, len(node.operator.outputs))), [condition, *values], regions)


@operator("WHILE", options=True)
def while_(node: Node) -> list[Value]:
    """Convert WHILE.

    All values are carried. The regions are converted repeatedly until the infos of the carried values no longer change.
    """
    values = node.inputs()
    body, condition = _named(node, "body_subgraph_index"), _named(node, "cond_subgraph_index")
    carried = [value.known.with_constant(None) for value in values]
    while True:
        region = node.importer.region(body, carried, node.where)
        wider = _merged(node, carried, [layer.values[0].known for layer in region.outputs])
        if wider == carried:
            break
        carried = wider
    regions = [node.importer.region(condition, carried, node.where), region]
    return _layer(node, While(len(values)), values, regions)


def _named(node: Node, option: str) -> int:
    """Return the index of the subgraph that an option of the operator names; raise `ParseError` without options."""
    if node.operator.options_type is None:
        node.fail("it has no options, and so names no subgraph")
    return int(node.options[option])


def _merged(node: Node, before: Sequence[TensorInfo], after: Sequence[TensorInfo]) -> list[TensorInfo]:
    if len(before) != len(after):
        node.fail(f"its body gives {len(after)} tensors; expected {len(before)}")
    return [*merged_carried(before, after)]


def _layer(node: Node, op: ControlFlow, values: Sequence[Value], regions: Sequence[Graph]) -> list[Value]:
    layer = node.importer.graph.add(op, values, name=node.name, source=node.source, regions=regions)
    for error in infer_layer(layer):
        node.fail(error)
    return list(layer.outputs)

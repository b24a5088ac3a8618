"""NNAPI converters for operations that run other models of the document."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.core.errors import ParseError
from interposer.core.types import TensorInfo
from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Graph, Value
from interposer.ir.inference import infer_layer
from interposer.ops.control_flow import ControlFlow, If, While, merged_carried

__all__: list[str] = []


def _model(node: Node, index: int, what: str) -> int:
    """Return the number of the referenced model that input `index` (of type SUBGRAPH) names; `what` is for messages."""
    if not node.is_of(index, "SUBGRAPH"):
        node.fail(f"{what} (input {index}) is no SUBGRAPH")
    return node.integer(index, what)


def _tensors(node: Node, start: int) -> list[Value]:
    return [node.input(index) for index in range(start, node.count)]


@operator("IF", inputs=(3, None))
def if_(node: Node) -> list[Value]:
    """Convert IF; a known condition selects a branch, which is inlined."""
    condition, values, where = node.input(0), _tensors(node, 3), node.operation.where
    branches = _model(node, 1, "the first branch"), _model(node, 2, "the second branch")
    if condition.constant is not None and condition.constant.size == 1:
        taken = branches[0 if condition.constant.reshape(-1)[0] else 1]
        return node.importer.inlined(taken, values, where)
    regions = [node.importer.region(number, [value.known for value in values], where) for number in branches]
    return _layer(node, If(max(1, len(node.results))), [condition, *values], regions)


@operator("WHILE", inputs=(3, None))
def while_(node: Node) -> list[Value]:
    """Convert WHILE.

    The body's results are carried values, the other inputs are captured. Only the first carried values are outputs.
    """
    condition, body = _model(node, 0, "the condition"), _model(node, 1, "the body")
    values, where = _tensors(node, 2), node.operation.where
    infos = [value.known.with_constant(None) for value in values]
    while True:
        region = node.importer.region(body, infos, where)
        wider = _merged(node, infos, [layer.values[0].known for layer in region.outputs])
        if wider == infos:
            break
        infos = wider
    regions = [node.importer.region(condition, infos, where), region]
    created = _layer(node, While(len(region.outputs)), values, regions)
    if len(node.results) > len(created):
        node.fail(f"it has {len(node.results)} outputs, but its body {len(created)}")
    return created[: len(node.results)]


def _merged(node: Node, before: Sequence[TensorInfo], after: Sequence[TensorInfo]) -> list[TensorInfo]:
    if not 1 <= len(after) <= len(before):
        node.fail(f"its body gives {len(after)} tensors; expected 1 to {len(before)}")
    return [*merged_carried(before[: len(after)], after), *before[len(after) :]]


def _layer(node: Node, op: ControlFlow, values: Sequence[Value], regions: Sequence[Graph]) -> list[Value]:
    layer = node.importer.graph.add(op, values, name=node.name, source=node.source, regions=regions)
    for error in infer_layer(layer):
        node.fail(error)
    for number, (value, reported) in enumerate(zip(layer.outputs, node.results, strict=False)):
        fits = (reported.dtype, reported.quantization) == (value.known.dtype, value.known.quantization)
        if not fits or (reported.has_rank and not reported.info().shape.accepts(value.known.shape)):
            text = f"{reported.type} {list(reported.dims)}"
            raise ParseError(
                f"its output {number} is {text} in the document, but it gives {value.known}",
                where=node.operation.where,
            )
    return list(layer.outputs)

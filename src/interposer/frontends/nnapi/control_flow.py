"""NNAPI converters for operations that run other models of the document."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.core.types import TensorInfo
from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Graph, Value
from interposer.ops.control_flow import ControlFlow, If, While, merged_carried

__all__: list[str] = []


def _model(node: Node, index: int, title: str) -> int:
    """Return the number of the referenced model that input `index`, of type SUBGRAPH, names in the document."""
    if not node.is_of(index, "SUBGRAPH"):
        node.fail(f"{title} (input {index}) is no SUBGRAPH")
    return node.integer_of(index, title)


def _tensors(node: Node, start: int) -> list[Value]:
    return [node.value(index) for index in range(start, node.num_inputs)]


@operator("IF", inputs=(3, None))
def if_(node: Node) -> list[Value]:
    """Convert IF; a known condition selects a branch, which is inlined."""
    condition, values = node.value(0), _tensors(node, 3)
    branches = _model(node, 1, "the first branch"), _model(node, 2, "the second branch")
    if condition.constant is not None and condition.constant.size == 1:
        taken_branch = branches[0 if condition.constant.reshape(-1)[0] else 1]
        return node.importer.inlined(taken_branch, values)
    regions = [node.importer.region(number, [value.known for value in values]) for number in branches]
    return _layer(node, If(max(1, len(node.outputs))), [condition, *values], regions)


@operator("WHILE", inputs=(3, None))
def while_(node: Node) -> list[Value]:
    """Convert WHILE.

    The body's results are carried values, the other inputs are captured. Only the first carried values are outputs.
    """
    condition, body = _model(node, 0, "the condition"), _model(node, 1, "the body")
    values = _tensors(node, 2)
    infos = [value.known.with_constant(None) for value in values]
    while True:
        region = node.importer.region(body, infos)
        wider_infos = _merged(node, infos, [layer.values[0].known for layer in region.outputs])
        if wider_infos == infos:
            break
        infos = wider_infos
    regions = [node.importer.region(condition, infos), region]
    outputs = _layer(node, While(len(region.outputs)), values, regions)
    if len(node.outputs) > len(outputs):
        node.fail(f"it has {len(node.outputs)} outputs, but its body {len(outputs)}")
    return outputs[: len(node.outputs)]


def _merged(node: Node, carried_in: Sequence[TensorInfo], carried_out: Sequence[TensorInfo]) -> list[TensorInfo]:
    if not 1 <= len(carried_out) <= len(carried_in):
        node.fail(f"its body gives {len(carried_out)} tensors; expected 1 to {len(carried_in)}")
    return [*merged_carried(carried_in[: len(carried_out)], carried_out), *carried_in[len(carried_out) :]]


def _layer(node: Node, op: ControlFlow, operands: Sequence[Value], regions: Sequence[Graph]) -> list[Value]:
    values = node.control(op, operands, regions)
    for number, (value, operand) in enumerate(zip(values, node.outputs, strict=False)):
        fits = (operand.dtype, operand.quantization) == (value.known.dtype, value.known.quantization)
        if not fits or (operand.has_rank and not operand.info().shape.accepts(value.known.shape)):
            declared_text = f"{operand.type} {list(operand.dims)}"
            node.fail(f"its output {number} is {declared_text} in the document, but it gives {value.known}")
    return values

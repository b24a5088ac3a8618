"""ONNX converters for operators that write elements to computed positions."""

from __future__ import annotations

from typing import Final

from interposer.core.errors import ParseError
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.ir.graph import Value
from interposer.ops.scatter import ScatterElements, ScatterFunction, ScatterNd, TensorScatter

__all__: list[str] = []

_FUNCTIONS: Final = {
    "none": ScatterFunction.UPDATE,
    "add": ScatterFunction.ADD,
    "mul": ScatterFunction.MUL,
    "max": ScatterFunction.MAX,
    "min": ScatterFunction.MIN,
}


def _function(node: Node) -> ScatterFunction:
    reduction = node.text("reduction", "none")
    if reduction not in _FUNCTIONS:
        raise ParseError(f"its reduction is {reduction!r}; expected {', '.join(_FUNCTIONS)}")
    return _FUNCTIONS[reduction]


@operator("Scatter", since=9)
@operator("ScatterElements", since=11)
def scatter_elements(node: Node) -> Value:
    """Convert ScatterElements; since opset 16, updates may be combined with the elements."""
    op = ScatterElements(node.integer("axis", 0), _function(node))
    return node.result(op, node.value(0), node.value(1), node.value(2))


@operator("ScatterND", since=11)
def scatter_nd(node: Node) -> Value:
    """Convert ScatterND; since opset 16, updates may be combined with the elements."""
    return node.result(ScatterNd(_function(node)), node.value(0), node.value(1), node.value(2))


@operator("TensorScatter", since=24)
def tensor_scatter(node: Node) -> Value:
    """Convert TensorScatter; in circular mode, writing wraps around the end of the cache."""
    mode = node.text("mode", "linear")
    if mode not in {"linear", "circular"}:
        raise ParseError(f"its mode is {mode!r}; expected linear or circular")
    op = TensorScatter(node.integer("axis", -2), mode == "circular")
    return node.result(op, node.value(0), node.value(1), node.optional(2))

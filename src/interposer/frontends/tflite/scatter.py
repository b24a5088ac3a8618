"""TFLite converters for operators that write elements to computed positions."""

from __future__ import annotations

from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.scatter import DynamicUpdateSlice, ScatterFunction, ScatterNd

__all__: list[str] = []


@operator("SCATTER_ND")
def scatter_nd(node: Node) -> list[Value]:
    """Convert SCATTER_ND: add updates to zeros; the shape is the last input."""
    op = ScatterNd(ScatterFunction.ADD, input_enabled=False)
    return node.result(op, node.input(2), node.input(0), node.input(1))


@operator("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(node: Node) -> list[Value]:
    """Convert DYNAMIC_UPDATE_SLICE; the position is an input."""
    return node.result(DynamicUpdateSlice(), node.input(0), node.input(1), node.input(2))

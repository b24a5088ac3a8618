"""TensorFlow converters for operators that write slices to positions."""

from __future__ import annotations

from typing import Final

from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.scatter import ScatterFunction, ScatterNd

__all__: list[str] = []

_FUNCTIONS: Final = {
    "TensorScatterAdd": ScatterFunction.ADD,
    "TensorScatterMax": ScatterFunction.MAX,
    "TensorScatterMin": ScatterFunction.MIN,
    "TensorScatterSub": ScatterFunction.SUB,
    "TensorScatterUpdate": ScatterFunction.UPDATE,
}


@operator("ScatterNd")
def scatter_nd(node: Node) -> Value:
    """Convert ScatterNd: add updates to zeros; the operands are indices, updates and the shape."""
    op = ScatterNd(ScatterFunction.ADD, input_enabled=False)
    return node.result(op, node.value(2), node.value(0), node.value(1))


@operator(*_FUNCTIONS)
def scatter_to_tensor(node: Node) -> Value:
    """Convert operators that write updates to a tensor."""
    return node.result(ScatterNd(_FUNCTIONS[node.kind]), node.value(0), node.value(1), node.value(2))

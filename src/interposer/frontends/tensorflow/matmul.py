"""TensorFlow converters for matrix products."""

from __future__ import annotations

from interposer.core.errors import ParseError
from interposer.core.types import differ
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.einsum import Einsum
from interposer.ops.matmul import BatchMatMul, FullyConnected

__all__: list[str] = []


@operator("MatMul")
def matmul(node: Node) -> Value:
    """Convert MatMul; a product with a constant matrix is a fully connected layer."""
    a, b = node.value(0), node.value(1)
    if a.known.rank != 2 or b.known.rank != 2:
        raise ParseError(f"its operands have the shapes {a.known.shape} and {b.known.shape}; expected matrices")
    return _product(node, a, b, node.flag("transpose_a", False), node.flag("transpose_b", False))


@operator("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(node: Node) -> Value:
    """Convert products of several matrices; adj_x and adj_y transpose them."""
    return _product(node, node.value(0), node.value(1), node.flag("adj_x", False), node.flag("adj_y", False))


def _product(node: Node, a: Value, b: Value, transpose_a: bool, transpose_b: bool) -> Value:
    rows = b.known.shape[1 if transpose_b else 0] if b.known.rank == 2 else 0
    if b.constant is None or b.known.rank != 2 or transpose_a or rows == 0 or a.known.rank < 2:
        return node.result(BatchMatMul(transpose_a, transpose_b), a, b)
    if differ(a.known.shape[-1], rows):
        raise ParseError(f"a of shape {a.known.shape} has rows of {a.known.shape[-1]} elements, but b takes {rows}")
    return node.result(FullyConnected(transpose_b, keep_dims=a.known.rank > 2), a, b)


@operator("Einsum")
def einsum(node: Node) -> Value:
    """Convert Einsum; the equation is an attribute."""
    return node.result(Einsum(node.text("equation")), *node.values())

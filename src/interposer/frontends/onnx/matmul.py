"""Products of matrices."""

from __future__ import annotations

from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.registry import operator
from interposer.frontends.onnx.shaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Multiplication
from interposer.ops.matmul import BatchMatMul, FullyConnected
from interposer.ops.rearrange import Transpose

__all__: list[str] = []


@operator("MatMul")
def matmul(node: Node) -> Value:
    """A product with a constant matrix is a layer of a neural network, and weights; any other one is just a product."""
    a, b = node.value(0), node.value(1)
    if b.is_constant and b.known.rank == 2 and a.known.rank >= 2:
        return node.add(FullyConnected(keep_dims=a.known.rank > 2), a, b)
    return node.add(BatchMatMul(), a, b)


@operator("Gemm")
def gemm(node: Node) -> Value:
    """alpha * A * B + beta * C; factors of weights and bias are multiplied into these."""
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    a, b, c = node.value(0), node.value(1), node.optional(2)
    if node.flag("transA"):
        a = node.step(Transpose((1, 0)), a)
    if alpha != 1:
        b = node.step(Multiplication(), b, node.scalar_like(alpha, b))
    if c is not None and beta != 1:
        c = node.step(Multiplication(), c, node.scalar_like(beta, c))
    op = FullyConnected(transpose_weight_matrix=node.flag("transB"))
    if c is None or beta == 0:
        return node.add(op, a, b)
    bias = _bias(node, c, b.known.shape[op.output_axis])
    return node.add(Addition(), node.step(op, a, b), c) if bias is None else node.add(op, a, b, bias)


def _bias(node: Node, c: Value, outputs: int) -> Value | None:
    """`c` as one number for each output, or None where it is something else."""
    shape = c.known.shape
    if not shape or shape[-1] != outputs or any(dim != 1 for dim in shape[:-1]):
        return None
    return c if len(shape) == 1 else reshaped(node, c, [outputs])

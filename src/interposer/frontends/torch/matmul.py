"""Converters for matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interposer.core.types import DataType
from interposer.frontends.torch.call import Call, Number
from interposer.frontends.torch.registry import aten
from interposer.ir.graph import Value
from interposer.ops.einsum import Einsum
from interposer.ops.matmul import BatchMatMul, FullyConnected
from interposer.ops.reduction import Reduce, ReduceOperation

__all__ = ["product"]


def product(c: Call, a: Value, b: Value, transpose_b: bool = False) -> Value:
    """Multiply matrices; bools are not supported."""
    return c.add(BatchMatMul(transpose_y=transpose_b), a, b)


@aten("linear", open_sizes=True)
def linear(c: Call, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """Convert linear: rows of the weights are the outputs."""
    if weight.known.rank == 2 and x.known.rank >= 1 and weight.known.shape.is_concrete and 0 not in weight.known.shape:
        flat = c.unsqueezed(x, 0) if x.known.rank == 1 else x
        result = c.add(FullyConnected(transpose_weight_matrix=True, keep_dims=True), flat, weight, bias)
        return c.squeezed(result, 0) if x.known.rank == 1 else result
    matrix = c.transpose(weight, [1, 0]) if weight.known.rank == 2 else weight
    result = product(c, x, matrix)
    return result if bias is None else c.plus(result, bias)


@aten("mm", "bmm", "matmul", "mv", "dot", open_sizes=True)
def matmul(c: Call, a: Value, b: Value) -> Value:
    """Convert products of matrices and vectors."""
    return product(c, c.cast(a, c.dtype), c.cast(b, c.dtype))


@aten("linalg_vecdot")
def vector_dot(c: Call, a: Value, b: Value, *, dim: int = -1) -> Value:
    """Convert linalg_vecdot: the sum of products along an axis, after broadcasting."""
    products = c.times(c.cast(a, c.dtype), c.cast(b, c.dtype))
    return c.add(Reduce((dim % products.known.rank,), False, ReduceOperation.SUM), products)


@aten("addmm", "baddbmm", "addmv", "addbmm")
def add_product(c: Call, x: Value, a: Value, b: Value, beta: Number = 1, alpha: Number = 1) -> Value:
    """Convert beta * x + alpha * (a @ b); x is ignored if beta is 0."""
    if ".addbmm." in str(c.node.target):
        batch, rows, inner = c.shape(a)
        a = c.reshape(c.transpose(a, [1, 0, 2]), [rows, batch * inner])
        b = c.reshape(b, [batch * inner, c.size(b, 2)])
    result = product(c, a, b)
    result = result if alpha == 1 else c.times(result, alpha)
    if beta == 0:
        return result
    return c.plus(x if beta == 1 else c.times(x, beta), result)


@aten("addr")
def add_outer(c: Call, x: Value, a: Value, b: Value, beta: Number = 1, alpha: Number = 1) -> Value:
    """Convert addr: beta * x + alpha * outer(a, b)."""
    dtype = DataType.INT32 if c.dtype is DataType.BOOL else c.dtype
    result = c.times(c.unsqueezed(c.cast(a, dtype), 1), c.unsqueezed(c.cast(b, dtype), 0))
    result = result if alpha == 1 else c.times(result, alpha)
    if beta != 0:
        x = c.cast(x, dtype)
        result = c.plus(x if beta == 1 else c.times(x, beta), result)
    return c.cast(result, c.dtype)


@aten("_trilinear")
def trilinear(
    c: Call, a: Value, b: Value, d: Value, expand1: Sequence[int], expand2: Sequence[int], expand3: Sequence[int],
    sums: Sequence[int], unroll: int = 1,
) -> Value:  # fmt: skip
    """Convert the product of three tensors with new axes, summed over some axes, which bilinear layers consist of."""
    wide = [c.unsqueezed(x, *axes) for x, axes in ((a, expand1), (b, expand2), (d, expand3))]
    return c.add(Reduce(tuple(sums), False, ReduceOperation.SUM), c.times(c.times(wide[0], wide[1]), wide[2]))


@aten("einsum")
def einsum(c: Call, equation: str, operands: Sequence[Value], path: Any = None) -> Value:
    """Convert einsum."""
    return c.add(Einsum(equation.replace(" ", "")), *(c.cast(x, c.dtype) for x in operands))

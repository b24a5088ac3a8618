"""Converters for matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from interposer.core.types import DataType
from interposer.frontends.elementwise import EQUAL, GREATER_OR_EQUAL, LESS_OR_EQUAL, MINIMUM
from interposer.frontends.torch.call import Call, Number, Operand
from interposer.frontends.torch.reduction import reduced
from interposer.frontends.torch.registry import aten
from interposer.ir.graph import Value
from interposer.ops.einsum import Einsum
from interposer.ops.gather import Gather
from interposer.ops.matmul import BatchMatMul, FullyConnected
from interposer.ops.reduction import Reduce, ReduceOperation

__all__ = ["product"]


def product(c: Call, a: Value, b: Value, transpose_b: bool = False) -> Value:
    """Multiply matrices; bools are not supported."""
    return c.step(BatchMatMul(transpose_y=transpose_b), a, b)


@aten("linear", open_sizes=True)
def linear(c: Call, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """Convert linear: rows of the weights are the outputs."""
    if weight.known.rank == 2 and x.known.rank >= 1 and weight.known.shape.is_concrete and 0 not in weight.known.shape:
        flat = c.unsqueezed(x, 0) if x.known.rank == 1 else x
        projected = c.step(FullyConnected(transpose_weight_matrix=True, keep_dims=True), flat, weight, bias)
        return c.squeezed(projected, 0) if x.known.rank == 1 else projected
    matrix = c.transpose(weight, [1, 0]) if weight.known.rank == 2 else weight
    projected = product(c, x, matrix)
    return projected if bias is None else c.plus(projected, bias)


@aten("mm", "bmm", "matmul", "mv", "dot", "_int_mm", open_sizes=True)
def matmul(c: Call, a: Value, b: Value) -> Value:
    """Convert products of matrices and vectors; that of int8 matrices is int32."""
    return product(c, c.cast(a, c.dtype), c.cast(b, c.dtype))


@aten("_weight_int8pack_mm", open_sizes=True)
def product_with_int8_weights(c: Call, x: Value, weight: Value, scales: Value) -> Value:
    """Convert products with int8 weights, whose rows are the outputs and have a scale each; sums are float32."""
    floats = [c.cast(value, DataType.FLOAT32) for value in (x, weight, scales)]
    return c.cast(c.times(product(c, floats[0], floats[1], transpose_b=True), floats[2]), c.dtype)


@aten("_grouped_mm", "transformers.grouped_mm_fallback.default")
def grouped_product(
    c: Call, x: Value, weight: Value, ends: Value | None = None, bias: Value | None = None, out_dtype: Any = None
) -> Value:
    """Convert products of groups of rows with a matrix for each group; `ends` are the indices after each group.

    Rows after the last group become 0, as transformers' fallback for experts returns them.
    """
    if ends is None or x.known.rank != 2 or weight.known.rank != 3 or bias is not None:
        c.unsupported("only rows in groups with a matrix for each group are supported, without a bias")
    num_rows, groups = c.size(x, 0), c.size(weight, 0)
    if not num_rows or not groups:
        return c.broadcast(c.scalar(0, c.dtype), [num_rows, c.size(weight, 2)])
    places = c.constant(np.arange(num_rows)[:, None].astype(ends.known.dtype.numpy))
    past = c.binary(GREATER_OR_EQUAL, places, c.unsqueezed(ends, 0))
    group = c.step(Reduce((1,), True, ReduceOperation.SUM), c.cast(past, DataType.INT64))
    product_of = _by_gather if num_rows <= groups else _by_group
    return c.cast(product_of(c, x, weight, group), c.dtype)


def _by_gather(c: Call, x: Value, weight: Value, group: Value) -> Value:
    """Multiply each row by a copy of the matrix of its group, where there are few rows."""
    last_group = c.size(weight, 0) - 1
    index = c.reshape(c.binary(MINIMUM, group, last_group), [-1])
    products = c.squeezed(product(c, c.unsqueezed(x, 1), c.step(Gather(0), weight, index)), 1)
    return c.where(c.binary(LESS_OR_EQUAL, group, last_group), products, 0)


def _by_group(c: Call, x: Value, weight: Value, group: Value) -> Value:
    """Multiply all rows by the matrix of each group, and select the rows of the group."""
    products: Operand = 0
    for number in range(c.size(weight, 0)):
        rows = product(c, x, c.gather(weight, number, 0))
        products = c.where(c.binary(EQUAL, group, number), rows, products)
    assert isinstance(products, Value)
    return products


@aten("linalg_vecdot")
def vector_dot(c: Call, a: Value, b: Value, *, dim: int = -1) -> Value:
    """Convert linalg_vecdot: the sum of products along an axis, after broadcasting."""
    products = c.times(c.cast(a, c.dtype), c.cast(b, c.dtype))
    return c.step(Reduce((dim % products.known.rank,), False, ReduceOperation.SUM), products)


@aten("addmm", "baddbmm", "addmv", "addbmm")
def add_product(c: Call, x: Value, a: Value, b: Value, beta: Number = 1, alpha: Number = 1) -> Value:
    """Convert beta * x + alpha * (a @ b); x is ignored if beta is 0."""
    if ".addbmm." in str(c.node.target):
        batch, rows, depth = c.shape(a)
        a = c.reshape(c.transpose(a, [1, 0, 2]), [rows, batch * depth])
        b = c.reshape(b, [batch * depth, c.size(b, 2)])
    scaled_product = product(c, a, b)
    scaled_product = scaled_product if alpha == 1 else c.times(scaled_product, alpha)
    if beta == 0:
        return scaled_product
    return c.plus(x if beta == 1 else c.times(x, beta), scaled_product)


@aten("addr")
def add_outer(c: Call, x: Value, a: Value, b: Value, beta: Number = 1, alpha: Number = 1) -> Value:
    """Convert addr: beta * x + alpha * outer(a, b)."""
    dtype = DataType.INT32 if c.dtype is DataType.BOOL else c.dtype
    outer_product = c.times(c.unsqueezed(c.cast(a, dtype), 1), c.unsqueezed(c.cast(b, dtype), 0))
    outer_product = outer_product if alpha == 1 else c.times(outer_product, alpha)
    if beta != 0:
        x = c.cast(x, dtype)
        outer_product = c.plus(x if beta == 1 else c.times(x, beta), outer_product)
    return c.cast(outer_product, c.dtype)


@aten("_trilinear")
def trilinear(
    c: Call, a: Value, b: Value, d: Value, expand1: Sequence[int], expand2: Sequence[int], expand3: Sequence[int],
    sums: Sequence[int], unroll: int = 1,
) -> Value:  # fmt: skip
    """Convert the product of three tensors with new axes, summed over some axes, which bilinear layers consist of."""
    expanded_operands = [c.unsqueezed(x, *axes) for x, axes in ((a, expand1), (b, expand2), (d, expand3))]
    return c.step(
        Reduce(tuple(sums), False, ReduceOperation.SUM),
        c.times(c.times(expanded_operands[0], expanded_operands[1]), expanded_operands[2]),
    )


@aten("einsum")
def einsum(c: Call, equation: str, operands: Sequence[Value], path: Any = None) -> Value:
    """Convert einsum; axes of an ellipsis that the result lacks are summed."""
    equation = equation.replace(" ", "")
    terms, arrow, result_term = equation.partition("->")
    values = [c.cast(x, c.dtype) for x in operands]
    if not arrow or "..." in result_term or "..." not in terms:
        return c.step(Einsum(equation), *values)
    ellipsis_first = c.step(Einsum(f"{terms}->...{result_term}"), *values)
    axes = list(range(ellipsis_first.known.rank - len(result_term)))
    return reduced(c, ReduceOperation.SUM, ellipsis_first, axes) if axes else ellipsis_first

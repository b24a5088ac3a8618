"""Kernels of matrix products; quantized products have exact sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from interposer.core.types import FLOATS, Array, DataType, TensorInfo
from interposer.kernels.accumulation import (
    EIGHT_BITS,
    NUMBERS,
    ExactRequantizer,
    Plan,
    Requantizer,
    Scaling,
    centered,
    constant_plan,
    exact_type,
    float_type,
    integer_sums,
    largest_distance,
    plan,
    shifted,
    summable_types,
)
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.matmul import BatchMatMul, FullyConnected, IntegerMatMul

__all__: list[str] = []


@kernel(FullyConnected, when=summable_types)
def fully_connected(
    op: FullyConnected, x: Array, weights: Array, bias: Array | None, *, info: KernelInfo, prepared: Plan | None
) -> Array:
    """Compute `FullyConnected` by one matrix product; the weights are used in the order in which they are stored.

    `prepared` holds the weights and the epilogue if weights and bias are constants, else None.
    """
    w, epilogue = prepared or _plan(op, info, weights, bias)
    w = w.T if op.transpose_weight_matrix else w
    rows = centered(x, info.input, w.dtype).reshape(-1, w.shape[0])
    return epilogue(rows @ w).reshape(info.output.shape)


def _plan(op: FullyConnected, info: KernelInfo, weights: Array, bias: Array | None) -> Plan:
    scaling = Scaling.FIXED_POINT if info.at(1).dtype is DataType.INT16 else Scaling.REAL
    return plan(info, weights, bias, op.output_axis, scaling.of(op.requantization))


kernel.prepare(fully_connected)(constant_plan(_plan))


def _adjoint_of_floats(op: BatchMatMul, info: KernelInfo) -> str | None:
    if (op.adjoint_x or op.adjoint_y) and info.input.dtype not in FLOATS:
        return f"a is {info.input.dtype}; takes adjoints of floats only"
    return None


@kernel(BatchMatMul, quantized=False, dtypes=NUMBERS, when=_adjoint_of_floats)
def batch_matmul(op: BatchMatMul, a: Array, b: Array, *, info: KernelInfo) -> Array:
    """Compute `BatchMatMul` of unquantized tensors; narrow floats are summed in float32 and rounded once."""
    matrices_a, matrices_b = _operands(op, a, b, info, float_type(info.input.dtype))
    return np.asarray(matrices_a @ matrices_b)


def _same_range(op: BatchMatMul, info: KernelInfo) -> str | None:
    if not (info.at(1).is_quantized and info.output.is_quantized):
        return "a is quantized, but b or the output is not"
    if any(tensor.quantization and tensor.quantization.per_axis for tensor in (info.input, info.output)):
        return "a or the output is quantized along an axis; takes one scale for each"
    return _columns_only(op, info.at(1))


def _columns_only(op: BatchMatMul, b: TensorInfo) -> str | None:
    """Return why `b` is refused: if it has several scales, they must be those of its columns, with one zero point."""
    quantization, column_axis = b.quantization, b.rank - (2 if op.transpose_y else 1)
    if quantization is None or not quantization.per_axis:
        return None
    if b.rank < 2 or quantization.axis != column_axis:
        return f"b is quantized along axis {quantization.axis}; takes one scale, or scales of its columns"
    return "b has several zero points; takes one" if len(set(quantization.zero_points)) > 1 else None


@kernel(BatchMatMul, quantized=True, dtypes=EIGHT_BITS | {DataType.INT16}, when=(_same_range, _adjoint_of_floats))
def batch_matmul_quantized(op: BatchMatMul, a: Array, b: Array, *, info: KernelInfo) -> Array:
    """Compute `BatchMatMul` of quantized values, converted to a float type in which their sums are exact."""
    x, y = info.input, info.at(1)
    largest_sum = largest_distance(x) * largest_distance(y) * _inner_dimension(op, a)
    matrices_a, matrices_b = _operands(op, a, b, info, exact_type(largest_sum))
    return _requantizer(op, x, y, info.output)(np.asarray(matrices_a @ matrices_b))


def _requantizer(op: BatchMatMul, a: TensorInfo, b: TensorInfo, output: TensorInfo) -> Callable[[Array], Array]:
    scaling = Scaling.FIXED_POINT_OF_SINGLES.of(op.requantization)
    if scaling is Scaling.EXACT:
        return ExactRequantizer.of(a, b, output, None)
    return Requantizer.of(a, b, output, None, scaling)


@kernel(IntegerMatMul, quantized=False)
def integer_matmul(
    op: IntegerMatMul, a: Array, b: Array, a_zero_point: Array | None, b_zero_point: Array | None
) -> Array:
    """Compute `IntegerMatMul` in float64, which represents sums of products of 9-bit integers exactly."""
    return integer_sums(np.asarray(shifted(a, a_zero_point) @ shifted(b, b_zero_point)))


def _inner_dimension(op: BatchMatMul, a: Array) -> int:
    """Return the number of products in each sum of the matrix product, which is the inner dimension."""
    return int(a.shape[-2 if op.transpose_x and a.ndim > 1 else -1])


def _operands(op: BatchMatMul, a: Array, b: Array, info: KernelInfo, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    return (
        _oriented(centered(a, info.input, dtype), op.transpose_x, op.adjoint_x),
        _oriented(centered(b, info.at(1), dtype), op.transpose_y, op.adjoint_y),
    )


def _oriented(x: Array, transpose: bool, adjoint: bool) -> Array:
    x = _adjugate(x) if adjoint else x
    return x.swapaxes(-1, -2) if transpose and x.ndim > 1 else x


def _adjugate(x: Array) -> Array:
    """Return the adjugates of square matrices (..., N, N): element (j, i) is the cofactor of element (i, j)."""
    size, adjugates = x.shape[-1], np.empty_like(x)
    for i, j in np.ndindex(size, size):
        minor = np.delete(np.delete(x, i, axis=-2), j, axis=-1)
        adjugates[..., j, i] = np.linalg.det(minor.astype(np.float64)) * (-1) ** (i + j)
    return adjugates

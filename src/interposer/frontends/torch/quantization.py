"""Converters for the operators of quantized programs (PT2E), which stay quantized."""

from __future__ import annotations

from typing import Any

import numpy as np

from interposer.core.types import Array, DataType, Quantization
from interposer.core.types import integer_range as whole_range
from interposer.frontends.elementwise import NEG, ROUND
from interposer.frontends.torch.call import Call, Operand
from interposer.frontends.torch.elementwise import limited
from interposer.frontends.torch.package import torch
from interposer.frontends.torch.registry import aten
from interposer.frontends.torch.tensors import data_type
from interposer.ir.graph import Value
from interposer.ops.quantization import Cast, Dequantize, Quantize, RoundingMethod
from interposer.ops.reduction import Reduce, ReduceOperation

__all__: list[str] = []

_STORED = (DataType.INT8, DataType.UINT8, DataType.INT16)


def _known(operand: Any) -> Array | None:
    """Return a number, or a constant tensor, as an array; None if it is computed."""
    return operand.constant if isinstance(operand, Value) else np.asarray(operand)


def _scales(scale: Any, zero: Any, axis: int | None) -> Quantization | None:
    """Return the quantization that known scales and zero points describe; None if one is computed or not positive."""
    scale_array, zero_point_array = _known(scale), _known(0 if zero is None else zero)
    if scale_array is None or zero_point_array is None:
        return None
    scales = scale_array.astype(np.float64).reshape(-1)
    if not (np.isfinite(scales) & (scales > 0)).all() or (zero_point_array.astype(np.float64) % 1 != 0).any():
        return None
    zeros = np.broadcast_to(zero_point_array.astype(np.int64).reshape(-1), scales.shape)
    if scales.size == 1:
        return Quantization(float(scales[0]), int(zeros[0]))
    return None if axis is None else Quantization(scales.tolist(), zeros.tolist(), axis)


@aten("quantized_decomposed.quantize_per_tensor.default", "quantized_decomposed.quantize_per_tensor.tensor",
      "quantized_decomposed.quantize_per_tensor.tensor2")  # fmt: skip
def quantize(c: Call, x: Value, scale: Any, zero: Any, low: Any, high: Any, *_: Any) -> Value:
    """Convert the quantization with one scale."""
    return _quantized(c, x, scale, zero, _bounds(low, high), None)


@aten("quantized_decomposed.quantize_per_channel.default")
def quantize_per_channel(
    c: Call, x: Value, scales: Value, zeros: Value, axis: int, low: int, high: int, *_: Any
) -> Value:
    """Convert the quantization with a scale for each index along an axis."""
    return _quantized(c, x, scales, zeros, (low, high), axis % x.known.rank)


@aten("quantized_decomposed.quantize_per_token.default")
def quantize_per_token(c: Call, x: Value, scales: Value, zeros: Value, low: int, high: int, *_: Any) -> Value:
    """Convert the quantization with a scale for each row, which broadcasts."""
    return _stored(c, x, scales, zeros, (low, high))


def _bounds(low: Any, high: Any) -> tuple[int, int]:
    ends = _known(low), _known(high)
    return (int(ends[0]), int(ends[1])) if ends[0] is not None and ends[1] is not None else (-128, 127)


def _quantized(c: Call, x: Value, scale: Any, zero: Any, bounds: tuple[int, int], axis: int | None) -> Value:
    quantization, dtype = _scales(scale, zero, axis), c.dtype
    if quantization is None or dtype not in _STORED:
        return _stored(c, x, _line(c, x, scale, axis), _line(c, x, zero, axis), bounds)
    if bounds != whole_range(dtype):
        points = np.array(quantization.zero_points), np.array(quantization.scales)
        ends = [(bound - points[0]) * points[1] for bound in bounds]
        x = limited(c, x, *(_along(c, x, np.asarray(end), axis) for end in ends))
    return c.step(Quantize(dtype, RoundingMethod.HALF_TO_EVEN), x, quantization=quantization)


def _along(c: Call, x: Value, numbers: Array, axis: int | None) -> Value:
    shape = [1] * x.known.rank
    if axis is not None and numbers.size > 1:
        shape[axis] = numbers.size
    return c.constant(numbers.reshape(shape).astype(x.known.dtype.numpy))


def _line(c: Call, x: Value, numbers: Any, axis: int | None) -> Operand:
    """Return scales or zero points in a shape that broadcasts with x; a vector is along an axis."""
    if not isinstance(numbers, Value) or axis is None:
        return c.reshape(numbers, []) if isinstance(numbers, Value) else numbers
    return c.reshape(numbers, [-1 if i == axis else 1 for i in range(x.known.rank)])


def _stored(c: Call, x: Value, scale: Operand, zero: Operand | None, bounds: tuple[int, int]) -> Value:
    """Return quantized integers by arithmetic: round(x * (1 / scale)) + zero point, limited to the bounds."""
    float_x = x if x.known.dtype is DataType.FLOAT64 else c.cast(x, DataType.FLOAT32)
    inverse = c.over(c.scalar(1, float_x.known.dtype), c.cast(scale, float_x.known.dtype))
    steps = c.step(ROUND, c.times(float_x, inverse))
    steps = c.plus(steps, c.cast(0 if zero is None else zero, float_x.known.dtype))
    return c.cast(limited(c, steps, *map(float, bounds)), c.dtype)


@aten("quantized_decomposed.dequantize_per_tensor.default", "quantized_decomposed.dequantize_per_tensor.tensor",
      "quantized_decomposed.dequantize_per_tensor.tensor2")  # fmt: skip
def dequantize(c: Call, x: Value, scale: Any, zero: Any, *_: Any, **__: Any) -> Value:
    """Convert the dequantization with one scale."""
    return _dequantized(c, x, scale, zero, None)


@aten("quantized_decomposed.dequantize_per_channel.default")
def dequantize_per_channel(
    c: Call, x: Value, scales: Value, zeros: Value | None, axis: int, *_: Any, **__: Any
) -> Value:
    """Convert the dequantization with a scale for each index along an axis."""
    return _dequantized(c, x, scales, zeros, axis % x.known.rank)


@aten("quantized_decomposed.dequantize_per_token.default")
def dequantize_per_token(c: Call, x: Value, scales: Value, zeros: Value | None, *_: Any, **__: Any) -> Value:
    """Convert the dequantization with a scale for each row, which broadcasts."""
    return _float_values(c, x, scales, zeros)


@aten("quantized_decomposed.dequantize_per_channel_group.default")
def dequantize_per_group(
    c: Call, x: Value, scales: Value, zeros: Value | None, low: int, high: int, dtype: Any, group: int, *_: Any
) -> Value:
    """Convert the dequantization with a scale for each group of elements along the last axis."""
    num_rows, num_columns = c.shape(x)
    blocks = c.reshape(x, [num_rows, num_columns // group, group])
    reshaped_parameters = [
        None if parameters is None else c.reshape(parameters, [num_rows, num_columns // group, 1])
        for parameters in (scales, zeros)
    ]
    assert reshaped_parameters[0] is not None
    return c.reshape(_float_values(c, blocks, reshaped_parameters[0], reshaped_parameters[1]), [num_rows, num_columns])


@aten("quantized_decomposed.quantize_per_channel_group.default")
def quantize_per_group(
    c: Call, x: Value, scales: Value, zeros: Value, low: int, high: int, dtype: Any, group: int = 128
) -> Value:
    """Convert the quantization with a scale for each group of elements along the last axis."""
    num_rows, num_columns = c.shape(x)
    blocks = c.reshape(x, [num_rows, num_columns // group, group])
    numbers = [c.reshape(parameters, [num_rows, num_columns // group, 1]) for parameters in (scales, zeros)]
    return c.reshape(_stored(c, blocks, numbers[0], numbers[1], (low, high)), [num_rows, num_columns])


def _dequantized(c: Call, x: Value, scale: Any, zero: Any, axis: int | None) -> Value:
    quantization = _scales(scale, zero, axis)
    if (
        quantization is not None
        and x.constant is not None
        and x.known.quantization is None
        and x.known.dtype.is_integer
    ):
        x = c.importer.constant(x.constant, f"{c.name}/quantized", c.source, quantization)
    if quantization is not None and x.known.quantization == quantization:
        return c.step(Dequantize(c.dtype), x)
    plain_x = x if x.known.quantization is None else c.step(Cast(x.known.dtype), x)
    return _float_values(c, plain_x, _line(c, x, scale, axis), _line(c, x, zero, axis) if zero is not None else None)


def _float_values(c: Call, x: Value, scale: Operand, zero: Operand | None) -> Value:
    wide_x = c.cast(x, DataType.INT32) if x.known.dtype.is_integer else x
    if zero is not None:
        wide_x = c.minus(wide_x, c.cast(zero, wide_x.known.dtype))
    dtype = c.dtype
    return c.times(c.cast(wide_x, dtype), c.cast(scale, dtype))


@aten("quantized_decomposed.choose_qparams.tensor", "quantized_decomposed.choose_qparams_symmetric.tensor")
def choose_parameters(c: Call, x: Value, low: int, high: int, eps: float, dtype: Any) -> list[Value]:
    """Convert the choice of scale and zero point from the range of a tensor, which includes 0."""
    is_symmetric = "symmetric" in str(c.node.target)
    float_x = c.cast(x, DataType.FLOAT32)
    ends = [c.step(Reduce((), False, kind), float_x) for kind in (ReduceOperation.MIN, ReduceOperation.MAX)]
    lowest, highest = limited(c, ends[0], None, 0.0), limited(c, ends[1], 0.0, None)
    if is_symmetric:
        highest = limited(c, highest, c.step(NEG, lowest), None)
        scale = limited(c, c.over(highest, (high - low) / 2), eps, None)
        middle = 0 if whole_range(data_type(dtype))[0] < 0 else 128
        return [c.reshape(c.cast(scale, DataType.FLOAT64), [1]), c.constant(np.array([middle], np.int64))]
    scale = limited(c, c.over(c.minus(highest, lowest), float(high - low)), eps, None)
    start = c.minus(float(low), c.step(ROUND, c.over(lowest, scale)))
    zero = limited(c, start, float(low), float(high))
    return [c.reshape(c.cast(scale, DataType.FLOAT64), [1]), c.reshape(c.cast(zero, DataType.INT64), [1])]


_PRODUCTS = ("linear", "convolution", "conv1d", "conv2d", "conv3d", "mm", "bmm", "addmm", "matmul")


@aten("higher_order.out_dtype")
def out_dtype(c: Call, operator: Any, dtype: Any, *operands: Any) -> Value:
    """Convert out_dtype: an operator on operands that are cast to a common type, whose result is cast.

    PyTorch sums products of integers exactly, which float64 does too.
    """
    compute_type = c.promoted(
        *(operand for operand in c.node.args[2:] if isinstance(operand, torch.fx.Node | float)), _one_of(dtype)
    )
    name = str(operator).split(".")[1]
    compute_type = DataType.FLOAT64 if compute_type.is_integer and name in _PRODUCTS else compute_type
    casted = [c.cast(operand, compute_type) if isinstance(operand, Value) else operand for operand in operands]
    return c.cast(c.applied(operator, casted, compute_type), c.dtype)


def _one_of(dtype: Any) -> Any:
    return torch.empty(1, dtype=dtype, device="meta")

"""ONNX writers for quantization and type conversion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.types import Array, DataType, Quantization, integer_range
from interposer.ops.quantization import (
    Bitcast,
    BlockDequantize,
    Cast,
    ConvertBf16ToFp32,
    ConvertFp16ToFp32,
    ConvertFp32ToBf16,
    ConvertFp32ToFp16,
    Dequantize,
    DynamicQuantize,
    FakeQuantization,
    Quantize,
    RoundingMethod,
)
from interposer.writers.onnx.draft import NARROW, Draft
from interposer.writers.onnx.fixedpoint import factor_of, rounded_away, times
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []

_LINEAR: Final = frozenset(
    {DataType.INT8, DataType.UINT8, DataType.INT16, DataType.UINT16, DataType.INT4, DataType.UINT4}
)
_BITCAST_SINCE: Final = 26
_BLOCKS_SINCE: Final = 21
_SCALES: Final = frozenset({DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16})


def _along(draft: Draft, q: Quantization, rank: int, dtype: DataType) -> tuple[Tensor, Tensor]:
    """Return the scales (of type `dtype`) and zero points of `q`, shaped to broadcast with a tensor of rank `rank`."""
    scales, points = _numbers(q, rank)
    return draft.constant(scales, dtype, "scale"), draft.constant(points, dtype, "zero_point")


def _numbers(q: Quantization, rank: int) -> tuple[Array, Array]:
    shape = [-1 if axis == q.axis else 1 for axis in range(rank)] if q.per_axis else []
    return np.asarray(q.scales, np.float32).reshape(shape), np.reshape(q.zero_points, shape)


@writer(Quantize)
def quantize(draft: Draft, op: Quantize) -> Tensor:
    """Refuse Quantize for a result without a quantization; the other function writes quantized results."""
    refuse("its output has no scale")


@writer(Quantize, quantized=True)
def quantize_reals(draft: Draft, op: Quantize) -> Tensor:
    """Write Quantize for a quantized result: as QuantizeLinear, which rounds half to even.

    Other rounding modes and wider integers take several operators. A quantized operand is rescaled.
    """
    q, x = draft.result.quantization, draft.operand(0)
    if q is None:
        refuse("its output has no scale")
    if draft.info(0).is_quantized:
        return _requantized(draft, op, q)
    x = draft.cast(x, DataType.FLOAT32)
    ties_to_even = op.rounding is RoundingMethod.HALF_TO_EVEN
    if (ties_to_even or not draft.exact) and op.dtype in _LINEAR and _is_known(draft, op.dtype):
        return draft.quantized(x, q, op.dtype)
    scale, point = _along(draft, q, draft.rank, DataType.FLOAT32)
    steps = draft.cast(draft.node("Div", x, scale), DataType.FLOAT64)
    steps = draft.node("Where", draft.node("IsNaN", steps), draft.like(0, steps), steps)
    rounded = draft.node("Round", steps) if ties_to_even else rounded_away(draft, steps)
    shifted = draft.node("Add", rounded, draft.cast(point, DataType.FLOAT64))
    low, high = integer_range(op.dtype)
    if op.dtype.bits == 64:
        refuse("its integers of 64 bits cannot be clamped as float values")
    return _of_whole(draft, draft.clip(shifted, low, high), op.dtype)


def _requantized(draft: Draft, op: Quantize, q: Quantization) -> Tensor:
    """Return the quantized operand with the quantization `q` instead of its own, in fixed-point arithmetic.

    If both are equal, only its type changes.
    """
    source, x = draft.info(0).quantization, draft.cast(draft.operand(0), DataType.INT64)
    if source is None or DataType.UINT64 in (draft.operand(0).dtype, op.dtype):
        refuse("its integers of 64 bits cannot be computed with")
    if source != q:
        (old_scale, old_point), (new_scale, new_point) = (
            _numbers(quantization, draft.rank) for quantization in (source, q)
        )
        centered = draft.node("Sub", x, draft.constant(old_point, DataType.INT64, "zero_point"))
        scaled = times(draft, centered, factor_of(old_scale.astype(np.float64) / new_scale.astype(np.float64)))
        x = draft.node("Add", scaled, draft.constant(new_point, DataType.INT64, "zero_point"))
    return draft.cast(draft.clip(x, *integer_range(op.dtype)), op.dtype)


def _of_whole(draft: Draft, x: Tensor, dtype: DataType) -> Tensor:
    """Return floats without fraction as integers of type `dtype`; out of its range, the low bits of int64 remain."""
    return draft.cast(draft.cast(x, DataType.INT64), dtype)


def _is_known(draft: Draft, dtype: DataType) -> bool:
    return draft.gives("QuantizeLinear", dtype)


@writer(Dequantize)
def dequantize(draft: Draft, op: Dequantize) -> Tensor:
    """Refuse Dequantize for an operand without a quantization; the other function writes quantized operands."""
    refuse("its input has no scale")


@writer(Dequantize, quantized=True)
def dequantize_integers(draft: Draft, op: Dequantize) -> Tensor:
    """Write Dequantize: DequantizeLinear, or several operators for integer types that it does not accept."""
    x, q = draft.operand(0), draft.info(0).quantization
    assert q is not None, "violations() comes first"
    is_plain = x.dtype in _LINEAR or (x.dtype is DataType.INT32 and not any(q.zero_points))
    if is_plain and draft.takes("DequantizeLinear", x.dtype) and op.dtype is not DataType.FLOAT64:
        return draft.cast(draft.dequantized(x, q), op.dtype)
    scale, point = _along(draft, q, draft.rank, DataType.FLOAT64)
    centered = draft.node("Sub", draft.cast(x, DataType.FLOAT64), point)
    return draft.cast(draft.node("Mul", centered, scale), op.dtype)


@writer(BlockDequantize)
def block_dequantize(draft: Draft, op: BlockDequantize) -> Tensor:
    """Write BlockDequantize: DequantizeLinear with blocks, or arithmetic for types and opsets that lack it."""
    x, scale, zero = draft.operand(0), draft.operand(1), draft.optional(2)
    linear = draft.opset >= _BLOCKS_SINCE and x.dtype in _LINEAR
    keeps_type = op.dtype is scale.dtype and op.dtype in _SCALES and (linear or x.dtype.bits <= 8)
    computed_type = (
        op.dtype if keeps_type else DataType.FLOAT64 if _is_wide(op.dtype, scale.dtype, x.dtype) else DataType.FLOAT32
    )
    if linear and computed_type in _SCALES:
        attributes = {"axis": op.axis, "block_size": op.block_size}
        dequantized = draft.node(
            "DequantizeLinear", x, draft.cast(scale, computed_type), zero, giving=computed_type, **attributes
        )
        return draft.cast(dequantized, op.dtype)
    blocks = draft.ints(
        [n // op.block_size for n in range(draft.known(draft.info(0).shape[op.axis], "quantized axis"))]
    )
    centered = draft.cast(x, computed_type)
    if zero is not None:
        centered = draft.node(
            "Sub", centered, draft.node("Gather", draft.cast(zero, computed_type), blocks, axis=op.axis)
        )
    scales = draft.node("Gather", draft.cast(scale, computed_type), blocks, axis=op.axis)
    return draft.cast(draft.node("Mul", centered, scales), op.dtype)


def _is_wide(result_type: DataType, scale_type: DataType, stored_type: DataType) -> bool:
    """Return True if a dequantization must be computed in float64: for 32-bit integers or float64 scales or results."""
    return DataType.FLOAT64 in (result_type, scale_type) or stored_type.bits > 16


@writer(FakeQuantization)
def fake_quantization(draft: Draft, op: FakeQuantization) -> Tensor:
    """Write FakeQuantization: the range is shifted so that zero is a quantization step."""
    first_step, last_step = np.float32(op.narrow_range), np.float32(2**op.num_bits - 1)
    scale = (np.float32(op.max) - np.float32(op.min)) / (last_step - first_step)
    zero = np.floor(np.clip(first_step - np.float32(op.min) / scale, first_step, last_step) + np.float32(0.5)).astype(
        np.float32
    )
    low, high = float((first_step - zero) * scale), float((last_step - zero) * scale)
    x = draft.cast(draft.operand(0), DataType.FLOAT32)
    offset_from_low = draft.node("Sub", draft.clip(x, low, high), draft.like(low, x))
    steps = rounded_away(draft, draft.node("Mul", offset_from_low, draft.like(float(np.float32(1) / scale), x)))
    rounded = draft.node("Add", draft.node("Mul", steps, draft.like(float(scale), x)), draft.like(low, x))
    return draft.cast(rounded, draft.operand(0).dtype)


@writer(DynamicQuantize)
def dynamic_quantize(draft: Draft, op: DynamicQuantize) -> Sequence[Tensor]:
    """Write DynamicQuantize as DynamicQuantizeLinear."""
    return draft.nodes("DynamicQuantizeLinear", draft.operand(0), count=3)


@writer(Cast, moves=True, also_quantized=True)
def cast(draft: Draft, op: Cast) -> Tensor:
    """Write Cast; floats out of an integer type's range, undefined in ONNX, are clamped, and NaN becomes 0."""
    x = draft.operand(0)
    if x.dtype is op.dtype:
        return _same(draft, x)
    if DataType.STRING in (x.dtype, op.dtype):
        return draft.node("Cast", x, giving=op.dtype, to=op.dtype)
    if op.dtype is DataType.FLOAT8_E8M0FNU:
        refuse("ONNX rounds to float8_e8m0fnu otherwise")
    if not (x.dtype.is_float and op.dtype.is_integer):
        return draft.node("Cast", x, giving=op.dtype, to=op.dtype, saturate=0 if op.dtype in NARROW else None)
    if not draft.exact:
        return draft.node("Cast", x, giving=op.dtype, to=op.dtype)
    wide_x = draft.cast(x, DataType.FLOAT64)
    number = draft.node("Where", draft.node("IsNaN", wide_x), draft.like(0, wide_x), wide_x)
    low, high = integer_range(op.dtype)
    if op.dtype.bits == 64:
        return draft.cast(draft.clip(number, low, None), op.dtype)
    return _of_whole(draft, draft.clip(number, low, high), op.dtype)


def _same(draft: Draft, x: Tensor) -> Tensor:
    """Return a tensor of its own with the same elements, so that it can have another quantization, or none.

    The node is BitCast for quantized values if the opset has it, else Identity.
    """
    if draft.info(0).is_quantized and draft.takes("BitCast", x.dtype):
        return draft.node("BitCast", x, giving=x.dtype, to=x.dtype)
    return draft.node("Identity", x)


@writer(ConvertFp16ToFp32, ConvertFp32ToFp16, ConvertBf16ToFp32, ConvertFp32ToBf16)
def convert(draft: Draft, op: ConvertFp16ToFp32) -> Tensor:
    """Write ConvertFp16ToFp32 as Cast."""
    return draft.cast(draft.operand(0), draft.result.dtype)


@writer(Bitcast, moves=True, also_quantized=True)
def bitcast(draft: Draft, op: Bitcast) -> Tensor:
    """Write Bitcast; between integers of the same width, a Cast keeps the bits."""
    x = draft.operand(0)
    if x.dtype is op.dtype:
        return _same(draft, x)
    if DataType.BOOL in (x.dtype, op.dtype) or (x.dtype.is_integer and op.dtype.is_integer):
        return draft.cast(x, op.dtype)
    if draft.opset < _BITCAST_SINCE:
        refuse(f"opset {draft.opset} has no BitCast")
    if not (draft.gives("BitCast", op.dtype) and draft.takes("BitCast", x.dtype)):
        refuse(f"BitCast of ONNX makes no {op.dtype} of {x.dtype}")
    return draft.node("BitCast", x, giving=op.dtype, to=op.dtype)

"""Kernels that convert between data types: quantization, casts and conversions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from interposer.core.types import ANY_TYPE, Array, DataType, Quantization, TensorInfo, from_bits
from interposer.kernels.dynamic_range import quantized_to_8_bits, rounded_to_8_bits
from interposer.kernels.fixedpoint import dequantize, limits, quantize, rescale, round_half_away
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.kernels.texts import numbers_of, texts_of
from interposer.ops.quantization import (
    Bitcast,
    BlockDequantize,
    Cast,
    ConvertBf16ToFp32,
    ConvertFp16ToFp32,
    ConvertFp32ToBf16,
    ConvertFp32ToFp16,
    Dequantize,
    DynamicFakeQuantization,
    DynamicQuantize,
    FakeQuantization,
    Quantize,
    RoundingMethod,
)
from interposer.ops.reduction import reduced_axes

__all__: list[str] = []

ROUNDING: Final[Mapping[RoundingMethod, Callable[[Array], Array]]] = {
    RoundingMethod.HALF_AWAY_FROM_ZERO: round_half_away,
    RoundingMethod.HALF_TO_EVEN: np.rint,
}


def _declared_scale(_: object, info: KernelInfo) -> str | None:
    return None if info.output.is_quantized else "the output has no scale; declare it with outputs=[TensorInfo(...)]"


@kernel(Quantize, quantized=False, when=_declared_scale)
def quantize_reals(op: Quantize, x: Array, *, info: KernelInfo) -> Array:
    """Compute `Quantize` of floats, by a division in float32."""
    return quantize(x, quantization_of(info.output), op.dtype, ROUNDING[op.rounding])


@kernel(Quantize, quantized=True, when=_declared_scale)
def requantize(op: Quantize, x: Array, *, info: KernelInfo) -> Array:
    """Compute `Quantize` of quantized values, in fixed-point arithmetic."""
    return rescale(x, quantization_of(info.input), quantization_of(info.output), op.dtype)


@kernel(Dequantize)
def dequantize_integers(op: Dequantize, x: Array, *, info: KernelInfo) -> Array:
    """Compute `Dequantize`, by a product in float64 that is rounded once."""
    return dequantize(x, quantization_of(info.input))


@kernel(BlockDequantize)
def block_dequantize(
    op: BlockDequantize, x: Array, scale: Array, zero_point: Array | None, *, info: KernelInfo
) -> Array:
    """Compute `BlockDequantize` in float64, or in float32 if only the product needs rounding there."""
    few_bits = info.input.dtype.bits <= 8 and op.dtype is DataType.FLOAT32
    float_type = np.float32 if few_bits and scale.itemsize <= 4 else np.float64
    blocks = np.arange(x.shape[op.axis]) // op.block_size
    steps: Array = x.astype(float_type)
    if zero_point is not None:
        np.subtract(steps, zero_point.astype(float_type).take(blocks, op.axis), out=steps)
    with np.errstate(all="ignore"):
        np.multiply(steps, scale.astype(float_type).take(blocks, op.axis), out=steps)
    return steps


@kernel(DynamicQuantize)
def dynamic_quantize(op: DynamicQuantize, x: Array) -> tuple[Array, Array, Array]:
    """Compute `DynamicQuantize` in float32; return the quantized values, their scale and their zero point."""
    return quantized_to_8_bits(x)


def quantization_of(info: TensorInfo) -> Quantization:
    return info.quantization or Quantization(1.0)


@kernel(DynamicFakeQuantization)
def dynamic_fake_quantization(op: DynamicFakeQuantization, x: Array) -> Array:
    """Compute `DynamicFakeQuantization` in float32."""
    axes = reduced_axes(op.axes, x.ndim)
    return rounded_to_8_bits(x.astype(np.float32), axes, op.asymmetric)


@kernel(FakeQuantization)
def fake_quantization(op: FakeQuantization, x: Array) -> Array:
    """Compute `FakeQuantization`; as in TFLite, the range is shifted in float32 so that zero is one of the steps."""
    first_step, last_step = np.float32(op.narrow_range), np.float32(2**op.num_bits - 1)
    scale = (np.float32(op.max) - np.float32(op.min)) / (last_step - first_step)
    zero_point = round_half_away(np.clip(first_step - np.float32(op.min) / scale, first_step, last_step)).astype(
        np.float32
    )
    low, high = (first_step - zero_point) * scale, (last_step - zero_point) * scale
    steps = round_half_away((np.clip(x.astype(np.float32), low, high) - low) * (np.float32(1) / scale))
    return steps.astype(np.float32) * scale + low


@kernel(ConvertFp16ToFp32, ConvertFp32ToFp16, ConvertBf16ToFp32, ConvertFp32ToBf16)
def convert(op: ConvertFp16ToFp32, x: Array, *, info: KernelInfo) -> Array:
    """Compute the conversions between float types, rounded to the nearest value with ties to even (IEEE 754)."""
    return x.astype(info.output.dtype.numpy)


@kernel(Cast, dtypes=ANY_TYPE)
def cast(op: Cast, x: Array, *, info: KernelInfo) -> Array:
    """Compute `Cast` by NumPy; floats out of an integer type's range, which NumPy leaves undefined, are saturated."""
    if info.input.dtype is DataType.STRING:
        return x if op.dtype is DataType.STRING else numbers_of(x, op.dtype)
    if op.dtype is DataType.STRING:
        return texts_of(_widened(x, info.input.dtype))
    widened = _widened(x, info.input.dtype)
    if op.dtype is DataType.BOOL:
        return np.not_equal(widened, 0)
    if info.input.dtype.is_float and op.dtype.is_integer:
        return _truncated(widened.astype(np.float64), op.dtype)
    return widened.astype(op.dtype.numpy)


def _widened(x: Array, dtype: DataType) -> Array:
    """Convert an array of a narrow type `dtype` to a wider one, since NumPy cannot convert every narrow type.

    4-bit integers become int64, and floats of fewer than 16 bits float32. Other arrays are returned unchanged.
    """
    if dtype.is_integer:
        return x.astype(np.int64) if dtype.bits < 8 else x
    return x.astype(np.float32) if dtype.bits < 16 and dtype.is_float else x


def _truncated(x: Array, dtype: DataType) -> Array:
    """Truncate floats towards zero and saturate them to the range of `dtype`; NaN gives 0."""
    low, high = limits(dtype)
    wide_type = np.uint64 if dtype is DataType.UINT64 else np.int64
    truncated = np.where((x > low) & (x < high), x, 0).astype(wide_type)
    clamped: Array = np.where(x >= high, wide_type(high), np.where(x <= low, wide_type(low), truncated))
    return clamped.astype(dtype.numpy)


@kernel(Bitcast)
def bitcast(op: Bitcast, x: Array, *, info: KernelInfo) -> Array:
    """Compute `Bitcast` as a view of the same bytes; results of type bool are 0 or 1."""
    contiguous_x = np.ascontiguousarray(x).reshape(x.shape)
    if op.dtype is DataType.BOOL:
        return np.not_equal(contiguous_x.view(np.uint8), 0)
    return from_bits(contiguous_x.view(np.uint8), op.dtype) if op.dtype.bits < 8 else contiguous_x.view(op.dtype.numpy)

"""Fixed-point arithmetic as TFLite's reference kernels do it, bit for bit: float factors as integers and shifts.

A positive factor is ``multiplier / 2**31 * 2**shift`` with a multiplier of 31 bits. Multiplying rounds twice, as
TFLite's default build does: to 32 bits (ties towards plus infinity), then when shifting right (ties away from zero).
All functions take arrays, and one factor or an array of factors that broadcasts, such as one for each channel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from interposer.core.types import UNSIGNED_INTEGERS, Array, DataType, Quantization, TensorInfo

__all__ = [
    "FixedPoint",
    "along_axis",
    "clamp_to",
    "dequantize",
    "limits",
    "multiply_by_quantized_multiplier",
    "multiply_wide",
    "quantize",
    "quantize_multiplier",
    "quantized_means",
    "rescale",
    "round_half_away",
    "rounding_divide_by_pot",
    "saturating_rounding_doubling_high_mul",
]

Ints = NDArray[np.int64]
_INT32: Final = np.iinfo(np.int32)


class FixedPoint(NamedTuple):
    """The factor ``multiplier / 2**31 * 2**shift``, by which integers are rescaled; arrays hold several factors."""

    multiplier: Ints
    shift: Ints


def quantize_multiplier(real: ArrayLike) -> FixedPoint:
    """Return the nearest fixed-point factor to each float: 0 below the range, the largest factor above it."""
    mantissa, exponent = np.frexp(np.minimum(np.asarray(real, np.float64), 2.0**31))
    multiplier = np.floor(mantissa * 2.0**31 + 0.5).astype(np.int64)
    is_carried = multiplier == 1 << 31
    multiplier, shift = np.where(is_carried, 1 << 30, multiplier), np.where(is_carried, exponent + 1, exponent)
    is_tiny, is_huge = shift < -31, shift > 30
    multiplier = np.where(is_tiny, 0, np.where(is_huge, _INT32.max, multiplier))
    return FixedPoint(multiplier, np.where(is_tiny, 0, np.minimum(shift, 30)).astype(np.int64))


def saturating_rounding_doubling_high_mul(a: ArrayLike, b: ArrayLike) -> Ints:
    """Return ``a * b / 2**31`` for 32-bit integers, rounded with ties towards plus infinity, and saturated.

    The name is that of the ARM instruction and of TFLite's function.
    """
    return np.minimum(_high_mul(np.asarray(a, np.int64), np.asarray(b, np.int64)), _INT32.max)


def _high_mul(a: Ints, b: Ints) -> Ints:
    """Return ``a * b / 2**31``, rounded with ties towards plus infinity; not both factors may be -2**31."""
    product = np.multiply(a, b)
    product += 1 << 30
    product >>= 31
    return product


def rounding_divide_by_pot(x: ArrayLike, exponent: ArrayLike) -> Ints:
    """Return ``x / 2**exponent``, rounded with ties away from zero; `x` must be less than 2**61 in magnitude."""
    x, exponent = np.asarray(x, np.int64), np.minimum(np.asarray(exponent, np.int64), 62)
    half = (np.int64(1) << exponent) >> 1
    tie_correction = (x >> 63) & -(exponent > 0).astype(np.int64)  # -1 where x is negative: its ties go down
    rounded: Ints = (x + half + tie_correction) >> exponent
    return rounded


def multiply_by_quantized_multiplier(x: ArrayLike, factor: FixedPoint) -> Ints:
    """Return 32-bit integers times a factor, rounded to integers; an array of factors broadcasts with `x`.

    As in TFLite, bits that a left shift moves beyond 32 bits are lost.
    """
    x = np.asarray(x)
    if np.any(factor.shift > 0):
        x = (x.astype(np.int64) << np.maximum(factor.shift, 0)).astype(np.int32)
    scaled = _high_mul(x.astype(np.int64), factor.multiplier)
    right_shift = np.maximum(-factor.shift, 0)
    return rounding_divide_by_pot(scaled, right_shift) if np.any(right_shift) else scaled


def multiply_wide(x: ArrayLike, factor: FixedPoint) -> Ints:
    """Return sums of up to 48 bits, those of 16-bit activations, times a factor, rounded once with ties upwards.

    Only the upper 16 bits of the factor's multiplier are used, as in TFLite.
    """
    reduced_multiplier = np.where(factor.multiplier < 0x7FFF0000, (factor.multiplier + (1 << 15)) >> 16, 0x7FFF)
    total_shift = 15 - factor.shift
    rounded: Ints = (np.asarray(x, np.int64) * reduced_multiplier + (np.int64(1) << (total_shift - 1))) >> total_shift
    return rounded


def clamp_to(x: Array, dtype: DataType) -> Array:
    """Clamp whole numbers to the range of `dtype`, and return them in that type."""
    clamped: Array = np.clip(x, *limits(dtype)).astype(dtype.numpy)
    return clamped


def limits(dtype: DataType) -> tuple[int, int]:
    """Return the smallest and the largest integer of a type; unlike np.iinfo, 4-bit types have their own limits."""
    if dtype in UNSIGNED_INTEGERS:
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def round_half_away(x: ArrayLike) -> NDArray[np.float64]:
    """Round to whole numbers, ties away from zero, as C's ``round`` does; exact for floats of up to 32 bits."""
    x = np.asarray(x, np.float64)
    whole: NDArray[np.float64] = np.copysign(np.floor(np.abs(x) + 0.5), x)
    return whole


def quantize(
    real: Array, quantization: Quantization, dtype: DataType, rounding: Callable[[Array], Array] = round_half_away
) -> Array:
    """Quantize float values: ``rounding(real / scale) + zero_point``, clamped to `dtype`; NaN gives the zero point.

    The quotient is computed in float32. Scales along an axis apply to that axis.
    """
    scale, zero_point = along_axis(quantization, real.ndim)
    with np.errstate(all="ignore"):
        steps = np.asarray(real, np.float32) / scale.astype(np.float32)
    return clamp_to(rounding(np.where(np.isnan(steps), 0, steps)) + zero_point, dtype)


def dequantize(quantized: Array, quantization: Quantization) -> NDArray[np.float64]:
    """Return the float64 values of quantized integers: ``(codes - zero_point) * scale``."""
    scale, zero_point = along_axis(quantization, quantized.ndim)
    return (quantized.astype(np.float64) - zero_point) * scale


def rescale(quantized: Array, source: Quantization, target: Quantization, dtype: DataType) -> Array:
    """Convert integers of the quantization `source` to integers of the type `dtype` and the quantization `target`.

    The conversion is rounded in fixed-point arithmetic, and the results are clamped to the type.
    """
    if source == target:
        return clamp_to(quantized, dtype)
    scale, zero_point = along_axis(source, quantized.ndim)
    target_scale, target_zero_point = along_axis(target, quantized.ndim)
    steps = quantized.astype(np.int64) - zero_point
    scaled = multiply_by_quantized_multiplier(steps, quantize_multiplier(scale / target_scale))
    return clamp_to(scaled + target_zero_point, dtype)


def quantized_means(sums: Array, counts: ArrayLike, source: TensorInfo, target: TensorInfo) -> Array:
    """Return the quantized means of sums of quantized values minus their zero point, rounded half to even.

    The `source` has the scale of the values, and the `target` type, scale and zero point of the results. A product of
    integers with a float32 scale is exact in float64, so only the quotient is rounded. A mean of no values is zero.
    """
    divisors = np.maximum(counts, 1) * float(np.float32(target.scale))
    with np.errstate(all="ignore"):
        steps = sums * float(np.float32(source.scale)) / divisors
    return clamp_to(np.rint(steps) + target.zero_point, target.dtype)


def along_axis(quantization: Quantization, rank: int) -> tuple[NDArray[np.float64], Ints]:
    """Return the scales (rounded to float32) and zero points of a quantization.

    Both are arrays that broadcast with a tensor of this rank.
    """
    shape = [1] * rank if quantization.per_axis else []
    if quantization.axis is not None:
        shape[quantization.axis] = -1
    scales, zero_points = quantization.arrays
    return scales.astype(np.float32).astype(np.float64).reshape(shape), zero_points.reshape(shape)

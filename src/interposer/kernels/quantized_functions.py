"""Functions of one quantized tensor as TFLite's reference kernels compute them, bit for bit.

Each function takes the quantized values of the input and the infos of the input and output, and returns the quantized
values of the result, before they are clamped to the type.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import Array, TensorInfo
from interposer.kernels.fixedfunctions import inverse_sqrt
from interposer.kernels.fixedpoint import (
    FixedPoint,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    round_half_away,
    rounding_divide_by_pot,
)
from interposer.kernels.quantized_arithmetic import offset, scale32

__all__ = [
    "absolute",
    "at_table",
    "hard_swish",
    "interpolated",
    "interpolation_table",
    "leaky_relu",
    "quantized_bounds",
    "relu",
    "rsqrt",
    "sigmoid16",
    "sqrt",
    "tabulated",
    "tanh16",
]

Ints: TypeAlias = NDArray[np.int64]
Function: TypeAlias = Callable[[Array], Array]


def _rescaled(x: Ints, factor: np.floating, output: TensorInfo) -> Ints:
    return multiply_by_quantized_multiplier(x, quantize_multiplier(factor)) + output.zero_point


def _quantized_bound(real: float, output: TensorInfo, limit: int) -> int:
    if not np.isfinite(real):
        return limit
    return int(round_half_away(np.float32(real) / scale32(output))) + output.zero_point


def quantized_bounds(low: float, high: float, output: TensorInfo) -> tuple[int, int]:
    """Return two float bounds as quantized values of the output, within the limits of its type."""
    limits = np.iinfo(output.dtype.numpy)
    bounds = _quantized_bound(low, output, limits.min), _quantized_bound(high, output, limits.max)
    return max(limits.min, min(limits.max, bounds[0])), max(limits.min, min(limits.max, bounds[1]))


def relu(x: Array, input: TensorInfo, output: TensorInfo, low: float, high: float) -> Ints:
    """Compute a clamp to the float bounds `low` and `high` where input and output have different quantizations."""
    rescaled = _rescaled(offset(x, input), scale32(input) / scale32(output), output)
    return np.clip(rescaled, *quantized_bounds(low, high, output))


def leaky_relu(x: Array, input: TensorInfo, output: TensorInfo, slope: float) -> Ints:
    """Compute leaky ReLU: rescale positive values by one factor, and negative values by that factor times `slope`."""
    distances = offset(x, input)
    positive = _rescaled(distances, scale32(input) / scale32(output), output)
    negative = _rescaled(distances, scale32(input) * np.float32(slope) / scale32(output), output)
    return np.where(distances >= 0, positive, negative)


def absolute(x: Array, input: TensorInfo, output: TensorInfo) -> Ints:
    """Compute the absolute value: the absolute difference to the input's zero point, rescaled to the output."""
    return _rescaled(np.abs(offset(x, input)), scale32(input) / scale32(output), output)


def sqrt(x: Array, input: TensorInfo, output: TensorInfo) -> Ints:
    """Compute the square root in float32, truncated instead of rounded; that of negative numbers is 0."""
    root = np.sqrt(np.maximum(scale32(input) * offset(x, input).astype(np.float32), 0))
    quantized: Ints = np.trunc(root / scale32(output)).astype(np.int64) + output.zero_point
    return quantized


def rsqrt(x: Array, input: TensorInfo, output: TensorInfo) -> Ints:
    """Compute the inverse square root in fixed point; for zero and negative numbers, the type's largest value."""
    distances = offset(x, input)
    inverse = inverse_sqrt(np.maximum(distances, 1))
    scaled = multiply_by_quantized_multiplier(
        np.ones_like(distances), FixedPoint(inverse.multiplier, inverse.shift + 20)
    )
    factor = quantize_multiplier(1 / (np.sqrt(float(scale32(input))) * float(scale32(output))))
    inverse_roots = multiply_by_quantized_multiplier(scaled, FixedPoint(factor.multiplier, factor.shift - 20))
    return np.where(distances > 0, inverse_roots + output.zero_point, np.iinfo(output.dtype.numpy).max)


def _high_mul16(a: Ints, b: Ints | int) -> Ints:
    product: Ints = np.minimum((a * b + (1 << 14)) >> 15, 2**15 - 1)
    return product


def _multiplier16(factor: np.floating) -> tuple[int, int]:
    multiplier, shift = quantize_multiplier(factor)
    return min((int(multiplier) + (1 << 15)) >> 16, 2**15 - 1), int(shift)


def _saturate16(x: Array) -> Ints:
    return np.clip(x, -(2**15), 2**15 - 1).astype(np.int64)


def hard_swish(x: Array, input: TensorInfo, output: TensorInfo) -> Ints:
    """Compute hard swish in 16 bits: the rescaled input times a factor that grows from 0 at -3 to 1 at 3."""
    fine_scale = np.float32(1 / 128) * scale32(input)
    fine = offset(x, input) << 7
    multiplier, shift = _multiplier16(fine_scale / scale32(output))
    rescaled = _high_mul16(fine, multiplier)
    factor, left_shift = _multiplier16(fine_scale / np.float32(3 / 32768))
    gate = _saturate16(fine << max(left_shift - 1, 0))
    gate = _high_mul16(gate, factor)
    gate = _saturate16(gate << 1) if left_shift > 0 else rounding_divide_by_pot(gate, -left_shift)
    product = ((gate + (1 << 15)) >> 1) * rescaled
    truncated = np.sign(product) * (np.abs(product) >> 15)
    return rounding_divide_by_pot(truncated, -shift) + output.zero_point


def tabulated(function: Function, x: Array, input: TensorInfo, output: TensorInfo) -> Array:
    """Compute a function of the dequantized values in float32, rounded with ties away from zero; NaN gives 0."""
    results = function(scale32(input) * offset(x, input).astype(np.float32))
    steps = round_half_away(results * (np.float32(1) / scale32(output)))
    return np.where(np.isnan(steps), 0, steps) + output.zero_point


_STEPS: Final = 512


def interpolation_table(function: Function, low: np.floating, high: np.floating, steps_per_unit: np.floating) -> Ints:
    """Return the values of a function at 513 points from `low` to `high` as 16-bit integers, for linear interpolation.

    `steps_per_unit` is the number of integer steps for a function value of 1. Each point is shifted by half the
    interpolation error of the following interval.
    """
    step = (high - low) / low.dtype.type(_STEPS)
    points = low + np.arange(_STEPS, dtype=step.dtype) * step
    samples = round_half_away(function(points) * steps_per_unit)
    next_samples = function(low + np.arange(1, _STEPS + 1, dtype=step.dtype) * step) * steps_per_unit
    interpolated_midpoints = round_half_away((next_samples + samples.astype(step.dtype)) / 2)
    error = interpolated_midpoints - round_half_away(function(points + step / step.dtype.type(2)) * steps_per_unit)
    last_sample = round_half_away(function(np.asarray([high])) * steps_per_unit)
    entries = np.append(samples - round_half_away(np.nan_to_num(error) / 2), last_sample)
    return _saturate16(entries)


def at_table(table: Ints, x: Array) -> Ints:
    """Interpolate linearly in a table of 513 points, which covers the range of the 16-bit integers of `x`."""
    index = 256 + (x.astype(np.int64) >> 7)
    low = table[index]
    interpolated: Ints = low + (((table[index + 1] - low) * (x.astype(np.int64) & 127) + 64) >> 7)
    return interpolated


def interpolated(function: Function, x: Array, input: TensorInfo, output: TensorInfo) -> Ints:
    """Compute a function of a 16-bit tensor with zero point 0, by an interpolation table over its whole range."""
    low, high = scale32(input) * np.float32(-(2**15)), scale32(input) * np.float32(2**15 - 1)
    span = scale32(output) * np.float32(2**15 - 1) - scale32(output) * np.float32(-(2**15))
    return at_table(interpolation_table(function, low, high, np.float32(2**16) / span), x)


@cache
def _sigmoid_table() -> Ints:
    """Return sigmoid(i / 24) in 16 bits for i from 0 to 255, each shifted by half the interpolation error.

    The last entry is the largest 16-bit number.
    """
    halves = 2.0**16 / (1 + np.exp(-np.arange(513) / 48))
    samples, midpoints = halves[::2], halves[1::2]
    error = (samples[:-1] + samples[1:]) / 2 - midpoints
    table = np.round(samples[:-1] - error / 2).astype(np.int64)
    table[-1] = 2**16 - 1
    return table


_LARGEST_FACTOR: Final = 2.0**40
"""A factor by which every number but 0 is beyond the sigmoid's table, and with which no product overflows."""


def _finest_steps(x: Array, input: TensorInfo) -> Ints:
    """Return the float values of the input in steps of 1/12288, with which the sigmoid's table is indexed."""
    exponent = np.log2(scale32(input)) + 12
    if exponent in (0, 1):
        return offset(x, input) * 3 << int(exponent)
    factor, shift = min(float(scale32(input)) * 4096 * 3, _LARGEST_FACTOR), 0
    while factor <= 32767 / 2 and shift <= 30:
        factor, shift = factor * 2, shift + 1
    return (offset(x, input) * int(factor) + ((1 << shift) >> 1)) >> shift


def _sigmoid_between(x: Ints, shift: int) -> Ints:
    """Interpolate in the table of the sigmoid at the non-negative positions ``x / 2**shift``.

    The results have 16 + `shift` bits.
    """
    index = np.minimum(x >> shift, 254)
    low, high = _sigmoid_table()[index], _sigmoid_table()[index + 1]
    interpolated: Ints = (low << shift) + (x & ((1 << shift) - 1)) * (high - low)
    return interpolated


def sigmoid16(x: Array, input: TensorInfo, output: TensorInfo) -> Ints:
    """Compute the sigmoid of a 16-bit tensor with zero point 0, as multiples of 2**-15."""
    steps = _finest_steps(x, input)
    magnitudes = np.abs(steps)
    of_magnitudes = np.where(magnitudes >> 9 >= 255, 0x7FFF << 10, _sigmoid_between(magnitudes, 9))
    return np.where(steps >= 0, of_magnitudes + (1 << 9), (1 << 25) - of_magnitudes + (1 << 9) - 1) >> 10


def tanh16(x: Array, input: TensorInfo, output: TensorInfo) -> Ints:
    """Compute tanh of a 16-bit tensor with zero point 0, as 2 * sigmoid(2x) - 1, in multiples of 2**-15."""
    steps = _finest_steps(x, input)
    magnitudes = np.abs(steps)
    of_magnitudes = np.where(magnitudes >> 8 >= 255, 0xFFFF << 8, _sigmoid_between(magnitudes, 8))
    return np.where(steps >= 0, of_magnitudes - (1 << 23) + (1 << 7), -of_magnitudes + (1 << 23) + (1 << 7) - 1) >> 8

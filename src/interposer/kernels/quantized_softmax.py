"""Softmax and log-softmax in integers along the last axis, bit for bit as TFLite's reference kernels."""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import Array, TensorInfo
from interposer.kernels.fixedfunctions import exp_of_negative, leading_zeros, log, reciprocal, rescale
from interposer.kernels.fixedpoint import (
    FixedPoint,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)
from interposer.kernels.quantized_functions import at_table, interpolation_table

__all__ = ["log_softmax8", "softmax8", "softmax16"]

Ints: TypeAlias = NDArray[np.int64]


def _factor(input: TensorInfo, beta: float) -> tuple[FixedPoint, int]:
    """Return the factor from quantized values to fixed-point numbers with 5 integer bits, and a least difference.

    The exponentials of differences below it (more negative ones) are treated as 0. The factor includes the scale and
    `beta`.
    """
    factor = quantize_multiplier(min(beta * input.scale * 2**26, 2.0**31 - 1))
    return factor, -int(31 * 2**26 // 2 ** int(factor.shift))


def _minus_max(x: Array) -> Ints:
    integers = x.astype(np.int64)
    difference: Ints = integers - integers.max(axis=-1, keepdims=True)
    return difference


def _exps(difference: Ints, factor: FixedPoint, least_difference: int) -> Ints:
    exps = exp_of_negative(multiply_by_quantized_multiplier(difference, factor), 5)
    return np.where(difference >= least_difference, exps, 0)


def softmax8(x: Array, input: TensorInfo, output: TensorInfo, beta: float) -> Ints:
    """Compute softmax of `beta` times 8-bit values, in steps of 1/256 counted from the smallest integer of the type."""
    difference = _minus_max(x)
    exps = _exps(difference, *_factor(input, beta))
    total = rescale(exps, 0, 12).sum(axis=-1, keepdims=True)
    inverse, exponent = reciprocal(total, 12)
    scaled = saturating_rounding_doubling_high_mul(inverse, exps)
    return rounding_divide_by_pot(scaled, exponent + 31 - 8) + np.iinfo(x.dtype).min


def log_softmax8(x: Array, input: TensorInfo, output: TensorInfo, beta: float) -> Ints:
    """Compute log-softmax of `beta` times 8-bit values, in steps of 1/16 from the largest integer of the type."""
    factor, least = _factor(input, beta)
    difference = _minus_max(x)
    log_sum = log(rescale(_exps(difference, factor, least), 0, 12).sum(axis=-1, keepdims=True), 12, 5)
    inverse_factor = quantize_multiplier(2.0 ** (31 - factor.shift) / np.maximum(factor.multiplier, 1))
    least_difference = np.maximum(least - 1, multiply_by_quantized_multiplier(log_sum - 2**31, inverse_factor))
    logarithms = rounding_divide_by_pot(multiply_by_quantized_multiplier(difference, factor) - log_sum, 31 - 5 - 4)
    limits = np.iinfo(x.dtype)
    return np.where(difference > least_difference, logarithms + limits.max, limits.min)


@cache
def _tables() -> tuple[Ints, Ints]:
    """Return two tables for `at_table`, in 16 bits: exp(x) for -10 <= x <= 0, and 1 / (1 + x) for 0 <= x <= 1."""
    steps_per_unit = np.float64(2**15)
    exps = interpolation_table(np.exp, np.float64(-10), np.float64(0), steps_per_unit)
    inverses = interpolation_table(lambda x: 1 / (1 + x), np.float64(0), np.float64(1), steps_per_unit)
    return exps, inverses


def softmax16(x: Array, input: TensorInfo, output: TensorInfo, beta: float) -> Ints:
    """Compute softmax of `beta` times 16-bit values in steps of 2**-15, by tables of exponential and reciprocal."""
    exp_table, inverse_table = _tables()
    factor = quantize_multiplier(input.scale * beta / (10 / 65535))
    scaled = multiply_by_quantized_multiplier(_minus_max(x), factor)
    exps = at_table(exp_table, np.clip(scaled + 32767, -(2**15), 2**15 - 1))
    total = exps.sum(axis=-1, keepdims=True)
    zeros = leading_zeros(total)
    mantissa = ((total << (zeros - 1)) + (1 << 13)) >> 14
    inverse = at_table(inverse_table, np.clip(mantissa - 3 * 2**15, -(2**15), 2**15 - 1))
    shift = 31 - zeros
    probabilities: Ints = np.clip((exps * inverse + (1 << (shift - 1))) >> shift, 0, 2**15 - 1)
    return probabilities

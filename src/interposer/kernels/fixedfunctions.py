"""Functions of fixed-point numbers as TFLite's reference kernels compute them, bit for bit.

A fixed-point number is a 32-bit integer with a sign, some integer bits, and fractional bits for the rest: "Q5" has 5
integer bits and 26 fractional ones. Arrays hold them as int64.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from interposer.kernels.fixedpoint import FixedPoint, rounding_divide_by_pot, saturating_rounding_doubling_high_mul

__all__ = ["exp_of_negative", "inverse_sqrt", "leading_zeros", "log", "reciprocal", "rescale"]

Ints = NDArray[np.int64]
_ONE: Final = 2**31 - 1
_times = saturating_rounding_doubling_high_mul


def _constant(real: float, integer_bits: int = 0) -> int:
    return round(float(real) * 2.0 ** (31 - integer_bits))


def rescale(x: Ints, source_bits: int, target_bits: int) -> Ints:
    """Return fixed-point numbers of `source_bits` integer bits as numbers of `target_bits`, rounded or saturated."""
    exponent = source_bits - target_bits
    if exponent < 0:
        return rounding_divide_by_pot(x, -exponent)
    return _shifted(x, exponent)


def _shifted(x: Ints, exponent: Ints | int) -> Ints:
    """Return ``x * 2**exponent``, saturated to 32 bits."""
    saturated: Ints = np.clip(x << exponent, -(2**31), _ONE)
    return saturated


def leading_zeros(x: Ints) -> Ints:
    """Return for integers from 0 to 2**32 - 1 the number of leading zero bits of their 32 bits."""
    return 32 - np.frexp(np.asarray(x, np.float64))[1].astype(np.int64)


def exp_of_negative(x: Ints, integer_bits: int) -> Ints:
    """Compute exp(x) in Q0 for numbers x <= 0 with this number of integer bits.

    A Taylor series gives the exponential of x modulo 1/4. It is multiplied by a constant for each set bit of the rest.
    """
    quarter = _constant(0.25, integer_bits)
    remainder = (x & (quarter - 1)) - quarter
    exponential = _exp_near_eighth(rescale(remainder, integer_bits, 0))
    quarter_multiple = remainder - x
    for exponent in range(-2, integer_bits):
        factor = _constant(np.exp(-(2.0**exponent)))
        bit = 1 << (31 - integer_bits + exponent)
        exponential = np.where(quarter_multiple & bit, _times(exponential, factor), exponential)
    return np.where(x == 0, _ONE, exponential)


def _exp_near_eighth(x: Ints) -> Ints:
    """Compute exp(x) in Q0 for -1/4 <= x < 0 in Q0, by the Taylor series around -1/8 up to the fourth power."""
    x = x + _constant(1 / 8)
    square = _times(x, x)
    fourth = rounding_divide_by_pot(_times(square, square), 2)
    third = _times(_times(square, x) + fourth, _constant(1 / 3))
    scale = _constant(np.exp(-1 / 8))
    return scale + _times(x + rounding_divide_by_pot(third + square, 1), scale)


def _one_over_one_plus(x: Ints) -> Ints:
    """Compute 1 / (1 + x) in Q0 for 0 <= x < 1 in Q0, by three steps of Newton's iteration in Q2."""
    half = (x + _ONE + 1) >> 1
    estimate = _constant(48 / 17, 2) + _times(half, _constant(-32 / 17, 2))
    for _ in range(3):
        error = _constant(1, 2) - _times(half, estimate)
        estimate = estimate + rescale(_times(estimate, error), 4, 2)
    return rescale(estimate, 1, 0)


def reciprocal(x: Ints, integer_bits: int) -> tuple[Ints, Ints]:
    """Compute 1 / x for numbers x > 0 with this number of integer bits.

    Return a number in Q0, and the exponent of the power of 2 by which it must be divided.
    """
    zeros = leading_zeros(x)
    return _one_over_one_plus((x << zeros) - 2**31), integer_bits - zeros


def inverse_sqrt(x: Ints) -> FixedPoint:
    """Compute 1 / sqrt(x) for integers x, by five steps of Newton's iteration in Q3; 0 is treated as 1."""
    quarter_shift = np.maximum(0, (32 - leading_zeros(x) - 28) // 2)
    reduced = x >> (2 * quarter_shift)
    zero_pairs = (leading_zeros(np.maximum(reduced, 2)) - 1) // 2 - 1
    shift = 11 + quarter_shift - zero_pairs
    half_mantissa = rounding_divide_by_pot((reduced << (2 * zero_pairs)) >> 1, 1)
    estimate = np.full_like(x, _constant(1, 3))
    for _ in range(5):
        cube = rescale(_times(_times(estimate, estimate), estimate), 9, 3)
        estimate = rescale(_times(_constant(1.5, 3), estimate) - _times(half_mantissa, cube), 6, 3)
    root = _times(estimate, _constant(np.sqrt(0.5))) << np.maximum(-shift, 0)
    is_at_most_one = x <= 1
    return FixedPoint(np.where(is_at_most_one, _ONE, root), np.where(is_at_most_one, 0, -np.maximum(shift, 0)))


def log(x: Ints, integer_bits: int, result_bits: int) -> Ints:
    """Compute the natural logarithm of numbers x >= 1 with `integer_bits` integer bits; the result has `result_bits`.

    x is split into 2**p * r, with r near the fourth root of 1/2. Of the two possible splits, the one with the smaller r
    is taken.
    """
    inner_bits = result_bits + 1
    quarter = _constant(0.25, inner_bits)
    zeros = leading_zeros(x)
    mantissa_a = _shifted(_times(x << (zeros - 1), _constant(np.sqrt(0.5))), 1)
    power_a = _shifted(integer_bits - zeros, 31 - inner_bits) + quarter
    headroom = leading_zeros(_times(x, _constant(np.sqrt(0.5)))) - 1
    mantissa_b = _shifted(x, headroom)
    power_b = _shifted(integer_bits - headroom, 31 - inner_bits) - quarter
    power = np.clip(np.maximum(power_a, power_b), -(2**31), _ONE)
    numerator, inverse_denominator = _log_fraction(np.minimum(mantissa_a, mantissa_b))
    fraction = _times(rescale(numerator, 0, inner_bits), inverse_denominator)
    return rescale(_times(power, _constant(np.log(2))) + fraction, inner_bits, result_bits)


def _log_fraction(r: Ints) -> tuple[Ints, Ints]:
    """Compute the numerator and inverse denominator of log(r * 2**(1/4)) in Q0, for r near the fourth root of 1/2."""
    root = float(np.sqrt(np.sqrt(2)))
    p = (r + _constant(1 / root) + 1) >> 1
    q = 2 * (r - _constant(1 / root))
    square = _times(q, q)
    numerator = _times(q, r) + _times(_times(q, square), _constant(11 / 240 * root))
    inner = _constant(2 / root - root) + q + _times(_constant(root / 20), square)
    denominator_minus_one = _times(p, inner) + _times(_constant(root / 4), q)
    return numerator, _one_over_one_plus(denominator_minus_one)

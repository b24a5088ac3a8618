"""Sigmoid and hyperbolic tangent of 16-bit fixed-point numbers, as TFLite's integer LSTMs compute them, bit for bit.

A number has 16 bits: a sign, some integer bits, and fractional bits for the rest. "Q3" has 3 integer bits and 12
fractional ones. Results are in Q0, where 1 is 32767. These functions compute an exponential and a division in 16 bits,
unlike the functions of 16-bit tensors, which interpolate in a table.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import Array
from interposer.kernels.fixedpoint import rounding_divide_by_pot

__all__ = ["high_mul", "saturate", "sigmoid", "tanh"]

Ints = NDArray[np.int64]
_ONE: Final = 2**15 - 1
_LARGEST_POWER: Final = 4


def saturate(x: Array) -> Ints:
    """Clamp integers to the range of int16."""
    return np.clip(x, -(2**15), _ONE).astype(np.int64)


def high_mul(a: Ints | int, b: Ints | int) -> Ints:
    """Multiply two 16-bit fixed-point numbers, rounded with ties upwards.

    The number of integer bits of the product is the sum of those of the factors.
    """
    product: Ints = np.minimum((np.asarray(a, np.int64) * b + (1 << 14)) >> 15, _ONE)
    return product


def _constant(real: float, integer_bits: int = 0) -> int:
    """Return a float constant as a 16-bit fixed-point number, rounded to 32 bits and then to 16 as in TFLite."""
    return int(rounding_divide_by_pot(round(real * 2.0 ** (31 - integer_bits)), 16))


def _multiplied(x: Ints, exponent: int) -> Ints:
    return saturate(x << exponent) if exponent > 0 else rounding_divide_by_pot(x, -exponent)


def _exp_of_negative(x: Ints, integer_bits: int) -> Ints:
    """Compute exp(x) in Q0 for 16-bit numbers x <= 0 with this number of integer bits.

    A Taylor series gives the exponential of x modulo 1/4. It is multiplied by a constant for each set bit of the rest.
    """
    fractional_bits = 15 - integer_bits
    quarter = 1 << (fractional_bits - 2)
    remainder = (x & (quarter - 1)) - quarter
    exponential = _exp_near_eighth(_multiplied(remainder, integer_bits))
    quarter_multiple = remainder - x
    for exponent in range(-2, min(integer_bits, _LARGEST_POWER + 1)):
        factor = _constant(float(np.exp(-(2.0**exponent))))
        exponential = np.where(
            quarter_multiple & (1 << (fractional_bits + exponent)), high_mul(exponential, factor), exponential
        )
    if integer_bits > _LARGEST_POWER + 1:
        exponential = np.where(x < -(32 << fractional_bits), 0, exponential)
    return np.where(x == 0, _ONE, exponential)


def _exp_near_eighth(x: Ints) -> Ints:
    """Compute exp(x) in Q0 for -1/4 <= x < 0 in Q0, by the Taylor series around -1/8 up to the fourth power."""
    x = x + _constant(1 / 8)
    square = high_mul(x, x)
    fourth = rounding_divide_by_pot(high_mul(square, square), 2)
    third = high_mul(high_mul(square, x) + fourth, _constant(1 / 3))
    scale = _constant(float(np.exp(-1 / 8)))
    return saturate(scale + high_mul(x + rounding_divide_by_pot(third + square, 1), scale))


def _two_over_one_plus(x: Ints) -> Ints:
    """Compute 2 / (1 + x) in Q2 for 0 <= x < 1 in Q0, by three steps of Newton's iteration."""
    half = (x + _ONE + 1) >> 1
    estimate = _constant(48 / 17, 2) + high_mul(half, _constant(-32 / 17, 2))
    for _ in range(3):
        error = (1 << 13) - high_mul(half, estimate)
        estimate = estimate + _multiplied(high_mul(estimate, error), 2)
    return np.asarray(estimate)


def _all_integers() -> Ints:
    return np.arange(-(2**15), 2**15)


@cache
def _sigmoid_table() -> Ints:
    integers = _all_integers()
    of_positive = _multiplied(_two_over_one_plus(_exp_of_negative(-np.abs(integers), 3)), 1)
    table = np.where(integers > 0, of_positive, _ONE - of_positive)
    table[integers == 0] = 1 << 14
    return table


@cache
def _tanh_table(integer_bits: int) -> Ints:
    """Return tanh of every 16-bit fixed-point number with this number of integer bits, from the smallest number on.

    It is computed as 2 / (1 + exp(-2x)) - 1. Doubling x adds one integer bit.
    """
    integers = _all_integers()
    exps = _exp_of_negative(-np.abs(integers), integer_bits + 1)
    return np.sign(integers) * _multiplied(_two_over_one_plus(exps) - (1 << 13), 2)


def sigmoid(x: Ints) -> Ints:
    """Compute the sigmoid of 16-bit numbers in Q3; the results are in Q0."""
    return _sigmoid_table()[x + 2**15]


def tanh(x: Ints, integer_bits: int) -> Ints:
    """Compute the hyperbolic tangent of 16-bit numbers with 0 to 6 integer bits; the results are in Q0."""
    return _tanh_table(integer_bits)[x + 2**15]

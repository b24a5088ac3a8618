"""The fixed-point arithmetic against the definitions, spelled out for one number in Python's own integers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.types import DataType, Quantization
from interposer.kernels.fixedpoint import (
    FixedPoint,
    clamp_to,
    dequantize,
    multiply_by_quantized_multiplier,
    multiply_wide,
    quantize,
    quantize_multiplier,
    rescale,
    round_half_away,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)

INT32 = st.integers(-(2**31), 2**31 - 1)


def truncated(a: int, b: int) -> int:
    """Divide as C does, rounding towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def high_mul(a: int, b: int) -> int:
    if a == b == -(2**31):
        return 2**31 - 1
    product = a * b
    nudge = 2**30 if product >= 0 else 1 - 2**30
    return truncated(product + nudge, 2**31)


def divide_by_pot(x: int, exponent: int) -> int:
    mask = (1 << exponent) - 1
    return (x >> exponent) + ((x & mask) > (mask >> 1) + (x < 0))


@given(INT32, INT32)
def test_high_multiplication_is_that_of_the_definition(a, b):
    assert saturating_rounding_doubling_high_mul(a, b) == high_mul(a, b)


@given(st.sampled_from([-(2**31), 2**31 - 1, 2**30, -(2**30), 1, -1, 0]), st.sampled_from([-(2**31), 2**31 - 1, 2**30]))
def test_high_multiplication_is_right_at_the_borders(a, b):
    assert saturating_rounding_doubling_high_mul(a, b) == high_mul(a, b)


@given(INT32, st.integers(0, 70))
def test_division_by_a_power_of_two_is_that_of_the_definition(x, exponent):
    assert rounding_divide_by_pot(x, exponent) == divide_by_pot(x, exponent)


@pytest.mark.parametrize(("x", "expected"), [(-3, -2), (-2, -1), (-1, -1), (0, 0), (1, 1), (2, 1), (3, 2)])
def test_halves_are_divided_away_from_zero(x, expected):
    assert rounding_divide_by_pot(x, 1) == expected


@given(st.floats(1e-9, 1e9))
def test_a_factor_becomes_the_nearest_fixed_point_number(real):
    multiplier, shift = quantize_multiplier(real)
    assert 2**30 <= multiplier < 2**31
    assert math.isclose(float(multiplier) * 2.0 ** (int(shift) - 31), real, rel_tol=2**-30)


@pytest.mark.parametrize(
    ("real", "multiplier", "shift"),
    [
        (0.0, 0, 0),
        (0.5, 2**30, 0),
        (1.0, 2**30, 1),
        (1.0 - 2**-40, 2**30, 1),  # rounds up to the next power of two
        (2.0**-33, 0, 0),  # too small
        (2.0**-32, 2**30, -31),
        (2.0**40, 2**31 - 1, 30),  # too large
        (np.inf, 2**31 - 1, 30),
    ],
)
def test_factors_at_the_borders(real, multiplier, shift):
    assert quantize_multiplier(real) == (multiplier, shift)


@given(st.integers(-(2**24), 2**24), st.floats(1e-8, 100.0))
def test_multiplication_rounds_in_two_steps(x, real):
    factor = quantize_multiplier(real)
    multiplier, shift = int(factor.multiplier), int(factor.shift)
    shifted = (x << max(shift, 0)) + 2**31 & 0xFFFFFFFF
    expected = divide_by_pot(high_mul(shifted - 2**31, multiplier), max(-shift, 0))
    assert multiply_by_quantized_multiplier(np.int32(x), factor) == expected


def test_every_channel_has_a_factor_of_its_own():
    factor = quantize_multiplier([0.5, 1.0, 4.0])
    assert multiply_by_quantized_multiplier(np.array([[3, 3, 3], [-3, -3, -3]]), factor).tolist() == [
        [2, 3, 12],
        [-1, -3, -12],  # -1.5 goes up, as it is not shifted to the right
    ]


@given(st.integers(-(2**47), 2**47 - 1), st.integers(2**30, 2**31 - 1), st.integers(-31, 7))
@settings(max_examples=200)
def test_wide_multiplication_uses_sixteen_bits_of_the_factor(x, multiplier, shift):
    reduced = (multiplier + 2**15) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF
    expected = (x * reduced + (1 << (14 - shift))) >> (15 - shift)
    assert multiply_wide(x, FixedPoint(np.int64(multiplier), np.int64(shift))) == expected


def test_clamping_gives_the_nearest_value_of_the_type():
    assert clamp_to(np.array([-1, 0, 255, 256]), DataType.UINT8).tolist() == [0, 0, 255, 255]
    assert clamp_to(np.array([-129, 128]), DataType.INT8).dtype == np.int8


@pytest.mark.parametrize(
    ("x", "expected"), [(0.5, 1), (-0.5, -1), (1.5, 2), (2.5, 3), (-2.5, -3), (0.49999997, 0), (8388609.0, 8388609)]
)
def test_rounding_takes_ties_away_from_zero(x, expected):
    assert round_half_away(np.float32(x)) == expected


def test_quantizing_rounds_clamps_and_takes_nan_for_zero():
    real = np.array([0.0, 0.25, -0.25, 1e9, -np.inf, np.nan], np.float32)
    assert quantize(real, Quantization(0.5, 3), DataType.UINT8).tolist() == [3, 4, 2, 255, 0, 3]


def test_scales_and_zero_points_may_lie_along_an_axis():
    q = Quantization([1.0, 0.5], [0, 1], axis=1)
    real = np.array([[1.0, 1.0], [2.0, 2.0]], np.float32)
    codes = quantize(real, q, DataType.INT8)
    assert codes.tolist() == [[1, 3], [2, 5]]
    assert dequantize(codes, q).tolist() == real.tolist()


def test_rescaling_moves_the_zero_point_and_rounds_away_from_zero():
    codes = rescale(np.array([0, 130, 255], np.uint8), Quantization(0.5, 128), Quantization(2.0, -1), DataType.INT8)
    assert codes.tolist() == [-33, 0, 31]


def test_rescaling_between_equal_scales_keeps_the_codes():
    q = Quantization(0.5, 3)
    assert rescale(np.array([-128, 127], np.int8), q, q, DataType.INT8).tolist() == [-128, 127]

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer.kernels.fixedfunctions import exp_of_negative, inverse_sqrt, leading_zeros, log, reciprocal, rescale

STEP = 2.0**-31


def ints(*values):
    return np.array(values, np.int64)


def test_numbers_get_more_integer_bits_by_rounding_and_fewer_by_saturating():
    np.testing.assert_array_equal(rescale(ints(5, -5, 2**30), 0, 1), [3, -3, 2**29])
    np.testing.assert_array_equal(rescale(ints(5, 2**30, -(2**30) - 1), 2, 1), [10, 2**31 - 1, -(2**31)])


@pytest.mark.parametrize(("value", "zeros"), [(0, 32), (1, 31), (2**31 - 1, 1), (2**31, 0), (2**32 - 1, 0)])
def test_zeros_are_counted_from_the_top_of_32_bits(value, zeros):
    assert leading_zeros(ints(value)) == zeros


@given(st.integers(-(2**31), 0))
def test_the_exponential_is_right_to_six_digits(raw):
    [result] = exp_of_negative(ints(raw), 5)
    assert result * STEP == pytest.approx(np.exp(raw * STEP * 32), abs=1e-6)


@given(st.integers(1, 2**31 - 1))
def test_the_reciprocal_is_right_to_seven_digits(raw):
    [result], [exponent] = reciprocal(ints(raw), 31)
    assert result * STEP / 2.0**exponent == pytest.approx(1 / raw, rel=2e-7)


@given(st.integers(1, 2**31 - 1))
def test_the_inverse_square_root_is_right_to_five_digits(value):
    result = inverse_sqrt(ints(value))
    assert result.multiplier[0] * STEP * 2.0 ** result.shift[0] == pytest.approx(value**-0.5, rel=1e-5)


def test_the_inverse_square_root_of_zero_counts_as_that_of_one():
    result = inverse_sqrt(ints(0, 1))
    assert result.multiplier.tolist() == [2**31 - 1] * 2
    assert result.shift.tolist() == [0, 0]


@given(st.integers(2**19, 2**31 - 1))
def test_the_logarithm_is_right_to_seven_digits(raw):
    [result] = log(ints(raw), 12, 5)
    assert result * STEP * 32 == pytest.approx(np.log(raw / 2**19), abs=2e-7)

"""Sigmoid and hyperbolic tangent in 16 bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer.kernels.gates16 import high_mul, saturate, sigmoid, tanh

CODES = np.arange(-(2**15), 2**15)
INT16 = st.integers(-(2**15), 2**15 - 1)


def test_the_sigmoid_is_near_the_real_one_and_exact_at_zero():
    np.testing.assert_allclose(sigmoid(CODES) / 2**15, 1 / (1 + np.exp(-CODES / 2**12)), atol=2e-4)
    assert sigmoid(np.array([0])).item() == 2**14


@pytest.mark.parametrize("integer_bits", range(7))
def test_the_tangent_is_near_the_real_one_for_every_count_of_integer_bits(integer_bits):
    result = tanh(CODES, integer_bits)
    np.testing.assert_allclose(result / 2**15, np.tanh(CODES / 2.0 ** (15 - integer_bits)), atol=4e-4)
    assert result[2**15] == 0


def test_the_tangent_of_large_numbers_is_the_largest_fraction():
    assert tanh(np.array([-(2**15), 2**15 - 1]), 6).tolist() == [-(2**15) + 1, 2**15 - 1]


@given(st.integers(1, 2**15 - 1), st.integers(0, 6))
def test_both_functions_are_symmetrical(x, integer_bits):
    pair = np.array([x, -x])
    assert sigmoid(pair).sum() == 2**15 - 1
    assert tanh(pair, integer_bits).sum() == 0


@given(INT16, INT16)
def test_a_product_of_fractions_is_rounded_with_ties_upwards_and_saturated(a, b):
    exact = a * b / 2**15
    assert high_mul(np.int64(a), b) == min(np.floor(exact + 0.5), 2**15 - 1)


def test_numbers_are_saturated_to_16_bits():
    assert saturate(np.array([-99999, -5, 99999])).tolist() == [-(2**15), -5, 2**15 - 1]

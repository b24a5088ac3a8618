"""CpuAcc computes and converts numbers of 8 and fewer bits as the reference does."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataType, TensorInfo
from interposer.ops import Activation, ActivationFunction, Addition, Cast, Multiplication
from tests.backends.cpuacc.single import network_of, outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

SMALL_FLOATS = [dtype for dtype in DataType if dtype.is_float and dtype.bits <= 8]
SMALL_INTEGERS = [dtype for dtype in DataType if dtype.is_integer and dtype.bits < 8]
ARITHMETIC = [dtype for dtype in SMALL_FLOATS if dtype.name.startswith(("FLOAT8_E4", "FLOAT8_E5"))]


def same(result: Array, expected: Array) -> None:
    """Check that arrays are equal, where any NaN equals any other, and -0 differs from 0."""
    numbers = [np.asarray(array).astype(np.float64) for array in (result, expected)]
    np.testing.assert_array_equal(*numbers)
    zeros = numbers[1] == 0
    np.testing.assert_array_equal(np.signbit(numbers[0][zeros]), np.signbit(numbers[1][zeros]))


def cast(array: Array, dtype: DataType) -> list[Array]:
    network, given = network_of(Cast(dtype=dtype), [array])
    return [results[0] for results in outcomes(network, given, threads=2)]


@pytest.mark.parametrize("dtype", SMALL_FLOATS)
def test_every_number_of_16_bits_becomes_a_small_float(dtype: DataType) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    singles = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    is_normal = ~(np.abs(singles) < np.finfo(np.float32).tiny)  # ml_dtypes rounds the others upwards
    wide = bits.view(ml_dtypes.bfloat16)[is_normal]
    for array in (bits.view(np.float16), wide, bits.view(np.float16).astype(np.float64)):
        same(*cast(array, dtype))


@pytest.mark.parametrize("dtype", SMALL_FLOATS)
@pytest.mark.parametrize("target", [DataType.FLOAT32, DataType.FLOAT16, DataType.INT8, DataType.BOOL])
def test_every_small_float_becomes_another_number(dtype: DataType, target: DataType) -> None:
    count = min(1 << dtype.bits, 256)
    same(*cast(np.arange(count, dtype=np.uint8).view(dtype.numpy), target))


@pytest.mark.parametrize("dtype", SMALL_INTEGERS)
def test_integers_become_small_ones_and_back(dtype: DataType) -> None:
    integers = np.arange(-300, 300)
    same(*cast(integers, dtype))
    same(*cast(integers.astype(np.float32) / 4, dtype))
    same(*cast(integers.astype(dtype.numpy), DataType.INT64))
    same(*cast(integers.astype(dtype.numpy), DataType.FLOAT32))


@pytest.mark.parametrize("dtype", ARITHMETIC)
def test_results_are_rounded_after_every_layer(dtype: DataType) -> None:
    network = ip.Network("chain")
    x = network.add_input_layer(0, TensorInfo((300,), dtype))
    double = network.add_layer(Addition(), x, x)
    square = network.add_layer(Multiplication(), double, double)
    network.add_output_layer(0, network.add_layer(Activation(ActivationFunction.SIGMOID), square))
    network.add_output_layer(1, square)
    array = np.random.default_rng(1).normal(0, 8, 300).astype(np.float32).astype(dtype.numpy)
    for result, expected in zip(*outcomes(network, [array]), strict=True):
        same(result, expected)

"""CpuAcc compares quantized values of one scale directly, as CpuRef does: maxima of two tensors and of windows."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops import Maximum, MaxPoolingWithIndices, Minimum
from tests.backends.cpuacc.single import network_of, outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

RNG = np.random.default_rng(7)
Q = Quantization(0.03, 5)


@pytest.mark.parametrize("op", [Maximum(), Minimum()], ids=["maximum", "minimum"])
@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.int32, np.uint32, np.int64])
def test_the_larger_of_two_values_of_one_scale_is_exact_in_all_bits(op: Maximum | Minimum, dtype: type) -> None:
    limits = np.iinfo(dtype)
    a = RNG.integers(limits.min, limits.max, (3, 70), dtype)
    b = (a[:1] ^ 1).astype(dtype)  # differs in the last bit, which float32 does not have
    network, given = network_of(op, [a, b], quantizations={0: Q, 1: Q})
    result, expected = outcomes(network, given)
    np.testing.assert_array_equal(result[0], expected[0])
    np.testing.assert_array_equal(result[0], (np.maximum if isinstance(op, Maximum) else np.minimum)(a, b))


@pytest.mark.parametrize(("dtype", "zero_point"), [(DataType.INT8, -100), (DataType.UINT8, 30), (DataType.INT16, 9)])
def test_a_window_without_elements_has_the_zero_point_and_no_index(dtype: DataType, zero_point: int) -> None:
    network = ip.Network("pooling")
    image = network.add_input_layer(0, TensorInfo((1, 2, 4, 5), dtype, Quantization(0.1, zero_point)))
    op = MaxPoolingWithIndices(window_shape=(2, 2), strides=(2, 2), dilations=(6, 1), pad_list=((3, 3), (0, 0)))
    for n, output in enumerate(network.add_layer(op, image).outputs):
        network.add_output_layer(n, output)
    given = [RNG.integers(0, 100, (1, 2, 4, 5)).astype(dtype.numpy)]
    result, expected = outcomes(network, given)
    assert (expected[1] == -1).any()
    for one, other in zip(result, expected, strict=True):
        np.testing.assert_array_equal(one, other)

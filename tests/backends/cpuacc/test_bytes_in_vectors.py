"""CpuAcc's results on bytes are those of CpuRef: lengths, searches and resized images of every width."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataLayout, DataType, Quantization, TensorInfo
from interposer.ops import ArgMinMax, ArgMinMaxFunction, L2Normalization, Resize, ResizeMethod, Transpose
from tests.backends.cpuacc.single import network_of, outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

RNG = np.random.default_rng(11)
BYTES = [np.int8, np.uint8]


def some_bytes(shape: tuple[int, ...], dtype: type) -> Array:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_lengths_along_any_axis_have_the_bits_of_the_reference(dtype: type, axis: int) -> None:
    x = some_bytes((4, 5, 70), dtype)
    x[:, 0, :8] = x[0, :, 3:6] = 7  # rows of zeros and of small numbers
    x[1, 1, 2:4] = 8
    network, dtype_of_x = ip.Network("lengths"), DataType.of(x.dtype)
    operand = network.add_input_layer(0, TensorInfo(x.shape, dtype_of_x, Quantization(0.2, 7)))
    prescribed = TensorInfo(x.shape, dtype_of_x, Quantization(1 / 128, 0 if dtype is np.int8 else 128))
    network.add_output_layer(0, network.add_layer(L2Normalization(axis=axis), operand, outputs=[prescribed]))
    result, expected = outcomes(network, [x])
    np.testing.assert_array_equal(result[0], expected[0])


@pytest.mark.parametrize("dtype", [*BYTES, np.int16])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape", [(3, 700), (700, 3), (5, 21), (300, 70)])
def test_the_first_or_last_of_equal_bytes_is_found(dtype: type, last: bool, shape: tuple[int, int]) -> None:
    x = (some_bytes(shape, dtype) // 64).astype(dtype)
    function = ArgMinMaxFunction.MIN if shape[0] % 2 else ArgMinMaxFunction.MAX
    for axis in (0, 1):
        op = ArgMinMax(function, axis, select_last_index=last)
        result, expected = outcomes(*network_of(op, [x]))
        np.testing.assert_array_equal(result[0], expected[0])


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("channels", [1, 3, 15, 16, 21, 40])
@pytest.mark.parametrize("half_pixel_centers", [False, True])
def test_interpolated_bytes_have_the_bits_of_the_reference(
    dtype: type, channels: int, half_pixel_centers: bool
) -> None:
    op = Resize(19, 12, ResizeMethod.BILINEAR, DataLayout.NHWC, half_pixel_centers=half_pixel_centers)
    result, expected = outcomes(*network_of(op, [some_bytes((2, 5, 23, channels), dtype)]))
    np.testing.assert_array_equal(result[0], expected[0])


def test_bytes_that_are_transposed_around_a_resize_have_the_bits_of_the_reference() -> None:
    network = ip.Network("resize")
    image = network.add_input_layer(0, TensorInfo((2, 6, 5, 24), DataType.UINT8))
    first = network.add_layer(Transpose((0, 3, 1, 2)), image)
    resized = network.add_layer(Resize(9, 7, data_layout=DataLayout.NCHW), first)
    last = network.add_layer(Transpose((0, 2, 3, 1)), resized)
    network.add_output_layer(0, last)
    result, expected = outcomes(network, [some_bytes((2, 6, 5, 24), np.uint8)])
    np.testing.assert_array_equal(result[0], expected[0])

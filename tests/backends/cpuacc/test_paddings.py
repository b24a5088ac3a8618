"""Windows with padding at one end only, or with gaps, give CpuRef's results on CpuAcc, for floats and 8-bit values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import interposer as ip
from interposer.core.schema import Op
from interposer.core.types import Array, DataLayout, Quantization, TensorInfo
from interposer.ops import (
    Convolution2d,
    DepthwiseConvolution2d,
    PaddingMethod,
    Pooling2d,
    PoolingAlgorithm,
    TransposeConvolution2d,
)
from tests.backends.cpuacc.single import outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

SIDES = ["pad_left", "pad_right", "pad_top", "pad_bottom"]
LAYOUTS = [DataLayout.NHWC, DataLayout.NCHW]
DTYPES = ["float32", "int8"]


def drawn(shape: tuple[int, ...], dtype: str) -> Array:
    rng = np.random.default_rng(len(shape) + sum(shape))
    if dtype == "float32":
        return rng.standard_normal(shape).astype(np.float32)
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)


def in_layout(shape: tuple[int, int, int, int], layout: DataLayout) -> tuple[int, ...]:
    n, h, w, c = shape
    return shape if layout is DataLayout.NHWC else (n, c, h, w)


class Windows:
    """A network of layers beside one another, each with an image of its own."""

    def __init__(self, dtype: str) -> None:
        self.network, self.images = ip.Network("windows"), list[Array]()
        self.quantized = dtype != "float32"
        self.quantization = Quantization(0.05, 7) if self.quantized else None
        self.of_weights = Quantization(0.02, 0 if dtype == "int8" else 121) if self.quantized else None

    def add(self, op: Op, image: Array, weights: Array | None = None) -> None:
        dtype, number = str(image.dtype), len(self.images)
        info = TensorInfo(image.shape, dtype, self.quantization)
        layers, infos = [self.network.add_input_layer(number, info)], [info]
        result = self.quantization
        if weights is not None:
            layers.append(self.network.add_constant_layer(weights, self.of_weights))
            infos.append(TensorInfo(weights.shape, dtype, self.of_weights))
            result = Quantization(0.4, 3) if self.quantized else None
        tensor_info = TensorInfo(op.infer(*infos, *[None] * (len(op.operands) - len(infos))).shape, dtype, result)
        self.network.add_output_layer(number, self.network.add_layer(op, *layers, outputs=[tensor_info]))
        self.images.append(image)

    def assert_alike(self) -> None:
        result, expected = outcomes(self.network, self.images)
        for item, other in zip(result, expected, strict=True):
            scale = 0 if self.quantized else float(np.abs(other[np.isfinite(other)]).max(initial=1e-9))
            np.testing.assert_allclose(item, other, rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(1, 1), (2, 3)], ids=str)
@pytest.mark.parametrize("side", SIDES)
def test_a_convolution_padded_at_one_side_is_the_reference(
    side: str, size: tuple[int, int], dtype: str, layout: DataLayout
) -> None:
    windows = Windows(dtype)
    for channels, outputs, stride in itertools.product((1, 20), (1, 5), (1, 2)):
        op = Convolution2d(stride_x=stride, stride_y=stride, data_layout=layout, **{side: 1})
        image = drawn(in_layout((2, 4, 5, channels), layout), dtype)
        weights = drawn(in_layout((outputs, *size, channels), layout), dtype)
        windows.add(op, image, weights)
    windows.assert_alike()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(1, 1), (3, 3)], ids=str)
@pytest.mark.parametrize("side", SIDES)
def test_a_depthwise_convolution_padded_at_one_side_is_the_reference(
    side: str, size: tuple[int, int], dtype: str, layout: DataLayout
) -> None:
    windows = Windows(dtype)
    for channels, times, stride in itertools.product((1, 7), (1, 2), (1, 2)):
        op = DepthwiseConvolution2d(stride_x=stride, stride_y=stride, data_layout=layout, **{side: 2})
        image = drawn(in_layout((1, 5, 6, channels), layout), dtype)
        windows.add(op, image, drawn((1, *size, channels * times), dtype))
    windows.assert_alike()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(1, 1), (2, 3)], ids=str)
@pytest.mark.parametrize("side", SIDES)
def test_a_transposed_convolution_cropped_at_one_side_is_the_reference(
    side: str, size: tuple[int, int], dtype: str, layout: DataLayout
) -> None:
    windows = Windows(dtype)
    for channels, outputs, stride in itertools.product((1, 16), (1, 5), (1, 2)):
        op = TransposeConvolution2d(stride_x=stride, stride_y=stride, data_layout=layout, **{side: 1})
        image = drawn(in_layout((2, 4, 5, channels), layout), dtype)
        weights = drawn(in_layout((outputs, *size, channels), layout), dtype)
        windows.add(op, image, weights)
    windows.assert_alike()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("side", SIDES)
def test_pooling_padded_at_one_side_is_the_reference(side: str, dtype: str, layout: DataLayout) -> None:
    windows = Windows(dtype)
    for size, stride, algorithm, method in itertools.product((2, 3), (1, 2), PoolingAlgorithm, PaddingMethod):
        if algorithm is PoolingAlgorithm.L2 and dtype != "float32":
            continue
        options = {"pool_width": size, "pool_height": size, "stride_x": stride, "stride_y": stride, side: 1}
        op = Pooling2d(pool_type=algorithm, padding_method=method, data_layout=layout, **options)
        windows.add(op, drawn(in_layout((2, 5, 6, 4), layout), dtype))
    windows.assert_alike()


def test_pooling_of_no_images_takes_no_memory_for_the_padding_of_their_rows() -> None:
    op = Pooling2d(PoolingAlgorithm.AVERAGE, pool_width=2, pool_height=1, stride_x=1, stride_y=1, pad_left=2**40)
    network = ip.Network("no images")
    layer = network.add_layer(op, network.add_input_layer(0, TensorInfo((0, 1, 1, 10))))
    network.add_output_layer(0, layer)
    [result] = ip.load(network, ["CpuAcc"]).run([np.zeros((0, 1, 1, 10), np.float32)])
    assert result.shape == (0, 1, 1, 2**40 + 9)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("dilations", "strides"), [((20, 1), (1, 5)), ((1, 20), (5, 1)), ((4, 6), (6, 4)), ((3, 2), (7, 9))]
)
def test_a_transposed_convolution_may_have_pixels_that_see_nothing_of_the_image(
    dilations: tuple[int, int], strides: tuple[int, int], dtype: str, layout: DataLayout
) -> None:
    pads = ({}, {"pad_left": 1, "pad_bottom": 2}, {"pad_right": 2, "pad_top": 1})
    windows = Windows(dtype)
    for (height, width), channels, pad in itertools.product(((3, 1), (1, 4)), (1, 18), pads):
        op = TransposeConvolution2d(
            dilation_y=dilations[0], dilation_x=dilations[1], stride_y=strides[0], stride_x=strides[1],
            data_layout=layout, **pad,
        )  # fmt: skip
        image = drawn(in_layout((1, height, width, channels), layout), dtype)
        weights = drawn(in_layout((2, 3, 3, channels), layout), dtype)
        windows.add(op, image, weights)
    windows.assert_alike()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (2, 3), (3, 2), (4, 2), (4, 4)])
@pytest.mark.parametrize("special", [np.nan, -np.inf])
def test_a_transposed_convolution_keeps_what_is_not_finite_to_the_pixels_that_depend_on_it(
    special: float, stride: int, dilation: int, layout: DataLayout
) -> None:
    windows = Windows("float32")
    for size, channels in itertools.product((2, 3), (3, 17)):
        op = TransposeConvolution2d(
            stride_x=stride, stride_y=stride, dilation_x=dilation, dilation_y=dilation, pad_left=1, data_layout=layout
        )
        image = drawn(in_layout((1, 4, 5, channels), layout), "float32")
        image[0, 2, 1, 2] = special
        weights = drawn(in_layout((3, size, size, channels), layout), "float32")
        windows.add(op, image, weights)
    windows.assert_alike()

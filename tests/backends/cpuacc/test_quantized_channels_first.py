"""Quantized networks with channels first give CpuRef's values, whatever reads the images of their convolutions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import DataLayout, DataType, Quantization, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BinaryOperation,
    Concat,
    Convolution2d,
    DepthToSpace,
    DepthwiseConvolution2d,
    Dequantize,
    ElementwiseBinary,
    Mean,
    Multiplication,
    Pad,
    Pooling2d,
    PoolingAlgorithm,
    Quantize,
    Reduce,
    ReduceOperation,
    Reshape,
    Resize,
    ResizeMethod,
    Slice,
    SpaceToDepth,
    Splitter,
    Stack,
    Transpose,
    TransposeConvolution2d,
)
from tests.backends.cpuacc.single import reference_results

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

FIRST = DataLayout.NCHW
Q = Quantization(0.05, 120)
OTHER = Quantization(0.08, 90)


class Net:
    """A network of one quantized image (2, 8, 6, 5), with channels first."""

    def __init__(self) -> None:
        self.network = ip.Network("images")
        self.random = np.random.default_rng(3)
        self.image = self.network.add_input_layer(0, TensorInfo((2, 8, 6, 5), "uint8", Q), name="x").output
        self.results: list[Value] = []

    def add(self, op: object, *operands: Value | None, shape: tuple[int, ...], q: Quantization | None = Q) -> Value:
        dtype = "float32" if q is None else "uint8"
        layer: Layer = self.network.add_layer(op, *operands, outputs=[TensorInfo(shape, dtype, q)])
        return layer.output

    def constant(self, shape: tuple[int, ...], q: Quantization = OTHER) -> Value:
        values = self.random.integers(0, 256, shape, np.uint8)
        return self.network.add_constant_layer(values, quantization=q).output

    def convolved(self, x: Value, outputs: int = 8, size: int = 1) -> Value:
        n, c, h, w = x.known.shape
        axis = Quantization(self.random.uniform(0.01, 0.02, outputs).tolist(), 0, 0)
        values = self.random.integers(-127, 128, (outputs, c, size, size), np.int8)
        weights = self.network.add_constant_layer(values, quantization=axis).output
        shape = (n, outputs, h - size + 1, w - size + 1)
        return self.add(Convolution2d(), x, weights, shape=shape)

    def assert_equal(self, *results: Value) -> None:
        for number, result in enumerate(results):
            self.network.add_output_layer(number, result)
        image = self.random.integers(0, 256, (2, 8, 6, 5), np.uint8)
        found, expected = ip.load(self.network, ["CpuAcc"]).run([image]), reference_results(self.network, [image])
        for item, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(item, other)


def halves(net: Net, x: Value) -> Value:
    """Return the sum of both halves of the channels."""
    infos = [TensorInfo((2, 4, 6, 5), "uint8", Q)] * 2
    layer = net.network.add_layer(Splitter(axis=1, sizes=(4, 4)), x, outputs=infos)
    return net.add(Addition(), *layer.outputs, shape=(2, 4, 6, 5))


def through_floats(net: Net, x: Value) -> Value:
    """Return x times its hyperbolic tangent, which is computed in float32."""
    real = net.add(Dequantize(), x, shape=x.known.shape, q=None)
    gate = net.add(Activation(ActivationFunction.TANH, a=1.0, b=1.0), real, shape=x.known.shape, q=None)
    return net.add(Quantize(), net.add(Multiplication(), real, gate, shape=x.known.shape, q=None), shape=x.known.shape)


READERS: dict[str, Callable[[Net, Value], Value]] = {
    "a clamp": lambda net, x: net.add(Activation(ActivationFunction.RELU), x, shape=x.known.shape),
    "a table": lambda net, x: net.add(
        Activation(ActivationFunction.HARD_SIGMOID, a=0.2, b=0.5), x, shape=x.known.shape
    ),
    "the sum of two": lambda net, x: net.add(Addition(), x, net.convolved(net.image), shape=x.known.shape),
    "the input added": lambda net, x: net.add(Addition(), net.image, x, shape=x.known.shape),
    "a factor for each channel": lambda net, x: net.add(
        Multiplication(), x, net.constant((2, 8, 1, 1)), shape=x.known.shape
    ),
    "factors of three axes": lambda net, x: net.add(Multiplication(), net.constant((8, 1, 1)), x, shape=x.known.shape),
    "a row of factors": lambda net, x: net.add(Multiplication(), x, net.constant((5,)), shape=x.known.shape),
    "one factor": lambda net, x: net.add(Multiplication(), net.constant(()), x, shape=x.known.shape),
    "computed factors": lambda net, x: net.add(
        ElementwiseBinary(BinaryOperation.MUL), x,
        net.add(Mean(axis=(2, 3), keep_dims=True), x, shape=(2, 8, 1, 1)), shape=x.known.shape,
    ),
    "concatenated channels": lambda net, x: net.add(
        Concat(axis=1), x, net.image, net.constant((2, 3, 6, 5), Q), shape=(2, 19, 6, 5)
    ),
    "concatenated channels of several scales": lambda net, x: net.add(
        Concat(axis=-3), x, net.constant((2, 3, 6, 5)), shape=(2, 11, 6, 5)
    ),
    "concatenated rows": lambda net, x: net.add(Concat(axis=2), x, net.image, shape=(2, 8, 12, 5)),
    "split channels": halves,
    "a part": lambda net, x: net.add(Slice(begin=(0, 2, 1, 0), size=(2, 3, -1, 4)), x, shape=(2, 3, 5, 4)),
    "a border": lambda net, x: net.add(
        Pad(pad_list=((0, 0), (1, 0), (2, 1), (0, 3)), pad_value=0.5), x, shape=(2, 9, 9, 8)
    ),
    "a maximum of windows": lambda net, x: net.add(
        Pooling2d(pool_type=PoolingAlgorithm.MAX, pool_height=3, pool_width=2, stride_x=2, stride_y=1, pad_top=1),
        x, shape=(2, 8, 5, 2),
    ),
    "a mean of windows": lambda net, x: net.add(
        Pooling2d(pool_type=PoolingAlgorithm.AVERAGE, pool_height=2, pool_width=2, stride_x=1, stride_y=1), x,
        shape=(2, 8, 5, 4),
    ),
    "a larger image": lambda net, x: net.add(Resize(target_height=12, target_width=10), x, shape=(2, 8, 12, 10)),
    "an interpolated image": lambda net, x: net.add(
        Resize(target_height=9, target_width=7, method=ResizeMethod.BILINEAR), x, shape=(2, 8, 9, 7)
    ),
    "channels as pixels": lambda net, x: net.add(
        DepthToSpace(block_size=2, data_layout=FIRST), x, shape=(2, 2, 12, 10)
    ),
    "pixels as channels": lambda net, x: net.add(
        SpaceToDepth(block_size=2, data_layout=FIRST),
        net.add(Slice(begin=(0, 0, 0, 0), size=(-1, -1, -1, 4)), x, shape=(2, 8, 6, 4)), shape=(2, 32, 3, 2),
    ),
    "means of images": lambda net, x: net.add(Mean(axis=(2, 3)), x, shape=(2, 8)),
    "means of columns": lambda net, x: net.add(Mean(axis=(3,)), x, shape=(2, 8, 6)),
    "maxima of channels": lambda net, x: net.add(
        Reduce(operation=ReduceOperation.MAX, axis=(1,)), x, shape=(2, 6, 5)
    ),
    "a sum of all": lambda net, x: net.add(Reduce(operation=ReduceOperation.SUM), x, shape=()),
    "a transposition to channels last": lambda net, x: net.add(Transpose((0, 2, 3, 1)), x, shape=(2, 6, 5, 8)),
    "a transposition of all axes": lambda net, x: net.add(Transpose((3, 1, 0, 2)), x, shape=(5, 8, 2, 6)),
    "a matrix": lambda net, x: net.add(Reshape((2, -1)), x, shape=(2, 240)),
    "floats": lambda net, x: net.add(Dequantize(), x, shape=x.known.shape, q=None),
    "a function of floats": through_floats,
}  # fmt: skip


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("reader", READERS)
def test_an_image_is_read_by_any_layer_and_then_convolved(reader: str, size: int) -> None:
    net = Net()
    inner = net.add(Pad(pad_list=((0, 0), (0, 0), (1, 1), (1, 1))), net.image, shape=(2, 8, 8, 7))
    x = net.convolved(net.image) if size == 1 else net.convolved(inner, size=3)

    read = READERS[reader](net, x)

    again = [net.convolved(read, 5)] if read.known.rank == 4 and read.known.quantization else []
    net.assert_equal(read, *again)


def test_a_transposition_to_channels_first_before_a_convolution_is_not_needed() -> None:
    net = Net()
    image = net.add(Transpose((0, 2, 3, 1)), net.image, shape=(2, 6, 5, 8))

    net.assert_equal(net.convolved(net.add(Transpose((0, 3, 1, 2)), image, shape=(2, 8, 6, 5))))


def test_transposed_and_depthwise_convolutions_read_channels_first() -> None:
    net = Net()
    scales = Quantization(net.random.uniform(0.01, 0.02, 8).tolist(), 0, 3)
    deep = net.network.add_constant_layer(net.random.integers(-127, 128, (1, 3, 3, 8), np.int8), quantization=scales)
    wide = net.network.add_constant_layer(
        net.random.integers(-127, 128, (6, 8, 3, 2), np.int8), quantization=Quantization(0.02)
    )

    x = net.add(DepthwiseConvolution2d(pad_top=1, pad_left=2, stride_x=2), net.image, deep.output, shape=(2, 8, 5, 3))
    y = net.add(TransposeConvolution2d(stride_x=2, stride_y=3), x, wide.output, shape=(2, 6, 15, 6))

    net.assert_equal(x, y)


@pytest.mark.parametrize("axis", [(-5,), (0,), (2, 4), (-1, -2)])
def test_images_that_are_stacked_are_reduced_along_any_axis(axis: tuple[int, ...]) -> None:
    net = Net()
    images = net.add(Stack(), net.convolved(net.image), shape=(1, 2, 8, 6, 5))
    kept = [extent for n, extent in enumerate((1, 2, 8, 6, 5)) if n not in axis and n - 5 not in axis]
    net.assert_equal(net.add(Mean(axis=axis), images, shape=tuple(kept)))


@pytest.mark.parametrize("axis", [(-3,), (0,), (1, 2)])
def test_factors_of_three_axes_are_broadcast_and_reduced(axis: tuple[int, ...]) -> None:
    net = Net()
    factors = net.add(Slice(begin=(0, 0, 0, 0), size=(1, 8, 1, 5)), net.image, shape=(1, 8, 1, 5))
    factors = net.add(Reshape((8, 1, 5)), factors, shape=(8, 1, 5))
    image = net.add(Multiplication(), net.convolved(net.image), factors, shape=(2, 8, 6, 5))
    kept = [extent for n, extent in enumerate((8, 1, 5)) if n not in axis and n - 3 not in axis]
    net.assert_equal(net.convolved(image), net.add(Mean(axis=axis), factors, shape=tuple(kept)))


def test_int8_images_with_residuals_and_clamps_are_equal() -> None:
    network, random = ip.Network("residual"), np.random.default_rng(5)
    q = Quantization(0.04, -7)
    x = network.add_input_layer(0, TensorInfo((1, 6, 5, 7), "int8", q), name="x").output
    y = x
    for _ in range(3):
        values = random.integers(-127, 128, (6, 6, 3, 3), np.int8)
        weights = network.add_constant_layer(values, quantization=Quantization(0.01, 0)).output
        pads = {"pad_left": 1, "pad_right": 1, "pad_top": 1, "pad_bottom": 1}
        info = [TensorInfo((1, 6, 5, 7), "int8", q)]
        z = network.add_layer(Convolution2d(**pads), y, weights, outputs=info).output
        z = network.add_layer(Addition(), z, y, outputs=info).output
        y = network.add_layer(Activation(ActivationFunction.RELU), z, outputs=info).output
    network.add_output_layer(0, y)
    image = random.integers(-128, 128, (1, 6, 5, 7), np.int8)

    found, expected = ip.load(network, ["CpuAcc"]).run([image])[0], reference_results(network, [image])[0]

    assert found.dtype == DataType.INT8.numpy
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [DataType.FLOAT32, DataType.FLOAT16, DataType.INT32])
@pytest.mark.parametrize("method", list(ResizeMethod))
def test_a_smaller_image_between_transpositions(dtype: DataType, method: ResizeMethod) -> None:
    network, random = ip.Network("smaller"), np.random.default_rng(5)
    x = network.add_input_layer(0, TensorInfo((2, 12, 9, 5), dtype), name="x")
    first = network.add_layer(Transpose((0, 3, 1, 2)), x)
    small = network.add_layer(Resize(4, 3, method=method, data_layout=FIRST), first)
    network.add_output_layer(0, network.add_layer(Transpose((0, 2, 3, 1)), small))
    network.add_output_layer(1, network.add_layer(Addition(), small, small))
    array = random.integers(-50, 50, (2, 12, 9, 5)).astype(dtype.numpy)
    results = ip.load(network, ["CpuAcc"]).run([array])
    for result, expected in zip(results, reference_results(network, [array]), strict=True):
        np.testing.assert_allclose(result.astype(np.float64), expected.astype(np.float64), rtol=1e-2, atol=1e-5)

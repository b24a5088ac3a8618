"""CpuAcc's layers on quantized tensors of 16 bits give what CpuRef gives, bit for bit, with any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataLayout, DataType, Quantization, TensorInfo
from interposer.ir.graph import Layer
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    Convolution2d,
    DepthwiseConvolution2d,
    Division,
    ElementwiseUnary,
    FullyConnected,
    Mean,
    Multiplication,
    Pooling2d,
    PoolingAlgorithm,
    Subtraction,
    TransposeConvolution2d,
    UnaryOperation,
)
from interposer.ops.quantization import Requantization
from tests.backends.cpuacc.single import outcomes, reference_results

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

DATA = Quantization(2.0**-12, 0)
RESULT = Quantization(2.0**-10, 0)
THREADS = pytest.mark.parametrize("threads", [1, 3])
ROUNDINGS = pytest.mark.parametrize("requantization", list(Requantization))


class Layers:
    """A network of one layer on int16 tensors."""

    def __init__(self) -> None:
        self.network = ip.Network("layer")
        self.rng = np.random.default_rng(5)
        self.arrays: list[Array] = []

    def data(self, *shape: int) -> Layer:
        codes = self.rng.integers(-(2**15), 2**15, shape).astype(np.int16)
        self.arrays.append(codes)
        return self.network.add_input_layer(len(self.arrays) - 1, TensorInfo(shape, DataType.INT16, DATA))

    def weights(self, *shape: int, axis: int, dtype: type) -> Layer:
        limits = np.iinfo(dtype)
        codes = self.rng.integers(limits.min + 1, limits.max + 1, shape).astype(dtype)
        scales = self.rng.uniform(1e-4, 1e-3, shape[axis]).astype(np.float32)
        return self.network.add_constant_layer(codes, Quantization(tuple(map(float, scales)), 0, axis))

    def bias(self, count: int, dtype: type, largest: int = 10**6) -> Layer:
        return self.network.add_constant_layer(self.rng.integers(-largest, largest, count).astype(dtype))

    def check(self, layer: Layer, threads: int = 1) -> None:
        """Compare CpuAcc with the reference."""
        for n, output in enumerate(layer.outputs):
            self.network.add_output_layer(n, output)
        results = outcomes(self.network, self.arrays, threads)
        for result, expected in zip(*results, strict=True):
            np.testing.assert_array_equal(result, expected)


def result(*shape: int, quantization: Quantization = RESULT) -> list[TensorInfo]:
    return [TensorInfo(shape, DataType.INT16, quantization)]


@THREADS
@ROUNDINGS
@pytest.mark.parametrize("layout", [DataLayout.NHWC, DataLayout.NCHW])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("bias", [np.int32, np.int64])
@pytest.mark.parametrize("weights", [np.int8, np.int16])
def test_convolutions(
    threads: int, requantization: Requantization, layout: DataLayout, groups: int, bias: type, weights: type
) -> None:
    layers, last = Layers(), layout is DataLayout.NHWC
    x = layers.data(*((2, 9, 11, 45) if last else (2, 45, 9, 11)))
    shape = (21, 3, 3, 45 // groups) if last else (21, 45 // groups, 3, 3)
    op = Convolution2d(
        stride_x=2, pad_left=1, pad_top=2, dilation_y=2, groups=groups, data_layout=layout,
        requantization=requantization,
    )  # fmt: skip
    output = result(2, 7, 5, 21) if last else result(2, 21, 7, 5)
    operands = [x, layers.weights(*shape, axis=0, dtype=weights), layers.bias(21, bias)]
    layers.check(layers.network.add_layer(op, *operands, outputs=output), threads)


@THREADS
@ROUNDINGS
@pytest.mark.parametrize("filters", [1, 2])
@pytest.mark.parametrize("layout", [DataLayout.NHWC, DataLayout.NCHW])
@pytest.mark.parametrize("bias", [np.int32, np.int64, None])
def test_depthwise_convolutions(
    threads: int, requantization: Requantization, filters: int, layout: DataLayout, bias: type | None
) -> None:
    layers, last, outputs = Layers(), layout is DataLayout.NHWC, 19 * filters
    x = layers.data(*((2, 8, 7, 19) if last else (2, 19, 8, 7)))
    op = DepthwiseConvolution2d(
        pad_left=1, pad_right=1, pad_top=1, pad_bottom=1, data_layout=layout, requantization=requantization
    )
    operands = [x, layers.weights(1, 3, 3, outputs, axis=3, dtype=np.int8)]
    operands += [] if bias is None else [layers.bias(outputs, bias)]
    output = result(2, 8, 7, outputs) if last else result(2, outputs, 8, 7)
    layers.check(layers.network.add_layer(op, *operands, outputs=output), threads)


@pytest.mark.parametrize("filters", [1, 3])
@pytest.mark.parametrize("width", [1, 3, 60])
def test_depthwise_convolutions_with_strides(filters: int, width: int) -> None:
    layers, outputs = Layers(), 32 * filters
    op = DepthwiseConvolution2d(
        stride_x=2, stride_y=2, dilation_y=2, pad_left=2, pad_right=2, pad_top=3, pad_bottom=3,
        data_layout=DataLayout.NHWC,
    )  # fmt: skip
    operands = [layers.data(2, 9, width, 32), layers.weights(1, 3, 3, outputs, axis=3, dtype=np.int8)]
    output = result(2, 6, (width + 1) // 2 + 1, outputs)
    layers.check(layers.network.add_layer(op, *operands, outputs=output))


@THREADS
@pytest.mark.parametrize("dilation", [2, 5, 2000])
def test_depthwise_convolutions_whose_window_spans_more_rows_than_the_image_has(threads: int, dilation: int) -> None:
    layers = Layers()
    op = DepthwiseConvolution2d(
        dilation_y=dilation, pad_left=1, pad_right=1, pad_top=dilation, pad_bottom=dilation,
        data_layout=DataLayout.NHWC,
    )  # fmt: skip
    operands = [layers.data(2, 4, 5, 16), layers.weights(1, 3, 3, 32, axis=3, dtype=np.int8)]
    layers.check(layers.network.add_layer(op, *operands, outputs=result(2, 4, 5, 32)), threads)


def test_depthwise_convolutions_whose_bias_has_more_than_38_bits() -> None:
    layers = Layers()
    op = DepthwiseConvolution2d(data_layout=DataLayout.NHWC)
    operands = [layers.data(1, 5, 5, 16), layers.weights(1, 3, 3, 16, axis=3, dtype=np.int8)]
    bias = layers.bias(16, np.int64, 2**40)
    layers.check(layers.network.add_layer(op, *operands, bias, outputs=result(1, 3, 3, 16)))


@THREADS
@ROUNDINGS
@pytest.mark.parametrize("layout", [DataLayout.NHWC, DataLayout.NCHW])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("bias", [np.int32, np.int64, None])
@pytest.mark.parametrize("weights", [np.int8, np.int16])
def test_transposed_convolutions(
    threads: int, requantization: Requantization, layout: DataLayout, groups: int, bias: type | None, weights: type
) -> None:
    layers, last = Layers(), layout is DataLayout.NHWC
    x = layers.data(*((2, 5, 4, 15) if last else (2, 15, 5, 4)))
    filters = 21 // groups
    op = TransposeConvolution2d(
        stride_x=3, stride_y=2, dilation_y=2, pad_left=1, pad_top=2, groups=groups, data_layout=layout,
        requantization=requantization,
    )  # fmt: skip
    output = result(2, 11, 10, 21) if last else result(2, 21, 11, 10)
    shape = (filters, 3, 2, 15) if last else (filters, 15, 3, 2)
    operands = [x, layers.weights(*shape, axis=0, dtype=weights)]
    operands += [] if bias is None else [layers.bias(21, bias)]
    layers.check(layers.network.add_layer(op, *operands, outputs=output), threads)


@ROUNDINGS
@pytest.mark.parametrize("depth", [1, 31, 32, 256, 2500])
@pytest.mark.parametrize("weights", [np.int8, np.uint8, np.int16])
def test_fully_connected_layers(requantization: Requantization, depth: int, weights: type) -> None:
    layers = Layers()
    x, op = layers.data(13, depth), FullyConnected(transpose_weight_matrix=True, requantization=requantization)
    operands = [x, layers.weights(17, depth, axis=0, dtype=weights), layers.bias(17, np.int64)]
    layers.check(layers.network.add_layer(op, *operands, outputs=result(13, 17)))


@THREADS
@ROUNDINGS
@pytest.mark.parametrize("op", [Addition, Subtraction, Multiplication, Division])
@pytest.mark.parametrize("other", [(7, 40, 33), (33,), (7, 40, 1), (1,)])
def test_arithmetic(threads: int, requantization: Requantization, op: type, other: tuple[int, ...]) -> None:
    layers = Layers()
    layer = layers.network.add_layer(
        op(requantization=requantization), layers.data(7, 40, 33), layers.data(*other), outputs=result(7, 40, 33)
    )
    layers.check(layer, threads)


@ROUNDINGS
@pytest.mark.parametrize("op", [Addition, Subtraction, Multiplication])
@pytest.mark.parametrize("scale", [2.0**-24, 0.003, 1e36])
@pytest.mark.parametrize("zero_point", [0, -32768, 5])
def test_sums_and_products_with_any_scale_and_zero_point(
    requantization: Requantization, op: type, scale: float, zero_point: int
) -> None:
    layers = Layers()
    operands = [layers.data(5, 33), layers.data(5, 33)]
    info = result(5, 33, quantization=Quantization(scale, zero_point))
    total = layers.network.add_layer(op(requantization=requantization), *operands, outputs=info)
    again = layers.network.add_layer(op(requantization=requantization), total, operands[0], outputs=result(5, 33))
    layers.check(again)


@pytest.mark.parametrize("zero_points", [(0, 0), (5, -32768), (-32768, 32767)])
@pytest.mark.parametrize("scale", [2.0**-10, 3e-7])
def test_quotients_of_every_divisor(zero_points: tuple[int, int], scale: float) -> None:
    layers = Layers()
    divisors = np.arange(-(2**15), 2**15).astype(np.int16)
    dividends = layers.rng.permutation(divisors)
    dividends[:4] = [-32768, 32767, 0, -1]
    operands = []
    for number, (array, zero_point) in enumerate(zip((dividends, divisors), zero_points, strict=True)):
        layers.arrays.append(array)
        info = TensorInfo(array.shape, DataType.INT16, Quantization(0.001, zero_point))
        operands.append(layers.network.add_input_layer(number, info))
    quotients = result(2**16, quantization=Quantization(scale, zero_points[0]))
    layers.check(layers.network.add_layer(Division(), *operands, outputs=quotients))


def test_quotients_far_below_one_are_zero() -> None:
    """The factor and the reciprocal of a large divisor together divide by more than 2**64."""
    layers, divisors = Layers(), np.arange(-(2**15), 2**15).astype(np.int16)
    layers.arrays = [np.resize(np.array([1, -1, 2, -32768, 32767, 0], np.int16), 2**16), divisors]
    operands = [
        layers.network.add_input_layer(number, TensorInfo(divisors.shape, DataType.INT16, Quantization(scale, 0)))
        for number, scale in enumerate((1e-6, 1.0))
    ]
    layer = layers.network.add_layer(Division(), *operands, outputs=result(2**16, quantization=Quantization(1.0, 0)))
    layers.check(layer)
    with ip.load(layers.network, ["CpuAcc"]) as model:
        assert not np.any(model.run(layers.arrays)[0])


UNIT = Quantization(2.0**-15, 0)
CURVES = [
    (function, quantization)
    for function in (
        ActivationFunction.RELU, ActivationFunction.BOUNDED_RELU, ActivationFunction.LEAKY_RELU, ActivationFunction.ABS,
    )
    for quantization in (DATA, RESULT, UNIT)
] + [(ActivationFunction.SIGMOID, UNIT), (ActivationFunction.TANH, UNIT)]  # fmt: skip


@pytest.mark.parametrize(("function", "quantization"), CURVES)
def test_activation_functions_of_every_number(function: ActivationFunction, quantization: Quantization) -> None:
    layers = Layers()
    op = Activation(function=function, a=0.25 if function is ActivationFunction.LEAKY_RELU else 1.0, b=1.0)
    if function is ActivationFunction.BOUNDED_RELU:
        op = Activation(function=function, a=3.0, b=-1.0)
    layer = layers.network.add_layer(op, layers.data(2**16), outputs=result(2**16, quantization=quantization))
    layers.arrays = [np.arange(-(2**15), 2**15, dtype=np.int16)]
    layers.check(layer)


@pytest.mark.parametrize("quantization", [DATA, RESULT, UNIT])
def test_absolute_values_of_every_number(quantization: Quantization) -> None:
    layers, op = Layers(), ElementwiseUnary(UnaryOperation.ABS)
    layer = layers.network.add_layer(op, layers.data(2**16), outputs=result(2**16, quantization=quantization))
    layers.arrays = [np.arange(-(2**15), 2**15, dtype=np.int16)]
    layers.check(layer)


@THREADS
@ROUNDINGS
def test_means(threads: int, requantization: Requantization) -> None:
    layers = Layers()
    op = Mean(axis=(1, 2), keep_dims=True, requantization=requantization)
    layers.check(layers.network.add_layer(op, layers.data(2, 7, 9, 70), outputs=result(2, 1, 1, 70)), threads)


@THREADS
@ROUNDINGS
def test_pooling(threads: int, requantization: Requantization) -> None:
    layers = Layers()
    op = Pooling2d(
        pool_type=PoolingAlgorithm.AVERAGE, pool_width=3, pool_height=2, stride_x=2, stride_y=1, pad_left=1,
        data_layout=DataLayout.NHWC, requantization=requantization,
    )  # fmt: skip
    output = result(2, 7, 5, 70, quantization=DATA)
    layers.check(layers.network.add_layer(op, layers.data(2, 8, 10, 70), outputs=output), threads)


@pytest.mark.parametrize("function", [ActivationFunction.SIGMOID, ActivationFunction.TANH])
@pytest.mark.parametrize("scale", [1e-9, 2.0**-12, 1e9, 3e10, 1e30])
def test_gates_of_very_small_and_very_large_numbers(function: ActivationFunction, scale: float) -> None:
    network, codes = ip.Network("gate"), np.array([-(2**15), -1, 0, 1, 2**15 - 1], np.int16)
    x = network.add_input_layer(0, TensorInfo((5,), DataType.INT16, Quantization(scale)))
    output = TensorInfo((5,), DataType.INT16, Quantization(2.0**-15))
    network.add_output_layer(0, network.add_layer(Activation(function), x, outputs=[output]))
    result, expected = ip.load(network, ["CpuAcc"]).run([codes])[0], reference_results(network, [codes])[0]
    np.testing.assert_array_equal(result, expected)
    assert result[2] == (2**14 if function is ActivationFunction.SIGMOID else 0)
    assert scale < 1 or result[3] == 2**15 - 1

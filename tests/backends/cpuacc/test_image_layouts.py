"""Images that CpuAcc keeps in blocks of channels give CpuRef's results, whatever follows a convolution."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import interposer as ip
from interposer.core.schema import Op
from interposer.core.types import Array, DataLayout, TensorInfo
from interposer.ir.graph import Layer
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BinaryOperation,
    Concat,
    Convolution2d,
    DepthwiseConvolution2d,
    DynamicFakeQuantization,
    ElementwiseBinary,
    ElementwiseUnary,
    GroupNormalization,
    InstanceNormalization,
    Multiplication,
    Pooling2d,
    PoolingAlgorithm,
    Reshape,
    Resize,
    ResizeMethod,
    Subtraction,
    TransposeConvolution2d,
    UnaryOperation,
)
from tests.backends.cpuacc.single import reference_results

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

LAYOUTS = [DataLayout.NHWC, DataLayout.NCHW]
FIRST, LAST = DataLayout.NCHW, DataLayout.NHWC
FUNCTIONS = [Activation(function, a=0.75, b=0.25) for function in ActivationFunction] + [
    *(ElementwiseUnary(operation) for operation in (UnaryOperation.ABS, UnaryOperation.NEG, UnaryOperation.EXP)),
    ElementwiseUnary(UnaryOperation.ERF),
]


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(0.1, 1, shape).astype(np.float32)


def whole_numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(np.float32)


class Net:
    """A network that begins with one image, in NHWC or NCHW, of 6 x 5 pixels."""

    def __init__(self, channels: int, layout: DataLayout = LAST) -> None:
        self.network = ip.Network("images")
        self.shape = (2, channels, 6, 5) if layout is FIRST else (2, 6, 5, channels)
        self.image = self.network.add_input_layer(0, TensorInfo(self.shape), name="x")

    def convolved(
        self, x: Layer, outputs: int, layout: DataLayout, size: int = 3, draw: Callable[..., Array] = numbers
    ) -> Layer:
        inputs = tuple(x.output.known.shape)[1 if layout is FIRST else 3]
        shape = (outputs, inputs, size, size) if layout is FIRST else (outputs, size, size, inputs)
        weights, bias = (self.network.add_constant_layer(draw(*item)) for item in (shape, (outputs,)))
        return self.network.add_layer(Convolution2d(data_layout=layout), x, weights, bias)

    def assert_alike(self, *results: Layer) -> None:
        for number, result in enumerate(results):
            self.network.add_output_layer(number, result)
        image = np.random.default_rng(1).standard_normal(self.shape).astype(np.float32)
        matches, expected = ip.load(self.network, ["CpuAcc"]).run([image]), reference_results(self.network, [image])
        for item, other in zip(matches, expected, strict=True):
            np.testing.assert_allclose(item, other, rtol=0, atol=1e-5 * float(np.nanmax(np.abs(other))))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("outputs", [1, 17])
@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_a_convolution_of_any_number_of_output_channels_keeps_the_function_behind_it(
    function: Activation | ElementwiseUnary, outputs: int, layout: DataLayout
) -> None:
    net = Net(8, layout)
    convolved = net.convolved(net.image, outputs, layout)

    net.assert_alike(net.network.add_layer(function, convolved))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("second", [(1,), (2, 1, 1, 1), (2, 4, 3, 1), (1, 4, 3, 1), (1, 1)])
@pytest.mark.parametrize("operation", [BinaryOperation.ADD, BinaryOperation.MUL, BinaryOperation.MAXIMUM])
def test_an_image_of_one_channel_broadcasts_with_what_it_meets(
    operation: BinaryOperation, second: tuple[int, ...], layout: DataLayout
) -> None:
    net = Net(8, layout)
    if layout is FIRST and len(second) == 4:
        second = (second[0], second[3], second[1], second[2])
    mask = net.convolved(net.image, 1, layout)
    other = net.network.add_constant_layer(numbers(*second))

    met = net.network.add_layer(ElementwiseBinary(operation), other, mask)

    net.assert_alike(met, net.network.add_layer(Activation(ActivationFunction.SIGMOID), met))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("outputs", [1, 20])
def test_a_mask_of_one_channel_scales_an_image_of_many(outputs: int, layout: DataLayout) -> None:
    net = Net(8, layout)
    mask = net.network.add_layer(Activation(ActivationFunction.SIGMOID), net.convolved(net.image, 1, layout))
    image = net.convolved(net.image, outputs, layout)
    scaled = net.network.add_layer(ElementwiseBinary(BinaryOperation.MUL), image, mask)

    net.assert_alike(scaled, net.convolved(scaled, 5, layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sum_behind_a_transposed_convolution_of_one_channel_may_have_two_readers(layout: DataLayout) -> None:
    net = Net(4, layout)
    shape = (1, 4, 3, 3) if layout is FIRST else (1, 3, 3, 4)
    grown = net.network.add_layer(
        TransposeConvolution2d(data_layout=layout, stride_x=2, stride_y=2),
        net.image,
        net.network.add_constant_layer(numbers(*shape)),
    )
    total = net.network.add_layer(Addition(), grown, net.network.add_constant_layer(numbers(1)))
    clamped = net.network.add_layer(Activation(ActivationFunction.RELU), total)

    net.assert_alike(clamped, net.network.add_layer(ElementwiseUnary(UnaryOperation.NEG), total))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [1, 16])
def test_images_with_one_channel_more_or_less_are_joined_and_convolved_channel_by_channel(
    channels: int, layout: DataLayout
) -> None:
    net = Net(8, layout)
    axis = 1 if layout is FIRST else 3
    image, mask = net.convolved(net.image, channels, layout), net.convolved(net.image, 1, layout)
    for order in ((image, mask), (mask, image)):
        merged = net.network.add_layer(Concat(axis=axis), *order)
        last = tuple(merged.output.known.shape)[axis]
        weights = net.network.add_constant_layer(numbers(1, 3, 3, last))
        seen = net.network.add_layer(DepthwiseConvolution2d(data_layout=layout), merged, weights)
        net.network.add_output_layer(10 + len(net.network.graph.outputs), seen)
    net.assert_alike(mask)


@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize(("before", "after"), [(FIRST, LAST), (LAST, FIRST)])
def test_pooling_may_read_the_channels_of_a_convolution_as_rows_or_columns(
    before: DataLayout, after: DataLayout, outputs: int
) -> None:
    net = Net(8, before)
    image = net.convolved(net.image, outputs, before)

    options = {"pool_height": 2, "pool_width": 2, "pad_right": 1, "pad_bottom": 1, "data_layout": after}
    net.assert_alike(net.network.add_layer(Pooling2d(pool_type=PoolingAlgorithm.MAX, **options), image))


@pytest.mark.parametrize("method", ResizeMethod)
@pytest.mark.parametrize(("before", "after"), [(FIRST, LAST), (LAST, FIRST)])
def test_resizing_may_read_the_channels_of_a_convolution_as_rows_or_columns(
    before: DataLayout, after: DataLayout, method: ResizeMethod
) -> None:
    net = Net(8, before)
    image = net.convolved(net.image, 4, before)

    resize = Resize(target_height=7, target_width=9, method=method, data_layout=after)
    net.assert_alike(net.network.add_layer(resize, image))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_weights_may_also_be_an_operand_of_an_elementwise_layer_before(layout: DataLayout):
    network = ip.Network("shared")
    shape = (1, 1, 1, 2) if layout is LAST else (1, 2, 1, 1)
    one = (1, 1, 1, 1)
    x = network.add_input_layer(0, TensorInfo(one), name="x")
    kernel = network.add_constant_layer(numbers(1, 1, 2, 1) if layout is LAST else numbers(1, 1, 1, 2))
    image = network.add_layer(TransposeConvolution2d(data_layout=layout), x, kernel)
    weights = network.add_constant_layer(numbers(*shape) - 1)
    least = network.add_layer(ElementwiseBinary(BinaryOperation.MINIMUM), image, weights)
    network.add_output_layer(0, network.add_layer(Convolution2d(data_layout=layout), least, weights), name="y")
    results = [ip.load(network, [backend])(numbers(*one)) for backend in ("CpuAcc", "CpuRef")]
    np.testing.assert_allclose(*results, rtol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("outputs", [16, 17, 32])
@pytest.mark.parametrize("axes", [(), (1, 2, 3), (2, 3), (-1,)])
@pytest.mark.parametrize("asymmetric", [False, True])
def test_images_between_convolutions_are_rounded_to_8_bits_as_a_whole_or_in_rows(
    layout: DataLayout, outputs: int, axes: tuple[int, ...], asymmetric: bool
) -> None:
    net = Net(8, layout)
    whole = net.network.add_layer(ElementwiseUnary(UnaryOperation.CEIL), net.image)
    exact = net.convolved(whole, outputs, layout, draw=whole_numbers)  # no sum depends on the order of its terms
    rounded = net.network.add_layer(DynamicFakeQuantization(axes, asymmetric), exact)

    net.assert_alike(net.convolved(rounded, 24, layout), rounded)


@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize("op", [InstanceNormalization(1e-5), GroupNormalization(4, 1e-5), GroupNormalization(1, 1e-5)])
def test_groups_of_values_that_are_far_from_0_keep_their_differences(op: Op, spread: float) -> None:
    net = Net(32, FIRST)
    unchanged = net.network.add_constant_layer(np.eye(32, dtype=np.float32).reshape(32, 32, 1, 1))
    gamma, beta = (net.network.add_constant_layer(np.full(32, number, np.float32)) for number in (2, 0.5))
    result = net.image
    for layer, operands in ((Convolution2d(), [unchanged]), (op, [gamma, beta]), (Convolution2d(), [unchanged])):
        result = net.network.add_layer(layer.replace(data_layout=FIRST), result, *operands)
    net.network.add_output_layer(0, result)
    image = (12345678 + spread * 100 * np.random.default_rng(1).standard_normal(net.shape)).astype(np.float32)
    groups = image.reshape(2, getattr(op, "num_groups", 32), -1).astype(np.float64)
    centered = groups - groups.mean(-1, keepdims=True)
    expected = centered / np.sqrt(groups.var(-1, keepdims=True) + 1e-5) * 2 + 0.5
    actual = ip.load(net.network, "CpuAcc")(image)
    np.testing.assert_allclose(actual, expected.reshape(net.shape), rtol=1e-5, atol=1e-5)


def test_groups_that_are_written_with_reshapes_and_pools_behind_them_stay_in_blocks() -> None:
    net = Net(32, FIRST)

    def add(op: Op, *operands: Layer | Array) -> Layer:
        layers = [net.network.add_constant_layer(at) if isinstance(at, np.ndarray) else at for at in operands]
        return net.network.add_layer(op, *layers)

    image = net.convolved(net.image, 32, FIRST)
    ones, zeros = np.ones(1, np.float32), np.zeros(1, np.float32)
    rows = add(InstanceNormalization(1e-5), add(Reshape((2, 1, -1)), image), ones, zeros)
    scaled = add(Multiplication(), add(Reshape(image.output.known.shape), rows), np.full((32, 1, 1), 2, np.float32))
    normalized = add(Addition(), scaled, np.full((32, 1, 1), 0.5, np.float32))
    pool = Pooling2d(PoolingAlgorithm.AVERAGE, 3, 3, 1, 1, 1, 1)
    pooled = add(pool.replace(data_layout=FIRST), normalized)
    result = net.convolved(add(Subtraction(), pooled, normalized), 24, FIRST)

    net.assert_alike(result)
    with ip.profile() as profile:
        ip.load(net.network, ["CpuAcc"]).run([np.ones(net.shape, np.float32)])
    names = [step.site.name.split()[0] for step in profile.steps()]
    assert names.count("reorder") == 2, names  # of the input and of the output

"""Images whose pixels are the rows of a matrix, as networks make them that mix attention with convolutions."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataLayout, TensorInfo
from interposer.ir.graph import Layer
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    Convolution2d,
    Convolution3d,
    DepthwiseConvolution2d,
    FullyConnected,
    Reshape,
    Transpose,
)
from tests.backends.cpuacc.single import reference_results

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

GELU = Activation(ActivationFunction.GELU)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


class Tokens:
    """A network that begins with 30 tokens of some channels, which are the 6 x 5 pixels of an image."""

    def __init__(self, channels: int, batch: int = 2) -> None:
        self.network, self.channels, self.batch = ip.Network("tokens"), channels, batch
        self.x = self.network.add_input_layer(0, TensorInfo((batch, 30, channels)), name="x")

    def add(self, op: object, *operands: Layer | Array) -> Layer:
        layers = [self.network.add_constant_layer(at) if isinstance(at, np.ndarray) else at for at in operands]
        return self.network.add_layer(op, *layers)

    def image(self, tokens: Layer, *size: int) -> Layer:
        swapped = self.add(Transpose((0, 2, 1)), tokens)
        return self.add(Reshape((self.batch, self.channels, *(size or (6, 5)))), swapped)

    def tokens(self, image: Layer) -> Layer:
        shape = tuple(image.output.known.shape)
        rows = self.add(Reshape((*shape[:2], int(np.prod(shape[2:])))), image)
        return self.add(Transpose((0, 2, 1)), rows)

    def depthwise(self, image: Layer) -> Layer:
        op = DepthwiseConvolution2d(pad_left=1, pad_right=1, pad_top=1, pad_bottom=1, data_layout=DataLayout.NCHW)
        return self.add(op, image, numbers(1, 3, 3, self.channels), numbers(self.channels))

    def convolved(self, image: Layer) -> Layer:
        op = Convolution2d(stride_x=2, stride_y=2, data_layout=DataLayout.NCHW)
        return self.add(op, image, numbers(self.channels, self.channels, 2, 2), numbers(self.channels))

    def check(self, *results: Layer) -> None:
        """Compare CpuAcc with the reference."""
        for number, result in enumerate(results):
            self.network.add_output_layer(number, result)
        x = numbers(self.batch, 30, self.channels)
        found, expected = ip.load(self.network, ["CpuAcc"]).run([x]), reference_results(self.network, [x])
        for array, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(array, other, rtol=0, atol=1e-5 * float(np.abs(other).max()))


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[[Tokens], int]:
    """The number of steps of CpuAcc that transpose, or compute an activation function alone."""

    def counted(tokens: Tokens) -> int:
        monkeypatch.setenv("INTERPOSER_CPUACC_PROFILE", "1")
        gc.collect()
        capfd.readouterr()
        with ip.load(tokens.network, ["CpuAcc"]) as model:
            model.run([numbers(tokens.batch, 30, tokens.channels)])
        del model
        gc.collect()
        captured = capfd.readouterr()
        lines = (captured.out + captured.err).splitlines()
        assert any("depthwise" in line or "conv" in line for line in lines), lines
        return sum("Transpose" in line or "Activation" in line for line in lines)

    return counted


@pytest.mark.parametrize("channels", [16, 40, 48])
def test_a_depthwise_convolution_between_products_needs_no_transposition(
    channels: int, moves: Callable[[Tokens], int]
) -> None:
    net = Tokens(channels)
    back = net.tokens(net.depthwise(net.image(net.x)))
    activated = net.add(GELU, back)
    net.check(net.add(FullyConnected(), net.add(Reshape((60, channels)), activated), numbers(24, channels)))
    assert moves(net) == 0


WINDOWS = {
    "3x3": (3, 3, DepthwiseConvolution2d(pad_left=1, pad_right=1, pad_top=1, pad_bottom=1)),
    "5x5 with stride 2": (
        5,
        5,
        DepthwiseConvolution2d(stride_x=2, stride_y=2, pad_left=2, pad_right=1, pad_top=2, pad_bottom=2),
    ),
    "3x2, dilated": (3, 2, DepthwiseConvolution2d(dilation_x=2, dilation_y=2, pad_left=2, pad_top=1, pad_bottom=3)),
    "6x1 without padding": (6, 1, DepthwiseConvolution2d()),
}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("channels", "batch"), [(16, 1), (32, 2), (80, 1)])
def test_channels_that_fill_blocks_are_computed_where_they_are(channels: int, batch: int, window: str) -> None:
    height, width, op = WINDOWS[window]
    net = Tokens(channels, batch)
    weights = numbers(1, height, width, channels)
    convolved = net.add(op.replace(data_layout=DataLayout.NCHW), net.image(net.x), weights, numbers(channels))
    net.check(net.add(GELU, net.tokens(convolved)))

    with ip.profile() as profile:
        ip.load(net.network, ["CpuAcc"]).run([numbers(batch, 30, channels)])
    assert [step.site.name.split()[0] for step in profile.steps()] == ["depthwise"]


def test_a_large_image_of_tokens_is_computed_strip_by_strip() -> None:
    network = ip.Network("strips")
    x = network.add_input_layer(0, TensorInfo((1, 40 * 90, 256)), name="x")
    image = network.add_layer(Reshape((1, 256, 40, 90)), network.add_layer(Transpose((0, 2, 1)), x))
    op = DepthwiseConvolution2d(pad_left=1, pad_right=1, pad_top=1, pad_bottom=1, data_layout=DataLayout.NCHW)
    convolved = network.add_layer(op, image, network.add_constant_layer(numbers(1, 3, 3, 256)))
    rows = network.add_layer(Reshape((1, 256, 40 * 90)), convolved)
    network.add_output_layer(0, network.add_layer(Transpose((0, 2, 1)), rows))
    inputs = [numbers(1, 40 * 90, 256)]
    expected = reference_results(network, inputs)[0]
    for threads in (1, 2, 3):
        model = ip.load(
            network, ["CpuAcc"], options=ip.OptimizerOptions(model_options={"CpuAcc": {"NumberOfThreads": threads}})
        )
        np.testing.assert_allclose(model.run(inputs)[0], expected, rtol=0, atol=1e-4)


def test_a_convolution_with_strides_reads_tokens_and_writes_fewer(moves: Callable[[Tokens], int]) -> None:
    net = Tokens(32)
    net.check(net.tokens(net.convolved(net.image(net.x))))
    assert moves(net) == 0


def test_an_image_of_tokens_may_have_several_readers(moves: Callable[[Tokens], int]) -> None:
    net = Tokens(32)
    image = net.image(net.x)
    net.check(net.tokens(net.add(Addition(), net.depthwise(image), image)))
    assert moves(net) == 0


@pytest.mark.parametrize("channels", [3, 5, 20])
@pytest.mark.parametrize("seen", ["image", "rows", "swapped", "convolved"])
def test_tensors_between_are_right_where_they_are_results(channels: int, seen: str) -> None:
    net = Tokens(channels)
    swapped = net.add(Transpose((0, 2, 1)), net.x)
    image = net.add(Reshape((2, channels, 6, 5)), swapped)
    convolved = net.depthwise(image)
    rows = net.add(Reshape((2, channels, 30)), convolved)
    last = net.add(GELU, net.add(Transpose((0, 2, 1)), rows))
    net.check(last, {"image": image, "rows": rows, "swapped": swapped, "convolved": convolved}[seen])


def test_pixels_that_do_not_become_an_image_of_the_same_channels_stay_as_they_are() -> None:
    net = Tokens(32)
    swapped = net.add(Transpose((0, 2, 1)), net.x)
    image = net.add(Reshape((2, 16, 12, 5)), swapped)  # each channel becomes two, one above the other
    op = DepthwiseConvolution2d(data_layout=DataLayout.NCHW)
    convolved = net.add(op, image, numbers(1, 3, 3, 16))
    net.check(net.add(Transpose((0, 2, 1)), net.add(Reshape((2, 32, 15)), convolved)))


def test_a_volume_of_tokens_is_convolved() -> None:
    net = Tokens(16)
    volume = net.image(net.x, 3, 2, 5)
    op = Convolution3d(data_layout=DataLayout.NCDHW)
    net.check(net.tokens(net.add(op, volume, numbers(2, 2, 2, 16, 16))))


@pytest.mark.parametrize("function", [ActivationFunction.RELU, ActivationFunction.SIGMOID, ActivationFunction.GELU])
def test_a_function_behind_moved_results_of_a_product_is_computed_once(function: ActivationFunction) -> None:
    net = Tokens(16)
    rows = net.add(Reshape((60, 16)), net.x)
    product = net.add(FullyConnected(), rows, numbers(16, 16))
    moved = net.add(Transpose((1, 0)), net.add(Reshape((30, 32)), product))
    net.check(net.add(Activation(function), moved))
    other = Tokens(16)
    product = other.add(FullyConnected(), other.add(Reshape((60, 16)), other.x), numbers(16, 16))
    moved = other.add(Reshape((30, 32)), product)
    other.check(other.add(Activation(function), moved), moved)

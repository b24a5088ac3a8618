"""CpuAcc's float32 convolutions and products of matrices are CpuRef's within 1e-5, with every instruction set.

As a program it compares everything with the instruction set that INTERPOSER_CPUACC_ISA names, and lists what differs.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataLayout, TensorInfo
from interposer.ir.graph import Layer
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BatchMatMul,
    Convolution2d,
    DepthwiseConvolution2d,
    FullyConnected,
    TransposeConvolution2d,
)
from tests import warm
from tests.backends.cpuacc.single import reference_results
from tests.instruction_sets import INSTRUCTION_SETS, needs_instruction_set
from tests.parameters import slow_unless

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

PLAIN, DEPTHWISE, TRANSPOSED = Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d
TWICE = {"stride_x": 2, "stride_y": 2}
PADDED = {"pad_left": 1, "pad_right": 1, "pad_top": 1, "pad_bottom": 1}
PADS_OF_12 = dict.fromkeys(PADDED, 12) | {"dilation_x": 12, "dilation_y": 12}
FIRST = {"data_layout": DataLayout.NCHW}


@dataclass(frozen=True)
class Case:
    """One layer with weights that slide over an image, in shapes of NHWC, and what its result goes through."""

    name: str
    kind: type[Convolution2d | DepthwiseConvolution2d | TransposeConvolution2d]
    image: tuple[int, int, int, int]
    weights: tuple[int, int, int, int]
    options: dict[str, Any] = field(default_factory=dict)
    behind: str = ""


CASES = [
    Case("one cell", PLAIN, (1, 5, 7, 16), (33, 1, 1, 16)),
    Case("one cell, odd depth", PLAIN, (2, 9, 9, 23), (50, 1, 1, 23), behind="relu"),
    Case("one cell, channels first", PLAIN, (1, 9, 11, 40), (80, 1, 1, 40), FIRST, behind="sum relu6"),
    Case("one cell, strided", PLAIN, (1, 7, 9, 18), (20, 1, 1, 18), TWICE),
    Case("one cell, padded", PLAIN, (1, 4, 5, 18), (20, 1, 1, 18), PADDED),
    Case("stem", PLAIN, (1, 15, 17, 3), (24, 3, 3, 3), TWICE | PADDED, behind="hard_swish"),
    Case("stem, channels first", PLAIN, (2, 17, 19, 3), (16, 7, 7, 3), TWICE | {"pad_left": 3, "pad_top": 2} | FIRST),
    Case("patches", PLAIN, (2, 16, 40, 3), (20, 8, 8, 3), {"stride_x": 8, "stride_y": 8} | FIRST, behind="gelu"),
    Case("patches, padded", PLAIN, (1, 15, 33, 2), (20, 5, 4, 2), {"stride_x": 4, "stride_y": 4} | PADDED | FIRST),
    Case("winograd 4", PLAIN, (1, 21, 18, 32), (48, 3, 3, 32), PADDED, behind="sum relu"),
    Case("winograd 4, channels first", PLAIN, (2, 20, 20, 40), (36, 3, 3, 40), PADDED | FIRST, behind="swish sum"),
    Case("winograd 2", PLAIN, (1, 7, 7, 288), (288, 3, 3, 288), PADDED, behind="relu"),
    Case("winograd, unpadded", PLAIN, (1, 13, 14, 17), (33, 3, 3, 17), {"pad_left": 2, "pad_bottom": 1}),
    Case("strided", PLAIN, (1, 15, 12, 20), (65, 3, 3, 20), TWICE | PADDED, behind="sigmoid"),
    Case("wide window", PLAIN, (1, 9, 14, 16), (16, 1, 7, 16), {"pad_left": 3, "pad_right": 3}),
    Case("thrice", PLAIN, (1, 14, 14, 12), (8, 5, 2, 12), {"stride_x": 3, "stride_y": 3, "dilation_y": 2}),
    Case("dilated", PLAIN, (1, 11, 12, 9), (6, 3, 2, 9), {"dilation_x": 2, "dilation_y": 3, "pad_left": 2}),
    Case("dilated, in place", PLAIN, (2, 30, 33, 32), (48, 3, 3, 32), PADS_OF_12 | FIRST, behind="sum swish"),
    Case("dilated beyond the image", PLAIN, (1, 9, 8, 20), (36, 3, 3, 20), PADS_OF_12, behind="relu"),
    Case("dilated and strided", PLAIN, (1, 30, 33, 20), (36, 3, 3, 20), TWICE | PADS_OF_12, behind="sum"),
    Case("dilated, few channels", PLAIN, (1, 30, 33, 3), (20, 3, 3, 3), PADS_OF_12 | FIRST),
    Case("small image", PLAIN, (2, 3, 4, 40), (33, 5, 5, 40), dict.fromkeys(PADDED, 2), behind="sum relu"),
    Case("one pixel", PLAIN, (1, 1, 1, 40), (33, 3, 3, 40), PADDED, behind="relu6"),
    Case("grouped", PLAIN, (1, 6, 6, 12), (9, 3, 3, 4), {"groups": 3, **PADDED}),
    Case("grouped blocks", PLAIN, (2, 6, 7, 32), (64, 3, 3, 16), {"groups": 2, **PADDED}, behind="sum relu"),
    Case("many groups", PLAIN, (2, 5, 5, 24), (48, 2, 2, 3), {"groups": 8} | FIRST),
    Case("as many groups as channels", PLAIN, (1, 5, 5, 10), (10, 3, 3, 1), {"groups": 10}),
    Case("one place", PLAIN, (1, 4, 4, 16), (10, 4, 4, 16)),
    Case("more pads than image", PLAIN, (1, 2, 2, 16), (16, 3, 3, 16), {"pad_left": 7, "pad_top": 5, "pad_bottom": 6}),
    Case("gelu after", PLAIN, (1, 6, 5, 24), (40, 1, 1, 24), behind="gelu"),
    Case("groups of two", PLAIN, (2, 9, 17, 40), (40, 3, 3, 2), {"groups": 20, **PADDED} | FIRST, behind="sum relu6"),
    Case("groups of 10", PLAIN, (1, 9, 8, 50), (60, 3, 5, 10), {"groups": 5, **PADDED} | TWICE, behind="swish"),
    Case("groups of 12, one cell", PLAIN, (1, 7, 8, 48), (20, 1, 1, 12), {"groups": 4}, behind="relu sum"),
    Case("groups of 24", PLAIN, (1, 7, 8, 72), (72, 3, 3, 24), {"groups": 3, **PADDED}),
    Case("depthwise, 7 x 7", DEPTHWISE, (1, 9, 20, 33), (1, 7, 7, 33), dict.fromkeys(PADDED, 3), behind="sum gelu"),
    Case("depthwise, 31 x 31", DEPTHWISE, (1, 17, 18, 20), (1, 31, 31, 20), dict.fromkeys(PADDED, 15)),
    Case("depthwise, dilated far", DEPTHWISE, (2, 30, 33, 20), (1, 3, 3, 20), PADS_OF_12, behind="sum relu"),
    Case("depthwise, dilated, strided", DEPTHWISE, (1, 30, 33, 20), (1, 3, 3, 20), PADS_OF_12 | TWICE),
    Case("depthwise", DEPTHWISE, (1, 9, 7, 21), (1, 3, 3, 21), PADDED, behind="relu6"),
    Case("depthwise, 5 x 5", DEPTHWISE, (2, 15, 16, 40), (1, 5, 5, 40), TWICE | {"pad_left": 2, "pad_top": 1}),
    Case("depthwise, channels first", DEPTHWISE, (1, 19, 30, 33), (1, 3, 3, 33), PADDED | FIRST, behind="sum"),
    Case("depthwise, strided", DEPTHWISE, (1, 9, 12, 10), (1, 3, 3, 10), TWICE | PADDED, behind="swish"),
    Case("depthwise, large", DEPTHWISE, (1, 12, 11, 3), (1, 7, 4, 3), {"pad_left": 3, "pad_bottom": 4}),
    Case("depthwise, dilated", DEPTHWISE, (1, 12, 11, 9), (1, 3, 3, 9), {"dilation_x": 2, "dilation_y": 3}),
    Case("depthwise, dilated along the width", DEPTHWISE, (1, 6, 8, 9), (1, 3, 3, 9), {"dilation_x": 2}),
    Case("depthwise, dilated along the height", DEPTHWISE, (1, 9, 7, 9), (1, 3, 3, 9), {"dilation_y": 2}, behind="sum"),
    Case("multiplied", DEPTHWISE, (1, 6, 8, 3), (1, 3, 3, 12), PADDED),
    Case("multiplied, many", DEPTHWISE, (2, 5, 5, 20), (1, 2, 2, 40), FIRST),
    Case("transposed", TRANSPOSED, (1, 5, 4, 18), (7, 3, 3, 18), TWICE | PADDED),
    Case("transposed, concurrently", TRANSPOSED, (2, 6, 7, 32), (16, 2, 2, 32), TWICE | FIRST, behind="relu"),
    Case("transposed, gaps", TRANSPOSED, (2, 3, 4, 5), (4, 2, 2, 5), {"stride_x": 3, "stride_y": 3}),
    Case("transposed, dilated", TRANSPOSED, (1, 4, 4, 8), (6, 3, 2, 8), {"stride_x": 2, "dilation_y": 2}),
    Case("depthwise, transposed", TRANSPOSED, (1, 6, 7, 20), (1, 4, 4, 20), TWICE | {"groups": 20}, "sum relu"),
    Case("transposed, three and two", TRANSPOSED, (2, 5, 6, 24), (2, 3, 3, 24), TWICE | {"groups": 8} | FIRST, "swish"),
    Case("transposed, groups and gaps", TRANSPOSED, (1, 3, 4, 10), (5, 2, 1, 10), {"stride_x": 3, "groups": 5}),
    Case("transposed, groups, stride 1", TRANSPOSED, (1, 9, 6, 32), (1, 3, 3, 32), PADDED | {"groups": 32}, "relu6"),
    Case("transposed, groups, one column", TRANSPOSED, (1, 1, 2, 2), (2, 1, 1, 2), {"pad_left": 1, "groups": 2}),
    Case("transposed, groups, cropped, first", TRANSPOSED, (2, 6, 9, 24), (2, 1, 1, 24),
         {"pad_left": 3, "pad_top": 2, "groups": 8} | FIRST, "sum"),
    Case("transposed, as many groups, cropped", TRANSPOSED, (1, 5, 9, 18), (1, 2, 3, 18),
         {"pad_left": 5, "pad_right": 4, "dilation_x": 2, "groups": 18}),
    Case("transposed, groups, strided and cropped", TRANSPOSED, (1, 5, 9, 12), (2, 3, 2, 12),
         {"pad_left": 7, "pad_right": 6, "pad_top": 5, "groups": 4} | TWICE, "relu"),
    Case("transposed, groups, all but the last column cropped", TRANSPOSED, (1, 3, 6, 8), (1, 1, 4, 8),
         {"pad_left": 8, "groups": 2}),
    Case("transposed, grouped", TRANSPOSED, (1, 4, 5, 6), (3, 2, 2, 6), {"groups": 2, "stride_y": 2}),
]  # fmt: skip

SHARED = [
    Case("winograd, few squares", PLAIN, (1, 7, 7, 128), (32, 3, 3, 128), PADDED),
    Case("winograd, few squares and blocks", PLAIN, (1, 14, 13, 120), (52, 3, 3, 120), PADDED, behind="sum gelu"),
    Case("winograd", PLAIN, (1, 28, 30, 64), (64, 3, 3, 64), PADDED, behind="relu"),
    Case("one cell", PLAIN, (1, 14, 14, 96), (200, 1, 1, 96), behind="sum relu"),
]  # fmt: skip

FUNCTIONS = {
    "relu": Activation(function=ActivationFunction.RELU),
    "relu6": Activation(function=ActivationFunction.BOUNDED_RELU, a=6.0),
    "sigmoid": Activation(function=ActivationFunction.SIGMOID),
    "hard_swish": Activation(function=ActivationFunction.HARD_SWISH),
    "swish": Activation(function=ActivationFunction.SWISH, a=1.0),
    "gelu": Activation(function=ActivationFunction.GELU),
}


def _values(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.normal(size=shape).astype(np.float32)


def _behind(network: ip.Network, what: str, value: Layer, info: TensorInfo) -> Layer:
    for kind in what.split():
        if kind == "sum":
            value = network.add_layer(Addition(), value, network.add_input_layer(1, info))
        else:
            value = network.add_layer(FUNCTIONS[kind], value)
    return value


def _first(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], shape[3], shape[1], shape[2])


def _convolved(
    network: ip.Network, case: Case, x: Layer, info: TensorInfo, rng: np.random.Generator
) -> tuple[Layer, TensorInfo]:
    """Return the output of the case's layer on `x`, with random weights and bias."""
    op = case.kind(**{"data_layout": DataLayout.NHWC, **case.options})
    depthwise = case.kind is DEPTHWISE
    shape = _first(case.weights) if op.data_layout is DataLayout.NCHW and not depthwise else case.weights
    channels = case.weights[3 if depthwise else 0] * (case.options.get("groups", 1) if case.kind is TRANSPOSED else 1)
    scale = (np.prod(case.weights) / case.weights[3 if depthwise else 0]) ** -0.5
    weights = network.add_constant_layer(_values(rng, shape) * np.float32(scale))
    layer = network.add_layer(op, x, weights, network.add_constant_layer(_values(rng, (channels,))))
    return layer, op.infer(info, TensorInfo(shape, "float32"), None)


def network_of(case: Case, rng: np.random.Generator) -> ip.Network:
    network = ip.Network(case.name)
    first = case.options.get("data_layout") is DataLayout.NCHW
    info = TensorInfo(_first(case.image) if first else case.image, "float32")
    layer, result = _convolved(network, case, network.add_input_layer(0, info), info, rng)
    network.add_output_layer(0, _behind(network, case.behind, layer, result))
    return network


def bottleneck(
    size: int, channels: int, expanded: int, stride: int, window: int, rng: np.random.Generator
) -> ip.Network:
    """Return an inverted residual block: 1 x 1, depthwise and 1 x 1 convolutions, and the addition of the input."""
    network = ip.Network("bottleneck")
    info = TensorInfo((1, size, size + 2, channels), "float32")
    x = value = network.add_input_layer(0, info)
    pads = dict.fromkeys(PADDED, window // 2)
    for case in (
        Case("expand", PLAIN, (), (expanded, 1, 1, channels), {}),
        Case(
            "depthwise", DEPTHWISE, (), (1, window, window, expanded), {"stride_x": stride, "stride_y": stride, **pads}
        ),
        Case("project", PLAIN, (), (channels, 1, 1, expanded), {}),
    ):
        value, info = _convolved(network, case, value, info, rng)
        if case.name != "project":
            value = network.add_layer(FUNCTIONS["relu6" if window == 3 else "hard_swish"], value)
    if stride == 1:
        value = network.add_layer(Addition(), value, x)
    network.add_output_layer(0, value)
    return network


def product(rows: int, depth: int, outputs: int, transposed: bool, rng: np.random.Generator) -> ip.Network:
    """A fully connected layer, to which a tensor is added, and whose result goes through a function."""
    network = ip.Network("product")
    x = network.add_input_layer(0, TensorInfo((rows, depth), "float32"))
    weights = _values(rng, (outputs, depth) if transposed else (depth, outputs))
    bias = network.add_constant_layer(_values(rng, (outputs,)))
    layer = network.add_layer(
        FullyConnected(transpose_weight_matrix=transposed), x, network.add_constant_layer(weights), bias
    )
    network.add_output_layer(0, _behind(network, "sum gelu", layer, TensorInfo((rows, outputs), "float32")))
    return network


def batched(
    a: tuple[int, ...], b: tuple[int, ...], options: dict[str, bool], constant: bool, rng: np.random.Generator
) -> ip.Network:
    network = ip.Network("batched")
    x = network.add_input_layer(0, TensorInfo(a, "float32"))
    y = (
        network.add_constant_layer(_values(rng, b))
        if constant
        else network.add_input_layer(1, TensorInfo(b, "float32"))
    )
    network.add_output_layer(0, network.add_layer(BatchMatMul(**options), x, y))
    return network


def error(network: ip.Network, rng: np.random.Generator, threads: int = 0) -> float:
    """The largest difference from CpuRef's result, for random inputs, by the largest number."""
    options = ip.OptimizerOptions(model_options={"CpuAcc": {"NumberOfThreads": threads}})
    accelerated = ip.load(network, backends=["CpuAcc"], options=options)
    with accelerated as model:
        inputs = [_values(rng, tuple(map(int, info.shape))) for info in model.inputs.values()]
        result, expected = model.run(inputs)[0], reference_results(network, inputs)[0]
    return float(np.abs(result - expected).max() / max(np.abs(expected).max(), 1e-30))


BOTTLENECKS = [(14, 16, 96, 1, 3), (9, 24, 144, 2, 3), (7, 20, 40, 1, 5), (21, 8, 40, 2, 5)]
PRODUCTS = [(1, 640, 128, True), (1, 7, 3, False), (5, 33, 70, True), (1, 128, 1001, False), (30, 64, 96, False),
            (1, 64, 144, False), (1, 33, 270, True)]  # fmt: skip
BATCHED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, bool]]] = [
    ((3, 17, 24), (3, 24, 19), {}),
    ((2, 4, 16, 8), (2, 4, 16, 8), {"transpose_y": True}),
    ((5, 8, 20), (20, 33), {}),
    ((2, 9, 5), (1, 9, 32), {"transpose_x": True}),
    ((7,), (7, 40), {}),
    ((3, 6, 7), (7,), {}),
    ((4, 1, 3, 5), (2, 5, 6), {}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_convolution_is_the_reference_within_a_hundred_thousandth(case: Case) -> None:
    rng = np.random.default_rng(7)
    assert error(network_of(case, rng), rng) <= 1e-5


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("case", SHARED, ids=lambda case: case.name)
def test_threads_that_share_a_convolution_give_the_reference(case: Case, threads: int) -> None:
    rng = np.random.default_rng(7)
    assert error(network_of(case, rng), rng, threads) <= 1e-5


@pytest.mark.parametrize("shape", BOTTLENECKS, ids=str)
def test_an_inverted_residual_is_the_reference(shape: tuple[int, int, int, int, int]) -> None:
    rng = np.random.default_rng(5)
    assert error(bottleneck(*shape, rng), rng) <= 1e-5


@pytest.mark.parametrize("shape", PRODUCTS, ids=str)
def test_a_fully_connected_layer_is_the_reference(shape: tuple[int, int, int, bool]) -> None:
    rng = np.random.default_rng(5)
    assert error(product(*shape, rng), rng) <= 1e-5


def test_a_product_without_elements_gives_the_vector_that_is_added_to_it() -> None:
    network = ip.Network("empty")
    weights, bias = (network.add_constant_layer(np.ones(shape, np.float32)) for shape in ((0, 5), (5,)))
    product = network.add_layer(BatchMatMul(), network.add_input_layer(0, TensorInfo((3, 0))), weights)
    network.add_output_layer(0, network.add_layer(Addition(), product, bias))
    result = ip.load(network, ["CpuAcc"]).run([np.ones((3, 0), np.float32)])[0]
    assert np.array(result).tolist() == [[1.0] * 5] * 3


@pytest.mark.parametrize("outputs", [40, 48, 70, 144])
def test_threads_that_share_the_columns_of_one_row_give_the_reference(outputs: int) -> None:
    rng = np.random.default_rng(5)
    assert error(product(1, 20000, outputs, False, rng), rng, 2) <= 1e-5


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(("a", "b", "options"), BATCHED)
def test_products_of_matrices_are_the_reference(
    a: tuple[int, ...], b: tuple[int, ...], options: dict[str, bool], constant: bool
) -> None:
    rng = np.random.default_rng(5)
    assert error(batched(a, b, options, constant, rng), rng) <= 1e-5


def test_a_channel_that_is_not_a_number_stays_by_itself() -> None:
    """Channels that fill up a block, and clamps, neither hide nor spread what is not finite."""
    rng = np.random.default_rng(1)
    case = Case("depthwise", DEPTHWISE, (1, 5, 5, 3), (1, 3, 3, 3), PADDED, behind="relu6")
    network = network_of(case, rng)
    x = _values(rng, case.image)
    x[..., 1] = np.nan
    with ip.load(network, backends=["CpuAcc"]) as model:
        array = np.asarray(model.run([x])[0])
    assert np.isnan(array[..., 1]).all()
    assert np.isfinite(array[..., [0, 2]]).all()


WINOGRAD = [
    Case("four by four", PLAIN, (1, 21, 18, 32), (48, 3, 3, 32), PADDED),
    Case(
        "four by four, channels first", PLAIN, (2, 20, 20, 40), (36, 3, 3, 40), {"pad_left": 1} | FIRST, behind="relu"
    ),
    Case("two by two", PLAIN, (1, 7, 7, 288), (288, 3, 3, 288), PADDED, behind="swish"),
    Case("in stages", PLAIN, (1, 14, 13, 120), (52, 3, 3, 120), PADDED, behind="gelu"),
]


@pytest.mark.parametrize("special", [np.nan, np.inf, 3e38])
@pytest.mark.parametrize("case", WINOGRAD, ids=lambda case: case.name)
def test_the_squares_of_winograd_do_not_spread_what_is_not_finite(case: Case, special: float) -> None:
    rng = np.random.default_rng(2)
    network = network_of(case, rng)
    threads = ip.OptimizerOptions(model_options={"CpuAcc": {"NumberOfThreads": 3}})
    x = _values(rng, _first(case.image) if FIRST.items() <= case.options.items() else case.image)
    x[0, 3, 5, 2] = x[0, 5, 2, 6] = special
    expected = reference_results(network, [x])[0]
    for options in (None, threads):
        result = ip.load(network, ["CpuAcc"], options=options).run([x])[0]
        apart = np.abs(expected) < 1e30
        np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
        for some in (apart, np.isfinite(expected) & ~apart, np.isinf(expected)):
            scale = float(np.abs(expected[some]).max(initial=0.0, where=np.isfinite(expected[some])))
            np.testing.assert_allclose(result[some], expected[some], rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize(("size", "channels"), [(20, 32), (7, 288)], ids=["four by four", "two by two"])
def test_an_infinity_times_a_weight_of_zero_is_nan_in_winograd(size: int, channels: int) -> None:
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((channels, 3, 3, channels)).astype(np.float32)
    weights[rng.random(weights.shape) < 0.5] = 0
    x = rng.standard_normal((1, size, size, channels)).astype(np.float32)
    x[0, 2, 3, 5], x[0, 5, 2, 8] = np.inf, -np.inf
    network = ip.Network("sparse")
    op = Convolution2d(pad_left=1, pad_right=1, pad_top=1, pad_bottom=1, data_layout=DataLayout.NHWC)
    layer = network.add_layer(op, network.add_input_layer(0, TensorInfo(x.shape)), network.add_constant_layer(weights))
    network.add_output_layer(0, layer)
    result, expected = (np.asarray(ip.load(network, [backend]).run([x])[0]) for backend in ("CpuAcc", "CpuRef"))
    assert np.isnan(expected).any() and np.isinf(expected).any()
    scale = float(np.abs(expected[np.isfinite(expected)]).max())
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * scale)


GELUS = (ActivationFunction.GELU, ActivationFunction.GELU_TANH)


def error_of_small_results(function: ActivationFunction) -> float:
    """The largest error of results for negative numbers, of which each is compared with itself."""
    network, x = ip.Network("tail"), np.linspace(-9, -1, 801, dtype=np.float32)
    value = network.add_input_layer(0, TensorInfo((801,), "float32"))
    network.add_output_layer(0, network.add_layer(Activation(function=function), value))
    with ip.load(network, backends=["CpuAcc"]) as model:
        [result], [expected] = model.run([x]), reference_results(network, [x])
    return float(np.abs(result / np.asarray(expected) - 1).max())


@pytest.mark.parametrize("function", GELUS, ids=str)
def test_a_gelu_has_all_digits_where_it_is_small(function: ActivationFunction) -> None:
    assert error_of_small_results(function) <= 1e-4


@pytest.mark.parametrize("instruction_set", slow_unless("avx2".__eq__, INSTRUCTION_SETS))
def test_every_instruction_set_gives_the_same(instruction_set: str) -> None:
    needs_instruction_set(instruction_set)
    environment = {**os.environ, "INTERPOSER_CPUACC_ISA": instruction_set}
    done = subprocess.run(
        [*warm.python(), "-m", __name__], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def all_networks() -> Iterator[tuple[str, Callable[[np.random.Generator], ip.Network]]]:
    for case in CASES:
        yield case.name, lambda rng, case=case: network_of(case, rng)
    for shape in BOTTLENECKS:
        yield f"bottleneck {shape}", lambda rng, shape=shape: bottleneck(*shape, rng)
    for wide in PRODUCTS:
        yield f"product {wide}", lambda rng, wide=wide: product(*wide, rng)
    for batch in BATCHED:
        yield f"batched {batch}", lambda rng, batch=batch: batched(*batch, False, rng)


def _differing() -> Iterator[str]:
    for name, make in all_networks():
        rng = np.random.default_rng(3)
        result = error(make(rng), rng)
        if not result <= 1e-5:
            yield f"{name}: {result:.1e}"
    for function in GELUS:
        if not error_of_small_results(function) <= 1e-4:
            yield f"small results of {function}"


if __name__ == "__main__":
    print("".join(f"{name}\n" for name in _differing()), end="")

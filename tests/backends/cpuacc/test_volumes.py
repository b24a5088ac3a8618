"""CpuAcc on volumes: three-dimensional convolutions and what video networks have around them give CpuRef's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataLayout, TensorInfo
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BatchNormalization,
    Col2Im,
    Concat,
    Convolution3d,
    Multiplication,
    Pooling3d,
    PoolingAlgorithm,
    Transpose,
)
from tests.backends.cpuacc.single import Layers, reference_results

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

PADDED = dict.fromkeys(["pad_left", "pad_right", "pad_top", "pad_bottom", "pad_front", "pad_back"], 1)
TWICE = {"stride_x": 2, "stride_y": 2, "stride_z": 2}
RELU = Activation(function=ActivationFunction.RELU)
SIGMOID = Activation(function=ActivationFunction.SIGMOID)

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 4, 7, 9, 16), (3, 3, 3, 16, 33), PADDED),
    ((2, 3, 6, 5, 24), (3, 3, 3, 24, 16), PADDED | TWICE),
    ((1, 5, 6, 7, 40), (3, 1, 1, 40, 20), {"pad_front": 1, "pad_back": 1}),
    ((1, 2, 6, 17, 17), (1, 3, 3, 17, 32), {"pad_left": 1, "pad_right": 1, "pad_top": 1}),
    ((2, 4, 5, 6, 32), (1, 1, 1, 32, 48), {}),
    ((1, 4, 9, 8, 3), (3, 5, 4, 3, 20), PADDED | {"stride_x": 2, "stride_y": 2}),
    ((1, 6, 9, 8, 18), (3, 3, 2, 18, 20), PADDED | {"dilation_z": 2, "dilation_y": 3, "dilation_x": 4}),
    ((1, 3, 4, 4, 16), (3, 3, 3, 16, 16), dict.fromkeys(PADDED, 5) | {"dilation_z": 5, "dilation_y": 5}),
    ((1, 3, 5, 5, 64), (3, 3, 3, 16, 64), PADDED | {"groups": 4}),
    ((1, 3, 5, 5, 12), (2, 3, 3, 4, 9), PADDED | {"groups": 3}),
    ((2, 3, 5, 6, 20), (3, 3, 3, 1, 20), PADDED | {"groups": 20}),
    ((0, 3, 5, 6, 16), (1, 1, 1, 16, 16), {}),
]


def _values(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def _convolved(network: ip.Network, x: Any, weights: tuple[int, ...], first: bool, **options: Any) -> Any:
    op = Convolution3d(**options, data_layout=DataLayout.NCDHW if first else DataLayout.NDHWC)
    scale = np.float32(np.prod(weights[:4]) ** -0.5)
    constants = [network.add_constant_layer(array) for array in (_values(weights) * scale, _values(weights[4:]))]
    return network.add_layer(op, x, *constants)


def _input(network: ip.Network, shape: tuple[int, ...], first: bool) -> Any:
    n, d, h, w, c = shape
    return network.add_input_layer(0, TensorInfo((n, c, d, h, w) if first else shape), name="x")


def _results(network: ip.Network, x: Array, threads: int = 1) -> tuple[list[Array], list[Array]]:
    """Return the outputs on CpuAcc alone, in one part, and on CpuRef."""
    options = ip.OptimizerOptions(model_options={"CpuAcc": {"NumberOfThreads": threads}})
    with ip.load(network, ["CpuAcc"], options=options) as model:
        return [np.array(y) for y in model.run([x])], reference_results(network, [x])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(("shape", "weights", "options"), SHAPES, ids=str)
def test_a_convolution_of_volumes_is_the_reference_within_a_hundred_thousandth(
    shape: tuple[int, ...], weights: tuple[int, ...], options: dict[str, Any], first: bool, threads: int
) -> None:
    network = ip.Network("volume")
    x = _input(network, shape, first)
    network.add_output_layer(0, network.add_layer(SIGMOID, _convolved(network, x, weights, first, **options)))
    [result], [expected] = _results(network, _values(tuple(x.output.info.shape)), threads)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("first", [False, True])
def test_a_video_network_is_one_part_and_gives_the_reference(first: bool, threads: int) -> None:
    network = ip.Network("video")
    layout = {"data_layout": DataLayout.NCDHW if first else DataLayout.NDHWC}
    axis = 1 if first else 4
    x = _input(network, (2, 6, 12, 13, 3), first)
    stem = _convolved(network, x, (3, 5, 5, 3, 36), first, pad_left=2, pad_right=2, stride_x=2, stride_y=2)
    numbers = [network.add_constant_layer(np.abs(_values((36,))) + np.float32(0.5)) for _ in range(4)]
    stem = network.add_layer(RELU, network.add_layer(BatchNormalization(**layout), stem, *numbers))
    window = {"pool_depth": 2, "pool_height": 3, "pool_width": 3, "pad_left": 1, "pad_top": 1}
    window |= {"stride_x": 1, "stride_y": 2, "stride_z": 1}
    pooled = network.add_layer(Pooling3d(pool_type=PoolingAlgorithm.MAX, **window, **layout), stem)
    branch = network.add_layer(RELU, _convolved(network, pooled, (3, 3, 3, 36, 36), first, **PADDED))
    summed = network.add_layer(RELU, network.add_layer(Addition(), pooled, branch))
    joined = network.add_layer(Concat(axis=axis), _convolved(network, summed, (1, 1, 1, 36, 16), first), summed)
    mean = network.add_layer(Pooling3d(pool_type=PoolingAlgorithm.AVERAGE, **layout), joined)
    gate = network.add_layer(SIGMOID, _convolved(network, mean, (1, 1, 1, 52, 52), first))
    scaled = network.add_layer(Multiplication(), joined, gate)
    turned = network.add_layer(Transpose((0, 2, 3, 4, 1) if first else (0, 4, 1, 2, 3)), scaled)
    network.add_output_layer(0, turned)
    network.add_output_layer(1, mean)
    for result, expected in zip(*_results(network, _values(tuple(x.output.info.shape)), threads), strict=True):
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    "shape", [(2, 36, 1, 4, 5), (1, 1, 3, 1, 5), (36, 3, 4, 5), (1, 36, 3, 4, 1), (1, 36, 1, 1, 1)]
)
def test_volumes_that_broadcast_with_a_convolved_volume_give_the_reference(shape: tuple[int, ...]) -> None:
    network = ip.Network("broadcast")
    convolved = _convolved(network, _input(network, (2, 3, 4, 5, 16), True), (1, 1, 1, 16, 36), True)
    other = network.add_constant_layer(_values(shape))
    network.add_output_layer(0, network.add_layer(Multiplication(), convolved, other))
    [result], [expected] = _results(network, _values((2, 16, 3, 4, 5)))
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_infinities_and_nan_reach_the_windows_that_hold_them_only() -> None:
    network = ip.Network("infinite")
    x = _input(network, (1, 4, 6, 20, 16), True)
    pads = dict.fromkeys(PADDED, 3) | {"dilation_x": 3, "dilation_y": 3, "dilation_z": 3}
    network.add_output_layer(0, _convolved(network, x, (3, 3, 3, 4, 16), True, groups=4, **pads))
    values = _values((1, 16, 4, 6, 20))
    values[0, 2, 1, 3, 4], values[0, 9, 2, 5, 19] = np.inf, np.nan
    [result], [expected] = _results(network, values)
    assert np.array_equal(np.isfinite(result), np.isfinite(expected))
    np.testing.assert_allclose(result[np.isfinite(expected)], expected[np.isfinite(expected)], atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((2, 12, 6), {"window_shape": (4,), "image_shape": (9,)}),
        ((1, 12, 16), {"window_shape": (2, 3), "strides": (2, 1), "pad_list": ((1, 2), (0, 1)), "image_shape": (5, 5)}),
        (
            (2, 24, 12),
            {"window_shape": (2, 2, 3), "dilations": (1, 2, 2), "strides": (3, 2, 2), "image_shape": (5, 5, 9)},
        ),
        ((0, 12, 6), {"window_shape": (4,), "image_shape": (9,)}),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_columns_of_windows_are_added_to_the_image_like_in_the_reference(
    shape: tuple[int, ...], options: dict[str, Any], threads: int
) -> None:
    network = ip.Network("columns")
    x = network.add_input_layer(0, TensorInfo(shape))
    network.add_output_layer(0, network.add_layer(Col2Im(**options), x))
    [result], [expected] = _results(network, _values(shape), threads)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.float64])
def test_columns_of_integers_and_float64(dtype: type) -> None:
    layers, random = Layers(), np.random.default_rng(8)
    for places, size, strides in ((4, (3, 3), (1, 1)), (40, (5, 21), (2, 1)), (80, (5, 41), (1, 2))):
        op = Col2Im(window_shape=(2, 2), image_shape=size, strides=strides)
        columns = random.integers(0, 100, (2, 12, places)).astype(dtype)
        layers.add(f"{places} places, strides {strides}", op, [columns])
    layers.assert_like_the_reference(0, 0, threads=2)

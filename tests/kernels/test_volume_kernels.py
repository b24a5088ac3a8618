"""Convolution and pooling of volumes against their definitions, and against those of images."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.types import DataLayout, Quantization, TensorInfo
from interposer.kernels.sliding import covered, slide
from interposer.ops import (
    Convolution2d,
    Convolution3d,
    OutputShapeRounding,
    PaddingMethod,
    Pooling2d,
    Pooling3d,
    PoolingAlgorithm,
)
from interposer.ops.window import Window
from tests.computing import compute

NDHWC, NHWC = DataLayout.NDHWC, DataLayout.NHWC
PADS = ("pad_front", "pad_back", "pad_top", "pad_bottom", "pad_left", "pad_right")
STEPS = tuple(f"{what}_{axis}" for what in ("stride", "dilation") for axis in "zyx")

windows = st.fixed_dictionaries(
    {name: st.integers(0, 3) for name in PADS} | {name: st.integers(1, 3) for name in STEPS}
)
sizes = st.tuples(*[st.integers(1, 3)] * 3)


def numbers(*shape, seed=0):
    """Small whole numbers, of which sums are exact in every type of floats."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def under(op, x, size, place):
    """The cells of one image under the window at a place, with their number in the window (NDHWC)."""
    steps = (op.stride_z, op.dilation_z, op.pad_front), (op.stride_y, op.dilation_y, op.pad_top)
    steps = *steps, (op.stride_x, op.dilation_x, op.pad_left)
    for cell in itertools.product(*map(range, size)):
        at = tuple(p * s + c * d - pad for p, c, (s, d, pad) in zip(place, cell, steps, strict=True))
        if all(0 <= i < n for i, n in zip(at, x.shape, strict=False)):
            yield cell, x[at]


@given(windows, sizes, st.sampled_from([1, 2]))
@settings(max_examples=25, deadline=None)
def test_a_convolution_sums_the_products_under_the_window(attributes, size, groups):
    op = Convolution3d(**attributes, groups=groups)
    x, weights = numbers(1, 5, 7, 8, 2 * groups), numbers(*size, 2, 2 * groups, seed=1)
    if op.violations(TensorInfo(x.shape), TensorInfo(weights.shape), None):
        return
    result = compute(op, x, weights, None)
    expected = np.zeros_like(result)
    for _, *place in np.ndindex(result.shape[:4]):
        for cell, values in under(op, x[0], size, place):
            parts = np.split(weights[cell], groups, axis=1)
            pairs = zip(np.split(values, groups), parts, strict=True)
            expected[0, *place] += np.concatenate([value @ part for value, part in pairs])
    np.testing.assert_array_equal(result, expected)


def test_a_convolution_of_one_plane_is_that_of_an_image():
    x, weights, bias = numbers(2, 6, 7, 3), numbers(4, 3, 2, 3, seed=1), numbers(4, seed=2)
    image = compute(Convolution2d(pad_top=1, stride_x=2, data_layout=NHWC), x, weights, bias)
    op = Convolution3d(pad_top=1, stride_x=2)
    volume = compute(op, x[:, np.newaxis], weights.transpose(1, 2, 3, 0)[np.newaxis], bias)
    np.testing.assert_array_equal(volume[:, 0], image)


def test_a_quantized_convolution_of_one_plane_is_that_of_an_image():
    generator = np.random.default_rng(0)
    x = generator.integers(0, 256, (1, 5, 5, 3)).astype(np.uint8)
    weights = generator.integers(-127, 128, (4, 2, 2, 3)).astype(np.int8)
    bias = generator.integers(-500, 500, 4).astype(np.int32)
    quantized = [Quantization(0.05, 120), Quantization([0.01, 0.02, 0.03, 0.04], axis=0)]
    image = compute(Convolution2d(data_layout=NHWC), x, weights, bias, quantized=quantized, result=Quantization(0.3, 7))
    quantized[1] = Quantization(quantized[1].scales, axis=4)
    filters = weights.transpose(1, 2, 3, 0)[np.newaxis]
    volume = compute(Convolution3d(), x[:, np.newaxis], filters, bias, quantized=quantized, result=Quantization(0.3, 7))
    np.testing.assert_array_equal(volume[:, 0], image)


@pytest.mark.parametrize("algorithm", PoolingAlgorithm)
@pytest.mark.parametrize("method", PaddingMethod)
@given(windows, sizes)
@settings(max_examples=8, deadline=None)
def test_pooling_reduces_what_is_under_the_window(algorithm, method, attributes, size):
    depth, height, width = size
    op = Pooling3d(
        algorithm, **attributes, pool_depth=depth, pool_height=height, pool_width=width, padding_method=method,
        data_layout=NDHWC,
    )  # fmt: skip
    x = numbers(1, 5, 7, 8, 2)
    if op.violations(TensorInfo(x.shape)):
        return
    result = compute(op, x)
    for _, *place in np.ndindex(result.shape[:4]):
        cells = [value for _, value in under(op, x[0], size, place)] or [np.zeros(2)]
        counted = len(cells) if method is PaddingMethod.EXCLUDE else np.prod(size)
        expected = {
            PoolingAlgorithm.MAX: np.max(cells, axis=0),
            PoolingAlgorithm.AVERAGE: np.sum(cells, axis=0) / counted,
            PoolingAlgorithm.L2: np.sqrt(np.sum(np.square(cells), axis=0) / counted),
        }
        np.testing.assert_allclose(result[0, *place], expected[algorithm], rtol=1e-6)


@pytest.mark.parametrize("algorithm", [PoolingAlgorithm.MAX, PoolingAlgorithm.L2])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantized_pooling_of_one_plane_is_that_of_an_image(algorithm, dtype):
    x = np.random.default_rng(0).integers(0, 120, (1, 3, 6, 7)).astype(dtype)
    attributes = {"pool_width": 2, "pool_height": 3, "stride_x": 1, "stride_y": 2, "pad_top": 1, "pad_left": 1}
    rounding = {"output_shape_rounding": OutputShapeRounding.CEILING}
    image = compute(Pooling2d(algorithm, **attributes, **rounding), x, quantized=[Quantization(0.1, 3)])
    op = Pooling3d(algorithm, **attributes, **rounding, pool_depth=1, stride_z=1)
    volume = compute(op, x[:, :, np.newaxis], quantized=[Quantization(0.1, 3)])
    np.testing.assert_array_equal(volume[:, :, 0], image)


def test_padding_that_nothing_can_fill_costs_nothing():
    """A window of absurd padding has few places with cells to look at."""
    window = Window(size=2, stride=10**9, dilation=10**9, pad_before=2 * 10**9, pad_after=10**9)
    result = slide(np.ones(3), 0, window, window.places(3), np.add, 0)
    np.testing.assert_array_equal(result, [0, 1, 1])
    np.testing.assert_array_equal(covered(window, 3, 3, padding=False), [0, 1, 1])

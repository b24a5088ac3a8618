"""Results on quantized tensors that are rounded half to even, compared with exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.types import DataLayout, Quantization
from interposer.kernels import compute
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BatchMatMul,
    Convolution2d,
    Convolution3d,
    DepthwiseConvolution2d,
    FullyConnected,
    Mean,
    Multiplication,
    PaddingMethod,
    Pooling2d,
    PoolingAlgorithm,
    Reduce,
    ReduceOperation,
    Requantization,
    Subtraction,
    TransposeConvolution2d,
)

TO_EVEN = Requantization.HALF_TO_EVEN
TYPES = [np.int8, np.uint8, np.int16]


def exact(number: float) -> Fraction:
    """Return a scale as files store it, in 32 bits."""
    return Fraction(float(np.float32(number)))


def rounded(values, q: Quantization, dtype) -> np.ndarray:
    """Return exact numbers as quantized values: Python's round is half to even."""
    limits, steps = np.iinfo(dtype), [round(value / exact(q.scale)) + q.zero_point for value in np.ravel(values)]
    return np.clip(steps, limits.min, limits.max).astype(dtype).reshape(np.shape(values))


def drawn(draw, shape, dtype) -> np.ndarray:
    limits = np.iinfo(dtype)
    return draw.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def scale(draw) -> float:
    """Return a scale, often a power of two or a multiple of one, so that many results are halfway."""
    return float(np.float32(draw.choice([2.0 ** draw.integers(-6, 0), 0.1, 0.3, draw.uniform(0.001, 0.2)])))


@given(st.integers(0, 2**32 - 1), st.sampled_from(TYPES), st.booleans(), st.booleans())
@settings(max_examples=60)
def test_a_product_with_weights_is_exact_before_it_is_rounded(seed, dtype, per_column, is_float_bias):
    draw = np.random.default_rng(seed)
    x, weights = drawn(draw, (4, 5), dtype), drawn(draw, (5, 3), np.int8)
    q_x, q_y = (
        Quantization(scale(draw), int(draw.integers(-3, 3)) if dtype is np.int8 else 0),
        Quantization(scale(draw)),
    )
    scales = [scale(draw) for _ in range(3 if per_column else 1)]
    q_w = Quantization(scales, 0, 1) if per_column else Quantization(scales[0])
    products = [exact(q_x.scale) * exact(s) for s in (scales if per_column else scales * 3)]
    bias = draw.normal(0, 5, 3).astype(np.float32) if is_float_bias else draw.integers(-99, 99, 3).astype(np.int32)
    real_bias = [Fraction(float(b)) if is_float_bias else int(b) * p for b, p in zip(bias, products, strict=True)]
    sums = (x.astype(int) - q_x.zero_point) @ weights.astype(int)
    expected = [[int(s) * p + b for s, p, b in zip(row, products, real_bias, strict=True)] for row in sums]
    quantization = {"input": q_x, "weights": q_w, "output": q_y}
    if not is_float_bias:
        quantization["bias"] = Quantization(0.5)
    result = compute(FullyConnected(requantization=TO_EVEN), x, weights, bias=bias, quantization=quantization)
    np.testing.assert_array_equal(result, rounded(expected, q_y, dtype))


SUMS = {
    "convolution": (Convolution2d(data_layout=DataLayout.NHWC, requantization=TO_EVEN), (2, 1, 1, 6)),
    "depthwise": (DepthwiseConvolution2d(data_layout=DataLayout.NHWC, requantization=TO_EVEN), (1, 1, 1, 6)),
    "transposed": (TransposeConvolution2d(data_layout=DataLayout.NHWC, requantization=TO_EVEN), (2, 1, 1, 6)),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", SUMS)
def test_convolutions_are_exact_before_they_are_rounded(name, dtype):
    (op, shape), draw = SUMS[name], np.random.default_rng(7)
    for _ in range(5):
        x, weights = drawn(draw, (1, 3, 4, 6), dtype), drawn(draw, shape, np.int8)
        q_x, q_w, q_y = (Quantization(scale(draw)) for _ in range(3))
        cells, factors = x.astype(int), weights.astype(int)[:, 0, 0]
        sums = cells * factors[0] if name == "depthwise" else cells @ factors.T
        product = exact(q_x.scale) * exact(q_w.scale)
        expected = [int(s) * product for s in sums.ravel()]
        result = compute(op, x, weights, quantization={"input": q_x, "weights": q_w, "output": q_y})
        np.testing.assert_array_equal(result.ravel(), rounded(expected, q_y, dtype))


def test_convolutions_of_volumes_and_products_of_two_tensors_are_exact_before_they_are_rounded():
    draw = np.random.default_rng(8)
    q = [Quantization(scale(draw)) for _ in range(3)]
    product = exact(q[0].scale) * exact(q[1].scale)
    x, weights = drawn(draw, (1, 2, 2, 2, 5), np.int8), drawn(draw, (1, 1, 1, 5, 3), np.int8)
    quantization = {"input": q[0], "weights": q[1], "output": q[2]}
    result = compute(Convolution3d(requantization=TO_EVEN), x, weights, quantization=quantization)
    sums = x.astype(int) @ weights[0, 0, 0].astype(int)
    np.testing.assert_array_equal(result.ravel(), rounded([int(s) * product for s in sums.ravel()], q[2], np.int8))
    a, b = drawn(draw, (4, 5), np.int8), drawn(draw, (5, 6), np.int8)
    result = compute(BatchMatMul(requantization=TO_EVEN), a, b, quantization={"a": q[0], "b": q[1], "output": q[2]})
    sums = a.astype(int) @ b.astype(int)
    np.testing.assert_array_equal(result.ravel(), rounded([int(s) * product for s in sums.ravel()], q[2], np.int8))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("form", ["mean", "reduced mean", "sum", "pool", "padded pool"])
def test_means_and_sums_are_exact_before_they_are_rounded(form, dtype):
    draw, padding = np.random.default_rng(9), PaddingMethod.IGNORE_VALUE
    ops = {
        "mean": Mean((1, 2), requantization=TO_EVEN),
        "reduced mean": Reduce((1, 2), operation=ReduceOperation.MEAN, requantization=TO_EVEN),
        "sum": Reduce((1, 2), requantization=TO_EVEN),
        "pool": Pooling2d(PoolingAlgorithm.AVERAGE, data_layout=DataLayout.NHWC, requantization=TO_EVEN),
        "padded pool": Pooling2d(
            PoolingAlgorithm.AVERAGE, 1, 0, 1, 0, 3, 4, 1, 1, padding_method=padding, data_layout=DataLayout.NHWC,
            requantization=TO_EVEN,
        ),
    }  # fmt: skip
    for _ in range(20):
        x = drawn(draw, (2, 3, 2, 5), dtype)
        q_x, q_y = Quantization(scale(draw), 0 if dtype is np.int16 else 3), Quantization(scale(draw))
        count = {"sum": 1, "padded pool": 12}.get(form, 6)
        sums = (x.astype(int) - q_x.zero_point).sum(axis=(1, 2))
        expected = [int(s) * exact(q_x.scale) / count for s in sums.ravel()]
        result = compute(ops[form], x, quantization={"input": q_x, "output": q_y})
        np.testing.assert_array_equal(result.ravel(), rounded(expected, q_y, dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", [Addition, Subtraction, Multiplication])
def test_arithmetic_of_elements_is_that_of_onnx_in_float32(kind, dtype):
    draw = np.random.default_rng(10)
    function = {Addition: np.add, Subtraction: np.subtract, Multiplication: np.multiply}[kind]
    for size in (7, 300):
        a, b = drawn(draw, (size, size), dtype), drawn(draw, (size, size), dtype)
        q_a, q_b, q_y = (Quantization(scale(draw), 0 if dtype is np.int16 else 2) for _ in range(3))
        reals = [(x.astype(np.float32) - q.zero_point) * np.float32(q.scale) for x, q in ((a, q_a), (b, q_b))]
        steps = np.rint(function(*reals) / np.float32(q_y.scale)) + q_y.zero_point
        limits = np.iinfo(dtype)
        result = compute(kind(requantization=TO_EVEN), a, b, quantization={"a": q_a, "b": q_b, "output": q_y})
        np.testing.assert_array_equal(result, np.clip(steps, limits.min, limits.max).astype(dtype))


@pytest.mark.parametrize(
    "function", [ActivationFunction.RELU, ActivationFunction.BOUNDED_RELU, ActivationFunction.LEAKY_RELU]
)
def test_functions_of_elements_round_ties_to_even(function):
    x = np.arange(-8, 8).astype(np.int8)
    op = Activation(function, 0.75, -0.75, TO_EVEN)
    result = compute(op, x, quantization={"input": Quantization(0.25), "output": Quantization(0.5)})
    reals = x * np.float32(0.25)
    expected = {
        ActivationFunction.RELU: np.maximum(reals, 0),
        ActivationFunction.BOUNDED_RELU: np.clip(reals, -0.75, 0.75),
        ActivationFunction.LEAKY_RELU: np.where(reals > 0, reals, reals * np.float32(0.75)),
    }[function]
    np.testing.assert_array_equal(result, np.rint(expected / np.float32(0.5)).astype(np.int8))


def test_a_bias_of_floats_is_refused_in_fixed_point():
    x, weights, q = np.ones((1, 2), np.int8), np.ones((2, 3), np.int8), Quantization(0.5)
    with pytest.raises(Exception, match="bias is float32; takes int32 with int8"):
        compute(
            FullyConnected(), x, weights, bias=np.ones(3, np.float32),
            quantization={"input": q, "weights": q, "output": q},
        )  # fmt: skip

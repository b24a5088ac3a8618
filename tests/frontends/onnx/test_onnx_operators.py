"""Operators at a recent opset against ONNX's reference evaluator."""

import numpy as np
import pytest
from onnx import helper

from tests.frontends.onnx.models import agree, needs_onnx, ours, single, theirs

RNG = np.random.default_rng(7)


def real(*shape, low=-3.0, high=3.0):
    return RNG.uniform(low, high, shape).astype(np.float32)


X = real(2, 4, 6, 5)
INTS = RNG.integers(-20, 20, (3, 4))


def case(op, *operands, **attributes):
    return pytest.param(op, operands, attributes, id=f"{op}-{'-'.join(map(str, attributes.values()))}"[:60])


@pytest.mark.parametrize(
    "op",
    [
        "Abs", "Atan", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Neg", "Reciprocal", "Round", "Sign", "Sin",
        "Sinh", "Tan", "Asinh", "IsNaN", "IsInf", "Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "Elu", "Selu",
        "LeakyRelu", "HardSigmoid", "HardSwish", "Mish", "Celu", "ThresholdedRelu", "Gelu", "Softmax", "LogSoftmax",
        "Identity", "Flatten", "Shape", "Size", "GlobalAveragePool", "GlobalMaxPool",
    ],
)  # fmt: skip
def test_operators_of_one_operand(op):
    agree(single(op, X), X)


@pytest.mark.parametrize("op", ["Log", "Sqrt", "Acosh"])
def test_operators_of_positive_numbers(op):
    x = real(3, 4, low=1.0, high=5.0)
    agree(single(op, x), x)


@pytest.mark.parametrize("bounds_are_inputs", [False, True])
@pytest.mark.parametrize(("low", "high"), [(np.nan, 1), (-1, np.nan), (np.nan, np.nan), (None, np.nan)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_bound_that_is_nan_does_not_clip(low, high, dtype, bounds_are_inputs):
    x = np.array([-7, 0, 7, np.nan], dtype)
    operands = [x, *(None if bound is None else np.array(bound, dtype) for bound in (low, high))]
    clip = single("Clip", *operands)
    if bounds_are_inputs:
        while clip.graph.initializer:
            bound = clip.graph.initializer.pop()
            clip.graph.input.append(helper.make_tensor_value_info(bound.name, bound.data_type, []))
    feeds = {f"x{i}": operand for i, operand in enumerate(operands) if operand is not None}
    [y] = ours(clip, *(feeds[value.name] for value in clip.graph.input))
    bounds = (-np.inf if low is None or np.isnan(low) else low, np.inf if np.isnan(high) else high)
    np.testing.assert_array_equal(y, np.clip(x, *bounds))


@pytest.mark.parametrize("op", ["Acos", "Asin", "Atanh"])
def test_operators_of_small_numbers(op):
    x = real(3, 4, low=-0.9, high=0.9)
    agree(single(op, x), x)


@pytest.mark.parametrize(
    "op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Greater", "LessOrEqual", "Sum", "Mean"]
)
def test_operators_of_two_operands_broadcast(op):
    agree(single(op, X, real(4, 1, 5)), X)


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic_broadcasts(op):
    a, b = RNG.integers(0, 2, (3, 4)).astype(bool), RNG.integers(0, 2, (4,)).astype(bool)
    agree(single(op, a, b), a)


@pytest.mark.parametrize(
    ("op", "operands", "attributes"),
    [
        case("Pow", real(3, 4, low=0.1), np.array([2, 3, 1, 0])),
        case("Mod", INTS, np.array([3, -4, 5, 7])),
        case("Mod", INTS, np.array([3, -4, 5, 7]), fmod=1),
        case("Mod", real(3, 4), np.float32(1.25), fmod=1),
        case("Not", np.array([True, False])),
        case("BitwiseAnd", INTS, np.array([12])),
        case("BitShift", INTS.astype(np.uint8), np.array([2], np.uint8), direction="LEFT"),
        case("IsInf", np.array([np.inf, -np.inf, 1], np.float32), detect_negative=0),
        case("Where", np.array([[True], [False]]), real(2, 3), real(3)),
        case("PRelu", X, real(4, 1, 1)),
        case("Clip", X, np.float32(-1), np.float32(1)),
        case("Clip", X, np.float32(0)),
        case("Clip", X, None, np.float32(1)),
        case("Clip", X, np.float32(2), np.float32(-2)),
        case("Clip", INTS, np.int64(-3), np.int64(5)),
        case("Gelu", X, approximate="tanh"),
        case("Softmax", X, axis=1),
        case("LogSoftmax", X, axis=-2),
        case("Cast", X, to=6),
        case("CastLike", X, np.array([1], np.int64)),
        case("MatMul", real(2, 3), real(3, 5)),
        case("MatMul", real(2, 4, 2, 3), real(3, 5)),
        case("MatMul", real(3), real(2, 3, 5)),
        case("Gemm", real(3, 4), real(4, 5), real(5)),
        case("Gemm", real(4, 3), real(5, 4), real(3, 5), transA=1, transB=1, alpha=0.5, beta=2.0),
        case("Gemm", real(3, 4), real(5, 4), real(1, 5), transB=1),
        case("Gemm", real(3, 4), real(4, 5), np.float32(2.0)),
        case("Gemm", real(3, 4), real(4, 5)),
        case("Gemm", real(3, 0), real(0, 5), real(5)),
        case("Gemm", real(0, 3), real(5, 0), real(3, 5), transA=1, transB=1, alpha=0.5, beta=2.0),
        case("Gemm", real(3, 0), real(0, 5)),
        case("MatMul", real(2, 3, 0), real(0, 5)),
        case("ReduceSum", X, np.array([1, -1]), keepdims=0),
        case("ReduceSum", X, None, noop_with_empty_axes=1),
        case("ReduceL1", X, None, noop_with_empty_axes=1),
        case("ReduceL2", X, None, noop_with_empty_axes=1),
        case("ReduceSumSquare", X, None, noop_with_empty_axes=1),
        case("ReduceLogSum", np.abs(X), None, noop_with_empty_axes=1),
        case("ReduceLogSumExp", X, None, noop_with_empty_axes=1),
        case("ReduceMean", X, np.array([2])),
        case("ReduceMax", X),
        case("ReduceMin", X, np.array([0, 1, 2, 3]), keepdims=0),
        case("ReduceProd", X, np.array([3])),
        case("ReduceL1", X, np.array([1])),
        case("ReduceL2", X, np.array([1])),
        case("ReduceLogSumExp", X, np.array([1])),
        case("ReduceSumSquare", X, np.array([1])),
        case("ReduceLogSum", np.abs(X), np.array([1])),
        case("ArgMax", X, axis=2, keepdims=0),
        case("ArgMin", INTS // 8, axis=-1, select_last_index=1),
        case("Reshape", X, np.array([0, -1, 3])),
        case("Reshape", np.zeros((0, 3), np.float32), np.array([3, 0]), allowzero=1),
        case("Flatten", X, axis=-1),
        case("Squeeze", real(1, 3, 1), np.array([-1])),
        case("Squeeze", real(1, 3, 1)),
        case("Unsqueeze", real(3, 4), np.array([0, -1])),
        case("Shape", X, start=1, end=-1),
        case("Expand", real(3, 1), np.array([2, 1, 4])),
        case("Tile", real(2, 3), np.array([2, 3])),
        case("Concat", X, X, axis=-3),
        case("Slice", X, np.array([1, -4]), np.array([2**40, -1]), np.array([1, 2])),
        case("Slice", X, np.array([-1]), np.array([-(2**62)]), np.array([3]), np.array([-2])),
        case("Transpose", X),
        case("Transpose", X, perm=[0, 2, 3, 1]),
        case("Pad", real(3, 4), np.array([1, 0, 2, 1]), np.float32(1.5)),
        case("Pad", real(3, 4), np.array([2, 1]), None, np.array([-1]), mode="reflect"),
        case("Pad", real(3, 4), np.array([1, 2, 3, 1]), mode="edge"),
        case("Pad", real(3, 4), np.array([1, 2, 3, 1]), mode="wrap"),
        case("Gather", X, np.array([[0, -1]]), axis=2),
        case("GatherND", X, np.array([[0, 1], [1, -1]])),
        case("GatherND", X, np.array([[0], [1]]), batch_dims=1),
        case("DepthToSpace", X, blocksize=2),
        case("DepthToSpace", X, blocksize=2, mode="CRD"),
        case("SpaceToDepth", real(1, 2, 4, 6), blocksize=2),
        case("BatchNormalization", X, *(real(4, low=0.5) for _ in range(4))),
        case("InstanceNormalization", X, real(4), real(4), epsilon=0.01),
        case("LayerNormalization", X, real(6, 5), real(5), axis=2),
        case("GroupNormalization", X, real(4), real(4), num_groups=2),
        case("LpNormalization", X, axis=1),
        case("LpNormalization", np.abs(X), axis=1, p=1),
    ],
)  # fmt: skip
def test_operators_with_constants_and_attributes(op, operands, attributes):
    agree(single(op, *operands, **attributes), operands[0], atol=1e-5)


@pytest.mark.parametrize("parts", [{"num_outputs": 3}, {}])
def test_a_split_in_equal_parts(parts):
    x = real(2, 8 if parts else 9)
    agree(single("Split", x, outputs=3, axis=1, **parts), x)


def test_a_split_in_given_parts():
    x = real(9, 2)
    agree(single("Split", x, np.array([2, 0, 7]), outputs=3), x)


CONV = real(6, 4, 3, 3)
PADDED = needs_onnx(23, "the reference evaluator pads in another way")
AUTOMATIC = (
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"auto_pad": "SAME_LOWER", "strides": [3, 2]},
    {"auto_pad": "VALID"},
)


@pytest.mark.parametrize(
    ("weights", "attributes"),
    [
        (CONV, {}),
        (CONV, {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2]}),
        *(pytest.param(CONV, attributes, marks=PADDED) for attributes in AUTOMATIC),
        (real(6, 2, 3, 3), {"group": 2}),
        (real(4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
        (real(8, 1, 3, 2), {"group": 4}),
    ],
)
def test_convolutions(weights, attributes):
    bias = real(len(weights))
    agree(single("Conv", X, weights, bias, **attributes), X, atol=1e-4)
    agree(single("Conv", X, weights, **attributes), X, atol=1e-4)


@pytest.mark.parametrize(
    "attributes", [{}, {"strides": [2], "pads": [2, 1], "dilations": [2]}, {"auto_pad": "SAME_UPPER"}]
)
def test_convolutions_with_one_spatial_axis(attributes):
    x = real(2, 4, 9)
    agree(single("Conv", x, real(6, 4, 3), real(6), **attributes), x, atol=1e-5)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2, 3], "pads": [1, 0, 1, 2]},
        {"strides": [2, 2], "output_padding": [1, 1], "pads": [1, 1, 1, 1]},
        {"strides": [2, 2], "output_padding": [1, 1]},
        {"strides": [3, 3], "output_shape": [18, 16]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"dilations": [2, 1]},
    ],
)
def test_transposed_convolutions(attributes):
    agree(single("ConvTranspose", X, real(4, 3, 3, 3), real(3), **attributes), X, atol=1e-4)


def test_a_transposed_convolution_with_groups_is_one_for_each():
    weights = real(4, 3, 3, 3)
    parts = [theirs(single("ConvTranspose", X[:, i : i + 2], weights[i : i + 2]), X[:, i : i + 2])[0] for i in (0, 2)]
    [result] = ours(single("ConvTranspose", X, weights, group=2), X)
    np.testing.assert_allclose(result, np.concatenate(parts, axis=1), rtol=1e-4, atol=1e-5)


def test_a_transposed_convolution_with_one_spatial_axis():
    x = real(1, 2, 5)
    agree(single("ConvTranspose", x, real(2, 3, 3), strides=[2], output_padding=[1]), x, atol=1e-5)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [2, 3]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"kernel_shape": [2, 2], "dilations": [2, 1]},
    ],
)
def test_pooling(op, attributes):
    agree(single(op, X, **attributes), X)


def test_pooling_that_counts_its_padding_and_with_one_spatial_axis():
    agree(single("AveragePool", X, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1), X)
    x = real(2, 3, 9)
    agree(single("MaxPool", x, kernel_shape=[3], strides=[2], pads=[1, 0]), x)
    agree(single("GlobalAveragePool", x), x)
    np.testing.assert_array_equal(ours(single("GlobalMaxPool", x), x)[0], x.max(axis=2, keepdims=True))


def test_the_statistics_of_a_layer_normalization():
    x = real(2, 3, 4)
    agree(single("LayerNormalization", x, real(3, 4), outputs=3, axis=1), x)


# --- where the reference evaluator is wrong or incomplete -------------------------------------------------------------


def test_negative_pads_cut():
    x = np.arange(12).reshape(3, 4)
    [result] = ours(single("Pad", x, np.array([-1, 2, 0, -1])), x)
    np.testing.assert_array_equal(result, np.pad(x[1:, :3], ((0, 0), (2, 0))))


@pytest.mark.parametrize(("size", "window"), [(3, (1, 1)), (4, (1, 2)), (1, (0, 0))])
def test_local_response_normalization_over_channels(size, window):
    x = real(2, 6, 2, 2)
    sums = [(x[:, max(0, c - window[0]) : c + window[1] + 1] ** 2).sum(axis=1) for c in range(6)]
    [result] = ours(single("LRN", x, size=size, alpha=0.1, beta=0.5, bias=2.0), x)
    np.testing.assert_allclose(result, x / (2.0 + 0.1 / size * np.stack(sums, axis=1)) ** 0.5, rtol=1e-5)


def test_a_length_of_zero_divides_nothing():
    x = np.array([[0.0, 0.0], [3.0, -4.0]], np.float32)
    np.testing.assert_allclose(ours(single("LpNormalization", x), x)[0], [[0, 0], [0.6, -0.8]])

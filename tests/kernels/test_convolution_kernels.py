"""Convolutions against their definition, spelled out as loops, and quantized ones against float ones."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import DataLayout, DataType, Quantization, TensorInfo
from interposer.kernels import KernelInfo, evaluate, reference
from interposer.ops import Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d
from tests.computing import compute

NHWC = DataLayout.NHWC
Q = Quantization(1.0)
PER_AXIS = Quantization([1.0, 2.0], axis=3)


def numbers(*shape, seed=0):
    """Small whole numbers, of which sums are exact in every type of floats."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def convolved(op, x, weights, groups=1):
    """Compute a convolution (NHWC) by its definition, one product after the other."""
    [info] = op.infer_infos(TensorInfo(x.shape), TensorInfo(weights.shape), None)
    result = np.zeros(info.shape)
    (n, height, width, _), (outputs, kh, kw, channels) = x.shape, weights.shape
    for b, oy, ox, o, i, j in itertools.product(range(n), *map(range, info.shape[1:]), range(kh), range(kw)):
        y = oy * op.stride_y + i * op.dilation_y - op.pad_top
        z = ox * op.stride_x + j * op.dilation_x - op.pad_left
        first = o // (outputs // groups) * channels
        if 0 <= y < height and 0 <= z < width:
            result[b, oy, ox, o] += x[b, y, z, first : first + channels] @ weights[o, i, j]
    return result


windows = st.fixed_dictionaries(
    {name: st.integers(0, 3) for name in ("pad_left", "pad_right", "pad_top", "pad_bottom")}
    | {name: st.integers(1, 3) for name in ("stride_x", "stride_y", "dilation_x", "dilation_y")}
)


@given(windows, st.integers(1, 3), st.integers(1, 3), st.sampled_from([1, 2]))
@settings(max_examples=60, deadline=None)
def test_a_convolution_sums_the_products_under_the_window(attributes, kh, kw, groups):
    op = Convolution2d(**attributes, groups=groups, data_layout=NHWC)
    x, weights = numbers(2, 7, 8, 2 * groups), numbers(2 * groups, kh, kw, 2, seed=1)
    np.testing.assert_array_equal(compute(op, x, weights), convolved(op, x, weights, groups))


@given(windows, st.integers(1, 3), st.integers(1, 3), st.integers(1, 2))
@settings(max_examples=40, deadline=None)
def test_a_depthwise_convolution_is_one_with_a_group_for_each_channel(attributes, kh, kw, multiplier):
    op = DepthwiseConvolution2d(**attributes, data_layout=NHWC)
    x, weights = numbers(2, 7, 8, 3), numbers(1, kh, kw, 3 * multiplier, seed=1)
    grouped = Convolution2d(**attributes, groups=3, data_layout=NHWC)
    filters = weights.transpose(3, 1, 2, 0)
    np.testing.assert_array_equal(compute(op, x, weights), compute(grouped, x, filters))


@given(windows, st.integers(1, 3), st.integers(1, 3), st.sampled_from([1, 2]))
@settings(max_examples=40, deadline=None)
def test_a_transposed_convolution_is_the_transpose_of_a_convolution(attributes, kh, kw, groups):
    """The products <convolution(x), y> and <x, transposed(y)> are equal."""
    forward = Convolution2d(**attributes, groups=groups, data_layout=NHWC)
    x, weights = numbers(1, 7, 8, 2 * groups), numbers(2 * groups, kh, kw, 2, seed=1)
    there = compute(forward, x, weights)
    y = numbers(*there.shape, seed=2)
    op = TransposeConvolution2d(**attributes, groups=groups, output_shape=x.shape, data_layout=NHWC)
    filters = weights.reshape(groups, 2, kh, kw, 2).transpose(4, 2, 3, 0, 1).reshape(2, kh, kw, 2 * groups)
    assert np.vdot(there, y) == np.vdot(x, compute(op, y, filters))


@pytest.mark.parametrize("kind", [Convolution2d, TransposeConvolution2d])
def test_both_layouts_give_the_same_image(kind):
    x, weights, bias = numbers(2, 5, 6, 3), numbers(4, 3, 2, 3, seed=1), numbers(4, seed=2)
    last = compute(kind(pad_top=1, stride_x=2, data_layout=NHWC), x, weights, bias)
    first = compute(kind(pad_top=1, stride_x=2), x.transpose(0, 3, 1, 2), weights.transpose(0, 3, 1, 2), bias)
    np.testing.assert_array_equal(first.transpose(0, 2, 3, 1), last)


def test_both_layouts_give_the_same_image_channel_by_channel():
    x, weights, bias = numbers(2, 5, 6, 3), numbers(1, 3, 2, 6, seed=1), numbers(6, seed=2)
    last = compute(DepthwiseConvolution2d(pad_top=1, stride_x=2, data_layout=NHWC), x, weights, bias)
    first = compute(DepthwiseConvolution2d(pad_top=1, stride_x=2), x.transpose(0, 3, 1, 2), weights, bias)
    np.testing.assert_array_equal(first.transpose(0, 2, 3, 1), last)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "int64"])
def test_a_convolution_takes_numbers_of_any_type(dtype):
    kind = DataType.of(dtype).numpy
    x, weights, bias = numbers(1, 4, 4, 2), numbers(3, 2, 2, 2, seed=1), numbers(3, seed=2)
    result = compute(Convolution2d(data_layout=NHWC), x.astype(kind), weights.astype(kind), bias.astype(kind))
    assert result.dtype == kind
    np.testing.assert_array_equal(result.astype(np.float64), compute(Convolution2d(data_layout=NHWC), x, weights, bias))


def test_narrow_floats_are_rounded_once():
    x = np.full((1, 1, 1, 4096), 1, np.float16)
    weights = np.full((1, 1, 1, 4096), 1, np.float16)  # summed in float16, this would stop at 2048
    assert compute(Convolution2d(data_layout=NHWC), x, weights).item() == 4096


def test_a_result_that_is_too_large_for_its_type_is_infinite():
    x = np.full((1, 1, 1, 1), 60000, np.float16)
    assert compute(Convolution2d(data_layout=NHWC), x, np.full((1, 1, 1, 1), 2, np.float16)).item() == np.inf


def test_the_padding_of_a_quantized_image_is_a_real_zero():
    x = np.full((1, 1, 1, 1), 10, np.uint8)  # (10 - 3) * 0.5 = 3.5
    weights = np.full((1, 3, 3, 1), 6, np.uint8)  # (6 - 4) * 0.5 = 1
    op = Convolution2d(pad_left=1, pad_right=1, pad_top=1, pad_bottom=1, data_layout=NHWC)
    scales = [Quantization(0.5, 3), Quantization(0.5, 4)]
    assert compute(op, x, weights, quantized=scales, result=Quantization(0.25, 7)).item() == 3.5 / 0.25 + 7


def test_every_channel_has_a_scale_of_its_own():
    x, weights = np.full((1, 1, 1, 1), 4, np.int8), np.array([8, 8, 8], np.int8).reshape(3, 1, 1, 1)
    scales = [Quantization(1.0), Quantization([1.0, 0.5, 0.25], axis=0)]
    result = compute(Convolution2d(data_layout=NHWC), x, weights, quantized=scales, result=Quantization(1.0))
    assert result.ravel().tolist() == [32, 16, 8]


def test_results_out_of_range_are_clamped():
    x, weights = np.array([[[[100]], [[-100]]]], np.int8), np.full((1, 1, 1, 1), 100, np.int8)
    scales = [Quantization(1.0), Quantization(1.0)]
    result = compute(Convolution2d(data_layout=NHWC), x, weights, quantized=scales, result=Quantization(1.0))
    assert result.ravel().tolist() == [127, -128]


def test_sums_that_float32_cannot_hold_are_exact():
    """All products are positive, and their sum of 4097 * 255**2 is odd and more than 2**24."""
    x, weights = np.full((1, 1, 1, 4097), 255, np.uint8), np.full((1, 1, 1, 4097), 255, np.uint8)
    bias = np.array([-4097 * 255**2 + 17], np.int32)
    scales = [Quantization(1.0), Quantization(1.0)]
    result = compute(Convolution2d(data_layout=NHWC), x, weights, bias, quantized=scales, result=Quantization(1.0))
    assert result.item() == 17


def test_weights_and_bias_that_are_no_constants_give_the_same():
    op, values, filters = Convolution2d(data_layout=NHWC), np.int8([[[[1], [2]]]]), np.int8([[[[3]]], [[[4]]]])
    x, w, output = (TensorInfo(shape, "int8", Q) for shape in ((1, 1, 2, 1), (2, 1, 1, 1), (1, 1, 2, 2)))
    [given_late] = evaluate(op, [values, filters, None], [x, w, None], [output])
    [given_early] = evaluate(op, [values, filters, None], [x, w.with_constant(filters), None], [output])
    np.testing.assert_array_equal(given_late, given_early)


def test_a_dilation_beyond_the_image_costs_nothing():
    far = 2**31 - 1
    op = Convolution2d(
        dilation_x=far, dilation_y=far, pad_left=far, pad_right=far, pad_top=far, pad_bottom=far, data_layout=NHWC
    )
    x, weights = numbers(1, 4, 4, 2), numbers(3, 3, 3, 2, seed=1)
    middle = weights[:, 1:2, 1:2]
    np.testing.assert_array_equal(compute(op, x, weights), compute(Convolution2d(data_layout=NHWC), x, middle))


def test_a_stride_beyond_the_image_costs_nothing():
    far = 2**31 - 1
    op = Convolution2d(stride_x=far, stride_y=far, pad_right=far, pad_bottom=far, data_layout=NHWC)
    x, weights = numbers(1, 4, 4, 2), numbers(3, 3, 3, 2, seed=1)
    result = compute(op, x, weights)
    expected = compute(Convolution2d(data_layout=NHWC), x[:, :3, :3], weights)
    np.testing.assert_array_equal(result[:, :1, :1], expected)
    assert not result[:, 1:].any() and not result[:, :, 1:].any()


def test_an_empty_batch_gives_an_empty_result():
    assert compute(Convolution2d(data_layout=NHWC), numbers(0, 4, 4, 2), numbers(3, 3, 3, 2)).shape == (0, 2, 2, 3)


@pytest.mark.parametrize(
    ("infos", "reason"),
    [
        (
            ["float32", "float16", None, "float32"],
            "the tensors are float16 and float32; takes one type for all of them",
        ),
        ([("int8", Q), "int8", None, ("int8", Q)], "input is quantized, but weights or output are not"),
        ([("int8", Q), ("int8", Q), None, "int8"], "input is quantized, but weights or output are not"),
        (
            [("int8", Q), ("int8", Q), None, ("uint8", Q)],
            "input is int8 and output uint8; takes int8, uint8 or int16 for both",
        ),
        (
            [("int8", Q), ("int16", Q), None, ("int8", Q)],
            "weights are int16; takes int8 or uint8, or int16 with an input of int16",
        ),
        ([("int8", Q), ("int8", Q), "int64", ("int8", Q)], "bias is int64; takes int32 with int8"),
        (
            [("int8", PER_AXIS), ("int8", Q), None, ("int8", Q)],
            "input or output is quantized along an axis; takes one scale for each",
        ),
    ],
)
def test_what_no_kernel_takes_is_refused_with_the_reason(infos, reason):
    shapes = [(1, 1, 1, 2), (2, 1, 1, 2), (2,), (1, 1, 1, 2)]
    created = [
        None if info is None else TensorInfo(shape, *([info] if isinstance(info, str) else info))
        for shape, info in zip(shapes, infos, strict=True)
    ]
    op = Convolution2d(data_layout=NHWC)
    assert reference().reasons(op, KernelInfo.of(op, created[:3], created[3:])) == [reason]
    with pytest.raises(InvalidArgumentError, match="^Convolution2d: "):
        evaluate(op, [None, None, None], created[:3], created[3:])


def test_the_groups_of_a_quantized_transposed_convolution_share_the_scales_of_the_weights():
    op = TransposeConvolution2d(groups=2, data_layout=NHWC)
    x, weights = np.int8([[[[1, 2]]]]), np.int8([[[[10, 20]]], [[[30, 40]]]])
    infos = [
        TensorInfo(x.shape, DataType.INT8, Q),
        TensorInfo(weights.shape, DataType.INT8, Quantization([1.0, 0.5], axis=0)),
        None,
    ]
    outputs = [TensorInfo((1, 1, 1, 4), DataType.INT8, Q)]
    [result] = evaluate(op, [x, weights, None], infos, outputs)
    assert result.ravel().tolist() == [10, 15, 40, 40]

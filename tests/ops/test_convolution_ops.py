"""Shapes and errors of convolutions."""

import pytest

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import UNKNOWN, DataLayout, Quantization, TensorInfo
from interposer.ops import Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d

NHWC = DataLayout.NHWC


def shape_of(op, *infos):
    assert op.violations(*infos) == []
    [info] = op.infer_infos(*infos)
    return tuple(info.shape)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, (1, 8, 6, 4)),
        ({"stride_x": 2, "stride_y": 3}, (1, 3, 3, 4)),
        ({"pad_top": 1, "pad_bottom": 2, "pad_left": 3}, (1, 11, 9, 4)),
        ({"dilation_x": 2, "dilation_y": 4}, (1, 2, 4, 4)),
    ],
)
def test_a_convolution_has_a_result_for_each_place_of_the_window(attributes, expected):
    op = Convolution2d(data_layout=NHWC, **attributes)
    assert shape_of(op, TensorInfo((1, 10, 8, 3)), TensorInfo((4, 3, 3, 3)), TensorInfo((4,))) == expected


def test_the_layout_tells_where_the_axes_are():
    x, weights = TensorInfo((1, 3, 10, 8)), TensorInfo((4, 3, 5, 1))
    assert shape_of(Convolution2d(), x, weights) == (1, 4, 6, 8)
    assert shape_of(DepthwiseConvolution2d(), x, TensorInfo((1, 5, 1, 6))) == (1, 6, 6, 8)


def test_unknown_extents_stay_unknown_where_they_matter():
    x = TensorInfo(("batch", None, 8, 3))
    [inferred] = Convolution2d(data_layout=NHWC).infer_infos(x, TensorInfo((4, 3, 3, 3)), None)
    assert inferred.shape == TensorInfo(("batch", UNKNOWN, 6, 4)).shape
    assert Convolution2d(data_layout=NHWC).violations(x, TensorInfo((4, 3, 3, 3))) == []


def test_groups_divide_the_channels():
    op = Convolution2d(groups=2, data_layout=NHWC)
    assert shape_of(op, TensorInfo((1, 4, 4, 6)), TensorInfo((8, 1, 1, 3))) == (1, 4, 4, 8)


@pytest.mark.parametrize(
    ("op", "shapes", "fault"),
    [
        (
            Convolution2d(data_layout=NHWC),
            [(1, 4, 4, 3), (8, 3, 3, 2)],
            "input has 3 channels, but weights have 2",
        ),
        (
            Convolution2d(data_layout=NHWC, groups=2),
            [(1, 4, 4, 3), (8, 3, 3, 2)],
            "input has 3 channels, but weights have 2 in each of 2 groups",
        ),
        (
            Convolution2d(data_layout=NHWC, groups=3),
            [(1, 4, 4, 3), (8, 3, 3, 1)],
            "weights give 8 channels; expected a multiple of groups = 3",
        ),
        (
            Convolution2d(data_layout=NHWC, dilation_y=2),
            [(1, 4, 4, 3), (8, 3, 3, 3)],
            "the window spans 5 cells in height, but the padded input has only 4",
        ),
        (Convolution2d(data_layout=NHWC), [(1, 4, 4, 3), (8, 0, 3, 3)], "the window has height 0"),
        (
            Convolution2d(data_layout=NHWC),
            [(1, 4, 4, 3), (8, 3, 3, 3), (3,)],
            "bias has 3 elements; expected 8, one for each output channel",
        ),
        (
            DepthwiseConvolution2d(data_layout=NHWC),
            [(1, 4, 4, 3), (1, 3, 3, 4)],
            "weights give 4 channels; expected a multiple of the input's 3",
        ),
        (
            DepthwiseConvolution2d(data_layout=NHWC),
            [(1, 4, 4, 3), (2, 3, 3, 3)],
            "weights have shape [2, 3, 3, 3]; expected [1, height, width, channels * multiplier]",
        ),
        (
            TransposeConvolution2d(data_layout=NHWC),
            [(1, 4, 4, 3), (8, 3, 3, 2)],
            "input has 3 channels, but weights have 2",
        ),
        (
            TransposeConvolution2d(data_layout=NHWC, pad_left=9),
            [(1, 4, 4, 3), (8, 3, 3, 3)],
            "the output would have height 6 and width -3; reduce the padding",
        ),
        (
            TransposeConvolution2d(data_layout=NHWC, output_shape=(1, 7, 7, 4)),
            [(1, 4, 4, 3), (8, 3, 3, 3)],
            "output_shape is (1, 7, 7, 4); expected batch 1 and 8 channels",
        ),
        (
            TransposeConvolution2d(data_layout=NHWC, output_shape=(7, 7)),
            [(1, 4, 4, 3), (8, 3, 3, 3)],
            "output_shape has rank 2; expected rank 4",
        ),
    ],
)
def test_operands_that_do_not_fit_are_named(op, shapes, fault):
    assert op.violations(*map(TensorInfo, shapes)) == [fault]


def test_scales_of_weights_must_lie_along_the_output_channels():
    x = TensorInfo((1, 4, 4, 2), "int8", Quantization(1.0))
    weights = TensorInfo((2, 1, 1, 2), "int8", Quantization([1.0, 2.0], axis=3))
    assert Convolution2d(data_layout=NHWC).violations(x, weights) == [
        "weights are quantized along axis 3; expected axis 0, the axis of the output channels"
    ]


def test_a_stride_of_zero_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"^Convolution2d: stride_x is 0; expected >= 1$"):
        Convolution2d(stride_x=0)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, (2, 6, 5, 7)),
        ({"stride_y": 2, "stride_x": 3}, (2, 9, 9, 7)),
        ({"stride_y": 2, "pad_top": 1, "pad_bottom": 1}, (2, 7, 5, 7)),
        ({"dilation_y": 2}, (2, 8, 5, 7)),
        ({"output_shape": (2, 3, 30, 7)}, (2, 3, 30, 7)),
    ],
)
def test_a_transposed_convolution_gives_what_a_convolution_would_take(attributes, expected):
    op = TransposeConvolution2d(data_layout=NHWC, **attributes)
    assert shape_of(op, TensorInfo((2, 4, 3, 5)), TensorInfo((7, 3, 3, 5))) == expected

"""Shapes and errors of convolution and pooling of volumes."""

import pytest

from interposer.core.types import DataLayout, DataType, Quantization, TensorInfo
from interposer.ops import Convolution3d, OutputShapeRounding, Pooling3d, PoolingAlgorithm

NCDHW, NDHWC = DataLayout.NCDHW, DataLayout.NDHWC
X = TensorInfo((2, 6, 7, 8, 4))


@pytest.mark.parametrize(
    ("attributes", "shape"),
    [
        ({}, (2, 5, 5, 5, 3)),
        ({"stride_z": 2, "stride_y": 3, "stride_x": 4}, (2, 3, 2, 2, 3)),
        ({"dilation_z": 3, "dilation_y": 2, "dilation_x": 2}, (2, 3, 3, 2, 3)),
        ({"pad_front": 1, "pad_back": 2, "pad_top": 3, "pad_right": 4}, (2, 8, 8, 9, 3)),
    ],
)
def test_a_convolution_has_a_result_for_each_place_of_the_window(attributes, shape):
    weights = TensorInfo((2, 3, 4, 4, 3))
    last, first = Convolution3d(**attributes), Convolution3d(**attributes, data_layout=NCDHW)
    assert last.violations(X, weights, TensorInfo((3,))) == []
    assert tuple(last.infer_infos(X, weights, None)[0].shape) == shape
    turned = TensorInfo((2, 4, 6, 7, 8))
    n, d, h, w, c = shape
    assert tuple(first.infer_infos(turned, weights, None)[0].shape) == (n, c, d, h, w)


@pytest.mark.parametrize(
    ("op", "weights", "bias", "fault"),
    [
        (Convolution3d(), TensorInfo((1, 1, 1, 3, 2)), None, "input has 4 channels, but weights have 3"),
        (
            Convolution3d(groups=2),
            TensorInfo((1, 1, 1, 3, 2)),
            None,
            "input has 4 channels, but weights have 3 in each of 2 groups",
        ),
        (
            Convolution3d(groups=2),
            TensorInfo((1, 1, 1, 2, 3)),
            None,
            "weights give 3 channels; expected a multiple of groups = 2",
        ),
        (
            Convolution3d(),
            TensorInfo((1, 1, 1, 4, 2)),
            TensorInfo((3,)),
            "bias has 3 elements; expected 2, one for each output channel",
        ),
        (
            Convolution3d(),
            TensorInfo((1, 1, 1, 4, 2), DataType.INT8, Quantization([1.0] * 4, axis=3)),
            None,
            "weights are quantized along axis 3; expected axis 4, the output channels",
        ),
        (
            Convolution3d(dilation_z=6),
            TensorInfo((2, 1, 1, 4, 2)),
            None,
            "the window spans 7 cells in depth, but the padded input has only 6",
        ),
    ],
)
def test_a_convolution_names_what_does_not_fit(op, weights, bias, fault):
    assert op.violations(X, weights, bias) == [fault]


def test_a_convolution_keeps_unknown_extents():
    [inferred] = Convolution3d(stride_y=2).infer_infos(
        TensorInfo((None, 6, None, 8, 4)), TensorInfo((2, 2, 2, 4, 5)), None
    )
    assert inferred.shape == TensorInfo((None, 5, None, 7, 5)).shape


def test_pooling_without_sizes_spans_the_whole_volume():
    [inferred] = Pooling3d(PoolingAlgorithm.AVERAGE).infer_infos(TensorInfo((2, 4, 6, None, 8)))
    assert tuple(inferred.shape) == (2, 4, 1, 1, 1)


def test_pooling_rounds_up_where_it_is_asked_to():
    sizes = {"pool_depth": 2, "pool_height": 2, "pool_width": 2, "stride_z": 2, "stride_y": 2, "stride_x": 2}
    for rounding, expected in ((OutputShapeRounding.FLOOR, (3, 3, 4)), (OutputShapeRounding.CEILING, (3, 4, 4))):
        op = Pooling3d(**sizes, output_shape_rounding=rounding, data_layout=NDHWC)
        assert tuple(op.infer_infos(X)[0].shape[1:4]) == expected


@pytest.mark.parametrize(
    ("attributes", "fault"),
    [
        ({"stride_x": 1, "pool_width": 1}, "the strides (z, y, x) are (0, 0, 1); expected all or none to be 0"),
        (
            {"stride_x": 1, "stride_y": 1, "stride_z": 1, "pool_width": 1, "pool_height": 1},
            "the window has the dimensions (depth, height, width) (0, 1, 1); expected at least 1",
        ),
    ],
)
def test_pooling_names_strides_and_sizes_that_cannot_be_meant(attributes, fault):
    assert Pooling3d(**attributes).violations(X) == [fault]

"""Shapes and errors of pooling."""

import pytest

from interposer.core.types import DataLayout, TensorInfo
from interposer.ops import OutputShapeRounding, Pooling2d

NHWC = DataLayout.NHWC


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"pool_height": 3, "pool_width": 2, "stride_x": 1, "stride_y": 2}, (1, 4, 7, 3)),
        ({"pool_height": 3, "pool_width": 3, "stride_x": 2, "stride_y": 2, "pad_top": 1, "pad_right": 2}, (1, 5, 4, 3)),
        ({"pool_height": 3, "pool_width": 2, "stride_x": 1, "stride_y": 1, "dilation_y": 3}, (1, 4, 7, 3)),
        ({}, (1, 1, 1, 3)),
        ({"pool_height": 10, "pool_width": 8}, (1, 1, 1, 3)),
    ],
)
def test_there_is_a_result_for_each_place_of_the_window(attributes, expected):
    op = Pooling2d(data_layout=NHWC, **attributes)
    assert op.violations(TensorInfo((1, 10, 8, 3))) == []
    assert tuple(op.infer_infos(TensorInfo((1, 10, 8, 3)))[0].shape) == expected


@pytest.mark.parametrize(("extent", "pad", "expected"), [(5, 0, 3), (6, 0, 3), (6, 1, 3), (7, 1, 4)])
def test_rounding_up_adds_a_window_that_begins_inside(extent, pad, expected):
    op = Pooling2d(
        pool_height=2, pool_width=2, stride_x=2, stride_y=2, pad_bottom=pad, pad_right=pad,
        output_shape_rounding=OutputShapeRounding.CEILING, data_layout=NHWC,
    )  # fmt: skip
    [inferred] = op.infer_infos(TensorInfo((1, extent, extent, 3)))
    assert inferred.shape[1] == expected


def test_a_window_may_exceed_the_image_in_both_axes_if_positions_are_rounded_up():
    rounded_up = Pooling2d(
        pool_height=3, pool_width=3, stride_x=2, stride_y=2, output_shape_rounding=OutputShapeRounding.CEILING,
        data_layout=NHWC,
    )  # fmt: skip
    assert rounded_up.violations(TensorInfo((1, 2, 2, 3))) == []
    [too_low] = rounded_up.violations(TensorInfo((1, 1, 2, 3)))
    [too_narrow] = rounded_up.violations(TensorInfo((1, 2, 1, 3)))
    assert "cells in height" in too_low
    assert "cells in width" in too_narrow


def test_an_unknown_extent_stays_unknown_but_for_global_pooling():
    x = TensorInfo((1, None, 8, 3))
    [inferred] = Pooling2d(pool_height=2, pool_width=2, stride_x=1, stride_y=1, data_layout=NHWC).infer_infos(x)
    assert inferred.shape == TensorInfo((1, None, 7, 3)).shape
    assert Pooling2d(data_layout=NHWC).violations(x) == []
    assert tuple(Pooling2d(data_layout=NHWC).infer_infos(x)[0].shape) == (1, 1, 1, 3)


@pytest.mark.parametrize(
    ("attributes", "fault"),
    [
        (
            {"pool_height": 2, "pool_width": 2, "stride_x": 1},
            "stride_x is 1 and stride_y 0; expected both or none to be 0",
        ),
        (
            {"pool_width": 2, "stride_x": 1, "stride_y": 1},
            "the window has height 0 and width 2; expected at least 1",
        ),
        (
            {"pool_height": 20, "pool_width": 2, "stride_x": 1, "stride_y": 1},
            "the window spans 20 cells in height, but the padded input has only 10",
        ),
    ],
)
def test_windows_that_do_not_fit_are_named(attributes, fault):
    assert Pooling2d(data_layout=NHWC, **attributes).violations(TensorInfo((1, 10, 8, 3))) == [fault]

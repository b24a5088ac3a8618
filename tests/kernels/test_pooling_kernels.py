"""Pooling, against the definition spelled out as loops."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import DataLayout, DataType, Quantization, TensorInfo
from interposer.kernels import evaluate
from interposer.ops import OutputShapeRounding, PaddingMethod, Pooling2d, PoolingAlgorithm
from tests.computing import compute

NHWC = DataLayout.NHWC
MAX, AVERAGE, L2 = PoolingAlgorithm
Q = Quantization(0.5, 3)


def pooled(op, x):
    """Compute pooling (NHWC) by its definition, window by window."""
    [info] = op.infer_infos(TensorInfo(x.shape))
    result = np.zeros(info.shape)
    for b, oy, ox, c in itertools.product(*map(range, info.shape)):
        cells, area = window(op, x[b, :, :, c], oy, ox)
        if op.pool_type is MAX:
            result[b, oy, ox, c] = max(cells, default=0)
        elif op.pool_type is AVERAGE:
            result[b, oy, ox, c] = sum(cells) / max(area, 1)
        else:
            result[b, oy, ox, c] = np.sqrt(sum(cell**2 for cell in cells) / max(area, 1))
    return result


def window(op, image, oy, ox):
    """What lies under the window, and how many cells count."""
    height, width = image.shape
    cells, area = [], 0
    for i, j in itertools.product(range(op.pool_height), range(op.pool_width)):
        y = oy * op.stride_y + i * op.dilation_y - op.pad_top
        x = ox * op.stride_x + j * op.dilation_x - op.pad_left
        inside = 0 <= y < height and 0 <= x < width
        cells += [float(image[y, x])] if inside else []
        padding = y < height + op.pad_bottom and x < width + op.pad_right
        area += padding if op.padding_method is PaddingMethod.IGNORE_VALUE else inside
    return cells, area


poolings = st.fixed_dictionaries(
    {name: st.integers(0, 4) for name in ("pad_left", "pad_right", "pad_top", "pad_bottom")}
    | {name: st.integers(1, 3) for name in ("stride_x", "stride_y", "pool_width", "pool_height")}
    | {name: st.integers(1, 2) for name in ("dilation_x", "dilation_y")}
    | {
        "pool_type": st.sampled_from(PoolingAlgorithm),
        "output_shape_rounding": st.sampled_from(OutputShapeRounding),
        "padding_method": st.sampled_from(PaddingMethod),
    }
)


@given(poolings)
@settings(max_examples=80, deadline=None)
def test_pooling_is_that_of_the_definition(attributes):
    op = Pooling2d(**attributes, data_layout=NHWC)
    x = np.random.default_rng(0).normal(size=(2, 6, 5, 2)).astype(np.float32)
    np.testing.assert_allclose(compute(op, x), pooled(op, x), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", PoolingAlgorithm)
def test_both_layouts_give_the_same(kind):
    x = np.random.default_rng(0).normal(size=(2, 6, 5, 2)).astype(np.float32)
    window = {"pool_type": kind, "pool_height": 3, "pool_width": 2, "stride_x": 2, "stride_y": 1}
    first = compute(Pooling2d(**window), x.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(first.transpose(0, 2, 3, 1), compute(Pooling2d(**window, data_layout=NHWC), x))


@pytest.mark.parametrize(("kind", "expected"), [(MAX, 4), (AVERAGE, 2.5), (L2, np.sqrt(7.5))])
def test_without_sizes_and_strides_the_window_is_the_whole_image(kind, expected):
    x = np.array([[1, 2], [3, 4]], np.float32).reshape(1, 1, 2, 2)
    assert compute(Pooling2d(pool_type=kind), x).item() == np.float32(expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint8", "int32"])
def test_the_largest_is_found_in_numbers_of_any_type(dtype):
    x = np.array([[-3, -1], [-4, -2]]).astype(DataType.of(dtype).numpy).reshape(1, 1, 2, 2)
    result = compute(Pooling2d(pool_height=2, pool_width=2, stride_x=1, stride_y=1, pad_top=1), x)
    assert result.dtype == x.dtype
    assert result.ravel().tolist() == [x[0, 0, 0].max(), x.max()]


def test_padding_never_wins_and_a_window_without_cells_gives_zero():
    x = np.full((1, 1, 1, 1), -5, np.float32)
    op = Pooling2d(pool_height=1, pool_width=1, stride_x=1, stride_y=1, pad_top=1)
    assert compute(op, x).ravel().tolist() == [0, -5]
    codes = compute(op, np.full((1, 1, 1, 1), 1, np.uint8), quantized=[Q], result=Q)
    assert codes.ravel().tolist() == [3, 1]


@pytest.mark.parametrize(
    ("dtype", "cells", "expected"),
    [
        ("uint8", [1, 2], 2),
        ("uint8", [254, 255], 255),
        ("int8", [1, 2], 2),
        ("int8", [-1, -2], -2),
        ("int8", [-1, 0], -1),
        ("int16", [-1000, -1001], -1001),
    ],
)
def test_the_mean_of_codes_is_rounded_half_away_from_zero(dtype, cells, expected):
    x = np.array(cells, dtype).reshape(1, 1, 1, 2)
    assert compute(Pooling2d(pool_type=AVERAGE), x, quantized=[Q], result=Q).item() == expected


def test_padding_that_counts_is_a_real_zero():
    x = np.full((1, 1, 1, 1), 9, np.uint8)
    op = Pooling2d(
        pool_type=AVERAGE, pool_height=1, pool_width=2, stride_x=1, stride_y=1, pad_left=1,
        padding_method=PaddingMethod.IGNORE_VALUE,
    )  # fmt: skip
    assert compute(op, x, quantized=[Q], result=Q).item() == (9 + 3) // 2


@pytest.mark.parametrize(("kind", "expected"), [(MAX, 7), (AVERAGE, 5), (L2, 5)])
def test_a_result_of_another_scale_is_scaled(kind, expected):
    x = np.array([3, 11], np.uint8).reshape(1, 1, 1, 2)  # 0 and 4
    result_quantization = Quantization(1.0, 3) if kind is not L2 else Quantization(2 * np.sqrt(2), 4)
    assert compute(Pooling2d(pool_type=kind), x, quantized=[Q], result=result_quantization).item() == expected


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_a_mean_in_another_scale_is_rounded_once(dtype):
    x = np.array([3, 3, 3, 6], dtype).reshape(1, 1, 2, 2)  # the mean is 0.375, in halves 0.75
    op = Pooling2d(pool_type=AVERAGE, pool_width=2, pool_height=2)
    assert compute(op, x, quantized=[Q], result=Quantization(0.25, 3)).item() == 3 + 2
    assert compute(op, x, quantized=[Q], result=Quantization(0.8, 0)).item() == 0


def test_a_window_far_larger_than_the_image_costs_nothing():
    far = 2**31 - 1
    op = Pooling2d(
        pool_type=AVERAGE, pool_height=far, pool_width=far, stride_x=1, stride_y=1,
        pad_top=far // 2, pad_bottom=far // 2, pad_left=far // 2, pad_right=far // 2, data_layout=NHWC,
    )  # fmt: skip
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 3, 1)
    assert compute(op, x).ravel().tolist() == [2.5] * 6


def test_means_of_integers_that_are_not_quantized_are_refused():
    x = TensorInfo((1, 1, 2, 2), "int8")
    with pytest.raises(InvalidArgumentError, match="input is int8 and not quantized; takes floats for AVERAGE"):
        evaluate(Pooling2d(pool_type=AVERAGE), [None], [x], [x])

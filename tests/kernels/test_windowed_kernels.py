import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from interposer.core.errors import InvalidValueError
from interposer.core.types import Quantization, TensorInfo
from interposer.kernels import evaluate
from interposer.ops.pooling import OutputShapeRounding, Pooling2d, PoolingAlgorithm
from interposer.ops.windowed import Col2Im, LpPooling, MaxPoolingWithIndices, MaxUnpooling
from tests.computing import compute

F32 = np.float32
IMAGES = arrays.arrays(F32, (2, 2, 5, 6), elements=st.integers(-9, 9).map(F32))
SIZES = st.tuples(st.integers(1, 3), st.integers(1, 3))
WINDOWS = st.fixed_dictionaries(
    {
        "window_shape": st.tuples(st.integers(2, 3), st.integers(2, 3)),
        "strides": SIZES,
        "dilations": st.tuples(st.integers(1, 2), st.integers(1, 2)),
        "pad_list": st.tuples(*[st.tuples(st.integers(0, 1), st.integers(0, 1))] * 2),
        "output_shape_rounding": st.sampled_from(OutputShapeRounding),
    }
)


def pooling2d(kind, window):
    (height, width), (sy, sx), (dy, dx) = (window[key] for key in ("window_shape", "strides", "dilations"))
    (top, bottom), (left, right) = window["pad_list"]
    return Pooling2d(
        kind,
        pad_left=left,
        pad_right=right,
        pad_top=top,
        pad_bottom=bottom,
        pool_height=height,
        pool_width=width,
        stride_y=sy,
        stride_x=sx,
        dilation_y=dy,
        dilation_x=dx,
        output_shape_rounding=window["output_shape_rounding"],
    )


def with_places(op, x):
    infos = [TensorInfo(x.shape, x.dtype)]
    assert op.violations(*infos) == []
    return evaluate(op, [x], infos, op.infer_infos(*infos))


@given(IMAGES, WINDOWS)
@settings(max_examples=30)
def test_the_maxima_are_those_of_pooling_and_stand_where_they_are_said_to(image, window):
    values, places = with_places(MaxPoolingWithIndices(**window), image)
    np.testing.assert_array_equal(values, compute(pooling2d(PoolingAlgorithm.MAX, window), image))
    seen = places >= 0
    np.testing.assert_array_equal(image.ravel()[places[seen]], values[seen])


@given(IMAGES, WINDOWS)
@settings(max_examples=15)
def test_columns_are_numbered_before_rows_where_that_is_asked_for(image, window):
    op = MaxPoolingWithIndices(**window)
    values, places = with_places(op, image)
    same, columns = with_places(op.replace(column_major=True), image)
    np.testing.assert_array_equal(same, values)
    turned = image.swapaxes(2, 3).ravel()
    seen = places >= 0
    np.testing.assert_array_equal(turned[columns[seen]], values[seen])


@given(IMAGES)
def test_what_is_unpooled_can_be_pooled_again(image):
    image = np.abs(image[:, :, :4]) + 1
    op = MaxPoolingWithIndices((2, 2), strides=(2, 2))
    values, places = with_places(op, image)
    back = compute(MaxUnpooling((4, 6)), values, places)
    np.testing.assert_array_equal(with_places(op, back)[0], values)
    assert np.count_nonzero(back) == values.size


def test_a_place_outside_of_the_image_is_named():
    with pytest.raises(InvalidValueError, match=r"^indices has 4 at \[0, 0, 0\]; expected 0 to 3$"):
        compute(MaxUnpooling((4,)), F32([[[1]]]), np.array([[[4]]]))


@given(IMAGES, WINDOWS)
@settings(max_examples=20)
def test_a_norm_is_the_root_mean_square_without_the_mean(image, window):
    norm = compute(LpPooling(**window), np.ones_like(image))
    cells = norm**2
    expected = compute(pooling2d(PoolingAlgorithm.L2, window), image) * np.sqrt(cells)
    np.testing.assert_allclose(compute(LpPooling(**window), image), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("p", "expected"), [(1, [7, 4]), (2, [5, 4]), (3, [91 ** (1 / 3), 4])])
def test_a_norm_has_an_exponent(p, expected):
    np.testing.assert_allclose(compute(LpPooling((2,), p=p), F32([[[3, -4, 0]]])), [[expected]], rtol=1e-6)


def columns_of(image, op):
    """What the window sees, the columns that `Col2Im` puts back."""
    (top, bottom), (left, right) = op.pad_list
    padded = np.pad(image, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (sy, sx), (dy, dx), (rows, columns) = op.strides, op.dilations, op.places()
    cells = [
        padded[:, :, i * dy :, j * dx :][:, :, : (rows - 1) * sy + 1 : sy, : (columns - 1) * sx + 1 : sx]
        for i, j in np.ndindex(op.window_shape)
    ]
    return np.stack(cells, axis=2).reshape(len(image), -1, rows * columns)


@given(IMAGES, WINDOWS)
@settings(max_examples=20)
def test_putting_columns_back_is_the_transpose_of_cutting_them_out(image, window):
    op = Col2Im(**{key: value for key, value in window.items() if key != "output_shape_rounding"}, image_shape=(5, 6))
    columns = columns_of(image, op)
    other = np.random.default_rng(0).standard_normal(columns.shape).astype(F32)
    np.testing.assert_allclose(np.vdot(columns, other), np.vdot(image, compute(op, other)), rtol=1e-3, atol=1e-2)


def test_quantized_columns_are_added_as_real_numbers():
    op = Col2Im((2,), image_shape=(3,))
    result = compute(op, np.uint8([[[3, 4], [5, 6]]]), quantized=[Quantization(0.5, 3)], result=Quantization(0.25, 1))
    assert result.tolist() == [[[1, 1 + 2 * (1 + 2), 1 + 2 * 3]]]


def test_a_window_that_sees_little_of_the_tensor_costs_as_little():
    far = 2**30
    op = MaxPoolingWithIndices((far,), strides=(far,), pad_list=((far - 1, 0),))
    values, places = with_places(op, F32([[[3, 4]]]))
    assert (values.tolist(), places.tolist()) == ([[[3]]], [[[0]]])
    nothing = compute(Col2Im((far,), image_shape=(far,)), np.empty((1, 0, 1), F32))
    assert nothing.size == 0

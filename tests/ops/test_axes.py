import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer.core.types import UNKNOWN, Dim, Quantization, TensorInfo, TensorShape
from interposer.ops.axes import axes_problems, broadcast_shapes, normal_axes, quantized_axis_problems, transposed


def test_axes_count_from_the_end_where_they_are_negative():
    assert normal_axes((-1, 0), 3) == (0, 2)


@pytest.mark.parametrize(
    ("axes", "rank", "text"),
    [
        ((3,), 3, "axis is 3, but the input has rank 3; expected -3 to 2"),
        ((0,), 0, "axis is 0, but the input has rank 0; expected none, as it is a scalar"),
        ((0, -2), 2, "axis is (0, -2), which names an axis twice"),
    ],
)
def test_wrong_axes_are_named(axes, rank, text):
    assert list(axes_problems(axes, rank)) == [text]


@given(st.lists(st.lists(st.sampled_from([1, 2, 3]), max_size=3), min_size=1, max_size=3))
def test_shapes_broadcast_as_in_numpy(shapes):
    try:
        expected = np.broadcast_shapes(*map(tuple, shapes))
    except ValueError:
        expected = None
    result = broadcast_shapes(*map(TensorShape, shapes))
    assert (result if result is None else tuple(result)) == expected


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [
        (("n", 1), (4,), ("n", 4)),
        (("n",), ("n",), ("n",)),
        (("n",), (4,), (4,)),  # 4 or 1, in either case
        (("n",), ("m",), (None,)),
    ],
)
def test_unknown_extents_broadcast_to_what_is_sure(a, b, common):
    assert broadcast_shapes(TensorShape(a), TensorShape(b)) == TensorShape(common)


def test_an_unknown_extent_beside_another_one_has_no_name():
    assert broadcast_shapes(TensorShape(["n"]), TensorShape(["m"]))[0] is UNKNOWN
    assert broadcast_shapes(TensorShape(["n"]), TensorShape([1]))[0] is Dim("n")


def test_scales_move_with_their_axis():
    info = TensorInfo((2, 3, 4), "int8", Quantization([1.0, 2.0, 3.0], axis=1))
    assert transposed(info, (2, 0, 1)).quantization == Quantization([1.0, 2.0, 3.0], axis=2)


def test_only_the_axis_of_the_scales_must_not_change():
    info = TensorInfo((2, 3), "int8", Quantization([1.0, 2.0, 3.0], axis=1))
    assert list(quantized_axis_problems(info, (0,), "cut")) == []
    assert list(quantized_axis_problems(info, (1,), "cut")) == [
        "the input is quantized along axis 1, which the operator would cut; dequantize it first"
    ]

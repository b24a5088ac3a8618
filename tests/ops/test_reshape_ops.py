import numpy as np
import pytest

from interposer.core.types import DataType, Quantization, TensorInfo, TensorShape
from interposer.ops import BroadcastTo, Fill, Rank, Reshape, Shape


def shape_of(op, *infos):
    assert op.violations(*infos) == []
    return op.infer_infos(*infos)[0].shape


@pytest.mark.parametrize(
    ("shape", "target", "expected"),
    [
        ((2, 3, 4), (4, 6), (4, 6)),
        ((2, 3, 4), (-1,), (24,)),
        ((2, 3, 4), (2, -1, 2), (2, 6, 2)),
        ((), (1, 1), (1, 1)),
        ((0, 3), (3, 0), (3, 0)),
        (("n", 3, 4), (-1, 12), ("n", 12)),
        (("n", 3, 4), (-1, 6), (None, 6)),
        (("n", 4), (2, 3), (2, 3)),
    ],
)
def test_a_reshape_works_out_what_is_left_over(shape, target, expected):
    assert shape_of(Reshape(target), TensorInfo(shape)) == TensorShape(expected)


@pytest.mark.parametrize(
    ("shape", "target", "expected"),
    [
        ((2, 3, 4), (0, -1), (2, 12)),
        (("n", 3, 4), (0, -1), ("n", 12)),
        (("n", "c", 4, 4), (0, 0, -1), ("n", "c", 16)),
        ((None, None, 4), (0, -1), (None, None)),
    ],
)
def test_zeros_copy_extents_where_that_is_asked_for(shape, target, expected):
    assert shape_of(Reshape(target, copy_zeros=True), TensorInfo(shape)) == TensorShape(expected)


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (Reshape((5, 5)), "an input of shape [2, 3, 4] cannot be reshaped to (5, 5)"),
        (Reshape((-1, 5)), "an input of shape [2, 3, 4] cannot be reshaped to (-1, 5)"),
        (Reshape((-1, 0)), "an input of shape [2, 3, 4] cannot be reshaped to (-1, 0)"),
        (Reshape((-1, -1)), "target_shape is (-1, -1); at most one dimension may be -1"),
        (Reshape((1,) * 17), "target_shape has rank 17; ranks 0 to 16 are supported"),
        (
            Reshape((2, 3, 4, 0), copy_zeros=True),
            "target_shape is (2, 3, 4, 0); it copies a dimension that the input of shape [2, 3, 4] lacks",
        ),
    ],
)
def test_a_reshape_that_does_not_fit_is_refused(op, text):
    assert op.violations(TensorInfo((2, 3, 4))) == [text]


def test_a_reshape_keeps_quantization_and_its_axis_where_that_stays():
    per_tensor, per_axis = Quantization(0.5, 3), Quantization([0.5] * 4, axis=0)
    assert Reshape((6,)).infer(TensorInfo((2, 3), "uint8", per_tensor)).quantization == per_tensor
    info = TensorInfo((4, 6), "int8", per_axis)
    assert Reshape((4, 2, 3)).infer(info).quantization == per_axis
    assert Reshape((2, 12)).infer(info).quantization is None


def test_broadcasting_gives_the_shape_asked_for():
    assert shape_of(BroadcastTo((2, 3, 4)), TensorInfo((3, 1))) == (2, 3, 4)
    assert BroadcastTo((4,)).violations(TensorInfo((2, 4))) == ["an input of shape [2, 4] cannot be broadcast to [4]"]
    assert BroadcastTo((1,)).violations(TensorInfo((4,))) == ["an input of shape [4] cannot be broadcast to [1]"]


def test_a_known_shape_is_a_known_value():
    info = Shape(DataType.INT64).infer(TensorInfo((2, 3)))
    assert info == TensorInfo((2,), "int64")
    np.testing.assert_array_equal(info.constant, [2, 3])
    assert Shape().infer(TensorInfo(("n", 3))).constant is None


def test_the_rank_is_known_even_where_the_shape_is_not():
    assert Rank().infer(TensorInfo(("n", 3))).constant == 2


def test_a_fill_takes_its_shape_from_the_constant():
    dims = TensorInfo.of(np.array([2, 5]))
    assert Fill(1.0).infer(dims) == TensorInfo((2, 5))
    assert Fill(1.0, DataType.INT8).infer(TensorInfo((3,), "int32")) == TensorInfo((None, None, None), "int8")


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        (TensorInfo.of(np.array([2, -1])), "dims is [2, -1]; a dimension must not be negative"),
        (TensorInfo((17,), "int32"), "dims has 17 dimensions; ranks 0 to 16 are supported"),
        (TensorInfo(("n",), "int32"), "the number of dimensions in dims is not known"),
    ],
)
def test_a_fill_without_a_shape_that_can_be_meant_is_refused(dims, text):
    assert Fill().violations(dims) == [text]

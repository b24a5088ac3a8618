import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops.reduction import ArgMinMax, Mean, Reduce, ReduceOperation

IMAGE = TensorInfo((1, "h", "w", 3))


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        (Mean(axis=(1, 2)), "[1, 3]"),
        (Mean(axis=(1, 2), keep_dims=True), "[1, 1, 1, 3]"),
        (Mean(axis=(-1,)), "[1, h, w]"),
        (Mean(), "[]"),
        (Mean(keep_dims=True), "[1, 1, 1, 1]"),
        (Reduce(axis=(0, -4, 0)), "[h, w, 3]"),
        (ArgMinMax(), "[1, h, w]"),
        (ArgMinMax(axis=1, keep_dims=True), "[1, 1, w, 3]"),
    ],
)
def test_reduced_axes_are_left_out_or_have_an_extent_of_one(op, shape):
    [inferred] = op.infer_infos(IMAGE)
    assert str(inferred.shape) == shape


def test_an_axis_that_is_not_there_is_named():
    assert Mean(axis=(1, 4)).violations(IMAGE) == ["axis is 4, but the input has rank 4; expected -4 to 3"]


def test_an_axis_with_scales_of_its_own_cannot_be_reduced():
    quantized = TensorInfo((2, 3), "int8", Quantization([1, 2, 3], 0, axis=1))
    [error] = Reduce(axis=(1,)).violations(quantized)
    assert error == "the input is quantized along axis 1, which the operator would reduce; dequantize it first"
    assert Reduce(axis=(0,)).violations(quantized) == []


@pytest.mark.parametrize("operation", [ReduceOperation.ALL, ReduceOperation.ANY])
def test_truth_is_asked_of_truth_values_only(operation):
    [error] = Reduce(operation=operation).violations(TensorInfo((2,), "int32"))
    assert error == f"input is int32; expected bool for {operation.name}"


def test_an_index_has_the_type_that_was_asked_for():
    assert ArgMinMax(dtype=DataType.INT64).infer_infos(TensorInfo((4,))) == (TensorInfo((), "int64"),)


def test_there_is_no_least_element_of_none():
    [error] = ArgMinMax(axis=1).violations(TensorInfo((2, 0)))
    assert error == "axis 1 of shape [2, 0] has no elements to choose from"


@given(st.lists(st.integers(0, 3), max_size=4), st.booleans())
def test_keeping_the_axes_keeps_the_rank(axis, keep_dims):
    [inferred] = Reduce(axis=tuple(axis), keep_dims=keep_dims).infer_infos(IMAGE)
    assert inferred.rank == (4 if keep_dims else 4 - len(set(axis) or range(4)))

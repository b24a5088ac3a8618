"""Shapes and errors of the operators that look up, choose and scatter."""

import numpy as np
import pytest

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import UNKNOWN, DataType, Quantization, TensorInfo
from interposer.ops import (
    EmbeddingLookup,
    HashtableLookup,
    LshProjection,
    LshProjectionType,
    OneHot,
    RandomMultinomial,
    ScatterFunction,
    ScatterNd,
    TopK,
)

I32, I64 = DataType.INT32, DataType.INT64


def info(*shape, dtype=DataType.FLOAT32, quantization=None):
    return TensorInfo(shape, dtype, quantization)


def constant(values, dtype=np.int32):
    return TensorInfo.of(np.array(values, dtype))


def test_rows_are_picked_by_number():
    q = Quantization(0.5, 3)
    values = info(9, 2, 5, dtype=DataType.UINT8, quantization=q)
    assert EmbeddingLookup().infer_infos(info(4, dtype=I32), values) == (
        info(4, 2, 5, dtype=DataType.UINT8, quantization=q),
    )
    assert EmbeddingLookup().violations(constant([0, 9]), values) == ["lookups has 9; expected 0 to 8"]
    assert EmbeddingLookup().violations(constant([-1]), values) == ["lookups has -1; expected 0 to 8"]
    assert EmbeddingLookup().violations(constant([50]), info(None, 2)) == []


def test_rows_are_picked_by_key_and_hits_are_told():
    operands = info(4, dtype=I32), info(9, dtype=I32), info(9, 2)
    assert HashtableLookup().infer_infos(*operands) == (info(4, 2), info(4, dtype=DataType.UINT8))
    assert HashtableLookup().violations(info(4, dtype=I32), info(8, dtype=I32), info(9, 2)) == [
        "keys has 8 elements, but values 9 rows"
    ]


@pytest.mark.parametrize(
    ("kind", "count"),
    [(LshProjectionType.SPARSE, 4), (LshProjectionType.SPARSE_DEPRECATED, 4), (LshProjectionType.DENSE, 12)],
)
def test_hash_functions_give_a_number_each_or_one_for_each_bit(kind, count):
    op, seeds, x = LshProjection(kind), info(4, 3), info(7, 2, dtype=I32)
    assert op.infer_infos(seeds, x, None) == (info(count, dtype=I32),)
    assert op.violations(seeds, x, info(6)) == ["weights has 6 elements; expected 7, the first dimension of input"]
    assert op.violations(info(4, 33), x) == ["seeds has shape [4, 33]; a hash has at most 32 bits"]


@pytest.mark.parametrize(("axis", "shape"), [(-1, (2, 3, 5)), (0, (5, 2, 3)), (1, (2, 5, 3)), (-2, (2, 5, 3))])
def test_the_rows_of_one_hot_lie_along_an_axis(axis, shape):
    op = OneHot(5, axis, dtype=DataType.UINT8)
    assert op.infer_infos(info(2, 3, dtype=I64)) == (info(*shape, dtype=DataType.UINT8),)


def test_one_hot_names_an_axis_that_the_result_lacks():
    assert OneHot(5, 3).violations(info(2, 3, dtype=I64)) == ["axis is 3, but the result has rank 3; expected -3 to 2"]
    with pytest.raises(InvalidArgumentError, match="OneHot: dtype is string; expected one of"):
        OneHot(5, dtype=DataType.STRING)


def test_the_largest_are_along_an_axis():
    q = Quantization(0.5)
    x = info(4, 5, dtype=DataType.INT8, quantization=q)
    values, indices = TopK(2, axis=0, index_dtype=I64).infer_infos(x)
    assert values == info(2, 5, dtype=DataType.INT8, quantization=q)
    assert indices == info(2, 5, dtype=I64)
    assert TopK(6).violations(x) == ["k is 6, but axis 1 has only 5 elements"]
    assert TopK(2, axis=2).violations(x) == ["axis is 2, but the input has rank 2; expected -2 to 1"]
    assert TopK(6).violations(info(4, None)) == []


def test_classes_are_drawn_for_every_row_and_never_folded():
    op = RandomMultinomial(7)
    assert op.infer_infos(info(3, 5), None) == (info(3, 7, dtype=I32),)
    assert not op.pure
    assert op.violations(info(3, 0), constant([1, 2, 3])) == [
        "logits has shape [3, 0]; expected at least one class",
        "seeds has 3 elements; expected 2",
    ]


def test_scattering_keeps_the_shape_of_the_input():
    q = Quantization(0.5, 1)
    x = info(4, 5, 6, dtype=DataType.UINT8, quantization=q)
    updates = info(3, 6, dtype=DataType.UINT8, quantization=q)
    assert ScatterNd().violations(x, info(3, 2, dtype=I32), updates) == []
    assert ScatterNd().infer_infos(x, info(3, 2, dtype=I32), updates) == (x,)


def test_nothing_is_outside_of_an_axis_of_unknown_extent():
    assert ScatterNd().violations(info(None, 5), constant([[7]]), info(1, 5)) == []
    assert EmbeddingLookup().violations(constant([7]), info(None, 5)) == []


def test_scattering_on_zeros_has_the_shape_that_it_is_told():
    op, indices, updates = ScatterNd(ScatterFunction.ADD, input_enabled=False), info(3, 1, dtype=I32), info(3, 5)
    assert op.infer_infos(constant([4, 5]), indices, updates) == (info(4, 5),)
    assert op.infer_infos(info(2, dtype=I32), indices, updates)[0].shape == (UNKNOWN, UNKNOWN)


@pytest.mark.parametrize(
    ("op", "x", "indices", "updates", "fault"),
    [
        (ScatterNd(), info(4, 5), info(3, 3, dtype=I32), info(3), "the last dimension of indices is 3, but"),
        (ScatterNd(), info(4, 5), info(3, 1, dtype=I32), info(3, 4), "updates has shape [3, 4]; expected [3, 5]"),
        (ScatterNd(), info(4, 5), constant([[0], [4]]), info(2, 5), "index 4 is out of range for an axis of size 4"),
        (ScatterNd(), info(4, 5), info(3, 1, dtype=I32), info(3, 5, dtype=I32), "updates is int32; expected float32"),
        (ScatterNd(), info(4, 5), info(3, None, dtype=I32), info(3, 5), "the last dimension of indices is not known"),
        (
            ScatterNd(input_enabled=False), info(4, 5), info(3, 1, dtype=I32), info(3, 5),
            "input is float32[4, 5]; expected a shape, int32[R] or int64[R]",
        ),
        (
            ScatterNd(input_enabled=False), constant([4, -1]), info(3, 1, dtype=I32), info(3, 5),
            "input is [4, -1]; a dimension must not be negative",
        ),
    ],
)  # fmt: skip
def test_scattering_names_what_does_not_fit(op, x, indices, updates, fault):
    [problem] = op.violations(x, indices, updates)
    assert problem.startswith(fault)


@pytest.mark.parametrize(
    ("function", "dtype", "number"),
    [
        (ScatterFunction.ADD, DataType.INT8, 0),
        (ScatterFunction.MUL, DataType.BFLOAT16, 1),
        (ScatterFunction.MAX, DataType.INT8, -128),
        (ScatterFunction.MIN, DataType.UINT16, 65535),
        (ScatterFunction.MAX, DataType.FLOAT16, -65504),
        (ScatterFunction.MIN, DataType.BFLOAT16, 255 * 2.0**120),
    ],
)
def test_a_neutral_number_is_the_limit_of_the_type_or_zero_or_one(function, dtype, number):
    assert function.neutral(dtype) == number

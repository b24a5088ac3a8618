"""How near results must be, and how a difference is reported."""

from __future__ import annotations

import numpy as np
import pytest

from interposer.core.types import FLOATS, STORED_FLOATS, DataType, Quantization, TensorInfo
from interposer.testing import Tolerance, Tolerances
from interposer.testing.tolerances import FLOAT_TOLERANCES, same

NAN, INF = np.nan, np.inf


def difference(actual, expected, dtype="float32", q=None, tolerances=None):
    arrays = [np.array(values).astype(DataType.of(dtype).numpy) for values in (actual, expected)]
    return (tolerances or Tolerances()).difference(*arrays, TensorInfo(arrays[1].shape, dtype, q))


def test_every_floating_point_type_has_a_tolerance():
    assert FLOAT_TOLERANCES.keys() == FLOATS | STORED_FLOATS


@pytest.mark.parametrize(
    ("found", "wanted"),
    [([1.00005], [1]), ([NAN, INF, -INF], [NAN, INF, -INF]), ([1000, 0.009], [1000, 0]), ([], []), (0.0, -0.0)],
)
def test_what_is_near_enough_is_no_difference(found, wanted):
    assert difference(found, wanted) is None


@pytest.mark.parametrize(
    ("found", "wanted"), [([1.001], [1]), ([NAN], [1]), ([1], [NAN]), ([INF], [-INF]), ([INF], [1e30]), ([0.02], [0])]
)
def test_what_is_too_far_off_is_one(found, wanted):
    assert difference(found, wanted) is not None


def test_a_difference_is_told_with_its_first_place_and_what_was_allowed():
    assert difference([[1, 2], [3, 5]], [[1, 2], [3, 4]]) == (
        "1 of 4 elements are wrong by more than 0.0001 and 1e-05 of the largest; the first at [1, 1] is 5.0 instead "
        "of 4.0"
    )


def test_integers_are_exact_and_quantized_ones_may_be_a_step_off():
    q = Quantization(0.5)
    assert difference([1, 2], [1, 3], "int8") == (
        "1 of 2 elements are wrong by more than nothing; the first at [1] is 2 instead of 3"
    )
    assert difference([1, 2], [1, 3], "int8", q) is None
    assert difference([1, 2], [1, 4], "int8", q) == (
        "1 of 2 elements are wrong by more than 1 of q(0.5, 0); the first at [1] is 2 instead of 4"
    )
    assert difference([1, 2], [1, 4], "int8", q, Tolerances(steps=2)) is None


def test_steps_are_counted_right_at_the_ends_of_the_widest_types():
    q, ends = Quantization(1.0), (np.array([2**64 - 1], np.uint64), np.array([0], np.uint64))
    info = TensorInfo((1,), "uint64", q)
    assert Tolerances().difference(*ends, info) is not None
    assert Tolerances().difference(ends[0], ends[0] - np.uint64(1), info) is None


def test_texts_and_truth_values_are_exact():
    assert difference([True], [False], "bool") is not None
    assert difference(["a", "b"], ["a", "b"], "string") is None
    assert difference(["a", "b"], ["a", "c"], "string") is not None


def test_another_shape_or_type_is_a_difference():
    text = Tolerances().difference(np.zeros((2, 1), np.float32), np.zeros(2, np.float64), TensorInfo((2,), "float64"))
    assert text == "float32[2, 1] instead of float64[2]"


def test_tolerances_can_be_given_and_multiplied():
    wide = Tolerances({DataType.FLOAT32: Tolerance(0.1, 0)})
    assert difference([1.05], [1], tolerances=wide) is None
    assert difference([1.15], [1], tolerances=wide) is not None
    assert difference([1.15], [1], tolerances=wide.times(2)) is None
    assert wide.of(DataType.FLOAT16) == FLOAT_TOLERANCES[DataType.FLOAT16]


def test_what_is_the_same_bit_by_bit():
    x = np.float32([1, NAN])
    assert same(x, x.copy())
    assert not same(x, x.astype(np.float64))
    assert not same(np.int64([2**60]), np.int64([2**60 + 1]))
    assert same(np.array(["a"], object), np.array(["a"], object))
    assert same(np.zeros((0, 2)), np.zeros((0, 2)))

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from interposer.core.errors import InvalidArgumentError, InvalidValueError
from interposer.core.types import Quantization, TensorInfo
from interposer.kernels import evaluate
from interposer.ops.sequence import CumProd, CumSum, Range, ReverseSequence
from tests.computing import compute

F32 = np.float32
WHOLE = arrays.arrays(np.int32, (2, 3, 4), elements=st.integers(-9, 9))


@given(WHOLE, st.integers(-3, 2))
def test_a_running_sum_ends_with_the_sum(x, axis):
    result = compute(CumSum(axis), x)
    np.testing.assert_array_equal(result.take(-1, axis), x.sum(axis))
    np.testing.assert_array_equal(np.diff(result, axis=axis), x.take(range(1, x.shape[axis]), axis))


@given(WHOLE, st.integers(-3, 2), st.booleans(), st.sampled_from([CumSum, CumProd]))
def test_backwards_is_forwards_of_what_is_turned_round(x, axis, exclusive, kind):
    result = compute(kind(axis, exclusive, reverse=True), x)
    turned = compute(kind(axis, exclusive), np.flip(x, axis))
    np.testing.assert_array_equal(result, np.flip(turned, axis))


@given(WHOLE, st.integers(-3, 2))
def test_without_the_element_itself_the_sum_is_one_element_less(x, axis):
    np.testing.assert_array_equal(compute(CumSum(axis, exclusive=True), x), compute(CumSum(axis), x) - x)


def test_an_exclusive_sum_in_reverse_has_the_elements_after_each():
    assert compute(CumSum(exclusive=True, reverse=True), F32([1, 2, 4])).tolist() == [6, 4, 0]


def test_products_begin_with_one():
    assert compute(CumProd(exclusive=True), F32([2, 3, 4])).tolist() == [1, 2, 6]


def test_integers_wrap_around_and_quantized_ones_are_clamped():
    assert compute(CumSum(), np.int8([100, 100])).tolist() == [100, -56]
    assert compute(CumSum(), np.int8([100, 100]), quantized=[Quantization(1.0)]).tolist() == [100, 127]


@given(WHOLE, st.lists(st.integers(0, 2), min_size=3, max_size=3))
def test_turning_round_twice_changes_nothing(x, lengths):
    op = ReverseSequence()
    lengths = np.array(lengths)
    np.testing.assert_array_equal(compute(op, compute(op, x, lengths), lengths), x)


@given(WHOLE, st.sampled_from([(0, 1), (1, 0), (2, 1), (1, 2), (-1, 0)]))
def test_whole_sequences_are_flipped(x, axes):
    time, batch = axes
    lengths = np.full(x.shape[batch], x.shape[time])
    np.testing.assert_array_equal(compute(ReverseSequence(time, batch), x, lengths), np.flip(x, time))


def test_a_length_beyond_the_sequence_is_named():
    with pytest.raises(InvalidValueError, match=r"^lengths has 3 at \[0\]; expected 0 to 2$"):
        compute(ReverseSequence(), np.ones((2, 1), F32), np.array([3]))


@given(st.integers(-20, 20), st.integers(-20, 20), st.integers(-5, 5).filter(bool))
def test_a_range_is_that_of_python(start, limit, delta):
    numbers = [np.array(x) for x in (start, limit, delta)]
    infos = [TensorInfo((), "int64")] * 3
    [inferred] = evaluate(Range(), numbers, infos, Range().infer_infos(*infos))
    assert inferred.tolist() == list(range(start, limit, delta))


def test_every_number_of_a_range_is_rounded_once():
    assert compute(Range(), *(F32(x).reshape(()) for x in (0, 3, 0.1)))[29] == F32(29 * np.float64(F32(0.1)))


def test_a_range_that_leads_nowhere_is_refused():
    with pytest.raises(InvalidArgumentError, match="^delta is 0; expected another number$"):
        evaluate(Range(), [np.array(0)] * 3, [TensorInfo((), "int64")] * 3, [TensorInfo(("n",), "int64")])

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from interposer.core.errors import InvalidValueError
from interposer.core.types import Quantization
from interposer.ops.gather import GatherElements
from interposer.ops.scatter import DynamicUpdateSlice, ScatterElements, ScatterFunction, TensorScatter
from tests.computing import compute

F32 = np.float32
WHOLE = arrays.arrays(np.int32, (2, 3, 4), elements=st.integers(-9, 9))
INDICES = arrays.arrays(np.int64, (2, 2, 2), elements=st.integers(-2, 1))


@given(WHOLE, INDICES, st.integers(0, 2))
def test_every_element_comes_from_the_place_that_its_index_names(x, indices, axis):
    result = compute(GatherElements(axis), x, indices)
    for place in np.ndindex(indices.shape):
        source = list(place)
        source[axis] = indices[place]
        assert result[place] == x[tuple(source)]


@given(WHOLE, INDICES, st.integers(0, 2))
def test_what_is_added_element_by_element_is_the_sum(x, indices, axis):
    updates = np.arange(8, dtype=np.int32).reshape(2, 2, 2)
    expected = x.copy()
    for place in np.ndindex(indices.shape):
        target = list(place)
        target[axis] = indices[place]
        expected[tuple(target)] += updates[place]
    np.testing.assert_array_equal(compute(ScatterElements(axis, ScatterFunction.ADD), x, indices, updates), expected)


@given(WHOLE, st.permutations(range(3)))
def test_what_is_scattered_can_be_gathered_again(x, order):
    indices = np.broadcast_to(np.array(order)[:, None], (2, 3, 4))
    scattered = compute(ScatterElements(1), np.zeros_like(x), indices, x)
    np.testing.assert_array_equal(compute(GatherElements(1), scattered, indices), x)


def test_the_last_of_several_updates_stays_and_products_start_from_what_was_there():
    x, indices, updates = F32([1, 2]), np.array([0, 0]), F32([3, 5])
    assert compute(ScatterElements(), x, indices, updates).tolist() == [5, 2]
    assert compute(ScatterElements(0, ScatterFunction.MUL), x, indices, updates).tolist() == [15, 2]
    assert compute(ScatterElements(0, ScatterFunction.MAX), x, indices, updates).tolist() == [5, 2]


def test_quantized_updates_are_real_numbers_where_scales_differ():
    q = [Quantization(0.5, 1), None, Quantization(0.25, 3)]
    result = compute(ScatterElements(), np.uint8([5, 5]), np.array([1]), np.uint8([7]), quantized=q)
    assert result.tolist() == [5, 3]


def test_an_index_outside_is_named():
    with pytest.raises(InvalidValueError, match=r"^indices has 2 at \[0\]; expected -2 to 1$"):
        compute(ScatterElements(), F32([1, 2]), np.array([2]), F32([3]))
    with pytest.raises(InvalidValueError, match=r"^indices has -3 at \[0\]; expected -2 to 1$"):
        compute(GatherElements(), F32([1, 2]), np.array([-3]))


@given(st.integers(0, 9), st.integers(0, 4))
def test_a_circular_cache_holds_the_newest_steps(start, count):
    cache = compute(
        TensorScatter(1, circular=True), np.full((1, 4), -1), np.arange(count)[np.newaxis], np.array([start])
    )
    assert [cache[0, (start + step) % 4] for step in range(count)] == list(range(count))
    assert (cache == -1).sum() == 4 - count


def test_steps_that_do_not_fit_into_a_cache_are_refused():
    with pytest.raises(InvalidValueError, match=r"^start has 3 at \[1\]; expected 0 to 2$"):
        compute(TensorScatter(1), np.zeros((2, 4)), np.ones((2, 2)), np.array([0, 3]))


@given(WHOLE, st.tuples(*[st.integers(-4, 6)] * 3))
def test_a_box_is_written_where_it_fits(x, start):
    update = np.full((1, 2, 3), 77, np.int32)
    result = compute(DynamicUpdateSlice(), x, update, np.array(start))
    first = [int(np.clip(s, 0, n - u)) for s, n, u in zip(start, x.shape, update.shape, strict=True)]
    box = tuple(slice(f, f + u) for f, u in zip(first, update.shape, strict=True))
    assert (result[box] == 77).all()
    result[box] = x[box]
    np.testing.assert_array_equal(result, x)

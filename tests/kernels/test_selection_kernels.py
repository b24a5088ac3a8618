import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.kernels import evaluate
from interposer.ops.selection import Compress, NonZero, Unique

F32 = np.float32
FEW = arrays.arrays(np.int32, (3, 4), elements=st.integers(0, 2))


def run(op, *inputs, quantization=None):
    infos = [TensorInfo(array.shape, DataType.of(array.dtype)) for array in inputs]
    infos[0] = infos[0].with_quantization(quantization)
    assert op.violations(*infos) == []
    return evaluate(op, inputs, infos, op.infer_infos(*infos))


@given(FEW)
def test_the_places_of_what_is_not_zero_name_it(x):
    [places] = run(NonZero(), x)
    assert (x[tuple(places)] != 0).all()
    assert places.shape[1] == np.count_nonzero(x)
    assert places.T.tolist() == sorted(places.T.tolist())


def test_a_quantized_zero_is_zero():
    assert run(NonZero(), np.uint8([3, 0, 4]), quantization=Quantization(0.5, 3))[0].tolist() == [[1, 2]]


@given(FEW, st.sampled_from([None, 0, 1, -1]), st.lists(st.booleans(), max_size=3))
def test_what_is_chosen_is_what_the_condition_says(x, axis, bits):
    [result] = run(Compress(axis), x, np.array(bits, bool))
    np.testing.assert_array_equal(result, np.compress(bits, x, axis))


def test_a_condition_that_is_too_long_is_refused():
    infos = [TensorInfo((2,)), TensorInfo((None,), DataType.BOOL)]
    with pytest.raises(InvalidArgumentError, match="^condition has 3 elements, but there are 2 to choose from$"):
        evaluate(Compress(), [F32([1, 2]), np.array([True] * 3)], infos, Compress().infer_infos(*infos))


@given(FEW, st.sampled_from([None, 0, 1, -1]), st.booleans())
def test_what_is_different_makes_up_the_whole_again(x, axis, order):
    values, first, inverse, counts = run(Unique(axis, order), x)
    original = x.ravel() if axis is None else x
    np.testing.assert_array_equal(values.take(inverse, axis or 0), original)
    np.testing.assert_array_equal(original.take(first, axis or 0), values)
    np.testing.assert_array_equal(np.bincount(inverse), counts)
    assert order or first.tolist() == sorted(first)


@given(FEW)
def test_sorted_slices_are_those_of_numpy(x):
    np.testing.assert_array_equal(run(Unique(0), x)[0], np.unique(x, axis=0))
    np.testing.assert_array_equal(run(Unique(), x)[0], np.unique(x))


@pytest.mark.parametrize("dtype", [object, ml_dtypes.bfloat16, np.float16, bool])
def test_slices_of_any_type_are_compared(dtype):
    texts = dtype is object
    x = np.array([["b", "a"], ["a", "b"], ["b", "a"]] if texts else [[1, 0], [0, 1], [1, 0]], dtype)
    values, first, inverse, counts = run(Unique(0), x)
    assert values.tolist() == [x[1].tolist(), x[0].tolist()]
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == ([1, 0], [1, 0, 1], [1, 2])


def test_slices_without_elements_are_all_the_same():
    values, first, inverse, counts = run(Unique(0), np.zeros((3, 0), F32))
    assert values.shape == (1, 0)
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == ([0], [0, 0, 0], [3])

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from interposer.core.types import DataType
from interposer.kernels.lookup import all_integers, all_pairs, look_up, look_up_pairs


@pytest.mark.parametrize("dtype", [DataType.INT8, DataType.UINT8, DataType.INT16])
def test_every_integer_finds_its_own_entry(dtype):
    codes = all_integers(dtype)
    limits = np.iinfo(dtype.numpy)
    everything = np.arange(limits.min, limits.max + 1).astype(dtype.numpy)
    result = np.empty_like(everything)
    look_up(codes, everything, result)
    np.testing.assert_array_equal(result, everything)


@given(
    arrays.arrays(np.int8, (3, 1, 2), elements=st.integers(-128, 127)),
    arrays.arrays(np.uint8, (4, 2), elements=st.integers(0, 255)),
)
def test_every_pair_finds_its_own_entry_in_arrays_that_broadcast(a, b):
    first, second = all_pairs(DataType.INT8, DataType.UINT8)
    table = first.astype(np.int16) - second
    array = np.empty((3, 4, 2), np.int16)
    look_up_pairs(table, a, b, array)
    np.testing.assert_array_equal(array, a.astype(np.int16) - b)


def test_an_array_that_is_no_block_of_memory_can_be_looked_up():
    turned = np.arange(6, dtype=np.uint8).reshape(2, 3).T
    array = np.empty((3, 2), np.uint8)
    look_up(all_integers(DataType.UINT8), turned, array)
    np.testing.assert_array_equal(array, turned)

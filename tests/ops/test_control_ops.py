"""Constants and their two constructors."""

import numpy as np
import pytest

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops import Constant


def test_a_constant_of_an_array_equals_the_one_that_the_constructor_makes():
    array, quantization = np.int8([[1, 2], [3, 4]]), Quantization([0.5, 0.25], [1, 1], 0)
    constant = Constant.of(array, quantization)
    assert constant == Constant(array, quantization)
    assert hash(constant) == hash(Constant(array, quantization))
    assert constant.info == TensorInfo((2, 2), DataType.INT8, quantization)
    assert np.shares_memory(constant.value, array)


def test_a_constant_of_an_array_cannot_be_written_and_the_array_can():
    array = np.float32([1])
    constant = Constant.of(array)
    with pytest.raises(ValueError, match="read-only"):
        constant.value[0] = 2
    array[0] = 2
    assert constant.value.tolist() == [2]


@pytest.mark.parametrize(
    "array", [np.array(["a", "b"], object), np.array([1, 2], ">i4"), np.float32([1]).view(np.ma.MaskedArray)]
)
def test_a_constant_of_an_array_that_has_to_be_converted_is_converted(array):
    assert Constant.of(array).value.tolist() == Constant(array).value.tolist()
    assert Constant.of(array).value.dtype == Constant(array).value.dtype
    assert type(Constant.of(array).value) is np.ndarray

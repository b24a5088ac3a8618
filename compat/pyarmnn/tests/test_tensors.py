"""`Tensor` and `ConstTensor` share the memory of arrays."""

import copy
import re

import numpy as np
import pyarmnn as ann
import pytest

TYPES = {
    ann.DataType_Float16: np.float16,
    ann.DataType_Float32: np.float32,
    ann.DataType_QAsymmU8: np.uint8,
    ann.DataType_QAsymmS8: np.int8,
    ann.DataType_QSymmS8: np.int8,
    ann.DataType_QSymmS16: np.int16,
    ann.DataType_Signed32: np.int32,
}


def info(dtype=ann.DataType_Float32, shape=(2, 3)):
    return ann.TensorInfo(ann.TensorShape(shape), dtype)


def address(tensor):
    return tensor.get_memory_area().__array_interface__["data"][0]


# --- Tensor -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES)
def test_a_tensor_has_flat_memory_of_its_type(dtype):
    tensor = ann.Tensor(info(dtype))
    memory = tensor.get_memory_area()
    assert (memory.shape, memory.dtype, memory.nbytes) == ((6,), TYPES[dtype], tensor.GetNumBytes())
    assert (tensor.GetNumElements(), tensor.GetNumDimensions(), tensor.GetDataType()) == (6, 2, dtype)
    assert list(tensor.GetShape()) == list(tensor.GetInfo().GetShape()) == [2, 3]


def test_the_text_of_a_tensor_has_its_sizes():
    assert str(ann.Tensor(info())) == "Tensor{DataType: 1, NumBytes: 24, NumDimensions: 2, NumElements: 6}"
    assert str(ann.Tensor()) == "Tensor{DataType: 1, NumBytes: 0, NumDimensions: 0, NumElements: 0}"


def test_an_empty_tensor_has_no_memory():
    tensor = ann.Tensor()
    assert (tensor.GetNumBytes(), tensor.GetNumElements(), tensor.get_memory_area()) == (0, 0, None)


@pytest.mark.parametrize("copied", [ann.Tensor, copy.copy])
def test_a_copied_tensor_shares_memory_which_outlives_the_first(copied):
    first = ann.Tensor(info())
    first.get_memory_area()[:] = range(6)
    second = copied(first)
    assert second is not first
    assert second.GetInfo() is not first.GetInfo()
    assert address(second) == address(first)
    first.get_memory_area()[0] = 9
    del first
    assert second.get_memory_area().tolist() == [9, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("argument", ["something", 3, None, np.zeros(3)])
def test_a_tensor_refuses_other_arguments(argument):
    text = "Incorrect number of arguments or type of arguments provided to create Tensor."
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        ann.Tensor(argument)


@pytest.mark.parametrize("dtype", [99, -1, ann.DataType_Boolean, 9, 6])
def test_a_tensor_of_a_type_without_an_array_type_is_refused(dtype):
    with pytest.raises(ValueError, match="^The data type provided for this Tensor is not supported.$"):
        ann.Tensor(info(dtype))


# --- ConstTensor ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES)
def test_a_constant_tensor_has_the_array_and_its_sizes(dtype):
    array = np.arange(6).reshape(2, 3).astype(TYPES[dtype])
    tensor = ann.ConstTensor(info(dtype), array)
    assert tensor.get_memory_area() is array
    assert (tensor.GetNumElements(), tensor.GetNumBytes(), tensor.GetDataType()) == (6, array.nbytes, dtype)


@pytest.mark.parametrize("shape", [(2, 4), (2, 2), (7,)])
@pytest.mark.parametrize("dtype", TYPES)
def test_an_array_of_another_size_is_refused(dtype, shape):
    array = np.zeros(shape, TYPES[dtype])
    size = np.dtype(TYPES[dtype]).itemsize * 6
    text = f"ConstTensor requires {size} bytes, {array.nbytes} provided. "
    with pytest.raises(ValueError, match=f"^{re.escape(text)}"):
        ann.ConstTensor(info(dtype), array)


def test_the_array_of_a_constant_tensor_becomes_read_only():
    array = np.zeros((2, 3), np.float32)
    tensor = ann.ConstTensor(info(), array)
    for memory in (array, tensor.get_memory_area()):
        with pytest.raises(ValueError, match="is read-only"):
            memory[0, 0] = 1


@pytest.mark.parametrize(("dtype", "other"), [(1, np.float64), (1, np.int32), (2, np.int8), (8, np.uint8)])
def test_an_array_of_another_type_is_refused(dtype, other):
    text = f"Expected data to have type {TYPES[dtype]} for type {dtype} but instead got numpy.{np.dtype(other)}"
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        ann.ConstTensor(info(dtype), np.zeros((2, 3), other))


@pytest.mark.parametrize("data", [[[1, 2, 3], [4, 5, 6]], None, "123456", b"123456"])
def test_data_that_is_no_array_is_refused(data):
    with pytest.raises(TypeError, match="^Data must be provided as a numpy array.$"):
        ann.ConstTensor(info(), data)


@pytest.mark.parametrize("dtype", [-1, 99, ann.DataType_Boolean])
def test_a_constant_tensor_of_a_type_without_an_array_type_is_refused(dtype):
    with pytest.raises(ValueError, match=f"^The data type provided for this Tensor is not supported: {dtype}$"):
        ann.ConstTensor(info(dtype), np.zeros((2, 3), np.uint8))


@pytest.mark.parametrize("arguments", [(3,), ("something", "something"), (np.zeros(2), info()), (info(),)])
def test_a_constant_tensor_refuses_other_arguments(arguments):
    text = "Incorrect number of arguments or type of arguments provided to create Const Tensor."
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        ann.ConstTensor(*arguments)


@pytest.mark.parametrize("array", [np.ones((3, 2), np.float32).T, np.ones(12, np.float32)[::2]])
def test_an_array_that_is_not_contiguous_is_refused(array):
    text = "in method 'new_ConstTensor', argument 2 of type '(const void* memory)'"
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        ann.ConstTensor(info(), array)


def test_a_constant_tensor_from_a_tensor_shares_its_memory():
    tensor = ann.Tensor(info())
    constant = ann.ConstTensor(tensor)
    assert address(constant) == address(tensor)
    assert constant.GetInfo() is not tensor.GetInfo()
    tensor.get_memory_area()[:] = 4
    del tensor
    assert constant.get_memory_area().tolist() == [4] * 6


def test_copies_of_a_constant_tensor_share_its_memory():
    constant = ann.ConstTensor(info(), np.zeros((2, 3), np.float32))
    for copied in (copy.copy(constant), ann.ConstTensor(constant)):
        assert copied is not constant
        assert address(copied) == address(constant)


def test_the_text_of_a_constant_tensor_has_its_sizes():
    constant = ann.ConstTensor(info(), np.zeros((2, 3), np.float32))
    assert str(constant) == "ConstTensor{DataType: 1, NumBytes: 24, NumDimensions: 2, NumElements: 6}"


def test_an_info_given_to_a_tensor_is_copied():
    source = info()
    tensor, constant = ann.Tensor(source), ann.ConstTensor(source, np.zeros((2, 3), np.float32))
    source.SetShape(ann.TensorShape((1,)))
    assert (tensor.GetNumElements(), constant.GetNumElements()) == (6, 6)

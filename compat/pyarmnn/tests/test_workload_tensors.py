"""`make_input_tensors`, `make_output_tensors` and `workload_tensors_to_ndarray`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarmnn as ann
import pytest


def info(shape: tuple[int, ...], dtype: int = ann.DataType_Float32) -> Any:
    return ann.TensorInfo(ann.TensorShape(shape), dtype)


def test_input_tensors_have_the_ids_the_infos_and_the_memory_of_their_arrays():
    arrays = [np.ones((1, 2), np.float32), np.arange(4, dtype=np.uint8).reshape(2, 2)]
    bindings = [(4, info((1, 2))), (7, info((2, 2), ann.DataType_QAsymmU8))]
    tensors = ann.make_input_tensors(bindings, arrays)
    assert [number for number, _ in tensors] == [4, 7]
    for (_, tensor), array, (_, described) in zip(tensors, arrays, bindings, strict=True):
        assert isinstance(tensor, ann.ConstTensor)
        assert str(tensor.GetInfo()) == str(described)
        assert np.shares_memory(tensor.get_memory_area(), array)
        assert not array.flags.writeable


def test_lists_of_different_lengths_are_refused():
    with pytest.raises(ValueError) as caught:
        ann.make_input_tensors([(0, info((1, 2)))], [])
    assert str(caught.value) == "Length of 'inputs_binding_info' does not match length of 'input_data'"


def test_output_tensors_are_new_memory_of_the_right_type_and_size():
    tensors = ann.make_output_tensors([(4, info((1, 2))), (7, info((2, 3), ann.DataType_QSymmS16))])
    assert [(number, type(tensor)) for number, tensor in tensors] == [(4, ann.Tensor), (7, ann.Tensor)]
    memory = [tensor.get_memory_area() for _, tensor in tensors]
    assert [(array.dtype.name, array.size) for array in memory] == [("float32", 2), ("int16", 6)]


def test_arrays_have_the_shapes_of_the_tensors_and_share_their_memory():
    tensors = ann.make_output_tensors([(4, info((1, 2))), (7, info((2, 3, 1)))])
    arrays = ann.workload_tensors_to_ndarray(tensors)
    assert [array.shape for array in arrays] == [(1, 2), (2, 3, 1)]
    arrays[1][1, 2, 0] = 5
    assert tensors[1][1].get_memory_area()[5] == 5


def test_tensors_of_float16_have_two_bytes_for_each_element():
    described = info((2, 3), ann.DataType_Float16)
    [(_, input)] = ann.make_input_tensors([(0, described)], [np.ones((2, 3), np.float16)])
    [(_, output)] = ann.make_output_tensors([(0, described)])
    assert (input.GetNumBytes(), output.GetNumBytes(), input.get_memory_area().itemsize) == (12, 12, 2)
    [array] = ann.workload_tensors_to_ndarray([(0, input)])
    assert (array.dtype, array.shape) == (np.float16, (2, 3))


def test_empty_lists_give_empty_lists():
    assert ann.make_input_tensors([], []) == ann.make_output_tensors([]) == ann.workload_tensors_to_ndarray([]) == []

"""TensorFlow converters for lists of tensors, which loops read and write: TensorList and the older TensorArray.

A list is a tensor whose first axis has the elements. The flow of a TensorArray stands for the list.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataType, TensorInfo, TensorShape
from interposer.frontends.reshaping import reshaped
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.results import Result, TensorList, Variable
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.gather import Gather
from interposer.ops.rearrange import Concat, Stack
from interposer.ops.reshape import BroadcastTo, Fill, Shape
from interposer.ops.scatter import ScatterNd
from interposer.ops.sequence import Range

__all__ = ["settled_list"]


def settled_list(node: Node, tensor_list: TensorList, element_info: TensorInfo) -> Value:
    """Return a list of zeros as a tensor, for elements like `element_info`.

    A dimension that is not known is that of an input of the node.
    """
    dims = [_size(node, tensor_list), *(_dimension(node, dim) for dim in element_info.shape)]
    if all(dim.constant is not None for dim in dims):
        shape = tuple(int(dim.constant.reshape(-1)[0]) for dim in dims if dim.constant is not None)
        return node.step(BroadcastTo(shape), node.constant(np.zeros((), tensor_list.dtype.numpy)))
    sizes = [node.cast(reshaped(node, dim, [1]), DataType.INT32) for dim in dims]
    return node.step(Fill(0.0, tensor_list.dtype), node.step(Concat(0), *sizes))


def _size(node: Node, tensor_list: TensorList) -> Value:
    size: Value = node.importer.within(tensor_list.size)
    return size


def _dimension(node: Node, dim: int) -> Value:
    """Return a dimension as a value; one without a known size is taken from an input that has it."""
    if TensorShape((dim,)).is_concrete:
        return node.constant(np.array(dim, np.int32))
    for operand in node.inputs:
        if isinstance(operand, Value) and operand.known.is_ranked:
            for axis, size in enumerate(operand.known.shape):
                if size is dim:
                    return node.step(Gather(0), node.step(Shape(), operand), node.constant(np.array([axis])))
    return node.open_shape("the shape of its elements is not known")


@operator("TensorListReserve", "EmptyTensorList")
def reserve(node: Node) -> Result:
    """Convert TensorListReserve: a list of zeros, or one whose shape follows when the first element is written."""
    if node.kind == "EmptyTensorList":
        node.unsupported("its elements are appended one by one")
    dtype, size = node.dtype("element_dtype"), node.value(1)
    array = node.value(0).constant
    if array is None or array.ndim != 1 or (array < 0).any():
        return TensorList(size, dtype)
    return settled_list(node, TensorList(size, dtype), TensorInfo(array.tolist(), dtype))


@operator("TensorListFromTensor")
def from_tensor(node: Node) -> Value:
    """Convert TensorListFromTensor: the slices along the first axis are the elements."""
    return node.value(0)


@operator("TensorListStack")
def stacked(node: Node) -> Value:
    """Convert TensorListStack: the elements along a new first axis."""
    return _stacked(node, node.inputs[0])


@operator("TensorListGetItem")
def element_of(node: Node) -> Value:
    """Convert TensorListGetItem: one element of the list."""
    return _element(node, node.inputs[0], node.value(1))


@operator("TensorListSetItem")
def with_element(node: Node) -> Result:
    """Convert TensorListSetItem: the list with another element."""
    return _written(node, node.inputs[0], node.value(1), node.value(2))


@operator("TensorListLength")
def length_of_list(node: Node) -> Value:
    """Convert TensorListLength: the number of elements."""
    return _length(node, node.inputs[0])


def _length(node: Node, list_input: Result) -> Value:
    if isinstance(list_input, TensorList):
        size = list_input.size.constant
        if list_input.elements and size is not None:
            num_written = max(list_input.elements) + 1
            return node.constant(np.array(max(int(size.reshape(-1)[0]), num_written), np.int32))
        return _size(node, list_input)
    if not isinstance(list_input, Value):
        raise ParseError("its input is no list")
    return node.result(Gather(0), node.step(Shape(), list_input), node.constant(np.array(0)))


def _stacked(node: Node, list_input: Result) -> Value:
    """Return a list as a tensor; the elements that were written while a loop was unrolled are stacked."""
    if isinstance(list_input, Value):
        return list_input
    size = list_input.size.constant if isinstance(list_input, TensorList) else None
    if not isinstance(list_input, TensorList) or size is None or not _is_whole(list_input, int(size.reshape(-1)[0])):
        raise ParseError("its input is no list, or has elements that were not written")
    return node.result(Stack(0), *(list_input.elements[index] for index in sorted(list_input.elements)))


def _is_whole(tensor_list: TensorList, size: int) -> bool:
    """Return True if all elements of a list are written, which may have grown over its size."""
    count = len(tensor_list.elements)
    return 0 < count >= size and sorted(tensor_list.elements) == list(range(count))


def _element(node: Node, list_input: Result, index: Value) -> Value:
    if not isinstance(list_input, TensorList):
        return node.result(Gather(0), _stacked(node, list_input), index)
    position = -1 if index.constant is None else int(index.constant.reshape(-1)[0])
    if position not in list_input.elements:
        raise ParseError("it reads an element that was not written")
    return list_input.elements[position]


def _written(node: Node, list_input: Result, index: Value, element: Value) -> Result:
    if isinstance(list_input, TensorList):
        written_element = {} if index.constant is None else {int(index.constant.reshape(-1)[0]): element}
        return list_input._replace(
            element_info=element.known.with_constant(None), elements={**list_input.elements, **written_element}
        )
    if not isinstance(list_input, Value):
        raise ParseError("its input is no list")
    position = reshaped(node, index, [1, 1])
    return node.result(ScatterNd(), list_input, position, reshaped(node, element, [1, *element.known.shape]))


# --- TensorArray ------------------------------------------------------------------------------------------------------


@operator("TensorArrayV3", outputs=("handle", "flow"))
def array(node: Node) -> list[Result]:
    """Convert TensorArrayV3, whose elements have the shape of the first one that is written."""
    dtype, size = node.dtype("dtype"), node.value(0)
    dims = node.dims("element_shape")
    known_dims = [dim for dim in dims or () if dim is not None]
    if dims is None or len(known_dims) < len(dims):
        return [Variable(node.name), TensorList(size, dtype)]
    return [Variable(node.name), settled_list(node, TensorList(size, dtype), TensorInfo(known_dims, dtype))]


@operator("TensorArrayScatterV3")
def array_from_tensor(node: Node) -> Result:
    """Convert TensorArrayScatterV3, which writes the slices of a tensor to all elements in their order."""
    _check_order(node, node.value(1))
    return node.value(2)


@operator("TensorArrayReadV3")
def element_of_array(node: Node) -> Value:
    """Convert TensorArrayReadV3: one element."""
    return _element(node, node.inputs[2], node.value(1))


@operator("TensorArrayWriteV3")
def array_with_element(node: Node) -> Result:
    """Convert TensorArrayWriteV3: the array with another element."""
    return _written(node, node.inputs[3], node.value(1), node.value(2))


@operator("TensorArrayGatherV3")
def tensor_from_array(node: Node) -> Value:
    """Convert TensorArrayGatherV3: elements along a new first axis."""
    return node.result(Gather(0), _stacked(node, node.inputs[2]), node.value(1))


@operator("TensorArraySizeV3")
def length_of_array(node: Node) -> Value:
    """Convert TensorArraySizeV3: the number of elements."""
    return _length(node, node.inputs[1])


@operator("TensorArrayCloseV3")
def close(node: Node) -> list[Result]:
    """Convert TensorArrayCloseV3 to nothing."""
    return []


def _check_order(node: Node, indices: Value) -> None:
    constant: Any = indices.constant
    in_order = (
        isinstance(indices.producer.op, Range) if constant is None else constant.tolist() == list(range(constant.size))
    )
    if not in_order:
        node.unsupported("it writes to other elements than all in their order")

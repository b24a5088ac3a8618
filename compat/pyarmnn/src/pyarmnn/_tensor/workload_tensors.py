"""Lists of tensors for `IRuntime.EnqueueWorkload`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pyarmnn._tensor.const_tensor import ConstTensor
from pyarmnn._tensor.tensor import Tensor

if TYPE_CHECKING:
    from pyarmnn import TensorInfo

__all__ = ["make_input_tensors", "make_output_tensors", "workload_tensors_to_ndarray"]


def make_input_tensors(
    inputs_binding_info: list[tuple[int, TensorInfo]], input_data: list[np.ndarray[Any, Any]]
) -> list[tuple[int, ConstTensor]]:
    """Return a constant tensor with its binding id for each input of a network.

    The tensors share the memory of the arrays, which become read-only.

    Args:
        inputs_binding_info: binding id and info of each input, as parsers return them.
        input_data: an array for each input, in the same order.

    Raises:
        ValueError: the lists differ in length, or an array has another number of bytes than its info says.
        TypeError: an array has another type than its info says.
    """
    if len(inputs_binding_info) != len(input_data):
        raise ValueError("Length of 'inputs_binding_info' does not match length of 'input_data'")
    pairs = zip(inputs_binding_info, input_data, strict=True)
    return [(binding[0], ConstTensor(binding[1], array)) for binding, array in pairs]


def make_output_tensors(outputs_binding_info: list[tuple[int, TensorInfo]]) -> list[tuple[int, Tensor]]:
    """Return a new tensor with its binding id for each output of a network.

    Args:
        outputs_binding_info: binding id and info of each output, as parsers return them.

    Raises:
        ValueError: a tensor's data type has no equivalent in NumPy.
    """
    return [(binding[0], Tensor(binding[1])) for binding in outputs_binding_info]


def workload_tensors_to_ndarray(
    workload_tensors: list[tuple[int, Tensor | ConstTensor]],
) -> list[np.ndarray[Any, Any]]:
    """Return the content of each tensor as an array of the tensor's shape, which shares the tensor's memory.

    Args:
        workload_tensors: binding ids and tensors, as `make_output_tensors` returns them.

    Raises:
        ValueError: a tensor has no memory.
    """
    return [_shaped(tensor) for _, tensor in workload_tensors]


def _shaped(tensor: Tensor | ConstTensor) -> np.ndarray[Any, Any]:
    memory = tensor.get_memory_area()
    if memory is None:
        raise ValueError("The tensor has no memory: it was created without a TensorInfo.")
    return memory.reshape(list(tensor.GetShape()))

"""Tensors that share the memory of NumPy's arrays."""

from pyarmnn._tensor.const_tensor import ConstTensor
from pyarmnn._tensor.tensor import Tensor
from pyarmnn._tensor.workload_tensors import make_input_tensors, make_output_tensors, workload_tensors_to_ndarray

__all__ = ["ConstTensor", "Tensor", "make_input_tensors", "make_output_tensors", "workload_tensors_to_ndarray"]

"""Tensors that share the memory of NumPy's arrays."""

from pyarmnn._tensor.const_tensor import ConstTensor
from pyarmnn._tensor.tensor import Tensor

__all__ = ["ConstTensor", "Tensor"]

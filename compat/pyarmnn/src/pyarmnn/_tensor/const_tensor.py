"""`ConstTensor`: memory that networks read from."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyarmnn import _tensors
from pyarmnn._shapes import TensorInfo
from pyarmnn._tensor.tensor import Tensor
from pyarmnn._types import NUMPY_TYPES

__all__ = ["ConstTensor"]


class ConstTensor(_tensors.ConstTensor, module=None, destructor=False):
    """An array as a tensor that is only read.

    The memory is shared, not copied: an array becomes read-only, and a Tensor can still be written to.

    Args:
        args: a TensorInfo and an array of its data type and number of bytes; a Tensor or another ConstTensor; or
            nothing for an empty tensor.

    Raises:
        TypeError: the data is no array, has another data type than the info says, or is not contiguous.
        ValueError: the number of bytes differs, NumPy has no type for the data type, or the arguments are others.
    """

    def __init__(self, *args: Any) -> None:
        self._memory_area: np.ndarray[Any, Any] | None = None
        if not args:
            super().__init__()
        elif isinstance(args[0], Tensor | ConstTensor):
            super().__init__(args[0]._info)
            self._memory_area = args[0]._memory_area
        elif len(args) > 1 and isinstance(args[0], TensorInfo):
            super().__init__(args[0])
            self._memory_area = self._frozen(args[1])
        else:
            raise ValueError("Incorrect number of arguments or type of arguments provided to create Const Tensor.")

    def _frozen(self, data: Any) -> np.ndarray[Any, Any]:
        if not isinstance(data, np.ndarray):
            raise TypeError("Data must be provided as a numpy array.")
        self._check_type(data)
        if data.nbytes != self.GetNumBytes():
            raise ValueError(
                f"ConstTensor requires {self.GetNumBytes()} bytes, {data.nbytes} provided. "
                f"Is your input array data type ({data.dtype}) aligned with TensorInfo?"
            )
        if not data.flags.c_contiguous:
            raise TypeError("in method 'new_ConstTensor', argument 2 of type '(const void* memory)'")
        data.setflags(write=False)
        return data

    def _check_type(self, data: np.ndarray[Any, Any]) -> None:
        number = self.GetDataType()
        if number not in NUMPY_TYPES:
            raise ValueError(f"The data type provided for this Tensor is not supported: {number}")
        if data.dtype != NUMPY_TYPES[number]:
            raise TypeError(
                f"Expected data to have type {NUMPY_TYPES[number]} for type {number} but instead got numpy.{data.dtype}"
            )

    def get_memory_area(self) -> np.ndarray[Any, Any] | None:
        """Return the array, or None if the tensor is empty."""
        return self._memory_area

    def __copy__(self) -> ConstTensor:
        """Return a tensor that shares the memory of this one."""
        return ConstTensor(self)

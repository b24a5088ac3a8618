"""`Tensor`: memory that networks write to."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyarmnn import _tensors
from pyarmnn._shapes import TensorInfo
from pyarmnn._types import NUMPY_TYPES

__all__ = ["Tensor"]


class Tensor(_tensors.Tensor, module=None, destructor=False):
    """Memory for the values of a tensor.

    Args:
        args: nothing for an empty tensor; a TensorInfo, for which memory is allocated, not set; or another Tensor,
            whose memory is shared. Further arguments are ignored.

    Raises:
        ValueError: the argument is another, or NumPy has no type for the data type.
    """

    def __init__(self, *args: Any) -> None:
        self._memory_area: np.ndarray[Any, Any] | None = None
        if not args:
            super().__init__()
        elif isinstance(args[0], Tensor):
            super().__init__(args[0]._info)
            self._memory_area = args[0]._memory_area
        elif isinstance(args[0], TensorInfo):
            super().__init__(args[0])
            self._memory_area = self._allocate()
        else:
            raise ValueError("Incorrect number of arguments or type of arguments provided to create Tensor.")

    def _allocate(self) -> np.ndarray[Any, Any]:
        if self.GetDataType() not in NUMPY_TYPES:
            raise ValueError("The data type provided for this Tensor is not supported.")
        return np.empty(self.GetNumElements(), NUMPY_TYPES[self.GetDataType()])

    def get_memory_area(self) -> np.ndarray[Any, Any] | None:
        """Return the memory as a flat array, or None if the tensor is empty. A change of it changes the tensor."""
        return self._memory_area

    def __copy__(self) -> Tensor:
        """Return a tensor that shares the memory of this one."""
        return Tensor(self)

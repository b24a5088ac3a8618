"""The names of data types in the protocol, and the data types of tensors."""

from __future__ import annotations

from typing import Final

from interposer.core.errors import InvalidArgumentError, did_you_mean
from interposer.core.types import DataType, TensorInfo
from interposer.serving.protocol.errors import ServingError, Status

__all__ = ["BINARY_ONLY", "data_type", "wire_type"]

_TYPES: Final = {
    "BOOL": DataType.BOOL,
    "INT8": DataType.INT8,
    "INT16": DataType.INT16,
    "INT32": DataType.INT32,
    "INT64": DataType.INT64,
    "UINT8": DataType.UINT8,
    "UINT16": DataType.UINT16,
    "UINT32": DataType.UINT32,
    "UINT64": DataType.UINT64,
    "FP16": DataType.FLOAT16,
    "BF16": DataType.BFLOAT16,
    "FP32": DataType.FLOAT32,
    "FP64": DataType.FLOAT64,
    "BYTES": DataType.STRING,
}
_NAMES: Final = {value: name for name, value in _TYPES.items()}
BINARY_ONLY: Final = frozenset({"FP16", "BF16"})
"""The types that the protocol sends as bytes only, not as JSON numbers and not in typed contents."""


def data_type(name: object) -> DataType:
    """Return the data type with a name of the protocol; raise `ServingError` for an unknown name."""
    dtype = _TYPES.get(name) if isinstance(name, str) else None
    if dtype is None:
        hint = did_you_mean(name, _TYPES) if isinstance(name, str) else ""
        raise ServingError(Status.INVALID, f"the data type {str(name)[:40]!r} is unknown{hint}")
    return dtype


def wire_type(info: TensorInfo) -> str:
    """Return the name of the type in which the elements of a tensor are sent.

    Types of less than 8 bits, which the protocol lacks, are sent as INT8, UINT8 or FP32.

    Raises:
        InvalidArgumentError: it is a sequence or an optional, which the protocol cannot send.
    """
    if not info.is_tensor:
        raise InvalidArgumentError(f"it is {info}, which the Open Inference Protocol cannot send")
    if info.dtype in _NAMES:
        return _NAMES[info.dtype]
    if info.dtype.is_integer:
        return "UINT8" if info.dtype.value.startswith("uint") else "INT8"
    return "FP32"

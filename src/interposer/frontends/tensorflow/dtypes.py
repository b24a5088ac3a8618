"""The numbers and names of TensorFlow's data types."""

from __future__ import annotations

from typing import Final

from interposer.core.errors import ParseError
from interposer.core.types import DataType

__all__ = ["RESOURCE", "TYPE_NUMBERS", "data_type", "type_name"]

_NAMES: Final = {
    1: "float", 2: "double", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64", 9: "int64",
    10: "bool", 11: "qint8", 12: "quint8", 13: "qint32", 14: "bfloat16", 15: "qint16", 16: "quint16", 17: "uint16",
    18: "complex128", 19: "half", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64", 24: "float8_e5m2",
    25: "float8_e4m3fn", 29: "int4", 30: "uint4", 31: "int2", 32: "uint2",
}  # fmt: skip
_TYPES: Final = {
    1: DataType.FLOAT32,
    2: DataType.FLOAT64,
    3: DataType.INT32,
    4: DataType.UINT8,
    5: DataType.INT16,
    6: DataType.INT8,
    7: DataType.STRING,
    9: DataType.INT64,
    10: DataType.BOOL,
    14: DataType.BFLOAT16,
    17: DataType.UINT16,
    19: DataType.FLOAT16,
    22: DataType.UINT32,
    23: DataType.UINT64,
}
RESOURCE: Final = 20
_REFERENCE: Final = 100

TYPE_NUMBERS: Final = {
    f"DT_{name.upper()}{suffix}": number + more
    for number, name in _NAMES.items()
    for suffix, more in (("", 0), ("_REF", _REFERENCE))
}
"""The numbers of the types by their names in the text format, such as ``DT_FLOAT``."""


def data_type(number: int) -> DataType:
    """Return the data type for a number of the format; references to variables count as their type.

    Raises:
        ParseError: tensors of the type are not supported.
    """
    dtype = _TYPES.get(number - _REFERENCE if number > _REFERENCE else number)
    if dtype is None:
        raise ParseError(f"tensors of type {type_name(number)} are not supported")
    return dtype


def type_name(number: int) -> str:
    """Return the name of a type for messages, such as ``complex64``."""
    return _NAMES.get(number % _REFERENCE, str(number))

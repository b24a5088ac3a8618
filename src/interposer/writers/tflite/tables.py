"""The tables of TFLite's schema, and the numbers that it gives to operators, types and options."""

from __future__ import annotations

from typing import Final

from interposer.core.types import DataType
from interposer.formats.tflite.schema import OPERATORS, SCHEMA, TENSOR_TYPES, UNIONS
from interposer.writers.tables import LARGEST, Format, Tables

__all__ = ["FORMAT", "HANDLE", "LARGEST", "Tables", "operator_code", "options_code", "type_code"]

FORMAT: Final = Format(SCHEMA, "TFLite", "tflite", b"TFL3")
"""The format of TFLite files, for `Tables`."""

_TYPES: Final = {name.upper(): number for number, name in enumerate(TENSOR_TYPES)}
HANDLE: Final = _TYPES["RESOURCE"]
"""The number of the type of handles of variables."""
_OPERATORS: Final = {name: number for number, name in enumerate(OPERATORS)}


def operator_code(kind: str) -> int:
    """Return the number that the schema gives to the builtin operator `kind`."""
    return _OPERATORS[kind]


def type_code(dtype: DataType) -> int | None:
    """Return the number that the schema gives to an element type; None if the format does not have it."""
    return _TYPES.get(dtype.name)


def options_code(table: str) -> int:
    """Return the number of an options table such as ``Conv2DOptions`` in their union, where 0 means no options."""
    return UNIONS["BuiltinOptions"].index(table) + 1

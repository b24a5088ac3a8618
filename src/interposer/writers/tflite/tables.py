"""Tables of the format as bytes, by the schema; the only module of the writer that imports `flatbuffers`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from interposer.core.errors import InvalidArgumentError, MissingDependencyError
from interposer.core.types import Array, DataType
from interposer.formats.tflite.schema import OPERATORS, TENSOR_TYPES, UNIONS, Field, slots

__all__ = ["LARGEST", "Tables", "operator_code", "options_code", "type_code"]

LARGEST: Final = 2**31 - 2**20
"""The largest size of all constants in bytes, as offsets in the file are signed 32-bit integers."""
_ALIGNMENT: Final = 16
"""The alignment in bytes of constants in the file."""
_FREE: Final = 1 << 16

_TYPES: Final = {name.upper(): number for number, name in enumerate(TENSOR_TYPES)}
_OPERATORS: Final = {name: number for number, name in enumerate(OPERATORS)}
_METHODS: Final = {
    "bool": "Bool", "i8": "Int8", "u8": "Uint8", "u16": "Uint16", "i32": "Int32", "u32": "Uint32", "i64": "Int64",
    "u64": "Uint64", "f32": "Float32",
}  # fmt: skip


def operator_code(kind: str) -> int:
    """Return the number of an operator."""
    return _OPERATORS[kind]


def type_code(dtype: DataType) -> int | None:
    """Return the number of an element type; None if the format does not have it."""
    return _TYPES.get(dtype.name)


def options_code(table: str) -> int:
    """Return the number of an operator's options in their union; 0 stands for no options."""
    return UNIONS["BuiltinOptions"].index(table) + 1


class Tables:
    """A FlatBuffers file under construction; methods return the offsets of new objects for references to them."""

    def __init__(self, size: int) -> None:
        """Reserve space for `size` bytes of constants."""
        try:
            flatbuffers = importlib.import_module("flatbuffers")
        except ImportError as error:
            raise MissingDependencyError("flatbuffers", "tflite", "writing TFLite files") from error
        self._builder: Any = flatbuffers.Builder(size + _FREE)

    def table(self, name: str, /, **fields: Any) -> int:
        """Add a table and return its offset; fields that are None are omitted."""
        declared = {field.name: (slot, field) for slot, field in enumerate(slots(name)) if field is not None}
        self._builder.StartObject(len(slots(name)))
        for field_name, value in fields.items():
            if value is not None:
                self._put(*declared[field_name], value)
        return int(self._builder.EndObject())

    def _put(self, slot: int, field: Field, value: Any) -> None:
        """Add a field to the table under construction: a number, or the offset of another object.

        `slot` is the field's position in the schema. A scalar that has its default is left out.
        """
        if field.kind == "scalar":
            getattr(self._builder, f"Prepend{_METHODS[field.type]}Slot")(slot, value, field.default)
        else:
            self._builder.PrependUOffsetTRelativeSlot(slot, value, 0)

    def numbers(self, values: Sequence[Any], dtype: str = "int32") -> int:
        """Add a vector of numbers and return its offset."""
        return int(self._builder.CreateNumpyVector(np.asarray(values, dtype)))

    def tables(self, places: Sequence[int]) -> int:
        """Add a vector of tables, which are at the offsets `places`, and return its offset."""
        self._builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            self._builder.PrependUOffsetTRelative(place)
        return int(self._builder.EndVector())

    def text(self, text: str) -> int:
        """Add a string and return its offset."""
        return int(self._builder.CreateString(text))

    def constant(self, data: Array) -> int:
        """Add a vector of bytes, aligned for elements of any type, and return its offset."""
        builder = self._builder
        builder.StartVector(1, data.size, _ALIGNMENT)
        builder.head -= data.size
        np.frombuffer(builder.Bytes, np.uint8)[builder.head : builder.head + data.size] = data
        return int(builder.EndVector())

    def finished(self, root: int) -> bytes:
        """Return the bytes of the whole file."""
        self._builder.Finish(root, file_identifier=b"TFL3")
        result = bytes(memoryview(self._builder.Bytes)[self._builder.head :])
        if len(result) >= 2**31:
            raise InvalidArgumentError(f"the file would have {len(result):,} bytes; TFLite has room for {2**31 - 1:,}")
        return result

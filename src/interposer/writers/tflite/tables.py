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
    """Return the number that the schema gives to the builtin operator `kind`."""
    return _OPERATORS[kind]


def type_code(dtype: DataType) -> int | None:
    """Return the number that the schema gives to an element type; None if the format does not have it."""
    return _TYPES.get(dtype.name)


def options_code(table: str) -> int:
    """Return the number of an options table such as ``Conv2DOptions`` in their union, where 0 means no options."""
    return UNIONS["BuiltinOptions"].index(table) + 1


class Tables:
    """Builds a FlatBuffers file from the objects of TFLite's schema, inner objects first.

    Methods add an object and return its offset, by which other objects refer to it.
    """

    def __init__(self, size: int) -> None:
        """Reserve space for `size` bytes of constants."""
        try:
            flatbuffers = importlib.import_module("flatbuffers")
        except ImportError as error:
            raise MissingDependencyError("flatbuffers", "tflite", "writing TFLite files") from error
        self._builder: Any = flatbuffers.Builder(size + _FREE)

    def table(self, name: str, /, **fields: Any) -> int:
        """Add a table of the schema's type `name` with these fields, and return its offset; None omits a field."""
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
        """Add a vector of the numbers `values` as `dtype`, and return its offset."""
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
        """Add the bytes `data` as a vector that is aligned for elements of any type, and return its offset."""
        builder = self._builder
        builder.StartVector(1, data.size, _ALIGNMENT)
        builder.head -= data.size
        np.frombuffer(builder.Bytes, np.uint8)[builder.head : builder.head + data.size] = data
        return int(builder.EndVector())

    def finished(self, root: int) -> bytes:
        """Return the bytes of the whole file, whose root table is at the offset `root`.

        `InvalidArgumentError` is raised for 2 GiB or more.
        """
        self._builder.Finish(root, file_identifier=b"TFL3")
        result = bytes(memoryview(self._builder.Bytes)[self._builder.head :])
        if len(result) >= 2**31:
            raise InvalidArgumentError(f"the file would have {len(result):,} bytes; TFLite has room for {2**31 - 1:,}")
        return result

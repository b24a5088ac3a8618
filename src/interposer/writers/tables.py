"""Tables of a FlatBuffers format as bytes; the only module of the writers that imports `flatbuffers`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.core.errors import InvalidArgumentError, MissingDependencyError
from interposer.core.types import Array
from interposer.formats.flatbuffers import Field, Schema

__all__ = ["LARGEST", "Format", "Tables"]

LARGEST: Final = 2**31 - 2**20
"""The largest size of all constants in bytes, as offsets in the file are signed 32-bit integers."""
_ALIGNMENT: Final = 16
"""The alignment in bytes of constants in the file."""
_FREE: Final = 1 << 16

_METHODS: Final = {
    "bool": "Bool", "i8": "Int8", "u8": "Uint8", "u16": "Uint16", "i32": "Int32", "u32": "Uint32", "i64": "Int64",
    "u64": "Uint64", "f32": "Float32",
}  # fmt: skip


class Format(NamedTuple):
    """A FlatBuffers format: its schema, its name, the extra of the package that installs `flatbuffers`, and its mark.

    The mark is the file identifier, of four bytes, or None.
    """

    schema: Schema
    name: str
    extra: str
    mark: bytes | None = None


class Tables:
    """Builds a FlatBuffers file from the objects of a format's schema, inner objects first.

    Methods add an object and return its offset, by which other objects refer to it.
    """

    def __init__(self, format: Format, size: int) -> None:
        """Reserve space for `size` bytes of constants."""
        try:
            flatbuffers = importlib.import_module("flatbuffers")
        except ImportError as error:
            raise MissingDependencyError("flatbuffers", format.extra, f"writing {format.name} files") from error
        self._format = format
        self._builder: Any = flatbuffers.Builder(size + _FREE)

    def table(self, name: str, /, **fields: Any) -> int:
        """Add a table of the schema's type `name` with these fields, and return its offset; None omits a field."""
        slots = self._format.schema.slots(name)
        declared_fields = {field.name: (slot, field) for slot, field in enumerate(slots) if field is not None}
        self._builder.StartObject(len(slots))
        for field_name, value in fields.items():
            if value is not None:
                self._put(*declared_fields[field_name], value)
        return int(self._builder.EndObject())

    def _put(self, slot: int, field: Field, value: Any) -> None:
        """Add a field to the table under construction: a number, a struct, or the offset of another object.

        `slot` is the field's position in the schema. A scalar that has its default is left out. A struct is a sequence
        of its fields.
        """
        if field.kind == "scalar":
            getattr(self._builder, f"Prepend{_METHODS[field.type]}Slot")(slot, value, field.default)
        elif field.kind == "struct":
            self._builder.Prep(field.alignment, field.width)
            for number in reversed(value):
                self._builder.PrependUint32(number)
            self._builder.PrependStructSlot(slot, self._builder.Offset(), 0)
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

    def constant(self, stored: Array, width: int = 1) -> int:
        """Add the bytes `stored` as a vector of elements of `width` bytes, aligned for any type; return its offset."""
        builder = self._builder
        builder.StartVector(width, stored.size // width, _ALIGNMENT)
        builder.head -= stored.size
        np.frombuffer(builder.Bytes, np.uint8)[builder.head : builder.head + stored.size] = stored
        return int(builder.EndVector())

    def finished(self, root: int) -> bytes:
        """Return the bytes of the whole file, whose root table is at the offset `root`.

        `InvalidArgumentError` is raised for 2 GiB or more.
        """
        self._builder.Finish(root, file_identifier=self._format.mark)
        content = bytes(memoryview(self._builder.Bytes)[self._builder.head :])
        if len(content) >= 2**31:
            name, limit_text = self._format.name, f"{2**31 - 1:,}"
            raise InvalidArgumentError(f"the file would have {len(content):,} bytes; {name} has room for {limit_text}")
        return content

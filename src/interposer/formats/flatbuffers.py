"""Schemas of FlatBuffers formats as plain data, from which files are read and written."""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from interposer.core.records import dataclass

__all__ = ["SCALARS", "Field", "Kind", "Schema"]

Kind = Literal["scalar", "string", "struct", "table", "union", "vector", "tables"]

SCALARS = {
    "bool": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q",
    "f32": "f",
}  # fmt: skip
"""The scalar types, each with its code in the module `struct`."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a table.

    `type` is a scalar such as ``i32``, a struct, a table or a union; for a vector, it is that of the elements.

    `width` is the size of the field in bytes inside of the table: the size of the scalar or struct, or of the offset to
    anything else. The field is aligned to `alignment` bytes.
    """

    name: str
    kind: Kind
    type: str
    width: int
    default: int | float | bool | None = None
    alignment: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "alignment", self.alignment or self.width)


class Schema:
    """The tables, unions and structs of a format.

    Each line of `tables` describes a table, with its fields in the order of their slots: ``name:type`` or
    ``name:type=default`` (the default is 0 if it is omitted), ``[type]`` for a vector, and ``-`` for a slot that is no
    longer used. A field whose type is a union takes two slots: one for ``name_type`` and one for the field. An indented
    line continues the one before. Lines of `unions` list their members, and lines of `structs` have fields of 32 bits.

    With `open_unions`, a member of a union that is not listed is read as a table without fields.
    """

    def __init__(self, tables: str, unions: str = "", structs: str = "", *, open_unions: bool = False) -> None:
        self._fields = _lines(tables)
        self._structs = _lines(structs)
        self._slots: dict[str, tuple[Field | None, ...]] = {}
        self.unions: dict[str, tuple[str, ...]] = {name: tuple(rest.split()) for name, rest in _lines(unions).items()}
        self.open_unions = open_unions
        self.defaults = functools.cache(self._defaults)

    def table_names(self) -> frozenset[str]:
        """Return the names of all tables that can be read, including tables without fields."""
        return frozenset(self._fields).union(*self.unions.values())

    def slots(self, table: str) -> tuple[Field | None, ...]:
        """Return the fields of a table by slot; None for a slot that is no longer used."""
        if table not in self._slots:
            words = self._fields.get(table, "").split()
            self._slots[table] = tuple(field for text in words for field in self._declared(text))
        return self._slots[table]

    def struct(self, name: str) -> tuple[str, ...]:
        """Return the names of the fields of a struct; each is an unsigned integer of 32 bits."""
        return tuple(self._structs[name].split())

    def _defaults(self, table: str) -> Mapping[str, int | float | bool | None]:
        """Return the values of a table's fields that a file does not contain."""
        return MappingProxyType({field.name: field.default for field in self.slots(table) if field})

    def _declared(self, text: str) -> list[Field | None]:
        """Return the fields that one word of a table's declaration stands for, such as ``name:i32=1``.

        A union is two fields: its type and its value. The word "-" is a slot that is no longer used, and gives None.
        """
        if text == "-":
            return [None]
        name, _, declaration = text.partition(":")
        type, _, default = declaration.partition("=")
        if type in SCALARS:
            return [_scalar(name, type, default)]
        if type in self._structs:
            return [Field(name, "struct", type, 4 * len(self.struct(type)), alignment=4)]
        field = Field(name, self._kind(type), type.strip("[]"), 4)
        return [_scalar(f"{name}_type", "u8", ""), field] if type in self.unions else [field]

    def _kind(self, type_text: str) -> Kind:
        if type_text.startswith("["):
            return "vector" if type_text[1:-1] in SCALARS else "tables"
        if type_text == "string":
            return "string"
        if type_text in self.unions:
            return "union"
        return "table"


def _lines(text: str) -> dict[str, str]:
    """Return the lines of a text as a map from their first word to the rest.

    An indented line continues the one before.
    """
    merged_text = text.strip().replace("\n    ", " ")
    return dict(line.split(": ", 1) for line in merged_text.split("\n") if line)


def _scalar(name: str, type: str, default: str) -> Field:
    value = float(default or 0) if type == "f32" else int(default or 0)
    return Field(name, "scalar", type, struct.calcsize(f"<{SCALARS[type]}"), value == 1 if type == "bool" else value)

"""A parser for untrusted FlatBuffers files.

Every offset, size and alignment is checked before it is used, so a damaged file causes a `ParseError`, never an
out-of-bounds read. Nothing is allocated for a size that the file cannot hold: vectors of numbers are views. Objects may
be shared, as the format allows, and are then read once; objects that overlap in part are refused, which bounds the work
by the file's size. The tables of a schema must not contain each other recursively, so that the depth is bounded too.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from typing import Any, Final, NoReturn

import numpy as np

from interposer.core.errors import DamagedFileError, ParseError
from interposer.core.records import dataclass
from interposer.formats.flatbuffers import SCALARS, Field, Kind, Schema

__all__ = ["Reader", "Record"]

MAX_TABLES: Final = 1_000_000
MAX_SLOTS: Final = 64

_SCALARS: Final = {name: struct.Struct(f"<{code}") for name, code in SCALARS.items()}
_DTYPES: Final = {name: np.dtype(f"<{code}") for name, code in SCALARS.items()}
_U32: Final = struct.Struct("<I")
_I32: Final = struct.Struct("<i")
_VTABLE_HEAD: Final = struct.Struct("<HH")


def _inside(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


@dataclass(frozen=True, slots=True)
class Record:
    """One parsed table: its type, its position in the file and its fields, defaults filled in.

    A vector of numbers is a NumPy view, one of bytes a memoryview, one of tables a list of records; a string, vector or
    table that is missing is None. A union is the record of its member; for a member that is not known, its type is the
    name of the union and the member's number. A struct is a dict.
    """

    type: str
    position: int
    fields: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


class Reader:
    """Reads the tables of a FlatBuffers file as `Record` objects, and checks that they are inside of the file.

    `schema` has the tables of the format. The bytes `data` must not change while the records are in use. The argument
    `where` of the methods names what is being read, for error messages.
    """

    def __init__(self, data: memoryview, schema: Schema) -> None:
        self.data = data
        self._schema = schema
        self._size = len(data)
        self._objects: dict[tuple[int, Kind, str], Any] = {}
        self._vtables: dict[int, tuple[int, ...]] = {}
        self._starts = array("Q")
        self._ends = array("Q")
        self._regions: set[tuple[int, int]] = set()
        self._claimed_bytes = 0
        self._tables = 0
        self._num_elements = 0
        self._by_kind: dict[Kind, Callable[[int, str, str], Any]] = {
            "string": self._string,
            "table": self._table,
            "vector": self._vector,
            "tables": self._vector_of_tables,
        }

    def root(self, table: str, head: int = 8) -> Record:
        """Return the file's root table, which has the type `table` and to which the first four bytes point.

        `head` is the number of bytes before all tables: 8 with a file identifier, 4 without.
        """
        self._claim(0, head, "")
        record: Record = self._object(0, "table", table, "")
        return record

    def region(self, start: int, size: int, where: str) -> memoryview:
        """Return `size` bytes at position `start`, outside of all tables, where large files store their data."""
        if (start, start + size) not in self._regions:
            self._claim(start, start + size, where)
            self._regions.add((start, start + size))
        return self.data[start : start + size]

    def spend(self, elements: int, where: str) -> None:
        """Count elements that are about to be copied; refuse more of them than the file has bytes.

        Only objects that are shared too often exceed this limit."""
        self._num_elements += elements
        if self._num_elements > self._size + 1024:
            self._fail("the same elements are used too often", where)

    def refuse_overlaps(self) -> None:
        """Raise `ParseError` if two objects that were read overlap."""
        starts = np.frombuffer(self._starts, dtype=np.uint64)
        ends = np.frombuffer(self._ends, dtype=np.uint64)
        order = np.lexsort((ends, starts))
        clashes = np.flatnonzero(starts[order][1:] < ends[order][:-1])
        if clashes.size:
            self._fail("two parts of the file overlap", f"byte {int(starts[order][clashes[0] + 1]):#x}")

    def _claim(self, start: int, end: int, where: str) -> None:
        """Record that the bytes from `start` to `end` belong to one object, for `refuse_overlaps`.

        `ParseError` is raised if they are not in the file, or if all objects together have more bytes than it.
        """
        if not 0 <= start <= end <= self._size:
            self._fail(f"bytes {start:#x} to {end:#x} are not in the file of {self._size} bytes", where)
        self._claimed_bytes += end - start
        if self._claimed_bytes > self._size:
            self._fail("more is described than the file has bytes, so parts overlap", where)
        self._starts.append(start)
        self._ends.append(end)

    def _fail(self, message: str, where: str) -> NoReturn:
        raise DamagedFileError(message, where=where)

    def _object(self, at: int, kind: Kind, type: str, where: str) -> Any:
        """Return the object that the offset stored at position `at` points to.

        `kind` says whether it is a table, a string or a vector, and `type` names its table or element type. An object
        with several references is read once.
        """
        position = self._target(at, where)
        key = position, kind, type
        if key not in self._objects:
            self._objects[key] = self._by_kind[kind](position, type, where)
        return self._objects[key]

    def _target(self, at: int, where: str) -> int:
        (offset,) = _U32.unpack_from(self.data, at)
        position: int = at + offset
        if not offset or position % 4 or position + 4 > self._size:
            self._fail(f"the offset {offset:#x} at byte {at:#x} leads nowhere", where)
        return position

    def _table(self, position: int, table: str, where: str) -> Record:
        present_fields = self._present(position, table, where)
        # Writers in Python before flatbuffers 25.12 share a vtable, with the size of the table in it, among tables of
        # different sizes. So the end of the last field is used instead of the stored size.
        self._claim(position, max((at + field.width for field, at in present_fields), default=position + 4), where)
        fields: dict[str, Any] = dict(self._schema.defaults(table))
        for field, at in present_fields:
            fields[field.name] = self._field(field, at, fields, where)
        return Record(table, position, fields)

    def _present(self, position: int, table: str, where: str) -> list[tuple[Field, int]]:
        """Return the fields that the table at `position` has, each with the position of its content in the file.

        `table` is the name of the table's type in the schema. `ParseError` is raised for a field at a wrong position.
        """
        fields_and_offsets = zip(self._schema.slots(table), self._vtable(position, where), strict=False)
        present_fields = [(field, position + offset) for field, offset in fields_and_offsets if field and offset]
        for field, at in present_fields:
            if at < position + 4 or at % field.alignment:
                self._fail(f"byte {at:#x} is no place for the field", _inside(where, field.name))
        return present_fields

    def _vtable(self, position: int, where: str) -> tuple[int, ...]:
        """Return the offset of each field in the table at `position` (0 if absent).

        The order of the fields is that of the schema.
        """
        vtable = position - _I32.unpack_from(self.data, position)[0]
        if vtable not in self._vtables:
            self._vtables[vtable] = self._new_vtable(vtable, where)
        return self._vtables[vtable]

    def _new_vtable(self, vtable: int, where: str) -> tuple[int, ...]:
        if vtable % 2 or not 0 <= vtable <= self._size - 4:
            self._fail(f"a table's description is said to be at byte {vtable:#x}", where)
        length, size = _VTABLE_HEAD.unpack_from(self.data, vtable)
        if length < 4 or length % 2 or size < 4:
            self._fail(f"the table's description at byte {vtable:#x} has the sizes {length} and {size}", where)
        self._claim(vtable, vtable + length, where)
        count = min(length // 2 - 2, MAX_SLOTS)
        return struct.unpack_from(f"<{count}H", self.data, vtable + 4)

    def _field(self, field: Field, at: int, fields: dict[str, Any], where: str) -> Any:
        if field.kind == "scalar":
            return _SCALARS[field.type].unpack_from(self.data, at)[0]
        if field.kind == "struct":
            names = self._schema.struct(field.type)
            return dict(zip(names, struct.unpack_from(f"<{len(names)}I", self.data, at), strict=True))
        field_place = _inside(where, field.name)
        if field.kind == "union":
            return self._union(at, field.type, fields[f"{field.name}_type"], field_place)
        return self._object(at, field.kind, field.type, field_place)

    def _union(self, at: int, union: str, member: int, where: str) -> Record | None:
        members = self._schema.unions[union]
        if member > len(members):
            if self._schema.open_unions:
                return Record(f"{union} {member}", at, {})
            raise ParseError(f"{union} {member} is not known (1 to {len(members)} are)", where=where)
        if not member:
            return None
        record: Record = self._object(at, "table", members[member - 1], where)
        return record

    def _span(self, position: int, width: int, where: str, num_extra: int = 0) -> tuple[int, int]:
        """Return the position of the first element of the vector at `position`, and the number of elements.

        An element has `width` bytes; `num_extra` more bytes follow the last one, such as the zero at the end of a
        string. `ParseError` is raised if these bytes are not in the file.
        """
        (count,) = _U32.unpack_from(self.data, position)
        start = position + 4
        if start + count * width + num_extra > self._size:
            self._fail(f"{count} elements of {width} bytes at byte {start:#x} do not fit into the file", where)
        self._claim(position, start + count * width + num_extra, where)
        return start, count

    def _string(self, position: int, _: str, where: str) -> str:
        start, length = self._span(position, 1, where, num_extra=1)
        if self.data[start + length]:
            self._fail(f"the text at byte {start:#x} does not end in a zero byte", where)
        try:
            return str(self.data[start : start + length], "utf-8")
        except UnicodeDecodeError as error:
            raise DamagedFileError(f"the text at byte {start:#x} is not UTF-8", where=where) from error

    def _vector(self, position: int, element: str, where: str) -> Any:
        dtype = _DTYPES[element]
        start, count = self._span(position, dtype.itemsize, where)
        if element == "u8":
            return self.data[start : start + count]
        values = np.frombuffer(self.data, "u1" if element == "bool" else dtype, count, start)
        return values != 0 if element == "bool" else values

    def _vector_of_tables(self, position: int, table: str, where: str) -> list[Record]:
        start, count = self._span(position, 4, where)
        self._tables += count
        if self._tables > MAX_TABLES:
            raise ParseError(f"the file has more than {MAX_TABLES} tables", where=where)
        return [self._object(start + 4 * i, "table", table, f"{where}[{i}]") for i in range(count)]

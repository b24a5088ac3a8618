"""Protobuf's two encodings as plain Python values: the fields of binary messages, and the tree of a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from interposer.core.errors import DamagedFileError
from interposer.core.types import Array
from interposer.core.varint import varint

__all__ = ["BYTES", "FIXED32", "FIXED64", "VARINT", "Entry", "Field", "fields", "parse_text", "varints"]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_GROUP_START, _GROUP_END = 3, 4
_DEPTH: Final = 32
"""The deepest nesting of messages in a text; the formats that are read here need about ten levels."""

Entry: TypeAlias = "str | bytes | Text"
"""A value in a text: a word or a number, a string, or a nested message."""
Text: TypeAlias = "list[tuple[str, Entry]]"


class Field(NamedTuple):
    """A field of a binary message: its number, its wire type, and its value: an integer, or bytes."""

    number: int
    kind: int
    integer: int
    content: memoryview


_NOTHING: Final = memoryview(b"")


def fields(view: memoryview) -> Iterator[Field]:
    """Yield the fields of a binary message in order; the content of a field with bytes is a view of `view`.

    Raises:
        DamagedFileError: the bytes are no protobuf message.
    """
    offset, end = 0, len(view)
    while offset < end:
        tag, offset = varint(view, offset, end)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, offset = varint(view, offset, end)
            yield Field(number, kind, value, _NOTHING)
            continue
        size = 8 if kind == FIXED64 else 4
        if kind == BYTES:
            size, offset = varint(view, offset, end)
        elif kind not in (FIXED32, FIXED64):
            raise DamagedFileError(f"a field has the wire type {kind}, which the format does not use")
        if size > end - offset or not number:
            raise DamagedFileError("a field reaches beyond its message")
        yield Field(number, kind, 0, view[offset : offset + size])
        offset += size


def varints(view: memoryview) -> Array:
    """Return the variable-length integers in `view` as uint64, which holds negative ones as two's complements."""
    stream = np.frombuffer(view, np.uint8)
    last_bytes = np.flatnonzero(stream < 0x80)
    if not stream.size:
        return np.zeros(0, np.uint64)
    if not last_bytes.size or last_bytes[-1] != stream.size - 1:
        raise DamagedFileError("a list of numbers is truncated")
    first_bytes = np.concatenate([[0], last_bytes[:-1] + 1])
    if (last_bytes - first_bytes).max() >= 10:
        raise DamagedFileError("a number is too long")
    byte_index = np.arange(stream.size) - np.repeat(first_bytes, last_bytes - first_bytes + 1)
    shifted_bits = (stream & 0x7F).astype(np.uint64) << (7 * byte_index).astype(np.uint64)
    numbers: Array = np.bitwise_or.reduceat(shifted_bits, first_bytes)
    return numbers


# --- text -------------------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(
    r"""[ \t\r\n\f\v]+ | \#[^\n]*
    | (?P<word> [-+]?[A-Za-z_0-9.][A-Za-z_0-9.+-]* | \[[A-Za-z_0-9./]+\](?=\s*[:{<]) )
    | (?P<string> "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )
    | (?P<mark> [-{}<>:,;\[\]] )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_SINGLE: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


def parse_text(text: str) -> Text:
    """Return the fields of a message in protobuf's text format, in order; repeated fields occur several times.

    Raises:
        DamagedFileError: the text does not follow the format; says in which line.
    """
    return _Parser(text).message(0, "")


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._token, self._kind = "", ""
        self._advance()

    def message(self, depth: int, end: str) -> Text:
        """Read fields up to the mark `end`, or up to the end of the text."""
        if depth > _DEPTH:
            raise self._error("messages are nested too deeply")
        fields: Text = []
        while (self._kind, self._token) != ("mark" if end else "", end):
            if self._kind != "word":
                raise self._error(f"expected the name of a field, not {self._token[:20]!r}")
            name = self._take().strip("[]")
            if self._token == ":":
                self._take()
            fields += ((name, value) for value in self._values(depth))
            if self._token in {",", ";"} and self._kind == "mark":
                self._take()
        if end:
            self._take()
        return fields

    def _values(self, depth: int) -> Iterator[Entry]:
        if self._token != "[" or self._kind != "mark":
            yield self._value(depth)
            return
        self._take()
        while self._token != "]":
            yield self._value(depth)
            if self._token == ",":
                self._take()
        self._take()

    def _value(self, depth: int) -> Entry:
        if self._kind == "string":
            pieces = []
            while self._kind == "string":
                pieces.append(_unescaped(self._take()[1:-1]))
            return b"".join(pieces)
        if self._kind == "word":
            return self._take()
        mark = self._take()
        if mark == "-" and self._kind == "word":
            return "-" + self._take()
        if mark not in {"{", "<"}:
            raise self._error(f"expected a value, not {mark[:20]!r}")
        return self.message(depth + 1, "}" if mark == "{" else ">")

    def _take(self) -> str:
        token = self._token
        self._advance()
        return token

    def _advance(self) -> None:
        self._token = self._kind = ""
        while self._at < len(self._text):
            match = _TOKEN.match(self._text, self._at)
            if match is None:
                raise self._error(f"{self._text[self._at : self._at + 20]!r} is not expected")
            self._at = match.end()
            if match.lastgroup is not None:
                self._token, self._kind = match.group(), match.lastgroup
                return

    def _error(self, message: str) -> DamagedFileError:
        line = self._text.count("\n", 0, self._at) + 1
        return DamagedFileError(message, where=f"line {line}")


def _unescaped(literal: str) -> bytes:
    literal_bytes = literal.encode("utf-8", "surrogateescape")
    return literal_bytes if b"\\" not in literal_bytes else _ESCAPE.sub(_character, literal_bytes)


def _character(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, escaped_letter = match.groups()
    if octal is not None:
        return bytes([int(octal, 8) & 0xFF])
    return bytes([int(hexadecimal, 16)]) if hexadecimal is not None else _SINGLE.get(escaped_letter, escaped_letter)

"""A decoder for untrusted FlexBuffers, the schema-less format of the options of custom operators."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from interposer.core.errors import DamagedFileError

__all__ = ["FlexOptions", "decoded"]

MOST_VALUES: Final = 1 << 16
"""The limit of values that are decoded, which bounds the work for values that are shared."""
MOST_LEVELS: Final = 32

_NULL, _INT, _UINT, _FLOAT, _KEY, _STRING = range(6)
_INDIRECT: Final = {6: _INT, 7: _UINT, 8: _FLOAT}
_MAP, _VECTOR = 9, 10
_TYPED: Final = {11: _INT, 12: _UINT, 13: _FLOAT, 14: _KEY, 15: _STRING, 36: 26}
_FIXED: Final = {
    number: (kind, size) for start, size in ((16, 2), (19, 3), (22, 4)) for number, kind in enumerate((1, 2, 3), start)
}
_BLOB, _BOOL = 25, 26
_FLOATS: Final = {2: "<e", 4: "<f", 8: "<d"}


def decoded(data: bytes) -> Any:
    """Return the value in a FlexBuffer: a dict, list, number, text, bytes, bool or None.

    Raises:
        DamagedFileError: the bytes are no FlexBuffer, or nest deeper or hold more values than is supported.
    """
    if len(data) < 3:
        raise DamagedFileError(f"{len(data)} bytes are no FlexBuffer")
    width, kind = data[-1], data[-2]
    return _Decoder(data).value(len(data) - 2 - width, width, kind, 0)


class FlexOptions(Mapping[str, Any]):
    """The options of a custom operator by name, decoded when they are first read.

    Options that are absent, or that are no map, have no names. Damaged ones raise `DamagedFileError` when they are
    read.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._values: Mapping[str, Any] | None = None

    def _decoded(self) -> Mapping[str, Any]:
        if self._values is None:
            content = decoded(self._data) if self._data else {}
            self._values = content if isinstance(content, dict) else {}
        return self._values

    def __getitem__(self, name: str) -> Any:
        return self._decoded()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())


class _Decoder:
    """Decodes the values of a FlexBuffer at positions in its bytes; every position is checked before it is read."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._values = 0
        self._by_kind: dict[int, Callable[[int, int, int], Any]] = {
            _KEY: self._key, _STRING: self._string, _BLOB: self._blob, _MAP: self._map, _VECTOR: self._vector,
        }  # fmt: skip

    def value(self, at: int, width: int, packed: int, level: int) -> Any:
        """Return the value in the slot of `width` bytes at position `at`; `packed` has its type and its own width."""
        self._values += 1
        if self._values > MOST_VALUES or level > MOST_LEVELS:
            raise DamagedFileError(f"a FlexBuffer with more than {MOST_VALUES} values or {MOST_LEVELS} levels")
        kind, own_width = packed >> 2, 1 << (packed & 3)
        if kind == _NULL:
            return None
        if kind in {_INT, _UINT, _FLOAT, _BOOL}:
            return self._number(at, width, kind)
        target_position = at - self._number(at, width, _UINT)
        if kind in _INDIRECT:
            return self._number(target_position, own_width, _INDIRECT[kind])
        if kind in _TYPED:
            return self._elements(
                target_position, own_width, _TYPED[kind], self._size(target_position, own_width), level
            )
        if kind in _FIXED:
            return self._elements(target_position, own_width, *_FIXED[kind], level)
        if kind not in self._by_kind:
            raise DamagedFileError(f"a FlexBuffer with the type {kind}, which is not known")
        return self._by_kind[kind](target_position, own_width, level)

    def _bytes(self, at: int, count: int) -> bytes:
        if at < 0 or count < 0 or at + count > len(self._data):
            raise DamagedFileError(f"bytes {at} to {at + count} are not in the FlexBuffer of {len(self._data)} bytes")
        return self._data[at : at + count]

    def _number(self, at: int, width: int, kind: int) -> Any:
        number_bytes = self._bytes(at, width)
        if kind != _FLOAT:
            number = int.from_bytes(number_bytes, "little", signed=kind == _INT)
            return bool(number) if kind == _BOOL else number
        if width not in _FLOATS:
            raise DamagedFileError(f"a FlexBuffer with a float of {width} bytes")
        return struct.unpack(_FLOATS[width], number_bytes)[0]

    def _size(self, at: int, width: int) -> int:
        """Return the number of elements, which is in front of a vector or text; no more than there are bytes."""
        size: int = self._number(at - width, width, _UINT)
        if size > len(self._data):
            raise DamagedFileError(f"a FlexBuffer with {size} elements in {len(self._data)} bytes")
        return size

    def _key(self, at: int, _: int, level: int) -> str:
        end = self._data.find(b"\0", max(at, 0))
        return self._text(self._bytes(at, end - at))

    def _string(self, at: int, width: int, level: int) -> str:
        return self._text(self._bytes(at, self._size(at, width)))

    def _text(self, encoded_text: bytes) -> str:
        try:
            return encoded_text.decode()
        except UnicodeDecodeError as error:
            raise DamagedFileError("a FlexBuffer with a text that is not UTF-8") from error

    def _blob(self, at: int, width: int, level: int) -> bytes:
        return self._bytes(at, self._size(at, width))

    def _elements(self, at: int, width: int, kind: int, count: int, level: int) -> list[Any]:
        """Return the elements of a vector whose elements all have the type `kind`."""
        self._bytes(at, count * width)
        return [self.value(at + number * width, width, kind << 2, level + 1) for number in range(count)]

    def _vector(self, at: int, width: int, level: int) -> list[Any]:
        count = self._size(at, width)
        kinds = self._bytes(at + count * width, count)
        return [self.value(at + number * width, width, kind, level + 1) for number, kind in enumerate(kinds)]

    def _map(self, at: int, width: int, level: int) -> dict[str, Any]:
        values = self._vector(at, width, level)
        keys = at - 3 * width
        key_width = self._number(keys + width, width, _UINT)
        names = self._elements(keys - self._number(keys, width, _UINT), key_width, _KEY, len(values), level)
        return dict(zip(names, values, strict=True))

"""Checks of protobuf messages before they are parsed, because parsing creates an object for each element of two bytes.

The parser of protobuf holds the interpreter's lock until it has read the whole message, and has no limit for memory.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.reading import UNLIMITED, Reading

__all__ = ["check_wire", "field_of", "without_field"]

_SMALL: Final = 1 << 15
"""Bytes of a message below which its elements need little memory, however many there are."""
_ELEMENT: Final = 320
"""Bytes that an element needs which is a message or a text."""
_MOST_NUMBERS: Final = 1 << 24
"""Bytes of packed numbers of a variable length in one message; more of them would stop other threads for long."""
_MOST_MESSAGES: Final = 1 << 14
"""Messages in one message: inputs, outputs and their parameters."""
_WIDEST: Final = 8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_PACKED_TYPES: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 13, 14, 15, 16, 17, 18})
"""Numbers of protobuf's field types that are numbers or truth values."""
_FIXED_TYPES: Final = frozenset({1, 2, 6, 7, 15, 16})
"""Numbers of protobuf's field types: double, float, fixed64, fixed32, sfixed32 and sfixed64."""
_SOME: Final = 1 << 10


class _Field(NamedTuple):
    """What a field of a message is: the type of its message if it is one, and whether it is a packed number."""

    message: Any
    is_packed: bool
    is_fixed: bool


def check_wire(data: bytes, kind: Any, reading: Reading) -> None:
    """Check that a message does not have too many elements.

    Args:
        data: the bytes of the message.
        kind: the class of the message.
        reading: the limits of the request.

    Raises:
        ServingError: the message has more elements than `reading` allows, or there is no room for them. Bytes that are
            no message are left to the parser.
    """
    if len(data) < _SMALL:
        reading.take(len(data))
        return
    counter = _Counter(data, reading)
    counter.walk(0, len(data), _fields(kind.DESCRIPTOR))
    counter.check()
    reading.take(len(data) + counter.elements * _ELEMENT + counter.varints * _WIDEST + counter.fixed)


def without_field(data: bytes, number: int) -> tuple[bytes, list[memoryview]]:
    """Return a message without the fields of bytes with a number, and their contents, which are not copied.

    A damaged message is returned as it is.
    """
    counter, view = _Counter(data, UNLIMITED), memoryview(data)
    other_pieces, contents, position, end_of_field = [], [], 0, 0
    while position < len(data):
        begin = position
        tag, position = counter.varint(position, len(data))
        if tag == number << 3 | _BYTES:
            size, position = counter.varint(position, len(data))
            if not size and data[position - 1]:  # the size is truncated
                return data, []
            other_pieces.append(view[end_of_field:begin])
            contents.append(view[position : position + size])
            position = end_of_field = position + size
        else:
            position = counter.after_value(tag & 7, position, len(data))
    if position > len(data):
        return data, []
    return b"".join([*other_pieces, view[end_of_field:]]) if contents else data, contents


def field_of(number: int, size: int) -> bytes:
    """Return the bytes before the contents of a field of bytes with this number, which are `size` bytes."""
    field_header = bytearray()
    for header_number in (number << 3 | _BYTES, size):
        while header_number > 127:
            field_header.append(header_number & 127 | 128)
            header_number >>= 7
        field_header.append(header_number)
    return bytes(field_header)


def _fields(descriptor: Any) -> dict[int, _Field]:
    return {
        field.number: _Field(
            field.message_type, field.type in _PACKED_TYPES and field.message_type is None, field.type in _FIXED_TYPES
        )
        for field in descriptor.fields
    }


class _Counter:
    """Counts the elements of a message, also those of the messages in it."""

    def __init__(self, data: bytes, reading: Reading) -> None:
        self._data, self._reading = data, reading
        self._known: dict[Any, dict[int, _Field]] = {}
        self.elements, self.varints, self.fixed = 0, 0, 0
        self._num_messages = 0

    def check(self) -> None:
        """Raise `ServingError` if the time for reading is over, or if there are too many elements or numbers."""
        self._reading.check_time()
        self._reading.check_values(self.elements)
        if self.varints > _MOST_NUMBERS:
            raise ServingError(
                Status.TOO_LARGE,
                f"the request has more than {_MOST_NUMBERS:,} bytes of integers or truth values in typed contents; "
                "send them in raw_input_contents",
            )

    def walk(self, position: int, end: int, fields: dict[int, _Field]) -> None:
        """Count the elements of the message between two positions."""
        while position < end:
            self.elements += 1
            if self.elements % _SOME == 0:
                self.check()
            tag, position = self.varint(position, end)
            if tag & 7 == _BYTES:
                size, start = self.varint(position, end)
                self._enter(fields.get(tag >> 3), start, min(start + size, end))
            position = self.after_value(tag & 7, position, end)

    def after_value(self, wire_type: int, position: int, end: int) -> int:
        """Return the position after the value of a field; raise `ServingError` for groups."""
        if wire_type == _BYTES:
            size, position = self.varint(position, end)
            return position + size
        if wire_type == _VARINT:
            return self.varint(position, end)[1]
        if wire_type in (_FIXED32, _FIXED64):
            return position + (4 if wire_type == _FIXED32 else 8)
        raise ServingError(Status.INVALID, "the request is not a message of the protocol: it has groups")

    def _enter(self, field: _Field | None, position: int, end: int) -> None:
        """Count the elements in a field that has its length before it."""
        if field is None:
            return
        if field.message is not None:
            self._num_messages += 1
            if self._num_messages > _MOST_MESSAGES:
                raise ServingError(
                    Status.TOO_LARGE, f"the request has more than {_MOST_MESSAGES:,} inputs, outputs and parameters"
                )
            if field.message not in self._known:
                self._known[field.message] = _fields(field.message)
            self.walk(position, end, self._known[field.message])
        elif field.is_packed and field.is_fixed:
            self.fixed += end - position
        elif field.is_packed:
            self.varints += end - position

    def varint(self, position: int, end: int) -> tuple[int, int]:
        """Return the number at a position and the position after it; damaged ones end the message."""
        number = shift = 0
        while position < end and shift < 70:
            byte = self._data[position]
            position += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number, position
            shift += 7
        return 0, end

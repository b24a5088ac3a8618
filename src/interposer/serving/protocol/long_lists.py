"""Long lists of numbers in JSON text, which become arrays piece by piece, without an object for each number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np

from interposer.core.records import dataclass
from interposer.core.types import Array
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.json_text import list_of, quick_list_of
from interposer.serving.protocol.reading import Reading

__all__ = ["LongList"]

Convert: TypeAlias = Callable[[list[Any]], Array]
"""Takes some elements of a tensor, and returns them as an array with one dimension."""
_PIECE: Final = 1 << 16
_LONGEST_NUMBER: Final = 1 << 12
_SPACES: Final = bytes.maketrans(b"[]", b"  ")
_SLICE: Final = 1 << 20
_COMMA, _OPENING, _CLOSING = (np.uint8(ord(character)) for character in ",[]")


@dataclass(frozen=True, slots=True)
class LongList:
    """A list in JSON text, flat or nested, that has no strings and no objects.

    Args:
        text: the JSON text.
        begin: the position of its first bracket.
        end: the position after its last bracket.
        reading: the limits of the request.
    """

    text: bytes | bytearray
    begin: int
    end: int
    reading: Reading

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], convert: Convert) -> Array:
        """Return the elements as an array of this shape.

        Args:
            name: the name of the input.
            shape: the shape of the input, which is compared with the list before the array is created.
            dtype: the type of the array.
            convert: converts some elements; it raises `ServingError` if they have another type.

        Raises:
            ServingError: the list is not flat or nested like the shape, has other elements, or is not JSON; or the
                request is late or holds too many bytes.
        """
        count, is_flat = self._counted()
        if is_flat and count != math.prod(shape):
            raise _refused(name, f"has {count} elements; the shape {list(shape)} needs {math.prod(shape)}")
        if not is_flat and (count != math.prod(shape) or b"".join(self._structure()) != _structure_of(shape)):
            raise _refused(name, f"has lists that do not have the shape {list(shape)}")
        self.reading.take(count * dtype.itemsize)
        array = np.empty(count, dtype)
        num_filled = 0
        for piece in self._pieces():
            self.reading.check_time()
            num_filled = _fill(array, num_filled, convert, b"[" + piece.translate(_SPACES) + b"]")
        if num_filled != count:
            raise _not_json()
        return array.reshape(shape)

    def _counted(self) -> tuple[int, bool]:
        """Return the number of elements, and whether the list has no lists in it."""
        num_commas, num_lists = 0, 0
        for text_slice in self._slices():
            num_commas += int(np.count_nonzero(text_slice == _COMMA))
            num_lists += int(np.count_nonzero(text_slice == _OPENING))
        return num_commas + 1, num_lists == 1

    def _structure(self) -> Iterator[bytes]:
        """Yield the brackets and commas, without what is between them."""
        for text_slice in self._slices():
            yield text_slice[(text_slice == _COMMA) | (text_slice == _OPENING) | (text_slice == _CLOSING)].tobytes()

    def _slices(self) -> Iterator[Array]:
        for begin in range(self.begin, self.end, _SLICE):
            yield np.frombuffer(self.text, np.uint8, min(_SLICE, self.end - begin), begin)

    def _pieces(self) -> Iterator[bytes | bytearray]:
        """Yield the text of some elements after the other, without the outer brackets."""
        begin, last_position = self.begin + 1, self.end - 1
        while begin < last_position:
            end = last_position
            if last_position - begin > _PIECE:
                end = self.text.find(b",", begin + _PIECE - _LONGEST_NUMBER, begin + _PIECE)
                if end < 0:
                    raise ServingError(
                        Status.INVALID,
                        f"the request has a list with an element of more than {_LONGEST_NUMBER} characters",
                    )
            yield self.text[begin:end]
            begin = end + 1


def _fill(array: Array, begin: int, convert: Convert, text: bytes) -> int:
    """Set the elements of an array from `begin` on to those of a list in JSON text; return where they end."""
    elements = quick_list_of(text)
    try:
        part = None if elements is None else convert(elements)
    except ServingError:  # read again, for a message with all digits of the element
        part = None
    if part is None:
        part = convert(list_of(text))
    end = begin + len(part)
    if not len(part) or end > len(array):
        raise _not_json()
    array[begin:end] = part
    return end


def _structure_of(shape: tuple[int, ...]) -> bytes:
    """Return the brackets and commas of a list that is nested like a shape without zeros."""
    structure = b""
    for size in reversed(shape):
        structure = b"[" + ((structure + b",") * size)[:-1] + b"]"
    return structure


def _refused(name: str, problem: str) -> ServingError:
    return ServingError(Status.INVALID, f"input {name!r} {problem}")


def _not_json() -> ServingError:
    return ServingError(Status.INVALID, "the request is not JSON: a list has a comma without a value")

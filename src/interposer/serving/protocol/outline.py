"""The outline of JSON text: how many values it has and how deep they are nested, found before objects are created.

A request of a few bytes could otherwise become gigabytes of lists, and a long text would stop all threads while it is
read. `outline` looks at the bytes only, some hundred thousand at a time. It also finds the lists of tensors that are
long and have only numbers, which `interposer.serving.protocol.long_lists` reads in pieces.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final, NamedTuple

import numpy as np

from interposer.core.records import dataclass
from interposer.core.types import Array
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.reading import Reading

__all__ = ["DEEPEST", "LONG", "Outline", "outline"]

DEEPEST: Final = 64
"""How deep lists and objects may be nested."""
LONG: Final = 1 << 15
"""Bytes of a list of numbers from which on it is read in pieces."""
_SLICE: Final = 1 << 18
_DATA: Final = 4
"""The depth of the list ``data`` in a request: in an object, in the list ``inputs``, in the request."""
_QUOTE, _COMMA, _BACKSLASH, _LIST = (np.uint8(ord(character)) for character in '",\\[')
_OPENING, _CLOSING, _CASE = np.uint8(0x7B), np.uint8(0x7D), np.uint8(0x20)
"""``{`` and ``}``; ``[`` and ``]`` are the same but for the bit `_CASE`, and no other character is."""


@dataclass(slots=True)
class Outline:
    """What is in JSON text.

    Attributes:
        values: about how many values it has outside of `long_lists`. A backslash counts as one, because the standard
            library creates an object for each escaped character.
        containers: how many lists and objects it has outside of `long_lists`.
        long_lists: the begin and the end of each list of a tensor that is long and has only numbers or truth values,
            perhaps in lists of lists.
    """

    values: int = 1
    containers: int = 0
    long_lists: list[tuple[int, int]] = field(default_factory=list)


def outline(text: bytes | bytearray, reading: Reading) -> Outline:
    """Return the outline of JSON text, which need not be valid.

    Raises:
        ServingError: lists are nested too deep, the text has more values than `reading` allows, or it is late.
    """
    scan = _Scan(text)
    for begin in range(0, len(text), _SLICE):
        reading.check_time()
        scan.add(begin)
        reading.check_values(scan.outline.values)
    return scan.outline


class _Mark(NamedTuple):
    """A position in the text, and how many values and how many lists and objects begin before it."""

    position: int
    values: int
    containers: int


class _Scan:
    """Looks at JSON text slice by slice."""

    def __init__(self, text: bytes | bytearray) -> None:
        self._text = text
        self._depth = 0
        self._is_in_string = False
        self._backslashes = 0
        self._num_values, self._num_containers = 1, 0
        self._excluded_values, self._excluded_containers = 0, 0
        self._long_lists: list[tuple[int, int]] = []
        self._begin: _Mark | None = None
        """Where a list of a tensor has begun whose end was not seen yet."""

    @property
    def outline(self) -> Outline:
        """What was found in the slices so far; a list of a tensor counts when its end was seen."""
        values, containers = (self._num_values, self._num_containers) if self._begin is None else self._begin[1:]
        return Outline(values - self._excluded_values, containers - self._excluded_containers, self._long_lists)

    def add(self, begin: int) -> None:
        """Look at the next slice."""
        slice_bytes = np.frombuffer(self._text, np.uint8, min(_SLICE, len(self._text) - begin), begin)
        in_string = self._strings(slice_bytes)
        folded_bytes = slice_bytes | _CASE
        brackets = np.flatnonzero((folded_bytes == _OPENING) | (folded_bytes == _CLOSING))
        commas = np.flatnonzero(slice_bytes == _COMMA)
        if in_string is not None:
            brackets, commas = brackets[~in_string[brackets]], commas[~in_string[commas]]
        is_opening = folded_bytes[brackets] == _OPENING
        depths = self._depth + np.cumsum(np.where(is_opening, 1, -1))
        if len(depths):
            _check_depths(depths)
            self._depth = int(depths[-1])
        openings = brackets[is_opening]
        begins = self._marks(brackets[is_opening & (depths == _DATA)], begin, commas, openings)
        ends = self._marks(brackets[~is_opening & (depths == _DATA - 1)] + 1, begin, commas, openings)
        self._find_lists(begins, ends)
        self._num_containers += len(openings)
        self._num_values += len(openings) + len(commas)

    def _strings(self, slice_bytes: Array) -> Array | None:
        """Return which bytes are inside of strings; None if there are no strings."""
        quotes = np.flatnonzero(slice_bytes == _QUOTE)
        is_escaped = self._escaped(slice_bytes, quotes)
        if not len(quotes) and not self._is_in_string:
            return None
        toggles = np.zeros(len(slice_bytes), np.uint8)
        toggles[quotes[~is_escaped]] = 1
        np.cumsum(toggles, dtype=np.uint8, out=toggles)  # modulo 256, which leaves the lowest bit as it is
        is_inside: Array = (toggles & 1).astype(bool) ^ self._is_in_string
        self._is_in_string = bool(is_inside[-1])
        return is_inside

    def _escaped(self, slice_bytes: Array, quotes: Array) -> Array:
        """Return which of the quotes have an odd number of backslashes before them."""
        is_backslash = slice_bytes == _BACKSLASH
        self._num_values += int(np.count_nonzero(is_backslash))
        num_before, escaped = self._backslashes, np.zeros(len(quotes), bool)
        other_positions = np.flatnonzero(~is_backslash)
        self._backslashes = (
            (len(slice_bytes) - 1 - int(other_positions[-1])) if len(other_positions) else num_before + len(slice_bytes)
        )
        if not num_before and not is_backslash.any():
            return escaped
        num_others_before = np.searchsorted(
            other_positions, quotes
        )  # as many bytes other than backslashes are before each quote
        last_other = np.where(num_others_before > 0, other_positions[num_others_before - 1], -1 - num_before)
        is_escaped: Array = (quotes - 1 - last_other) % 2 == 1
        return is_escaped

    def _marks(self, places: Array, begin: int, commas: Array, openings: Array) -> Array:
        """Return the rows of `_Mark` for places in the slice at `begin`."""
        containers = np.searchsorted(openings, places)
        values = containers + np.searchsorted(commas, places)
        return np.stack([places + begin, values + self._num_values, containers + self._num_containers], axis=1)

    def _find_lists(self, begins: Array, ends: Array) -> None:
        if self._begin is not None:
            begins = np.concatenate([np.array([self._begin]), begins])
        if len(ends) > len(begins):
            raise ServingError(Status.INVALID, "the request is not JSON: its brackets do not match")
        for index in np.flatnonzero(ends[:, 0] - begins[: len(ends), 0] >= LONG).tolist():
            self._add_list(_Mark(*begins[index].tolist()), _Mark(*ends[index].tolist()))
        self._begin = _Mark(*begins[-1].tolist()) if len(begins) > len(ends) else None

    def _add_list(self, begin: _Mark, end: _Mark) -> None:
        """Note a long list, unless it has strings or objects."""
        place = begin.position, end.position
        if self._text[begin.position] != _LIST or any(self._text.find(mark, *place) >= 0 for mark in (b'"', b"{")):
            return
        self._long_lists.append(place)
        self._excluded_values += end.values - begin.values
        self._excluded_containers += end.containers - begin.containers


def _check_depths(depths: Array) -> None:
    if int(depths.max()) > DEEPEST:
        raise ServingError(Status.INVALID, f"the request has lists nested more than {DEEPEST} deep")

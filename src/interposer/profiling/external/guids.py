"""Identifiers (GUIDs) of the objects of a timeline: numbers in turn, and hashes of labels."""

from __future__ import annotations

import itertools
import struct
from typing import Final

__all__ = ["Guids", "static_guid"]

_MASK: Final = (1 << 64) - 1
_MULTIPLIER: Final = 0xC6A4A7935BD1E995
_SEED: Final = 0xC70F6907
_STATIC: Final = 1 << 63


class Guids:
    """Gives each object another number, from 0 on. Thread-safe."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def next(self) -> int:
        """Return a number that no other object has."""
        return next(self._numbers)


def static_guid(label: str) -> int:
    """Return the identifier of a label, which is the same in every process: a hash with the highest bit set.

    The hash is that of ``std::hash<std::string>`` in libstdc++ on 64-bit platforms: Austin Appleby's MurmurHash64A with
    the seed 0xc70f6907.
    """
    return _murmur(label.encode()) | _STATIC


def _murmur(data: bytes) -> int:
    state = _SEED ^ (len(data) * _MULTIPLIER & _MASK)
    whole_words = len(data) & ~7
    for (word,) in struct.iter_unpack("<Q", data[:whole_words]):
        state = (state ^ _mixed(word * _MULTIPLIER & _MASK) * _MULTIPLIER & _MASK) * _MULTIPLIER & _MASK
    if data[whole_words:]:
        state = (state ^ int.from_bytes(data[whole_words:], "little")) * _MULTIPLIER & _MASK
    state = _mixed(state) * _MULTIPLIER & _MASK
    return _mixed(state)


def _mixed(word: int) -> int:
    return word ^ word >> 47

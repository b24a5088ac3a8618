"""Recognition of Arm NN files, most of which have no file identifier."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

__all__ = ["is_armnn"]

_IDENTIFIER: Final = b"ARMN"
_FIRST: Final = 256
"""The root table of a file begins in this number of bytes."""
_MOST_FIELDS: Final = 16


def is_armnn(head: bytes, read_at: Callable[[int, int], bytes]) -> bool:
    """Return True if a file that begins with the bytes `head` is an Arm NN file.

    Without the identifier, the root table must be at the beginning, have the size that the format gives it, and refer
    to a vector of layers. The function `read_at` returns the bytes of the file at a position, at most the given number.
    """
    if head[4:8] == _IDENTIFIER:
        return True
    if len(head) < 16:
        return False
    (root,) = struct.unpack_from("<I", head)
    if not 4 <= root <= min(_FIRST, len(head) - 8) or root % 4:
        return False
    (vtable_offset,) = struct.unpack_from("<i", head, root)
    return (
        root - vtable_offset >= 4
        and not vtable_offset % 2
        and _is_root(head, root, read_at(root - vtable_offset, 4 + 2 * _MOST_FIELDS))
    )


def _is_root(head: bytes, root: int, vtable: bytes) -> bool:
    """Return True if the table at position `root` is a network's root table; `vtable` begins with its vtable."""
    if len(vtable) < 6:
        return False
    length, size = struct.unpack_from("<HH", vtable)
    if length % 2 or not 6 <= length <= len(vtable) or not 8 <= size <= 4 + 4 * _MOST_FIELDS:
        return False
    places = struct.unpack_from(f"<{length // 2 - 2}H", vtable, 4)
    if not places[0] or any(place and (place % 4 or not 4 <= place <= size - 4) for place in places):
        return False
    place = root + places[0]
    return place + 4 <= len(head) and _is_offset(head, place)


def _is_offset(head: bytes, place: int) -> bool:
    (offset,) = struct.unpack_from("<I", head, place)
    return bool(offset) and not (place + offset) % 4

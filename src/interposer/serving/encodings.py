"""Compression of answers, for clients that accept it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

__all__ = ["WINDOW_BITS", "accepted_encoding", "compressed"]

WINDOW_BITS: Final = {"gzip": 31, "deflate": 15}
"""The parameter of zlib for each content encoding. The order is that of preference."""
_LEVEL: Final = 1
"""The fastest level: tensors of numbers become little smaller with the others."""


def accepted_encoding(header: str) -> str | None:
    """Return ``gzip`` or ``deflate``, whichever the header ``Accept-Encoding`` prefers; None if it accepts neither.

    Of encodings with the same quality, gzip is chosen. ``identity`` is chosen only if its quality is higher than that
    of both. A header that cannot be read accepts neither.
    """
    qualities = dict(_qualities(header))
    other_quality = qualities.get("*", 0.0)
    preferred_encoding = max(WINDOW_BITS, key=lambda name: qualities.get(name, other_quality))
    quality = qualities.get(preferred_encoding, other_quality)
    return preferred_encoding if quality > 0 and quality >= qualities.get("identity", 0.0) else None


def _qualities(header: str) -> list[tuple[str, float]]:
    qualities = []
    for choice in header.lower().split(","):
        name, _, parameters = choice.partition(";")
        qualities.append((name.strip(), _quality(parameters.strip())))
    return qualities


def _quality(parameters: str) -> float:
    """Return the number after ``q=``; 1 without parameters, and 0 for text that is no quality."""
    if not parameters:
        return 1.0
    name, _, quality_text = parameters.partition("=")
    digits = quality_text.strip().replace(".", "", 1)
    is_number = name.strip() == "q" and digits.isascii() and digits.isdecimal() and len(digits) < 6
    return min(float(quality_text), 1.0) if is_number else 0.0


def compressed(parts: Sequence[bytes], encoding: str) -> bytes:
    """Return the bytes of all parts as one stream of ``gzip`` or ``deflate``."""
    stream = zlib.compressobj(_LEVEL, wbits=WINDOW_BITS[encoding])
    return b"".join([*map(stream.compress, parts), stream.flush()])

"""A fast checksum that detects damaged files. It is not cryptographic: equal checksums can be forged."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from interposer.core.types import Array

__all__ = ["BLOCK", "ROW", "Checksum", "checksum", "chunks_of_file", "condensed", "file_checksum"]

_LANES: Final = 1021
ROW: Final = 8 * _LANES
"""Bytes that have one 8-byte word for each lane of a checksum."""
_ROWS: Final = 64
BLOCK: Final = _ROWS * ROW
"""Bytes of which a checksum has the sums of the lanes.

Two words of a block that are a multiple of 512 bytes apart are in different lanes, because 1021 is a prime and the
block has 1021 times 512 bytes. So exchanged disk sectors and pages change the checksum.
"""


class Checksum:
    """The checksum of bytes that come in chunks. Every chunk but the last must have a multiple of `BLOCK` bytes."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def update(self, chunk: bytes | memoryview) -> None:
        """Add the next bytes."""
        self.include(condensed(chunk))

    def include(self, sums: bytes) -> None:
        """Add the next bytes, of which these are the `condensed` ones."""
        self._digest.update(sums)

    def hexdigest(self) -> str:
        """Return the checksum of all bytes so far as text."""
        return self._digest.hexdigest()


def condensed(chunk: bytes | memoryview) -> bytes:
    """Return the bytes whose SHA-256 is the checksum of `chunk`; threads can condense several chunks concurrently.

    These are, for each block, the sums of its 8-byte words in 1021 lanes, modulo 2**64, and then the bytes after the
    last complete row. A block with less than a row has no sums.
    """
    view = memoryview(chunk)
    block_end = len(view) - len(view) % BLOCK
    row_end = len(view) - len(view) % ROW
    last_sums = _sums(view[block_end:row_end], (row_end - block_end) // ROW) if row_end > block_end else b""
    return b"".join((_sums(view[:block_end], _ROWS), last_sums, view[row_end:]))


def _sums(view: memoryview, rows: int) -> bytes:
    """Return the sums of the words in each lane, for blocks of so many rows."""
    words = np.frombuffer(view, np.uint64).reshape(-1, rows, _LANES)
    sums: Array = np.add.reduce(words, axis=1)
    return sums.tobytes()


def checksum(content: bytes | memoryview | Iterable[bytes | memoryview]) -> str:
    """Return the `Checksum` of bytes, or of chunks, as text; computing it takes about as long as reading the bytes."""
    running_checksum = Checksum()
    for chunk in (content,) if isinstance(content, bytes | memoryview) else content:
        running_checksum.update(chunk)
    return running_checksum.hexdigest()


def chunks_of_file(descriptor: int, offset: int, size: int) -> Iterator[memoryview]:
    """Yield `size` bytes of an open file from an offset on, in chunks of about 512 KiB and a smaller last one.

    All chunks are in the same memory: a chunk is valid until the next one is requested. The chunks of a truncated file
    end at the end of the file.
    """
    buffer = np.empty(min(size, BLOCK), np.uint8).data
    for start in range(offset, offset + size, BLOCK):
        chunk = buffer[: min(BLOCK, offset + size - start)]
        num_read = _fill(descriptor, chunk, start)
        yield chunk[:num_read]
        if num_read < len(chunk):
            return


def _fill(descriptor: int, memory: memoryview, offset: int) -> int:
    """Read bytes into memory until it is full or the file ends; return their number."""
    num_filled = 0
    while num_filled < len(memory):
        num_read = os.preadv(descriptor, [memory[num_filled:]], offset + num_filled)
        if not num_read:
            break
        num_filled += num_read
    return num_filled


def file_checksum(path: str | os.PathLike[str]) -> str:
    """Return the `Checksum` of the content of a file as text; raise OSError if it cannot be read."""
    with open(path, "rb") as file:
        return checksum(chunks_of_file(file.fileno(), 0, os.fstat(file.fileno()).st_size))

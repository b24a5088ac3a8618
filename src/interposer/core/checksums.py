"""A fast checksum that detects damaged files. It is not cryptographic: equal checksums can be forged."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

__all__ = ["ROW", "Checksum", "checksum", "chunks_of_file", "file_checksum"]

_LANES: Final = 1024
ROW: Final = 8 * _LANES
"""Bytes that have one 8-byte word for each lane of a checksum."""
_CHUNK: Final = 1 << 20


class Checksum:
    """The checksum of bytes that come in chunks. Every chunk but the last must have a multiple of `ROW` bytes.

    The 8-byte words are summed in 1024 lanes, modulo 2**64. The checksum is the SHA-256 of these sums and of the
    remaining bytes. As sums do not depend on the order, several threads may sum ranges of the same bytes.
    """

    def __init__(self) -> None:
        self._lanes = np.zeros(_LANES, np.uint64)
        self._row = np.empty(_LANES, np.uint64)
        self._rest = b""

    def update(self, chunk: bytes | memoryview) -> None:
        """Add the next bytes."""
        end = len(chunk) - len(chunk) % ROW
        words = np.frombuffer(chunk, np.uint64, end // 8).reshape(-1, _LANES)
        self._lanes += np.add.reduce(words, axis=0, out=self._row)
        self._rest += bytes(chunk[end:])

    def include(self, other: Checksum) -> None:
        """Add the bytes of another checksum, which come after those of this one."""
        self._lanes += other._lanes
        self._rest += other._rest

    def hexdigest(self) -> str:
        """Return the checksum of all bytes so far as text."""
        return hashlib.sha256(self._lanes.tobytes() + self._rest).hexdigest()


def checksum(content: bytes | memoryview | Iterable[bytes | memoryview]) -> str:
    """Return the `Checksum` of bytes, or of chunks, as text; computing it takes about as long as reading the bytes."""
    result = Checksum()
    for chunk in (content,) if isinstance(content, bytes | memoryview) else content:
        result.update(chunk)
    return result.hexdigest()


def chunks_of_file(descriptor: int, offset: int, size: int) -> Iterator[memoryview]:
    """Yield `size` bytes of an open file from an offset on, in chunks of 1 MiB and a smaller last one.

    All chunks are in the same memory: a chunk is valid until the next one is requested. The chunks of a truncated file
    end at the end of the file.
    """
    buffer = memoryview(bytearray(min(size, _CHUNK)))
    for start in range(offset, offset + size, _CHUNK):
        chunk = buffer[: min(_CHUNK, offset + size - start)]
        read = _fill(descriptor, chunk, start)
        yield chunk[:read]
        if read < len(chunk):
            return


def _fill(descriptor: int, memory: memoryview, offset: int) -> int:
    """Read bytes into memory until it is full or the file ends; return their number."""
    done = 0
    while done < len(memory):
        read = os.preadv(descriptor, [memory[done:]], offset + done)
        if not read:
            break
        done += read
    return done


def file_checksum(path: str | os.PathLike[str]) -> str:
    """Return the `Checksum` of the content of a file as text; raise OSError if it cannot be read."""
    with open(path, "rb") as file:
        return checksum(chunks_of_file(file.fileno(), 0, os.fstat(file.fileno()).st_size))

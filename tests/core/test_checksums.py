"""The checksum of cached and saved files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from interposer.core.checksums import ROW, Checksum, checksum, chunks_of_file, file_checksum

SIZES = [0, 1, 7, 8, ROW - 1, ROW, ROW + 9, (1 << 20) - 8, 1 << 20, (1 << 20) + ROW + 3, 3 << 20]


def content(size: int) -> bytes:
    return np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()


def by_hand(data: bytes) -> str:
    """Return the checksum as docs/saved-networks.md describes it, with the integers of Python."""
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data) // ROW * ROW, 8)]
    lanes = [sum(words[lane::1024]) % 2**64 for lane in range(1024)]
    head = b"".join(lane.to_bytes(8, "little") for lane in lanes)
    return hashlib.sha256(head + data[len(words) * 8 :]).hexdigest()


@pytest.mark.parametrize("size", [0, 5, ROW, 3 * ROW + 17])
def test_the_checksum_is_the_documented_one(size: int) -> None:
    assert checksum(content(size)) == by_hand(content(size))


@pytest.mark.parametrize("size", SIZES)
def test_bytes_chunks_and_a_file_have_the_same_checksum(size: int, tmp_path: Path) -> None:
    data = content(size)
    path = tmp_path / "file"
    path.write_bytes(data)
    chunks = [data[at : at + 2 * ROW] for at in range(0, size, 2 * ROW)]
    assert checksum(data) == checksum(memoryview(data)) == checksum(chunks) == file_checksum(path)


def test_ranges_that_are_summed_by_themselves_have_the_checksum_of_the_whole() -> None:
    data = content(10 * ROW + 5)
    total = Checksum()
    for start in range(0, len(data), 3 * ROW):
        part = Checksum()
        part.update(data[start : start + 3 * ROW])
        total.include(part)
    assert total.hexdigest() == checksum(data)


@pytest.mark.parametrize("offset", [0, ROW, 5 * ROW + 3, 10 * ROW + 4])
def test_every_changed_byte_changes_the_checksum(offset: int) -> None:
    data = bytearray(content(10 * ROW + 5))
    before = checksum(bytes(data))
    data[offset] ^= 1
    assert checksum(bytes(data)) != before


def test_the_chunks_of_a_truncated_file_end_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content((1 << 20) + 100))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        chunks = [bytes(chunk) for chunk in chunks_of_file(descriptor, 10, 3 << 20)]
    finally:
        os.close(descriptor)
    assert b"".join(chunks) == path.read_bytes()[10:]

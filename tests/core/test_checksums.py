"""The checksum of cached and saved files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from interposer.core.checksums import BLOCK, ROW, Checksum, checksum, chunks_of_file, condensed, file_checksum

SIZES = [0, 1, 7, 8, ROW - 1, ROW, ROW + 9, BLOCK - 8, BLOCK, BLOCK + ROW + 3, 1 << 20, 2 * BLOCK, 3 << 20]


def content(size: int) -> bytes:
    return np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()


def by_hand(data: bytes) -> str:
    """Return the checksum as docs/reference/saved-format.md describes it, with the integers of Python."""
    digest = hashlib.sha256()
    for start in range(0, len(data), 522_752):
        block = data[start : start + 522_752]
        words = [int.from_bytes(block[at : at + 8], "little") for at in range(0, len(block) // 8168 * 8168, 8)]
        for lane in range(1021) if words else ():
            digest.update((sum(words[lane::1021]) % 2**64).to_bytes(8, "little"))
        digest.update(block[len(words) * 8 :])
    return digest.hexdigest()


@pytest.mark.parametrize("size", [0, 5, ROW, 3 * ROW + 17, BLOCK, BLOCK + 9, 2 * BLOCK + ROW + 1])
def test_the_checksum_is_the_documented_one(size: int) -> None:
    assert checksum(content(size)) == by_hand(content(size))


@pytest.mark.parametrize("size", SIZES)
def test_bytes_chunks_and_a_file_have_the_same_checksum(size: int, tmp_path: Path) -> None:
    data = content(size)
    path = tmp_path / "file"
    path.write_bytes(data)
    chunks = [data[at : at + 3 * BLOCK] for at in range(0, size, 3 * BLOCK)]
    assert checksum(data) == checksum(memoryview(data)) == checksum(chunks) == file_checksum(path)


def test_ranges_that_are_condensed_by_themselves_have_the_checksum_of_the_whole() -> None:
    data = content(4 * BLOCK + 5)
    total = Checksum()
    for sums in [condensed(data[start : start + 3 * BLOCK]) for start in range(0, len(data), 3 * BLOCK)]:
        total.include(sums)
    assert total.hexdigest() == checksum(data)


@given(
    size=st.sampled_from([2**power for power in range(9, 21)]),
    start=st.integers(0, 8192),
    distance=st.integers(1, 8192),
    seed=st.integers(0, 99),
)
@example(size=512, start=0, distance=1021, seed=0)  # the blocks begin a multiple of a row of lanes apart
@example(size=4096, start=0, distance=8 * 1021, seed=0)
@example(size=1 << 20, start=7, distance=16 * 1021, seed=0)
@settings(max_examples=60, deadline=None)
def test_exchanged_sectors_pages_and_blocks_change_the_checksum(
    size: int, start: int, distance: int, seed: int
) -> None:
    first = 512 * start
    second = first + max(512 * distance, size)
    data = np.zeros(second + size + 1000 * seed, np.uint8)
    draw = np.random.default_rng(seed)
    data[first : first + size] = draw.integers(0, 256, size)
    data[second : second + size] = draw.integers(0, 256, size)
    old_checksum = checksum(data.data)
    data[first : first + size], data[second : second + size] = (
        data[second : second + size].copy(),
        data[first : first + size].copy(),
    )
    assert checksum(data.data) != old_checksum


def test_pages_that_differ_in_the_sign_of_numbers_can_be_told_apart() -> None:
    data = np.ones(2 * BLOCK // 8)
    data[:512] = -1
    exchanged = np.roll(data, BLOCK // 8)
    assert checksum(data.data.cast("B")) != checksum(exchanged.data.cast("B"))


@pytest.mark.parametrize("offset", [0, ROW, BLOCK - 1, BLOCK, 2 * BLOCK + 5 * ROW + 4])
def test_every_changed_byte_changes_the_checksum(offset: int) -> None:
    data = bytearray(content(2 * BLOCK + 5 * ROW + 5))
    old_checksum = checksum(bytes(data))
    data[offset] ^= 1
    assert checksum(bytes(data)) != old_checksum


def test_the_chunks_of_a_truncated_file_end_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content((1 << 20) + 100))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        chunks = [bytes(chunk) for chunk in chunks_of_file(descriptor, 10, 3 << 20)]
    finally:
        os.close(descriptor)
    assert b"".join(chunks) == path.read_bytes()[10:]

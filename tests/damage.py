"""Damaged variants of any file's bytes, the same ones for the same seed, to see that a reader refuses them decently."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Iterator, Sequence

EXTREMES = (0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 0)

Damage = Callable[[bytes, random.Random], tuple[str, bytes]]


def damaged_variants(data: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """`count` variants with a name each, all kinds of damage in turn.

    The name says what was done and contains seed and number; a number's variant does not depend on `count`.
    """
    if len(data) < 64:
        raise ValueError(f"{len(data)} bytes are too few to damage in interesting ways")
    for number in range(count):
        damage = KINDS[number % len(KINDS)]
        detail, damaged = damage(data, random.Random(f"{seed} {number}"))
        yield f"{seed}-{number:04d}-{damage.__name__}-{detail}", damaged


def damaged_structure(
    data: bytes, weights: Sequence[tuple[int, int]], count: int, seed: int
) -> Iterator[tuple[str, bytes]]:
    """Variants that are damaged only outside of the `weights`, which are ranges of bytes in order."""
    ends = [0, *(place for pair in _apart(weights) for place in pair), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(ends)]
    structure = b"".join(pieces[::2])
    for number in range(count):
        damage = _SAME_LENGTH[number % len(_SAME_LENGTH)]
        detail, damaged = damage(structure, random.Random(f"structure {seed} {number}"))
        assert len(damaged) == len(structure)
        yield f"{seed}-{number:04d}-structure-{damage.__name__}-{detail}", _spliced(pieces, damaged)


def _apart(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Those of the ranges that begin after the end of the one before."""
    last = 0
    for start, end in ranges:
        if start >= last:
            yield start, end
            last = end


def _spliced(pieces: Sequence[bytes], structure: bytes) -> bytes:
    result, at = [], 0
    for number, piece in enumerate(pieces):
        result.append(piece if number % 2 else structure[at : at + len(piece)])
        at += 0 if number % 2 else len(piece)
    return b"".join(result)


def flip_bytes(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """One to eight bytes become others."""
    places = sorted(rng.sample(range(len(data)), rng.randint(1, 8)))
    changed = bytearray(data)
    for place in places:
        changed[place] ^= rng.randint(1, 255)
    return "at-" + "-".join(f"{place:x}" for place in places), bytes(changed)


def flip_structure(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """One bit of a word that looks like an offset or a size becomes another."""
    place, bit = _structural_place(data, rng), rng.randrange(32)
    return f"bit-{bit}-at-{place:x}", _with_word(data, place, _word(data, place) ^ (1 << bit))


def write_extreme(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """A word that looks like an offset or a size becomes an extreme value."""
    place, value = _structural_place(data, rng), rng.choice(EXTREMES)
    return f"{value:x}-at-{place:x}", _with_word(data, place, value)


def nudge_word(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """A word that looks like an offset or a size is off by a little."""
    place, step = _structural_place(data, rng), rng.choice((-8, -4, -2, -1, 1, 2, 4, 8))
    return f"{step:+d}-at-{place:x}", _with_word(data, place, _word(data, place) + step)


def truncate_start(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """The first bytes are missing."""
    length = _length(data, rng)
    return f"{length:x}", data[length:]


def truncate_end(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """The last bytes are missing."""
    length = _length(data, rng)
    return f"{length:x}", data[: len(data) - length]


def truncate_middle(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Some bytes on the way are missing."""
    length = _length(data, rng)
    place = rng.randrange(len(data) - length)
    return f"{length:x}-at-{place:x}", data[:place] + data[place + length :]


def zero_run(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """A run of bytes is zero."""
    length = _length(data, rng)
    place = rng.randrange(len(data) - length)
    return f"{length:x}-at-{place:x}", data[:place] + bytes(length) + data[place + length :]


def duplicate_block(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """A block comes twice, and what follows it later."""
    length = _length(data, rng)
    place = rng.randrange(len(data) - length)
    return f"{length:x}-at-{place:x}", data[: place + length] + data[place:]


def swap_blocks(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Two blocks of one size change places."""
    length = min(_length(data, rng), len(data) // 4)
    first = rng.randrange(len(data) // 2 - length)
    second = rng.randrange(len(data) // 2, len(data) - length)
    changed = bytearray(data)
    changed[first : first + length] = data[second : second + length]
    changed[second : second + length] = data[first : first + length]
    return f"{length:x}-at-{first:x}-and-{second:x}", bytes(changed)


KINDS: tuple[Damage, ...] = (
    flip_bytes,
    write_extreme,
    truncate_end,
    nudge_word,
    swap_blocks,
    flip_structure,
    truncate_middle,
    write_extreme,
    zero_run,
    truncate_start,
    duplicate_block,
)


_SAME_LENGTH: tuple[Damage, ...] = (flip_bytes, write_extreme, nudge_word, flip_structure, zero_run, swap_blocks)


def _length(data: bytes, rng: random.Random) -> int:
    """Return a length between one byte and half of the file, often of whole words.

    Small lengths are as likely as large ones.
    """
    length = int(2 ** rng.uniform(0, (len(data) // 2).bit_length() - 1))
    return length & ~3 if length > 4 and rng.random() < 0.5 else length


def _structural_place(data: bytes, rng: random.Random) -> int:
    """An aligned place, in the first or last kilobytes or anywhere, whose word could be an offset or a size."""
    words = len(data) // 4
    ranges = range(min(words, 256)), range(max(words - 1024, 0), words), range(words)
    places = [4 * rng.choice(rng.choice(ranges)) for _ in range(64)]
    return next((place for place in places if 0 < _word(data, place) <= len(data)), places[0])


def _word(data: bytes, place: int) -> int:
    word: int = struct.unpack_from("<I", data, place)[0]
    return word


def _with_word(data: bytes, place: int, word: int) -> bytes:
    return data[:place] + struct.pack("<I", word & 0xFFFFFFFF) + data[place + 4 :]

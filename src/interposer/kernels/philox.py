"""Counter-based random generators, Philox 4x32-10 and Threefry 2x32-20, with 32-bit words (Salmon et al., 2011)."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.types import Array

__all__ = ["normal", "philox", "stream", "threefry", "uniform32", "uniform64"]

_WORD: Final = (1 << 32) - 1
_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_PARITY: Final = 0x1BD11BDA
_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))


def philox(key: tuple[int, int], counters: Array) -> Array:
    """Return four random words for each row of `counters` (N, 4), as uint64 numbers below 2**32."""
    a, b, c, d = counters.astype(np.uint64).T
    first, second = key
    for _ in range(10):
        low, high = a * np.uint64(_MULTIPLIERS[0]), c * np.uint64(_MULTIPLIERS[1])
        a, c = (high >> np.uint64(32)) ^ b ^ np.uint64(first), (low >> np.uint64(32)) ^ d ^ np.uint64(second)
        b, d = high & np.uint64(_WORD), low & np.uint64(_WORD)
        first, second = (first + _WEYL[0]) & _WORD, (second + _WEYL[1]) & _WORD
    return np.stack([a, b, c, d], axis=1)


def threefry(key: tuple[int, int], counters: Array) -> Array:
    """Return two random words for each row of `counters` (N, 2), as uint64 numbers below 2**32."""
    keys = (*key, key[0] ^ key[1] ^ _PARITY)
    x, y = counters.astype(np.uint64).T
    x, y = (x + np.uint64(keys[0])) & np.uint64(_WORD), (y + np.uint64(keys[1])) & np.uint64(_WORD)
    for round_group in range(5):
        for distance in _ROTATIONS[round_group % 2]:
            x = (x + y) & np.uint64(_WORD)
            y = ((y << np.uint64(distance)) & np.uint64(_WORD) | (y >> np.uint64(32 - distance))) ^ x
        x = (x + np.uint64(keys[(round_group + 1) % 3])) & np.uint64(_WORD)
        y = (y + np.uint64(keys[(round_group + 2) % 3] + round_group + 1)) & np.uint64(_WORD)
    return np.stack([x, y], axis=1)


def stream(seed: int, seed2: int, count: int) -> Array:
    """Return at least `count` words of the Philox generator with two seeds of 64 bits, as TensorFlow seeds it.

    The first seed is the key. The second one is the upper half of the counter, whose lower half counts from 0.
    """
    key = seed & _WORD, seed >> 32 & _WORD
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    upper_words = (np.full_like(blocks, word) for word in (seed2 & _WORD, seed2 >> 32 & _WORD))
    return philox(key, np.stack([blocks & np.uint64(_WORD), blocks >> np.uint64(32), *upper_words], axis=1)).reshape(-1)


def uniform32(words: Array) -> Array:
    """Return float32 numbers from 0 (inclusive) to 1 (exclusive), from the lower 23 bits of each word."""
    bits = (words & np.uint64((1 << 23) - 1)).astype(np.uint32) | np.uint32(127 << 23)
    return bits.view(np.float32) - np.float32(1)


def uniform64(words: Array) -> Array:
    """Return float64 numbers from 0 (inclusive) to 1 (exclusive), from 52 bits of each two words."""
    upper, lower = words.reshape(-1, 2).T
    bits = np.uint64(1023 << 52) | (upper & np.uint64((1 << 20) - 1)) << np.uint64(32) | lower
    return bits.view(np.float64) - 1.0


def normal(words: Array) -> Array:
    """Return normally distributed float32 numbers, two for each two words, by the Box-Muller transform."""
    uniform_radii, uniform_angles = uniform32(words).reshape(-1, 2).T
    radii = np.sqrt(-2 * np.log(np.maximum(uniform_radii, np.float32(1e-7))))
    radians = np.float32(2 * np.pi) * uniform_angles
    return np.stack([np.sin(radians) * radii, np.cos(radians) * radii], axis=1).reshape(-1)

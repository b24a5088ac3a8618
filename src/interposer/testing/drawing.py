"""Random choices that are the same on every machine, in every process and with every version of Python and NumPy.

The stream is SplitMix64: a counter that is mixed by shifts and multiplications of 64-bit integers. Arrays are drawn by
mixing a range of counters at once. The only floating-point operations are `+`, `-`, `*` and `/`.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import Array

__all__ = ["SIZES", "Draw", "mixed"]

_T = TypeVar("_T")
_MASK: Final = (1 << 64) - 1
_STEP: Final = 0x9E3779B97F4A7C15
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB

SIZES: Final = {
    1: 14, 2: 12, 3: 12, 4: 10, 5: 8, 6: 4, 7: 6, 8: 8, 9: 5, 11: 2, 13: 3, 15: 3, 16: 5, 17: 3, 19: 1, 23: 1,
    31: 2, 32: 3, 33: 2, 47: 1, 63: 1, 64: 2, 65: 1,
}  # fmt: skip
"""The relative frequency of each size of a dimension: small sizes, primes, and neighbours of vector and tile widths."""
_SIZE_LIST: Final = tuple(SIZES)
_SIZE_WEIGHTS: Final = tuple(SIZES.values())


def mixed(word: int) -> int:
    """Return a 64-bit hash of a 64-bit number, in which each bit depends on every bit of `word`."""
    word = ((word ^ (word >> 30)) * _FIRST) & _MASK
    word = ((word ^ (word >> 27)) * _SECOND) & _MASK
    return word ^ (word >> 31)


def _mixed_array(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(_FIRST)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(_SECOND)
    return words ^ (words >> np.uint64(31))


class Draw:
    """A stream of random choices, fully determined by the integers and texts that it is created from.

    Not safe to use from several threads.
    """

    def __init__(self, *keys: int | str) -> None:
        self._state = 0
        for key in keys:
            number = zlib.crc32(key.encode()) if isinstance(key, str) else key & _MASK
            self._state = mixed((self._state + _STEP) & _MASK ^ number)

    def word(self) -> int:
        """Return the next 64 random bits."""
        self._state = (self._state + _STEP) & _MASK
        return mixed(self._state)

    def below(self, count: int) -> int:
        """Return an integer from 0 to ``count - 1``."""
        return (self.word() * count) >> 64

    def integer(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def chance(self, part: int, whole: int) -> bool:
        """Return True with the probability `part` / `whole`."""
        return self.below(whole) < part

    def one_of(self, choices: Sequence[_T]) -> _T:
        """Return one of the choices, all of which are equally likely."""
        return choices[self.below(len(choices))]

    def weighted(self, choices: Sequence[_T], weights: Sequence[int]) -> _T:
        """Return one of the choices, with probabilities proportional to the weights."""
        remaining = self.below(sum(weights))
        for choice, weight in zip(choices, weights, strict=True):
            if remaining < weight:
                return choice
            remaining -= weight
        raise AssertionError("the weights add up to their sum")

    def ranked(self, names: NDArray[np.uint64]) -> int:
        """Return the index of the name with the highest random rank; the rank of each name is drawn independently.

        A name that is added to the list therefore changes the choice only if it wins. `names` are checksums
        (`zlib.crc32`).
        """
        ranks = _mixed_array(_mixed_array(names + np.uint64(_STEP)) ^ np.uint64(self.word()))
        return int(np.argmax(ranks))

    def order(self, count: int) -> tuple[int, ...]:
        """Return the integers below `count` in random order."""
        numbers = list(range(count))
        for last_index in range(count - 1, 0, -1):
            swapped_index = self.below(last_index + 1)
            numbers[last_index], numbers[swapped_index] = numbers[swapped_index], numbers[last_index]
        return tuple(numbers)

    def size(self, most: int = 65) -> int:
        """Return the size of a dimension, `most` or less: 1, small, prime, or around a vector or tile width."""
        count = bisect_right(_SIZE_LIST, most)
        return self.weighted(_SIZE_LIST[:count], _SIZE_WEIGHTS[:count]) if count else 1

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return an array of `count` random 64-bit words."""
        return _mixed_array(np.arange(count, dtype=np.uint64) * np.uint64(_STEP) + np.uint64(self.word()))

    def uniform(self, shape: Sequence[int], low: float, high: float) -> Array:
        """Return float64 numbers from `low` to `high`, on a grid of 2**24 equally spaced numbers."""
        count = int(np.prod(shape, dtype=np.int64))
        unit = (self.words(count) >> np.uint64(40)).astype(np.float64) * 2.0**-24
        numbers: Array = (low + unit * (high - low)).reshape(tuple(shape))
        return numbers

    def integers(self, shape: Sequence[int], low: int, high: int) -> Array:
        """Return int64 numbers from `low` to `high`, both included; the range may have at most 2**32 integers."""
        count = int(np.prod(shape, dtype=np.int64))
        scaled = ((self.words(count) >> np.uint64(32)) * np.uint64(high - low + 1)) >> np.uint64(32)
        numbers: Array = (scaled.astype(np.int64) + low).reshape(tuple(shape))
        return numbers

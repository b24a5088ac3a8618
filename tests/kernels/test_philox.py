"""Counter-based generators of random numbers; the words are the known answers that their authors published."""

from __future__ import annotations

import numpy as np
import pytest

from interposer.core.errors import InvalidArgumentError
from interposer.kernels import compute
from interposer.kernels.philox import philox, stream, threefry, uniform32, uniform64
from interposer.ops import BitGenerator, RandomBits, RandomFill, RandomGenerator

ONES = 2**32 - 1


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES, ONES), (ONES, ONES, ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ],
)
def test_philox_gives_the_known_answers(key, counter, expected):
    assert tuple(philox(key, np.array([counter]))[0].tolist()) == expected


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)), ((ONES, ONES), (ONES, ONES), (0x1CB996FC, 0xBB002BE7))],
)
def test_threefry_gives_the_known_answers(key, counter, expected):
    assert tuple(threefry(key, np.array([counter]))[0].tolist()) == expected


def test_uniform_numbers_are_from_zero_to_one():
    words = stream(1, 2, 4000)
    for numbers in (uniform32(words), uniform64(words)):
        assert numbers.min() >= 0
        assert numbers.max() < 1
        assert abs(numbers.mean() - 0.5) < 0.02


def test_bits_that_follow_are_those_of_the_next_state():
    op = RandomBits((4,), BitGenerator.PHILOX)
    all_bits = compute(RandomBits((8,), BitGenerator.PHILOX), np.uint64([3, 4]))[1]
    state, first = compute(op, np.uint64([3, 4]))
    np.testing.assert_array_equal(all_bits, np.concatenate([first, compute(op, state)[1]]))


def test_a_counter_that_overflows_starts_again_at_zero():
    state, _ = compute(RandomBits((4,)), np.uint64([3, 2**64 - 1]))
    assert state.tolist() == [3, 1]


def test_the_state_of_threefry_has_two_numbers():
    with pytest.raises(InvalidArgumentError, match="state has 3 elements; expected 2"):
        compute(RandomBits((4,)), np.uint64([1, 2, 3]))


def test_a_seed_of_the_mersenne_twister_has_32_bits():
    op = RandomFill(seed=2**32)
    with pytest.raises(InvalidArgumentError, match="seed is 4294967296; expected 0 to 4294967295"):
        compute(op, np.int64([2]))
    assert compute(RandomFill(seed=2**32, generator=RandomGenerator.PHILOX), np.int64([2])).dtype == np.float32

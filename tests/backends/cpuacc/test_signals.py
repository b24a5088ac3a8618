"""Fourier transforms, windows, ranges, random numbers and linear attention of CpuAcc give what the reference gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import InvalidValueError
from interposer.core.types import Array, DataType
from interposer.ops import (
    Det,
    Dft,
    Distribution,
    LinearAttention,
    MelWeightMatrix,
    RandomFill,
    Range,
    SignalWindow,
    Stft,
    WindowFunction,
)
from interposer.ops.randomness import RandomGenerator
from tests.backends.cpuacc.single import network_of, outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

RNG = np.random.default_rng(4)


def drawn(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def assert_near(op: Any, *arrays: Array | None, threads: int = 1, tolerance: float = 2e-6) -> None:
    for result, expected in zip(*outcomes(*network_of(op, arrays), threads), strict=True):
        scale = float(np.abs(expected).max(initial=1e-30))
        np.testing.assert_allclose(result, expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("length", [1, 2, 3, 12, 64, 97, 143, 200, 1024, 1009])
def test_transforms_of_any_length(length: int) -> None:
    assert_near(Dft(), drawn(3, length, 2), threads=2)
    assert_near(Dft(inverse=True), drawn(3, length, 2))
    assert_near(Dft(onesided=True), drawn(35, length, 1), threads=3)
    assert_near(Dft(), drawn(5, length, 2, dtype=np.float64), tolerance=1e-12)


@pytest.mark.parametrize("length", [2, 7, 12, 33, 90])
def test_real_signals_from_one_side_of_their_frequencies(length: int) -> None:
    assert_near(Dft(inverse=True, onesided=True, length=length), drawn(4, length // 2 + 1, 2))
    assert_near(Dft(inverse=True, onesided=True, length=length), drawn(4, length, 2))


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
@pytest.mark.parametrize("length", [None, 5, 20])
def test_transforms_along_any_axis_of_padded_and_cut_signals(axis: int, length: int | None) -> None:
    assert_near(Dft(axis=axis, length=length), drawn(6, 9, 17, 2))
    assert_near(Dft(axis=axis, length=length), drawn(6, 9, 17, 1))


@pytest.mark.parametrize("onesided", [True, False])
@pytest.mark.parametrize(("frame", "hop"), [(16, 5), (25, 25), (31, 7)])
def test_frames_of_signals(onesided: bool, frame: int, hop: int) -> None:
    op = Stft(frame_step=hop, frame_length=frame, onesided=onesided)
    assert_near(op, drawn(2, 301, 1), drawn(frame), threads=2)
    assert_near(op, drawn(1, frame, 1), None)
    if not onesided:
        assert_near(op, drawn(2, 301, 2), drawn(frame))


@pytest.mark.parametrize("function", list(WindowFunction))
def test_windows_whose_size_is_data(function: WindowFunction) -> None:
    for size in (0, 1, 2, 51):
        for periodic in (True, False):
            assert_near(SignalWindow(function=function, periodic=periodic), np.array(size))


def test_bands_of_frequencies() -> None:
    numbers = [np.array(number) for number in (8, 64, 8192)]
    assert_near(MelWeightMatrix(), *numbers, np.float32(20), np.float32(4000))


@pytest.mark.parametrize(
    ("start", "limit", "delta"), [(0, 10, 3), (5, -6, -2), (3, 3, 1), (7, 9, -1), (-128, 127, 100)]
)
def test_ranges(start: int, limit: int, delta: int) -> None:
    for dtype in (np.int8, np.int32, np.int64, np.float32, np.float64, np.float16):
        op, arrays = Range(), [np.array(number, dtype) for number in (start, limit, delta)]
        result, expected = outcomes(*network_of(op, arrays))
        np.testing.assert_array_equal(result[0], expected[0])


@pytest.mark.parametrize("generator", list(RandomGenerator))
@pytest.mark.parametrize("distribution", list(Distribution))
@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1])
def test_random_numbers_are_those_of_the_reference(
    generator: RandomGenerator, distribution: Distribution, seed: int
) -> None:
    op = RandomFill(distribution=distribution, a=-1, b=3, seed=seed, generator=generator)
    assert_near(op, np.array([31, 50]), tolerance=1e-6)
    assert_near(op.replace(dtype=DataType.FLOAT64), np.array([1001]), tolerance=1e-6)


@pytest.mark.parametrize("decay", [None, 3, 12])
@pytest.mark.parametrize("beta", [None, 1, 3])
def test_linear_attention(decay: int | None, beta: int | None) -> None:
    op = LinearAttention(q_num_heads=6, kv_num_heads=3)
    operands = [drawn(2, 7, 24), drawn(2, 7, 12), drawn(2, 7, 15), drawn(2, 3, 4, 5)]
    gates = [None if width is None else -np.abs(drawn(2, 7, width)) for width in (decay, beta)]
    assert_near(op, *operands, *gates, threads=3, tolerance=1e-5)
    assert_near(op, *operands[:3], None, *gates, tolerance=1e-5)


@pytest.mark.parametrize("size", [1, 2, 5, 32])
def test_determinants(size: int) -> None:
    assert_near(Det(), drawn(3, size, size))
    assert_near(Det(), np.zeros((size, size), np.float32))


@pytest.mark.parametrize(
    ("op", "values"),
    [
        (Range(), [0.0, 1.0, 0.0]),
        (Range(), [0, 1 << 62, 1]),
        (SignalWindow(), [-1]),
        (MelWeightMatrix(), [8, 64, 0, 20.0, 4000.0]),
    ],
)
def test_values_that_make_no_result_are_refused(op: Any, values: list[float]) -> None:
    arrays = [np.array(value, np.float32 if isinstance(value, float) else np.int64) for value in values]
    network, given = network_of(op, arrays)
    with ip.load(network, ["CpuAcc"]) as model, pytest.raises(InvalidValueError):
        model.run(given)

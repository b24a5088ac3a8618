"""Lookups of keys and simulated quantization give on CpuAcc what the reference gives."""

from __future__ import annotations

import numpy as np
import pytest

from interposer.ops import FakeQuantization, HashtableLookup
from tests.backends.cpuacc.single import network_of, outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

RNG = np.random.default_rng(7)


@pytest.mark.parametrize("keys", [np.arange(0, 60, 3), np.array([5, -1, 5, 9, 1 << 40]), np.zeros(0, np.int64)])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0)])
def test_rows_of_keys(keys: np.ndarray, shape: tuple[int, ...]) -> None:
    values = RNG.standard_normal((len(keys), *shape)).astype(np.float16)
    lookups = np.array([5, 0, 57, -1, 1 << 40, 4, 9, 60])
    for result, expected in zip(*outcomes(*network_of(HashtableLookup(), [lookups, keys, values])), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize(("least", "most"), [(-6.0, 6.0), (0.0, 3.0), (-0.1, 0.7), (-2.0, 0.0)])
@pytest.mark.parametrize("bits", [2, 8, 16])
def test_numbers_are_rounded_to_steps(narrow: bool, least: float, most: float, bits: int) -> None:
    op = FakeQuantization(min=least, max=most, num_bits=bits, narrow_range=narrow)
    array = np.append(RNG.normal(0, 4, 500), [np.nan, np.inf, -np.inf, 0]).astype(np.float32)
    result, expected = outcomes(*network_of(op, [array]), threads=2)
    np.testing.assert_array_equal(result[0], expected[0])

"""Elementwise layers of CpuAcc on float64 and on integers of every size give what the reference gives."""

from __future__ import annotations

import numpy as np
import pytest

from interposer.ops import BinaryOperation, ElementwiseBinary, ElementwiseUnary, UnaryOperation
from tests.backends.cpuacc.single import Layers, network_of, outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

RNG = np.random.default_rng(2)
TYPES = [np.float64, np.int8, np.int16, np.uint8, np.uint16, np.uint32, np.uint64]
PAIRS = ["ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQ_DIFF", "FLOOR_DIV", "MOD", "FMOD"]


def drawn(dtype: type, *shape: int) -> np.ndarray:
    if dtype is np.float64:
        return RNG.normal(0, 100, shape).round(1)
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("operation", PAIRS)
def test_pairs_of_numbers(dtype: type, operation: str) -> None:
    op, layers = ElementwiseBinary(operation=BinaryOperation[operation]), Layers()
    for shapes in ([(7, 31), (7, 31)], [(7, 31), (1,)], [(7, 1), (31,)]):
        layers.add(str(shapes), op, [drawn(dtype, *shape) for shape in shapes])
    layers.assert_like_the_reference()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("operation", ["ABS", "NEG", "SIGN", "SQUARE", "CEIL", "FLOOR", "ROUND", "RECIPROCAL"])
def test_functions_of_a_number(dtype: type, operation: str) -> None:
    op = ElementwiseUnary(operation=UnaryOperation[operation])
    result, expected = outcomes(*network_of(op, [drawn(dtype, 129)]))
    np.testing.assert_array_equal(result[0], expected[0])

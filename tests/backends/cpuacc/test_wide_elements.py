"""Elementwise layers of CpuAcc on float64 and on integers of every size give what the reference gives."""

from __future__ import annotations

import numpy as np
import pytest

from interposer.ops import (
    Activation,
    ActivationFunction,
    BinaryOperation,
    ElementwiseBinary,
    ElementwiseUnary,
    Prelu,
    UnaryOperation,
)
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


@pytest.mark.parametrize("dtype", [*TYPES[1:], np.int32, np.int64])
def test_functions_of_the_ends_of_a_range(dtype: type) -> None:
    limits, layers = np.iinfo(dtype), Layers()
    ends = np.array([limits.min, limits.max, limits.max - 1, 0, 1, 2] * 7, dtype)
    for operation in ("ABS", "NEG", "SIGN", "SQUARE", "RECIPROCAL"):
        layers.add(operation, ElementwiseUnary(operation=UnaryOperation[operation]), [ends])
    layers.assert_like_the_reference()


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32])
@pytest.mark.parametrize("operation", ["DIV", "FLOOR_DIV", "MOD", "FMOD"])
def test_quotients_by_powers_of_two(dtype: type, operation: str) -> None:
    op, layers = ElementwiseBinary(operation=BinaryOperation[operation]), Layers()
    limits = np.iinfo(dtype)
    numbers = np.array([limits.min, limits.min + 1, 0, 1, 7, 8, 9, limits.max - 1, limits.max], dtype)
    if limits.min < 0:
        numbers = np.concatenate([numbers, np.array([-1, -7, -8, -9], dtype)])
    for exponent in (0, 1, 3, limits.bits - 2):
        layers.add(str(exponent), op, [numbers, np.array([1 << exponent], dtype)])
    layers.assert_like_the_reference()


@pytest.mark.parametrize("dtype", TYPES)
def test_slopes_of_numbers(dtype: type) -> None:
    layers = Layers()
    for shapes in ([(7, 31), (7, 31)], [(7, 31), (1,)], [(7, 31), (31,)]):
        layers.add(str(shapes), Prelu(), [drawn(dtype, *shape) for shape in shapes])
    layers.assert_like_the_reference()


def test_functions_of_float64() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300, -7.5, 3.25])
    layers = Layers()
    for name in ("IS_NAN", "IS_INF", "IS_POSITIVE_INF", "IS_NEGATIVE_INF"):
        layers.add(name, ElementwiseUnary(operation=UnaryOperation[name]), [x])
    layers.add("RELU", Activation(function=ActivationFunction.RELU), [x])
    for low, high in ((-3.0, 2.5), (0.0, 6.0), (-2.0, 0.0)):
        layers.add(f"{low}", Activation(function=ActivationFunction.BOUNDED_RELU, a=high, b=low), [x])
    layers.assert_like_the_reference(signs=True)

"""Quantize and Dequantize of integers of every width give on CpuAcc what the reference gives, bit for bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.ops import Dequantize, Quantize
from interposer.ops.quantization import RoundingMethod
from tests.backends.cpuacc.single import Layers

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

TYPES = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
SHAPE = (3, 347)


def whole_range(dtype: str) -> Array:
    """Return numbers of the whole range of an integer type, with both ends of it."""
    limits = np.iinfo(dtype)
    numbers = np.random.default_rng(3).integers(limits.min, limits.max, SHAPE, dtype=dtype, endpoint=True)
    numbers.flat[:2] = limits.min, limits.max
    return numbers


def check(op: Quantize | Dequantize, x: Array, *quantizations: tuple[Quantization | None, Quantization | None]) -> None:
    """Compare the layer for each pair of quantizations of its input and its result."""
    layers = Layers()
    for given, result in quantizations:
        layers.add(f"{given} to {result}", op, [x], quantization=given, result=TensorInfo(SHAPE, op.dtype, result))
    layers.assert_like_the_reference()


@pytest.mark.parametrize(("source", "target"), [*itertools.product(TYPES, TYPES)])
def test_integers_become_integers_of_another_quantization(source: str, target: str) -> None:
    limits = np.iinfo(source)
    given = itertools.product((1e-5, 0.37, 1.0, 91.0), (limits.min, limits.max, limits.max // 3))
    result = Quantization(1.0, int(np.iinfo(target).max // 2))
    pairs = [(Quantization(factor, int(zero)), result) for factor, zero in given]
    check(Quantize(DataType(target)), whole_range(source), *pairs)


@pytest.mark.parametrize(("source", "target"), [*itertools.product(("int8", "int16", "uint16"), TYPES)])
def test_integers_with_scales_along_an_axis(source: str, target: str) -> None:
    scales = Quantization([0.1, 3.0, 0.02], 0, 0)
    pairs = (scales, Quantization(0.05)), (Quantization(0.05), scales)
    check(Quantize(DataType(target)), whole_range(source), *pairs)


@pytest.mark.parametrize("source", [*TYPES, "int64"])
def test_integers_become_floats(source: str) -> None:
    given = Quantization(0.3, int(np.iinfo(source).max // 3)), Quantization([0.3, 7.0, 1e-4], 0, 0)
    check(Dequantize(), whole_range(source), *((quantization, None) for quantization in given))


@pytest.mark.parametrize("rounding", list(RoundingMethod))
@pytest.mark.parametrize("target", TYPES)
def test_floats_become_integers(target: str, rounding: RoundingMethod) -> None:
    rng = np.random.default_rng(3)
    x = (rng.integers(-9, 9, SHAPE) / 2 * 10.0 ** rng.integers(-2, 12, SHAPE)).astype(np.float32)
    x.flat[:3] = np.nan, np.inf, -np.inf
    results = Quantization(0.5, 3), Quantization([0.5, 0.25, 1e-3], 0, 0)
    check(Quantize(DataType(target), rounding), x, *((None, quantization) for quantization in results))

"""Reductions of CpuAcc on integers and on float64 give what the reference gives."""

from __future__ import annotations

import numpy as np
import pytest

from interposer.core.types import Array, Quantization
from interposer.ops import Reduce, ReduceOperation
from tests.backends.cpuacc.single import Layers, network_of, outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

RNG = np.random.default_rng(11)
TYPES = [np.float64, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
OPERATIONS = ["SUM", "PROD", "MEAN", "MAX", "MIN", "L1", "SUM_SQUARE"]
SHAPES = [((3, 41), (1,)), ((41, 19), (0,)), ((4, 5, 6, 7), (1, 3)), ((2, 0, 3), (1,)), ((9,), ())]


def drawn(dtype: type, *shape: int) -> Array:
    if dtype is np.float64:
        return RNG.uniform(-2, 2, shape)
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_reductions(dtype: type, operation: str) -> None:
    layers = Layers()
    for shape, axis in SHAPES:
        op = Reduce(axis=axis, operation=ReduceOperation[operation])
        layers.add(f"axes {axis} of {shape}", op, [drawn(dtype, *shape)])
    layers.assert_like_the_reference(1e-12 if dtype is np.float64 else 0, 1e-12)


@pytest.mark.parametrize("operation", ["MAX", "MIN"])
def test_extremes_of_float64_with_nan_are_nan(operation: str) -> None:
    layers = Layers()
    for place in (0, 1, 30):
        array = RNG.uniform(-2, 2, (2, 31))
        array[0, place] = np.nan
        for axis in (0, 1):
            op = Reduce(axis=(axis,), operation=ReduceOperation[operation])
            layers.add(f"NaN at {place}, axis {axis}", op, [array])
    layers.assert_like_the_reference()


@pytest.mark.parametrize("operation", ["MAX", "MIN"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_extremes_of_wide_quantized_values_are_exact(operation: str, dtype: type) -> None:
    op = Reduce(axis=(1,), operation=ReduceOperation[operation])
    arrays = [drawn(dtype, 5, 40)]
    result, expected = outcomes(*network_of(op, arrays, quantizations={0: Quantization(0.1, 3)}))
    np.testing.assert_array_equal(result[0], expected[0])

"""Quantize and Dequantize of integers of every width give on CpuAcc what the reference gives, bit for bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.ops import Dequantize, Quantize
from interposer.ops.quantization import RoundingMethod
from tests.backends.cpuacc.single import reference_results

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

TYPES = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
SHAPE = (3, 347)


def whole_range(dtype: str) -> Array:
    """Return numbers of the whole range of an integer type, with both ends of it."""
    limits = np.iinfo(dtype)
    numbers = np.random.default_rng(3).integers(limits.min, limits.max, SHAPE, dtype=dtype, endpoint=True)
    numbers.flat[:2] = limits.min, limits.max
    return numbers


def check(op: Quantize | Dequantize, given: Quantization | None, result: Quantization | None, x: Array) -> None:
    network = ip.Network("layer")
    layer = network.add_input_layer(0, TensorInfo(SHAPE, DataType.of(x.dtype), given))
    outputs = [TensorInfo(SHAPE, op.dtype, result)]
    network.add_output_layer(0, network.add_layer(op, layer, outputs=outputs))
    [computed], [expected] = ip.load(network, ["CpuAcc"]).run([x]), reference_results(network, [x])
    np.testing.assert_array_equal(computed, expected)


@pytest.mark.parametrize(("source", "target"), [*itertools.product(TYPES, TYPES)])
def test_integers_become_integers_of_another_quantization(source: str, target: str) -> None:
    limits = np.iinfo(source)
    for factor, zero in itertools.product((1e-5, 0.37, 1.0, 91.0), (limits.min, limits.max, limits.max // 3)):
        check(
            Quantize(DataType(target)),
            Quantization(factor, int(zero)),
            Quantization(1.0, int(np.iinfo(target).max // 2)),
            whole_range(source),
        )


@pytest.mark.parametrize(("source", "target"), [*itertools.product(("int8", "int16", "uint16"), TYPES)])
def test_integers_with_scales_along_an_axis(source: str, target: str) -> None:
    scales = Quantization([0.1, 3.0, 0.02], 0, 0)
    check(Quantize(DataType(target)), scales, Quantization(0.05), whole_range(source))
    check(Quantize(DataType(target)), Quantization(0.05), scales, whole_range(source))


@pytest.mark.parametrize("source", [*TYPES, "int64"])
def test_integers_become_floats(source: str) -> None:
    check(Dequantize(), Quantization(0.3, int(np.iinfo(source).max // 3)), None, whole_range(source))
    check(Dequantize(), Quantization([0.3, 7.0, 1e-4], 0, 0), None, whole_range(source))


@pytest.mark.parametrize("rounding", list(RoundingMethod))
@pytest.mark.parametrize("target", TYPES)
def test_floats_become_integers(target: str, rounding: RoundingMethod) -> None:
    rng = np.random.default_rng(3)
    x = (rng.integers(-9, 9, SHAPE) / 2 * 10.0 ** rng.integers(-2, 12, SHAPE)).astype(np.float32)
    x.flat[:3] = np.nan, np.inf, -np.inf
    for quantization in (Quantization(0.5, 3), Quantization([0.5, 0.25, 1e-3], 0, 0)):
        check(Quantize(DataType(target), rounding), None, quantization, x)

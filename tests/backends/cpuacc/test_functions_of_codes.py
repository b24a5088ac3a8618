"""CpuAcc's elementwise layers on codes give what CpuRef gives, bit for bit, for all codes and all pairs of them."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.core.schema import Op
from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.ops import (
    Activation,
    ActivationFunction,
    BinaryOperation,
    Comparison,
    ComparisonOperation,
    Concat,
    Dequantize,
    ElementwiseBinary,
    ElementwiseUnary,
    Prelu,
    Quantize,
    Reduce,
    ReduceOperation,
    RoundingMethod,
    UnaryOperation,
)
from tests.backends.cpuacc.single import reference_results

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

FUNCTIONS = list(ActivationFunction)
UNARY = ["ABS", "SQRT", "LOG", "EXP", "NEG", "SIGN", "SQUARE", "CEIL", "FLOOR", "ROUND", "RECIPROCAL", "ERF"]
ARITHMETIC = ["ADD", "SUB", "MUL", "DIV", "SQ_DIFF"]
SCALES = [(0.05, 0.03, 0.07), (0.5, 0.001, 0.02), (0.0123, 1.7, 0.004)]
TYPES = ["int8", "uint8"]


def all_codes(dtype: str) -> Array:
    return np.arange(256, dtype=np.uint8).view(dtype)


def quantized(shape: tuple[int, ...], dtype: str, scale: float, zero_point: int) -> TensorInfo:
    return TensorInfo(shape, dtype, Quantization(scale, zero_point + (128 if dtype == "uint8" else 0)))


def assert_same(op: Op, inputs: list[tuple[TensorInfo, Array]], result: TensorInfo) -> None:
    """CpuAcc alone runs the layer, and what it gives is CpuRef's."""
    network = ip.Network("one layer")
    layers = [network.add_input_layer(n, info) for n, (info, _) in enumerate(inputs)]
    network.add_output_layer(0, network.add_layer(op, *layers, outputs=[result]))
    arrays = [array for _, array in inputs]
    with ip.load(network, backends=["CpuAcc"]) as model:
        [matches], [expected] = model.run(arrays), reference_results(network, arrays)
    np.testing.assert_array_equal(matches, expected, strict=True)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_activation_functions_of_all_codes(function: ActivationFunction, dtype: str) -> None:
    for source, _, target in SCALES:
        x = quantized((256,), dtype, source, -20)
        op = Activation(function=function, a=0.75, b=0.4)
        assert_same(op, [(x, all_codes(dtype))], quantized((256,), dtype, target, 17))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("operation", UNARY)
def test_functions_of_all_codes(operation: str, dtype: str) -> None:
    for source, _, target in SCALES:
        x = quantized((256,), dtype, source, 5)
        op = ElementwiseUnary(operation=UnaryOperation[operation])
        assert_same(op, [(x, all_codes(dtype))], quantized((256,), dtype, target, -40))


def pairs(dtype: str, scales: tuple[float, float, float], count: int) -> list[tuple[TensorInfo, Array]]:
    """Return columns of all codes and rows of the first few."""
    a, b = quantized((256, 1), dtype, scales[0], -3), quantized((1, count), dtype, scales[1], 31)
    return [(a, all_codes(dtype).reshape(256, 1)), (b, all_codes(dtype)[-count:].reshape(1, count))]


@pytest.mark.parametrize("count", [256, 100], ids=["by table", "directly"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("operation", ARITHMETIC)
def test_arithmetic_on_pairs_of_codes(operation: str, dtype: str, count: int) -> None:
    for scales in SCALES:
        op = ElementwiseBinary(operation=BinaryOperation[operation])
        assert_same(op, pairs(dtype, scales, count), quantized((256, count), dtype, scales[2], 12))


@pytest.mark.parametrize("dtype", TYPES)
def test_slopes_of_pairs_of_codes(dtype: str) -> None:
    for scales in SCALES:
        assert_same(Prelu(), pairs(dtype, scales, 256), quantized((256, 256), dtype, scales[2], -9))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("operation", ComparisonOperation, ids=lambda operation: operation.name)
def test_comparisons_of_pairs_of_codes(operation: ComparisonOperation, dtype: str) -> None:
    for scales in SCALES:
        result = TensorInfo((256, 256), DataType.BOOL)
        assert_same(Comparison(operation=operation), pairs(dtype, scales, 256), result)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("operation", ["MAXIMUM", "MINIMUM"])
def test_the_larger_and_the_smaller_of_pairs_of_codes(operation: str, dtype: str) -> None:
    infos = [quantized(shape, dtype, 0.1, 4) for shape in ((256, 1), (1, 256), (256, 256))]
    codes = [all_codes(dtype).reshape(256, 1), all_codes(dtype).reshape(1, 256)]
    op = ElementwiseBinary(operation=BinaryOperation[operation])
    assert_same(op, list(zip(infos, codes, strict=False)), infos[2])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis", [0, 1])
def test_concatenation_brings_codes_to_one_scale(dtype: str, axis: int) -> None:
    infos = [quantized((16, 16), dtype, scale, n) for n, scale in enumerate((0.05, 0.013, 0.07))]
    codes = all_codes(dtype).reshape(16, 16)
    result = quantized((48, 16) if axis == 0 else (16, 48), dtype, 0.05, 0)
    assert_same(Concat(axis=axis), [(info, codes) for info in infos], result)


def several(dtype: str, axis: int | None) -> Quantization:
    low = 100 if dtype.startswith("u") else -7
    return Quantization(0.031, low) if axis is None else Quantization([0.5, 0.03, 0.25, 1e-3], [low, 5, 9, 0], axis)


@pytest.mark.parametrize("rounding", RoundingMethod, ids=lambda rounding: rounding.name)
@pytest.mark.parametrize("axis", [None, 0, 2])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_numbers_become_codes_of_any_width(dtype: str, axis: int | None, rounding: RoundingMethod) -> None:
    x = (np.random.default_rng(1).standard_normal((4, 5, 4)) * 30).astype(np.float32)
    x.flat[:4] = [np.nan, np.inf, -np.inf, 0.0155]
    op = Quantize(dtype=DataType(dtype), rounding=rounding)
    assert_same(op, [(TensorInfo(x.shape), x)], TensorInfo(x.shape, dtype, several(dtype, axis)))


@pytest.mark.parametrize("axis", [None, 0, 2])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_codes_of_any_width_become_numbers(dtype: str, axis: int | None) -> None:
    limits = np.iinfo(dtype)
    x = np.random.default_rng(2).integers(limits.min, limits.max, (4, 5, 4), dtype=dtype, endpoint=True)
    info = TensorInfo(x.shape, dtype, several(dtype, axis))
    assert_same(Dequantize(), [(info, x)], TensorInfo(x.shape))


@pytest.mark.parametrize("axis", [None, 0, 2])
@pytest.mark.parametrize(
    ("source", "target"), [("int8", "int8"), ("int16", "uint8"), ("uint8", "int32"), ("uint16", "int16")]
)
def test_codes_become_those_of_another_scale(source: str, target: str, axis: int | None) -> None:
    limits = np.iinfo(source)
    x = np.random.default_rng(3).integers(limits.min, limits.max, (4, 5, 4), dtype=source, endpoint=True)
    info = TensorInfo(x.shape, source, Quantization(0.0173, 11))
    op = Quantize(dtype=DataType(target))
    assert_same(op, [(info, x)], TensorInfo(x.shape, target, several(target, axis)))


@pytest.mark.parametrize("axis", [(), (1, 2), (0, 3), (-1,)])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("operation", ["MEAN", "SUM", "MAX", "MIN"])
def test_reductions_of_codes(operation: str, dtype: str, axis: tuple[int, ...]) -> None:
    x = np.random.default_rng(4).integers(0, 200, (2, 7, 5, 9), dtype=np.uint8).view(dtype)
    op = Reduce(operation=ReduceOperation[operation], axis=axis)
    for scale in (0.05,) if operation in ("MAX", "MIN") else (0.05, 0.0013, 0.9):
        info = quantized(x.shape, dtype, 0.05, -7)
        result = quantized(tuple(map(int, op.infer(info).shape)), dtype, scale, -7)
        assert_same(op, [(info, x)], result)

"""CpuAcc computes chains of functions of one quantized tensor by tables, and gives what CpuRef gives, bit for bit."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.ops import (
    Activation,
    ActivationFunction,
    BinaryOperation,
    Dequantize,
    ElementwiseBinary,
    ElementwiseUnary,
    Quantize,
    UnaryOperation,
)
from tests.backends.cpuacc.single import reference_results

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

SHAPE = (2, 3, 256)
TYPES = ["int8", "uint8"]


def info(dtype: str, scale: float, zero: int = 0, shape: tuple[int, ...] = SHAPE) -> TensorInfo:
    return TensorInfo(shape, dtype, Quantization(scale, zero + (128 if dtype == "uint8" else 0)))


class Chain:
    """A network on quantized tensors; each method adds a layer whose result has a quantization of its own."""

    def __init__(self, dtype: str, shape: tuple[int, ...] = SHAPE) -> None:
        self.network, self.dtype, self.shape = ip.Network("chain"), dtype, shape
        self.inputs: list[TensorInfo] = []

    def input(self, shape: tuple[int, ...] | None = None, scale: float = 0.05) -> Any:
        self.inputs.append(info(self.dtype, scale, -20, self.shape if shape is None else shape))
        return self.network.add_input_layer(len(self.inputs) - 1, self.inputs[-1])

    def number(self, code: int, scale: float, shape: tuple[int, ...] = ()) -> Any:
        return self.network.add_constant_layer(np.full(shape, code, np.int8).view(self.dtype), Quantization(scale))

    def binary(self, operation: str, a: Any, b: Any, scale: float, zero: int = 0) -> Any:
        op = ElementwiseBinary(operation=BinaryOperation[operation])
        return self.network.add_layer(op, a, b, outputs=[info(self.dtype, scale, zero, self.shape)])

    def function(self, function: ActivationFunction, x: Any, scale: float, zero: int = 0) -> Any:
        return self.network.add_layer(
            Activation(function=function), x, outputs=[info(self.dtype, scale, zero, self.shape)]
        )

    def floats(self, x: Any) -> Any:
        return self.network.add_layer(Dequantize(), x)

    def codes(self, x: Any, scale: float, zero: int = 0) -> Any:
        return self.network.add_layer(
            Quantize(DataType(self.dtype)), x, outputs=[info(self.dtype, scale, zero, self.shape)]
        )

    def check(self, *results: Any) -> None:
        """Compare the results on all quantized values."""
        for number, result in enumerate(results):
            self.network.add_output_layer(number, result)
        generator = np.random.default_rng(0)
        arrays: list[Array] = [every_value(generator, tuple(item.shape), self.dtype) for item in self.inputs]
        with ip.load(self.network, ["CpuAcc"]) as model:
            for matches, expected in zip(model.run(arrays), reference_results(self.network, arrays), strict=True):
                np.testing.assert_array_equal(matches, expected, strict=True)


def every_value(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    count = int(np.prod(shape))
    return generator.permutation(np.arange(count).astype(np.uint8)).reshape(shape).view(dtype)


def gated(chain: Chain, x: Any) -> Any:
    """Add x * (f(x) + 1) * 0.5 as quantizers of exported networks write GELU: f is computed on floats."""
    halved = chain.network.add_multiplication_layer(
        chain.floats(x), chain.network.add_constant_layer(np.float32([[0.7]]))
    )
    error = chain.network.add_layer(ElementwiseUnary(operation=UnaryOperation.SQUARE), halved)
    shifted = chain.binary("ADD", chain.codes(error, 0.008), chain.number(127, 0.0079), 0.0157, -100)
    return chain.binary("MUL", chain.binary("MUL", x, shifted, 0.05, -40), chain.number(100, 0.005), 0.03, -60)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_gate_of_the_same_value(dtype: str) -> None:
    chain = Chain(dtype)
    x = chain.input()
    chain.check(gated(chain, x))


@pytest.mark.parametrize("dtype", TYPES)
def test_a_gate_of_another_value_is_no_table(dtype: str) -> None:
    chain = Chain(dtype)
    x, y = chain.input(), chain.input()
    gate = chain.function(ActivationFunction.SIGMOID, x, 0.004, -100)
    chain.check(chain.binary("MUL", y, gate, 0.06, 5), chain.binary("MUL", x, gate, 0.06, 5))


@pytest.mark.parametrize("dtype", TYPES)
def test_values_within_a_chain_that_are_read_elsewhere_are_computed(dtype: str) -> None:
    chain = Chain(dtype)
    x = chain.input()
    doubled = chain.binary("MUL", x, chain.number(100, 0.02), 0.09, 3)
    root = chain.function(ActivationFunction.SIGMOID, doubled, 0.004, -110)
    ended = chain.binary("SUB", root, chain.number(7, 0.1), 0.01)
    chain.check(chain.binary("ADD", doubled, ended, 0.1), chain.floats(doubled), ended)


@pytest.mark.parametrize("operation", ["ADD", "SUB", "MUL", "DIV", "SQ_DIFF"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)], ids=str)
def test_a_constant_number_as_an_operand(operation: str, dtype: str, first: bool, shape: tuple[int, ...]) -> None:
    chain = Chain(dtype)
    x, number = chain.input(), chain.number(31, 0.05, shape)
    a, b = (number, x) if first else (x, number)
    chain.check(chain.function(ActivationFunction.TANH, chain.binary(operation, a, b, 0.08, 4), 0.008))


def test_a_number_that_adds_a_dimension_keeps_the_shape() -> None:
    chain = Chain("int8", (1, 4, 512))
    flat = chain.network.add_input_layer(0, info("int8", 0.05, -20, (4, 512)))
    chain.inputs.append(info("int8", 0.05, -20, (4, 512)))
    moved = chain.binary("ADD", flat, chain.number(9, 0.1, (1, 1, 1)), 0.07)
    chain.check(chain.function(ActivationFunction.SIGMOID, moved, 0.004, -100))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 255, 1152])
@pytest.mark.parametrize("scales", [(0.05, 0.03), (0.5, 0.001), (0.01, 1.7)], ids=str)
def test_sums_of_rows_such_as_a_bias(dtype: str, length: int, scales: tuple[float, float]) -> None:
    for rows in (1, 7, 64):
        chain = Chain(dtype, (rows, length))
        x, bias = chain.input(scale=scales[0]), chain.input((length,), scales[1])
        chain.check(chain.binary("ADD", x, bias, 0.09, 11), chain.binary("ADD", bias, x, 0.02, -5))


def test_a_chain_of_many_functions() -> None:
    chain = Chain("int8")
    first = x = chain.binary("MUL", chain.input(), chain.number(64, 0.0157), 0.05)
    for _ in range(600):
        x = chain.binary("MUL", x, chain.number(64, 0.0157), 0.05)
    chain.check(x, first)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_chain_between_integers_is_a_table(
    dtype: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text = f"""graph "requantization" {{
  %x = Input : {dtype}[2, 3, 256]
  %wide = Cast(dtype=int64) %x : int64[2, 3, 256]
  %five = Constant(value=int64[]{{5}}) : int64[]
  %shifted = Subtraction %wide, %five : int64[2, 3, 256]
  %scaled = Multiplication %shifted, %shifted : int64[2, 3, 256]
  %sixteen = Constant(value=int64[]{{16}}) : int64[]
  %whole = Division %scaled, %sixteen : int64[2, 3, 256]
  %y = Cast(dtype={dtype}) %whole : {dtype}[2, 3, 256]
  Output %y as "result"
}}"""
    monkeypatch.setenv("INTERPOSER_CPUACC_PROFILE", "1")
    network = ip.Network.parse(text)
    arrays = [every_value(np.random.default_rng(0), SHAPE, dtype)]
    with ip.load(network, ["CpuAcc"]) as model:
        np.testing.assert_array_equal(model.run(arrays)[0], reference_results(network, arrays)[0], strict=True)
    del model
    gc.collect()
    assert "acc.Table y" in capfd.readouterr().err

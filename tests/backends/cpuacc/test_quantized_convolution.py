"""CpuAcc's layers on codes of 8 bits give what CpuRef gives, bit for bit, with every instruction set.

As a program it compares everything with the instruction set that INTERPOSER_CPUACC_ISA names, and lists what differs.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataLayout, Quantization, TensorInfo
from interposer.ir.graph import Layer
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BatchMatMul,
    Convolution2d,
    DepthwiseConvolution2d,
    FullyConnected,
    Softmax,
    TransposeConvolution2d,
)
from tests import warm
from tests.backends.cpuacc.single import reference_results
from tests.instruction_sets import needs_instruction_set
from tests.parameters import slow_unless

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

INSTRUCTION_SETS = ("baseline", "avx2", "avx512", "avx512vnni", "amx")
PLAIN, DEPTHWISE, TRANSPOSED = Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d


@dataclass(frozen=True)
class Case:
    """Return one layer with weights that slide over an image, and the layers after it."""

    name: str
    kind: type[Convolution2d | DepthwiseConvolution2d | TransposeConvolution2d]
    image: tuple[int, int, int, int]
    weights: tuple[int, int, int, int]
    options: dict[str, Any] = field(default_factory=dict)
    dtype: str = "int8"
    weights_dtype: str = "int8"
    per_channel: bool = False
    extremes: bool = False
    scale: float | None = None
    weights_zero_point: int | None = None
    behind: str = ""

    @property
    def unsigned(self) -> Case:
        """The same on uint8, as old files have it: weights too, with a zero point of their own."""
        names = {"name": f"{self.name}, uint8", "dtype": "uint8", "weights_dtype": "uint8", "per_channel": False}
        zero_point = None if self.weights_zero_point is None else self.weights_zero_point + 128
        return Case(**{**self.__dict__, **names, "weights_zero_point": zero_point})


TWICE = {"stride_x": 2, "stride_y": 2}
PADDED = {"pad_left": 1, "pad_right": 1, "pad_top": 1, "pad_bottom": 1}
SIGNED = [
    Case("one cell", PLAIN, (1, 5, 7, 16), (33, 1, 1, 16), per_channel=True),
    Case("one cell, odd depth", PLAIN, (2, 3, 3, 7), (130, 1, 1, 7)),
    Case("one cell, strided", PLAIN, (1, 7, 9, 8), (20, 1, 1, 8), TWICE),
    Case("stem", PLAIN, (1, 15, 17, 3), (24, 3, 3, 3), TWICE | PADDED, per_channel=True),
    Case("padded", PLAIN, (1, 9, 8, 17), (65, 3, 3, 17), PADDED, per_channel=True),
    Case("thin", PLAIN, (1, 7, 33, 16), (16, 3, 3, 16), PADDED, per_channel=True, behind="sum"),
    Case("thin, within", PLAIN, (2, 5, 19, 4), (13, 2, 3, 4)),
    Case("dilated", PLAIN, (1, 11, 12, 5), (6, 3, 2, 5), {"dilation_x": 2, "dilation_y": 3, "pad_left": 2}),
    Case("grouped", PLAIN, (1, 6, 6, 12), (9, 3, 3, 4), {"groups": 3, **PADDED}, per_channel=True),
    Case("many groups", PLAIN, (2, 5, 5, 24), (48, 2, 2, 3), {"groups": 8}),
    Case("one place", PLAIN, (1, 4, 4, 6), (10, 4, 4, 6)),
    Case("channels first", PLAIN, (1, 5, 6, 7), (9, 5, 3, 3), {"data_layout": DataLayout.NCHW, **PADDED}),
    Case("clamped", PLAIN, (1, 6, 6, 8), (16, 3, 3, 8), PADDED, per_channel=True, behind="clamp"),
    Case("added", PLAIN, (1, 6, 5, 16), (16, 3, 3, 16), PADDED, per_channel=True, behind="sum"),
    Case("added, narrow", PLAIN, (1, 6, 5, 5), (5, 1, 1, 5), behind="sum clamp"),
    Case("added, wide", PLAIN, (1, 4, 5, 8), (72, 1, 1, 8), per_channel=True, behind="clamp sum clamp"),
    Case("saturating", PLAIN, (1, 6, 6, 40), (20, 3, 3, 40), PADDED, extremes=True, scale=0.01),
    Case("scaled up", PLAIN, (1, 3, 3, 2), (5, 1, 1, 2), scale=1e-4),
    Case("scaled to nothing", PLAIN, (1, 3, 3, 2), (5, 1, 1, 2), scale=1e9),
    Case("powers of two", PLAIN, (1, 5, 5, 8), (20, 1, 1, 8), scale=8.0),
    Case("rows of 14", PLAIN, (1, 14, 14, 64), (64, 3, 3, 64), PADDED, per_channel=True, behind="sum"),
    Case("rows of 7", PLAIN, (2, 7, 7, 96), (80, 3, 3, 96), PADDED, per_channel=True),
    Case("rows of 18", PLAIN, (1, 5, 18, 72), (33, 3, 3, 72), {"pad_left": 1, "pad_right": 1}),
    Case("deep, one cell", PLAIN, (1, 7, 7, 200), (48, 1, 1, 200), behind="clamp"),
    Case("deep, strided", PLAIN, (2, 14, 14, 128), (70, 1, 1, 128), TWICE, per_channel=True),
    Case("wide stem", PLAIN, (1, 34, 38, 3), (64, 7, 7, 3), TWICE | PADDED, per_channel=True),
    Case("groups of 16", PLAIN, (1, 14, 14, 64), (128, 3, 3, 16), {"groups": 4, **PADDED}),
    Case("depthwise", DEPTHWISE, (1, 9, 7, 21), (1, 3, 3, 21), PADDED, per_channel=True),
    Case("depthwise, 64", DEPTHWISE, (2, 5, 6, 64), (1, 3, 3, 64), PADDED, per_channel=True, behind="clamp"),
    Case("depthwise, strided", DEPTHWISE, (1, 9, 12, 10), (1, 3, 3, 10), TWICE | PADDED),
    Case("depthwise, large", DEPTHWISE, (1, 12, 11, 3), (1, 5, 4, 3), {"pad_left": 3, "pad_bottom": 4}),
    Case("depthwise, dilated", DEPTHWISE, (1, 12, 11, 9), (1, 3, 3, 9), {"dilation_x": 2, "dilation_y": 3}),
    Case("depthwise, sparse", DEPTHWISE, (1, 10, 10, 4), (1, 2, 1, 4), {"stride_x": 3, "stride_y": 4}),
    Case("multiplied", DEPTHWISE, (1, 6, 8, 3), (1, 3, 3, 12), PADDED, per_channel=True),
    Case("one channel", DEPTHWISE, (1, 12, 10, 1), (1, 5, 4, 8), TWICE),
    Case("depthwise, turned", DEPTHWISE, (1, 9, 6, 7), (1, 3, 3, 9), {"data_layout": DataLayout.NCHW, **PADDED}),
    Case("transposed", TRANSPOSED, (1, 5, 4, 6), (7, 3, 3, 6), TWICE | PADDED, per_channel=True),
    Case("transposed, gaps", TRANSPOSED, (2, 3, 4, 5), (4, 2, 2, 5), {"stride_x": 3, "stride_y": 3}),
    Case("transposed, dilated", TRANSPOSED, (1, 4, 4, 8), (6, 3, 2, 8), {"stride_x": 2, "dilation_y": 2}),
    Case("transposed, grouped", TRANSPOSED, (1, 4, 5, 6), (3, 2, 2, 6), {"groups": 2, "stride_y": 2}),
]  # fmt: skip
SIGNED += [
    Case(f"{kind.op_name()}, {weights}, zero point {zero_point}", kind, (1, 9, 7, 5), weights, options,
         weights_zero_point=zero_point)
    for kind, weights, options in [
        (PLAIN, (6, 3, 3, 5), PADDED),
        (PLAIN, (6, 1, 1, 5), {}),
        (PLAIN, (40, 2, 3, 5), {"pad_right": 1}),
        (DEPTHWISE, (1, 3, 3, 5), PADDED),
        (DEPTHWISE, (1, 4, 4, 10), TWICE),
        (TRANSPOSED, (6, 3, 3, 5), TWICE),
    ]
    for zero_point in (-128, -127, 126, 127)
]  # fmt: skip
CASES = SIGNED + [case.unsigned for case in SIGNED]


def _codes(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, extremes: bool = False) -> Array:
    limits = np.iinfo(dtype)
    if extremes:
        return np.full(shape, limits.min if rng.random() < 0.5 else limits.max, dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def _zero_point(rng: np.random.Generator, dtype: str) -> int:
    return int(_codes(rng, (), dtype))


def _behind(network: ip.Network, case: Case, value: Layer, info: TensorInfo) -> Layer:
    """A clamp, or the sum with another tensor of its own scale."""
    for kind in case.behind.split():
        if kind == "clamp":
            scale = info.quantization.scale if info.quantization else 1.0
            clamp = Activation(function=ActivationFunction.BOUNDED_RELU, a=50 * scale, b=-20 * scale)
            value = network.add_layer(clamp, value, outputs=[info])
        else:
            assert info.quantization
            info = TensorInfo(info.shape, info.dtype, Quantization(info.quantization.scale * 1.37, 3))
            other = network.add_input_layer(
                1, TensorInfo(info.shape, info.dtype, Quantization(info.quantization.scale * 0.71, 9))
            )
            value = network.add_layer(Addition(), value, other, outputs=[info])
    return value


def network_of(case: Case, rng: np.random.Generator) -> ip.Network:
    """The layer with random weights, bias, scales and zero points."""
    network, op = ip.Network(case.name), case.kind(**{"data_layout": DataLayout.NHWC, **case.options})
    last = case.kind is DEPTHWISE
    channels = case.weights[3 if last else 0] * (case.options.get("groups", 1) if case.kind is TRANSPOSED else 1)
    cells = int(np.prod(case.weights)) // case.weights[3 if last else 0]
    fine = [0.5**n for n in (5, 6)] if case.name.startswith("powers") else rng.uniform(0.004, 0.02, 2).tolist()
    wide = case.per_channel and channels == case.weights[3 if last else 0]
    if wide:
        cached = Quantization(rng.uniform(0.004, 0.02, channels).tolist(), [0] * channels, 3 if last else 0)
    elif case.weights_zero_point is not None:
        cached = Quantization(fine[0], case.weights_zero_point)
    else:
        cached = Quantization(fine[0], _zero_point(rng, "uint8") if case.weights_dtype == "uint8" else 0)
    codes = _codes(rng, case.weights, case.weights_dtype, case.extremes)
    if case.weights_zero_point is not None:
        codes.flat[:2] = np.iinfo(case.weights_dtype).min, np.iinfo(case.weights_dtype).max
    weights = network.add_constant_layer(codes, cached)
    bias = network.add_constant_layer(rng.integers(-9999, 9999, channels).astype(np.int32))
    info = TensorInfo(case.image, case.dtype, Quantization(fine[1], _zero_point(rng, case.dtype)))
    x = network.add_input_layer(0, info)
    scale = case.scale or fine[1] * float(np.mean(cached.scales)) * 74 * 74 * cells**0.5 / 40
    shape = op.infer(info, TensorInfo(case.weights, case.weights_dtype, cached), None).shape
    result = TensorInfo(shape, case.dtype, Quantization(scale, _zero_point(rng, case.dtype)))
    layer = network.add_layer(op, x, weights, bias, outputs=[result])
    network.add_output_layer(0, _behind(network, case, layer, result))
    return network


def differences(network: ip.Network, rng: np.random.Generator) -> int:
    """How many codes are others than CpuRef's, for random inputs."""
    with ip.load(network, backends=["CpuAcc"]) as model:
        inputs = [_codes(rng, tuple(map(int, info.shape)), str(info.dtype)) for info in model.inputs.values()]
        return int(np.count_nonzero(model.run(inputs)[0] != reference_results(network, inputs)[0]))


def products(rng: np.random.Generator, rows: int, depth: int, outputs: int, dtype: str) -> ip.Network:
    """Return a fully connected layer with a clamp after it."""
    network, limits = ip.Network("products"), np.iinfo(dtype)
    info = TensorInfo((rows, depth), dtype, Quantization(0.031, _zero_point(rng, dtype)))
    x = network.add_input_layer(0, info)
    cached = Quantization(0.011, 0 if dtype == "int8" else 131)
    weights = network.add_constant_layer(_codes(rng, (outputs, depth), dtype), cached)
    bias = network.add_constant_layer(rng.integers(-9999, 9999, outputs).astype(np.int32))
    result = TensorInfo((rows, outputs), dtype, Quantization(0.031 * 0.011 * 90 * depth**0.5, int(limits.min) + 100))
    op = FullyConnected(transpose_weight_matrix=True)
    value = network.add_layer(op, x, weights, bias, outputs=[result])
    network.add_output_layer(
        0, network.add_layer(Activation(function=ActivationFunction.RELU), value, outputs=[result])
    )
    return network


def matrices(
    rng: np.random.Generator, a: tuple[int, ...], b: tuple[int, ...], dtype: str, **turned: bool
) -> ip.Network:
    """Return a network with the product of two inputs."""
    network, op = ip.Network("matrices"), BatchMatMul(**turned)
    infos = [TensorInfo(shape, dtype, Quantization(0.02, _zero_point(rng, dtype))) for shape in (a, b)]
    shape = op.infer(*infos).shape
    result = TensorInfo(shape, dtype, Quantization(0.02 * 0.02 * 2000, _zero_point(rng, dtype)))
    operands = [network.add_input_layer(n, info) for n, info in enumerate(infos)]
    network.add_output_layer(0, network.add_layer(op, *operands, outputs=[result]))
    return network


def probabilities(shape: tuple[int, ...], dtype: str, axis: int) -> ip.Network:
    """A softmax whose result has the quantization that TFLite prescribes."""
    network = ip.Network("probabilities")
    x = network.add_input_layer(0, TensorInfo(shape, dtype, Quantization(0.07, 3)))
    network.add_output_layer(0, network.add_layer(Softmax(axis=axis), x))
    return network


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_layer_of_codes_is_the_reference_bit_for_bit(case: Case) -> None:
    rng = np.random.default_rng(7)
    assert differences(network_of(case, rng), rng) == 0


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("rows", "depth", "outputs"), [(1, 640, 128), (1, 7, 3), (1, 4, 8), (1, 12, 90), (5, 33, 70), (1, 128, 1001)]
)
def test_fully_connected_codes_are_the_reference_bit_for_bit(dtype: str, rows: int, depth: int, outputs: int) -> None:
    rng = np.random.default_rng(depth)
    assert differences(products(rng, rows, depth, outputs, dtype), rng) == 0


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("a_turned", [False, True])
@pytest.mark.parametrize("b_turned", [False, True])
def test_products_of_codes_are_the_reference_bit_for_bit(dtype: str, a_turned: bool, b_turned: bool) -> None:
    rng = np.random.default_rng(11)
    a, b = ((2, 1, 13, 9) if a_turned else (2, 1, 9, 13)), ((3, 21, 13) if b_turned else (3, 13, 21))
    assert differences(matrices(rng, a, b, dtype, transpose_x=a_turned, transpose_y=b_turned), rng) == 0


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 12), -1), ((1, 1001), 1), ((2, 5, 3), 1)])
def test_softmax_of_codes_is_the_reference_bit_for_bit(dtype: str, shape: tuple[int, ...], axis: int) -> None:
    assert differences(probabilities(shape, dtype, axis), np.random.default_rng(5)) == 0


@pytest.mark.parametrize("instruction_set", slow_unless("avx2".__eq__, INSTRUCTION_SETS))
def test_every_instruction_set_gives_the_same_codes(instruction_set: str) -> None:
    needs_instruction_set(instruction_set)
    environment = {**os.environ, "INTERPOSER_CPUACC_ISA": instruction_set}
    done = subprocess.run(
        [*warm.python(), "-m", __name__], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def _differing() -> Iterator[str]:
    for case in CASES:
        rng = np.random.default_rng(3)
        if differences(network_of(case, rng), rng):
            yield case.name
    for dtype in ("int8", "uint8"):
        rng = np.random.default_rng(3)
        for rows, depth, outputs in [(3, 50, 100), (1, 20, 70)]:
            if differences(products(rng, rows, depth, outputs, dtype), rng):
                yield f"products of {rows} rows of {dtype}"
        if differences(matrices(rng, (2, 5, 30), (30, 70), dtype), rng):
            yield f"matrices of {dtype}"


if __name__ == "__main__":
    print("".join(f"{name}\n" for name in _differing()), end="")


@pytest.mark.parametrize(("dtype", "zero_point"), [("int8", -128), ("int8", 127), ("uint8", 0), ("uint8", 255)])
@pytest.mark.parametrize("kind", [Convolution2d, DepthwiseConvolution2d])
def test_weights_as_far_from_their_zero_point_as_can_be_are_multiplied_exactly(
    kind: type[Convolution2d | DepthwiseConvolution2d], dtype: str, zero_point: int
) -> None:
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    shape = (5, 3, 3, 4) if kind is Convolution2d else (1, 3, 3, 8)
    weights = rng.choice(np.array([limits.min, limits.max, zero_point], dtype), shape)
    network = ip.Network("far weights")
    x = network.add_input_layer(0, TensorInfo((1, 9, 9, 4), ip.DataType(dtype), Quantization(0.5, zero_point)))
    w = network.add_constant_layer(weights, Quantization(0.01, zero_point))
    out = TensorInfo(
        (1, 9, 9, 5 if kind is Convolution2d else 8),
        ip.DataType(dtype),
        Quantization(9.0, (limits.min + limits.max) // 2),
    )
    op = kind(pad_left=1, pad_right=1, pad_top=1, pad_bottom=1, data_layout=DataLayout.NHWC)
    network.add_output_layer(0, network.add_layer(op, x, w, outputs=out))
    array = rng.integers(limits.min, limits.max + 1, (1, 9, 9, 4)).astype(dtype)
    result, expected = ip.load(network, ["CpuAcc"]).run([array])[0], reference_results(network, [array])[0]
    np.testing.assert_array_equal(result, expected)
    assert len(np.unique(expected)) > 2

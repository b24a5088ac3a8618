"""TFLite's recurrent layers give what the reference gives, in integers bit for bit, with any size and threads."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.ir.graph import Layer
from interposer.ops import BidirectionalSequenceRnn, Svdf, UnidirectionalSequenceLstm
from interposer.ops.recurrent import ActivationRounding, FusedActivation
from tests.backends.cpuacc.single import outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

STEPS, BATCH = 7, 3
INPUT = Quantization(1 / 128, 5)
CELL = Quantization(2.0**-11, 0)


class Layers:
    """A network of one layer, with random constants."""

    def __init__(self, seed: int) -> None:
        self.network = ip.Network("layer")
        self.rng = np.random.default_rng(seed)

    def floats(self, *shape: int) -> Layer:
        return self.network.add_constant_layer(self._drawn(shape))

    def codes(self, *shape: int, dtype: type = np.int8, scale: float = 1 / 256) -> Layer:
        limits = np.iinfo(dtype)
        codes = self.rng.integers(limits.min + 1, limits.max, shape).astype(dtype)
        return self.network.add_constant_layer(codes, Quantization(scale, 0))

    def numbers(self, *shape: int) -> Layer:
        return self.network.add_constant_layer(self.rng.integers(-5000, 5000, shape).astype(np.int32))

    def _drawn(self, shape: tuple[int, ...]) -> Array:
        return (self.rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    def results(self, layer: Layer, array: Array, threads: int) -> list[list[Array]]:
        """Return the results of CpuAcc and of the reference."""
        for n, output in enumerate(layer.outputs):
            self.network.add_output_layer(n, output)
        return outcomes(self.network, [array], threads)


def assert_close(results: list[list[Array]]) -> None:
    for result, expected in zip(*results, strict=True):
        np.testing.assert_allclose(result, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("units", [1, 16, 33, 80])
@pytest.mark.parametrize("outputs", [None, 5, 40])
@pytest.mark.parametrize("rounding", list(ActivationRounding))
def test_a_long_sequence_of_an_lstm(units: int, outputs: int | None, rounding: ActivationRounding) -> None:
    layers, width = Layers(units), outputs or units
    x = layers.network.add_input_layer(0, TensorInfo((BATCH, STEPS, 9)))
    matrix = layers.floats if rounding is ActivationRounding.NONE else layers.codes
    operands = [x, None, None, *(matrix(units, 9) for _ in range(4)), *(matrix(units, width) for _ in range(4))]
    operands += [layers.floats(units) for _ in range(7)]
    operands += [matrix(outputs, units), layers.floats(outputs)] if outputs else [None, None]
    op = UnidirectionalSequenceLstm(
        cifg_enabled=False, peephole_enabled=True, projection_enabled=outputs is not None,
        activation_func=FusedActivation.TANH, activation_rounding=rounding,
    )  # fmt: skip
    array = layers.rng.standard_normal((BATCH, STEPS, 9)).astype(np.float32)
    results = layers.results(layers.network.add_layer(op, *operands, *[None] * 4), array, 1)
    if rounding is ActivationRounding.NONE:
        assert_close(results)
    else:  # a small difference may move a number to the next of 255 steps
        for result, expected in zip(*results, strict=True):
            np.testing.assert_allclose(result, expected, rtol=0, atol=2e-2)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("merged", [False, True])
def test_both_directions_of_a_simple_layer(threads: int, merged: bool) -> None:
    layers = Layers(3)
    x = layers.network.add_input_layer(0, TensorInfo((BATCH, STEPS, 9)))
    operands = [x]
    for units in (20, 33):
        operands += [layers.floats(units, 9), layers.floats(units, units), layers.floats(units), None]
    op = BidirectionalSequenceRnn(merge_outputs=merged)
    array = layers.rng.standard_normal((BATCH, STEPS, 9)).astype(np.float32)
    assert_close(layers.results(layers.network.add_layer(op, *operands, None, None, None), array, threads))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("units", [1, 16, 33, 80])
@pytest.mark.parametrize("outputs", [None, 5, 40])
@pytest.mark.parametrize("exponent", [-15, -12, -9])
def test_an_lstm_in_integers_gives_the_same_bits(threads: int, units: int, outputs: int | None, exponent: int) -> None:
    layers, width, cell = Layers(units), outputs or units, Quantization(2.0**exponent, 0)
    x = layers.network.add_input_layer(0, TensorInfo((BATCH, STEPS, 9), DataType.INT8, INPUT))
    state = layers.network.add_constant_layer(np.full((BATCH, width), 5, np.int8), INPUT)
    start = layers.network.add_constant_layer(np.zeros((BATCH, units), np.int16), cell)
    operands = [x, state, start]
    operands += [layers.codes(units, 9) for _ in range(4)] + [layers.codes(units, width) for _ in range(4)]
    operands += [layers.codes(units, dtype=np.int16, scale=2.0**-15) for _ in range(3)]
    operands += [layers.numbers(units) for _ in range(4)]
    operands += [layers.codes(outputs, units), layers.numbers(outputs)] if outputs else [None, None]
    op = UnidirectionalSequenceLstm(
        cifg_enabled=False, peephole_enabled=True, projection_enabled=outputs is not None,
        activation_func=FusedActivation.TANH, hidden_state_scale=1 / 128 if outputs else 0.0,
    )  # fmt: skip
    infos = [
        TensorInfo((BATCH, STEPS, width), DataType.INT8, INPUT), TensorInfo((BATCH, width), DataType.INT8, INPUT),
        TensorInfo((BATCH, units), DataType.INT16, cell),
    ]  # fmt: skip
    layer = layers.network.add_layer(op, *operands, *[None] * 4, outputs=infos)
    array = layers.rng.integers(-128, 127, (BATCH, STEPS, 9)).astype(np.int8)
    for result, expected in zip(*layers.results(layer, array, threads), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("rank", "memory"), [(1, 1), (2, 2), (4, 9)])
def test_an_svdf_layer_in_floats(rank: int, memory: int) -> None:
    layers = Layers(rank)
    x = layers.network.add_input_layer(0, TensorInfo((BATCH, 40)))
    operands = [x, layers.floats(24, 40), layers.floats(24, memory), layers.floats(24 // rank)]
    state = layers.floats(BATCH, 24 * memory)
    array = layers.rng.standard_normal((BATCH, 40)).astype(np.float32)
    assert_close(layers.results(layers.network.add_layer(Svdf(rank=rank), *operands, state), array, 2))


@pytest.mark.parametrize("scale", [1e-30, 1 / 16])
def test_an_svdf_layer_in_integers_has_bounds_for_every_scale(scale: float) -> None:
    layers = Layers(4)
    x = layers.network.add_input_layer(0, TensorInfo((BATCH, 9), DataType.INT8, INPUT))
    time = layers.codes(4, 3, dtype=np.int16, scale=2.0**-15)
    state_info = TensorInfo((BATCH, 12), DataType.INT16, Quantization(2.0**-11))
    state = layers.network.add_constant_layer(np.zeros((BATCH, 12), np.int16), state_info.quantization)
    operands = [x, layers.codes(4, 9), time, None, state]
    infos = [state_info, TensorInfo((BATCH, 4), DataType.INT8, Quantization(scale, 3))]
    layer = layers.network.add_layer(Svdf(rank=1, activation_func=FusedActivation.RELU6), *operands, outputs=infos)
    array = layers.rng.integers(-128, 127, (BATCH, 9)).astype(np.int8)
    for result, expected in zip(*layers.results(layer, array, 1), strict=True):
        np.testing.assert_array_equal(result, expected)

"""LSTMs of CpuAcc whose states are quantized in each step, and those that it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.ops import LstmSequence, RecurrentDirection
from tests.backends.cpuacc.single import reference_results

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

STEPS, DEPTH, UNITS = 4, 9, 37


def network_of(
    op: LstmSequence, batch: int, dtype: type, by_row: bool, all_operands: bool
) -> tuple[ip.Network, list[Array]]:
    draw = np.random.default_rng(batch)
    network, limits = ip.Network("lstm"), np.iinfo(dtype)
    zero_point = 0 if dtype is np.int8 else 130
    quantization = Quantization(0.003, zero_point)
    if by_row:
        scales = np.linspace(0.002, 0.004, 4 * UNITS)
        quantization = Quantization(scales.tolist(), (zero_point + np.arange(4 * UNITS) % 3).tolist(), 1)
    weights = [
        network.add_constant_layer(
            draw.integers(limits.min, limits.max, (1, 4 * UNITS, columns), dtype, endpoint=True), quantization
        )
        for columns in (DEPTH, UNITS)
    ]
    arrays = [draw.normal(0, 1, (STEPS, batch, DEPTH)).astype(np.float32)]
    x = network.add_input_layer(0, TensorInfo(arrays[0].shape))
    bias, states = None, [None, None]
    if all_operands:
        bias = network.add_constant_layer(draw.normal(0, 1, (1, 8 * UNITS)).astype(np.float32))
        arrays += [draw.uniform(-1, 1, (1, batch, UNITS)).astype(np.float32) for _ in states]
        states = [network.add_input_layer(number, TensorInfo((1, batch, UNITS))) for number in (1, 2)]
    layer = network.add_layer(op, x, *weights, bias, None, *states)
    for number, output in enumerate(layer.outputs):
        network.add_output_layer(number, output)
    return network, arrays


@pytest.mark.parametrize("all_operands", [False, True], ids=["least", "all"])
@pytest.mark.parametrize("by_row", [False, True], ids=["one scale", "rows"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("batch", [1, 3, 6])
@pytest.mark.parametrize("direction", [RecurrentDirection.FORWARD, RecurrentDirection.REVERSE], ids=lambda d: d.value)
def test_an_lstm_quantizes_its_states(
    direction: RecurrentDirection, batch: int, dtype: type, by_row: bool, all_operands: bool
) -> None:
    op = LstmSequence(direction=direction, dynamic_quantization=True)
    network, arrays = network_of(op, batch, dtype, by_row, all_operands)
    with ip.load(network, ["CpuAcc"]) as model:
        results = model.run(arrays)
    for result, expected in zip(results, reference_results(network, arrays), strict=True):
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


def test_quantized_states_make_a_difference() -> None:
    rounding = LstmSequence(dynamic_quantization=True)
    with ip.load(network_of(rounding, 1, np.int8, False, True)[0], ["CpuAcc"]) as model:
        network, arrays = network_of(LstmSequence(), 1, np.int8, False, True)
        difference = np.abs(model.run(arrays)[0] - reference_results(network, arrays)[0]).max()
    assert 1e-4 < difference < 0.1


def test_states_that_are_not_finite_do_not_stop_an_lstm() -> None:
    network, arrays = network_of(LstmSequence(dynamic_quantization=True), 1, np.int8, False, True)
    arrays[1][0, 0, 5] = np.nan
    with ip.load(network, ["CpuAcc"]) as model:
        results = model.run(arrays)
    for result, expected in zip(results, reference_results(network, arrays), strict=True):
        np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))


@pytest.mark.parametrize(
    ("dtype", "with_lengths", "reason"),
    [(np.int8, True, "sequence lengths are not taken"), (np.float32, False, "takes 8 bits and one direction")],
    ids=["lengths", "weights"],
)
def test_refusals_name_what_is_not_taken(dtype: type, with_lengths: bool, reason: str) -> None:
    network, quantization = ip.Network("lstm"), Quantization(0.01, 0) if dtype is np.int8 else None
    x = network.add_input_layer(0, TensorInfo((STEPS, 2, DEPTH)))
    weights = [
        network.add_constant_layer(np.ones((1, 4 * UNITS, columns), dtype), quantization) for columns in (DEPTH, UNITS)
    ]
    lengths = network.add_input_layer(1, TensorInfo((2,), DataType.INT32)) if with_lengths else None
    layer = network.add_layer(LstmSequence(dynamic_quantization=True), x, *weights, None, lengths)
    network.add_output_layer(0, layer.outputs[0])
    with pytest.raises(ip.InterposerError) as caught:
        ip.load(network, ["CpuAcc"])
    assert reason in str(caught.value)
    assert "quantized in each step" not in str(caught.value)


@pytest.mark.parametrize("form", [{"clip": 1.0}, {"input_forget": True}], ids=["clip", "coupled"])
def test_other_forms_run_on_the_reference(form: dict[str, Any]) -> None:
    network, _ = network_of(LstmSequence(dynamic_quantization=True, **form), 1, np.int8, False, False)
    with ip.load(network, ["CpuAcc", "CpuRef"]) as model:
        assert "  CpuRef: 1 layer" in model.explain().summary()

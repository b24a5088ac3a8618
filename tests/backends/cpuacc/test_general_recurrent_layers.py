"""Recurrent layers of CpuAcc in their general forms give what the reference gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import InvalidValueError
from interposer.core.types import Array, DataType, TensorInfo
from interposer.ops import ActivationFunction, GruSequence, LstmSequence, RecurrentDirection, RnnSequence
from tests.backends.cpuacc.single import outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

BOTH = RecurrentDirection.BIDIRECTIONAL
OTHER_FUNCTIONS = (ActivationFunction.HARD_SIGMOID, ActivationFunction.SOFTSIGN, ActivationFunction.LEAKY_RELU)
LAYERS: dict[str, Any] = {
    "lstm": LstmSequence(direction=BOTH),
    "lstm with coupled gates": LstmSequence(direction=BOTH, input_forget=True, time_major=False),
    "lstm with other functions": LstmSequence(direction=BOTH, activations=OTHER_FUNCTIONS * 2, clip=0.4),
    "gru": GruSequence(direction=BOTH, time_major=False),
    "gru with a linear reset": GruSequence(direction=BOTH, linear_before_reset=True, clip=0.3),
    "gru with other functions": GruSequence(direction=BOTH, activations=OTHER_FUNCTIONS[:2] * 2),
    "simple": RnnSequence(direction=BOTH, activations=(ActivationFunction.RELU,) * 2, clip=1.5),
    "simple in reverse": RnnSequence(direction=RecurrentDirection.REVERSE, time_major=False),
}


def operands_of(op: Any, steps: int, batch: int, units: int, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    directions, rows = op.directions, op.gates * units

    def drawn(*shape: int) -> Array:
        return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    frame = (steps, batch) if op.time_major else (batch, steps)
    state = (directions, batch, units) if op.time_major else (batch, directions, units)
    arrays = {
        "input": drawn(*frame, 7),
        "weights": drawn(directions, rows, 7),
        "recurrent_weights": drawn(directions, rows, units),
        "bias": drawn(directions, 2 * rows),
        "sequence_lengths": rng.integers(0, steps + 1, batch).astype(np.int64 if batch % 2 else np.int32),
        "hidden_state_in": drawn(*state),
    }
    if isinstance(op, LstmSequence):
        arrays |= {"cell_state_in": drawn(*state), "peephole_weights": drawn(directions, 3 * units)}
    return arrays


def network_of(op: Any, arrays: dict[str, Array], constants: set[str]) -> ip.Network:
    """Return a network with the layer; the operands that are no constants are inputs, in order."""
    network = ip.Network("recurrent")
    operands = []
    for declared in op.operands:
        array = arrays.get(declared.name)
        if array is None:
            operands.append(None)
        elif declared.name in constants:
            operands.append(network.add_constant_layer(array).output)
        else:
            info = TensorInfo(array.shape, DataType.of(array.dtype))
            operands.append(network.add_input_layer(len(network.graph.inputs), info, name=declared.name).output)
    for n, output in enumerate(network.graph.add(op, operands).outputs):
        network.add_output_layer(n, output)
    return network


WEIGHTS = {"weights", "recurrent_weights", "bias", "peephole_weights"}


def assert_near(op: Any, arrays: dict[str, Array], constants: set[str], threads: int = 1) -> None:
    network = network_of(op, arrays, constants)
    given = [arrays[layer.name] for layer in network.graph.inputs]
    for result, expected in zip(*outcomes(network, given, threads), strict=True):
        np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(("batch", "units", "threads"), [(1, 5, 1), (3, 16, 2), (11, 33, 3)])
def test_sequences_of_different_lengths(layer: str, batch: int, units: int, threads: int) -> None:
    op = LAYERS[layer]
    assert_near(op, operands_of(op, 9, batch, units, batch), WEIGHTS, threads)


@pytest.mark.parametrize("layer", LAYERS)
def test_weights_that_are_inputs(layer: str) -> None:
    op = LAYERS[layer]
    assert_near(op, operands_of(op, 4, 2, 18, 5), set())


@pytest.mark.parametrize("layer", LAYERS)
def test_only_the_operands_that_every_layer_has(layer: str) -> None:
    op = LAYERS[layer]
    arrays = operands_of(op, 4, 2, 18, 5)
    assert_near(op, {name: arrays[name] for name in ("input", "weights", "recurrent_weights")}, WEIGHTS)


@pytest.mark.parametrize("length", [-1, 10])
def test_lengths_out_of_range_are_refused(length: int) -> None:
    op = LAYERS["lstm"]
    arrays = operands_of(op, 9, 2, 5, 0)
    arrays["sequence_lengths"][1] = length
    given = {name: array for name, array in arrays.items() if name not in WEIGHTS}
    with (
        ip.load(network_of(op, arrays, WEIGHTS), ["CpuAcc"]) as model,
        pytest.raises(InvalidValueError, match=rf"{length}\b.*expected 0 to 9"),
    ):
        model.run(given)

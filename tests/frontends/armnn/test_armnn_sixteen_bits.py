"""Layers with 16-bit values: Arm NN's float arithmetic in NumPy, and results of release 20.08."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array
from interposer.frontends import armnn

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")

from tests.frontends.armnn.build import Table, const, encode, info, one_layer

pytestmark = pytest.mark.needs_cpuref
STEP = 2.0**-12


def results(root: Table, *arrays: Array) -> list[Any]:
    network = armnn.load(encode(root))
    return ip.load(network, ["CpuRef"]).run({f"x{number}": array for number, array in enumerate(arrays)})


def encoded(real: Array, scale: float, offset: int, dtype: type[np.signedinteger]) -> Array:
    """Round half away from zero and saturate, as Arm NN encodes a value."""
    steps = np.float32(real) / np.float32(scale)
    rounded = np.trunc(steps + np.copysign(np.float32(0.5), steps)) + offset
    return np.clip(rounded, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)


# --- Resize -----------------------------------------------------------------------------------------------------------


def neighbours(size: int, target: int, corners: bool, centers: bool) -> tuple[Array, Array, Array]:
    ratio = np.float32(size - corners) / np.float32(target - corners)
    places = (np.arange(target, dtype=np.float32) + np.float32(0.5 * centers)) * ratio - np.float32(0.5 * centers)
    places = np.maximum(places, 0)
    low = np.floor(places).astype(int)
    return low, np.minimum(low + 1, size - 1), places - low


def interpolated(image: Array, height: int, width: int, corners: bool, centers: bool) -> Array:
    top, bottom, down = neighbours(image.shape[1], height, corners, centers)
    left, right, across = neighbours(image.shape[2], width, corners, centers)
    across, down = across[:, np.newaxis], down[:, np.newaxis, np.newaxis]
    above, below = (
        image[:, rows][:, :, left] * (1 - across) + image[:, rows][:, :, right] * across for rows in (top, bottom)
    )
    return above * (1 - down) + below * down


@pytest.mark.parametrize(("corners", "centers"), [(False, False), (True, False), (False, True)])
def test_a_bilinear_resize_of_16_bits_interpolates_floats(corners: bool, centers: bool) -> None:
    image = np.random.default_rng(3).integers(-32768, 32768, (1, 5, 4, 3)).astype(np.int16)
    fields = {"targetHeight": 11, "targetWidth": 7, "method": 1, "dataLayout": 0}
    fields |= {"alignCorners": corners, "halfPixelCenters": centers}
    infos = [info(shape, "QSymmS16", STEP) for shape in (image.shape, (1, 11, 7, 3))]
    [result] = results(one_layer("Resize", infos[:1], infos[1:], descriptor=fields), image)
    expected = encoded(interpolated(image * np.float32(STEP), 11, 7, corners, centers), STEP, 0, np.int16)
    assert np.abs(result.astype(int) - expected).max() <= 1


# --- QLstm ------------------------------------------------------------------------------------------------------------

GATES = {"Forget": 0, "Cell": 1, "Output": 2}
UNITS, INPUTS, SCALE, WEIGHT, CELL = 5, 4, 2.0**-7, 0.006, 2.0**-11


def q_lstm(biases: Array, operands: dict[str, Array]) -> Table:
    """Return a network of one QLstm with coupled gates; `biases` are those of the gates (3, U)."""
    params: dict[str, Table] = {}
    for gate, number in GATES.items():
        for kind in ("inputTo", "recurrentTo"):
            name = f"{kind}{gate}Weights"
            params[name] = const(operands[name], "QSymmS8", **info(operands[name].shape, "QSymmS8", WEIGHT))
        bias = "cellBias" if gate == "Cell" else f"{gate.lower()}GateBias"
        params[bias] = const(biases[number], "Signed32", **info((UNITS,), "Signed32", SCALE * WEIGHT))
    inputs = [info((2, INPUTS), "QAsymmS8", SCALE), info((2, UNITS), "QAsymmS8", SCALE)]
    states = [inputs[1], info((2, UNITS), "QSymmS16", CELL)]
    scales = {f"{gate}IntermediateScale": STEP for gate in ("input", "forget", "cell", "output")}
    descriptor = {"cifgEnabled": True, "hiddenStateScale": SCALE, "hiddenStateZeroPoint": 0, **scales}
    return one_layer("QLstm", [inputs[0], *states], [*states, inputs[1]], descriptor=descriptor, inputParams=params)


def drawn(generator: np.random.Generator) -> dict[str, Array]:
    shapes = {f"{kind}To{gate}Weights": (UNITS, size) for gate in GATES
              for kind, size in (("input", INPUTS), ("recurrent", UNITS))}  # fmt: skip
    shapes |= {"input": (2, INPUTS), "state": (2, UNITS)}
    numbers = {name: generator.integers(-128, 128, shape).astype(np.int8) for name, shape in shapes.items()}
    return numbers | {"cell": generator.integers(-16000, 16000, (2, UNITS)).astype(np.int16)}


def expected(operands: dict[str, Array]) -> tuple[Array, Array]:
    """Return output and cell state: real values, of which each intermediate one is encoded in 16 bits."""
    x, state, cell = (operands[name].astype(np.float32) for name in ("input", "state", "cell"))
    gates = []
    for gate in GATES:
        gate_sum = np.zeros((2, UNITS), np.float32)
        for name, data in ((f"inputTo{gate}Weights", x), (f"recurrentTo{gate}Weights", state)):
            product = np.float32(data * np.float32(SCALE)) @ (operands[name].T * np.float32(WEIGHT))
            gate_sum = np.float32(encoded(gate_sum + product, STEP, 0, np.int16) * STEP)
        function = np.tanh if gate == "Cell" else lambda sums: 1 / (1 + np.exp(-sums))
        gates.append(np.float32(encoded(function(gate_sum), CELL, 0, np.int16) * CELL))
    forget, candidate, output = gates
    kept = np.float32(encoded(forget * cell * np.float32(CELL), CELL, 0, np.int16) * CELL)
    next_cell = encoded(kept + candidate * (1 - forget), CELL, 0, np.int16)
    activated = np.float32(encoded(np.tanh(next_cell * np.float32(CELL)), CELL, 0, np.int16) * CELL)
    return encoded(output * activated, SCALE, 0, np.int8), next_cell


@pytest.mark.parametrize("bias", [0, 20000])
def test_a_q_lstm_without_layer_normalization_has_no_biases_and_is_a_step_off_at_most(bias: int) -> None:
    generator = np.random.default_rng(8)
    for _ in range(10):
        operands = drawn(generator)
        root = q_lstm(np.full((3, UNITS), bias, np.int32), operands)
        state, cell, output = results(root, operands["input"], operands["state"], operands["cell"])
        expected_output, expected_cell = expected(operands)
        assert np.abs(output.astype(int) - expected_output).max() <= 1
        assert np.abs(cell.astype(int) - expected_cell).max() <= 16
        np.testing.assert_array_equal(state, output)


def test_a_q_lstm_gives_what_arm_nn_gave() -> None:
    operands = drawn(np.random.default_rng(8))
    root = q_lstm(np.full((3, UNITS), 20000, np.int32), operands)
    output, cell, _ = results(root, operands["input"], operands["state"], operands["cell"])
    recorded = [[-44, -1, -35, -39, 10], [68, 62, 104, 72, 81]]
    recorded_cell = [[-1936, -39, -6550, -1893, 261], [7778, 3241, 5524, 3827, 3684]]
    assert np.abs(output.astype(int) - recorded).max() <= 1
    assert np.abs(cell.astype(int) - recorded_cell).max() <= 6

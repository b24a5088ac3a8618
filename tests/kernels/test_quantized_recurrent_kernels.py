"""LSTMs in integers: near to float values, and what they take. Bit for bit they are compared with TFLite elsewhere."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Quantization, TensorInfo
from interposer.kernels import evaluate
from interposer.ops import FusedActivation, Lstm, QLstm, QuantizedLstm, UnidirectionalSequenceLstm

BATCH, INPUTS, UNITS, OUTPUTS = 2, 3, 5, 4
GATES = ("input", "forget", "cell", "output")
DATA, CELL, WEIGHTS, NARROW = Quantization(1 / 64, 5), Quantization(2**-11), Quantization(1 / 100), Quantization(1e-4)
HIDDEN = ("hidden_state_scale", "hidden_state_zero_point")
SCALES = {f"{gate}_intermediate_scale": 2.0**-10 for gate in GATES}


def layer(cifg=False, peephole=False, projection=False, norm=False, **more):
    hidden = Quantization(1 / 120, 7) if projection else DATA  # without a projection the hidden state is the output
    scales = SCALES | {"hidden_state_scale": hidden.scale, "hidden_state_zero_point": hidden.zero_point}
    return QLstm(
        cifg_enabled=cifg,
        peephole_enabled=peephole,
        projection_enabled=projection,
        layer_norm_enabled=norm,
        **scales | more,
    )


def tensors(op, seed=0):
    """Operands by name: stored integers and quantizations."""
    rng = np.random.default_rng(seed)
    outputs = OUTPUTS if op.projection_enabled else UNITS
    operands = {
        "input": (rng.integers(-128, 128, (BATCH, INPUTS)).astype(np.int8), DATA),
        "output_state_in": (rng.integers(-90, 90, (BATCH, outputs)).astype(np.int8), DATA),
        "cell_state_in": (rng.integers(-4000, 4000, (BATCH, UNITS)).astype(np.int16), CELL),
    }
    for gate in GATES[op.cifg_enabled :]:
        for kind, count in (("input", INPUTS), ("recurrent", outputs)):
            operands[f"{kind}_to_{gate}_weights"] = rng.integers(-99, 99, (UNITS, count)).astype(np.int8), WEIGHTS
        if op.peephole_enabled and gate != "cell":
            operands[f"cell_to_{gate}_weights"] = rng.integers(-9999, 9999, UNITS).astype(np.int16), NARROW
        if op.layer_norm_enabled:
            operands[f"{gate}_layer_norm_weights"] = rng.integers(3000, 9999, UNITS).astype(np.int16), NARROW
        scale = NARROW.scale / 1024 if op.layer_norm_enabled else DATA.scale * WEIGHTS.scale
        bias = np.round(rng.normal(size=UNITS) / scale).astype(np.int32)
        operands["cell_bias" if gate == "cell" else f"{gate}_gate_bias"] = bias, Quantization(scale)
    if op.projection_enabled:
        operands["projection_weights"] = rng.integers(-99, 99, (outputs, UNITS)).astype(np.int8), WEIGHTS
        scale = WEIGHTS.scale * (op.hidden_state_scale or 1)
        operands["projection_bias"] = rng.integers(-300, 300, outputs).astype(np.int32), Quantization(scale)
    return operands


def run(op, made, results=None):
    """All results by name, as stored integers."""
    arrays = [made.get(declared.name, (None, None))[0] for declared in op.operands]
    infos = [
        None if x is None else TensorInfo(x.shape, x.dtype, made[declared.name][1])
        for declared, x in zip(op.operands, arrays, strict=True)
    ]
    assert op.violations(*infos) == []
    names = [op.result_name(index) for index in range(op.num_results())]
    outputs = [
        info.with_quantization((results or {}).get(name, info.quantization))
        for name, info in zip(names, op.infer_infos(*infos), strict=True)
    ]
    return dict(zip(names, evaluate(op, arrays, infos, outputs), strict=True))


def real(made):
    return {
        name: ((codes.astype(np.float64) - q.zero_point) * q.scale).astype(np.float32)
        for name, (codes, q) in made.items()
    }


def in_real_numbers(op, made):
    names = ("cifg_enabled", "peephole_enabled", "projection_enabled", "layer_norm_enabled")
    flags = {name: getattr(op, name) for name in names}
    exact = Lstm(activation_func=FusedActivation.TANH, clipping_thres_cell=op.cell_clip,
                 clipping_thres_proj=op.projection_clip, **flags)  # fmt: skip
    return run(exact, {name: (array, None) for name, array in real(made).items()})


@pytest.mark.parametrize("features", list(product([False, True], repeat=4)))
def test_a_step_in_integers_is_near_the_one_in_real_numbers(features):
    op = layer(*features)
    operands = tensors(op)
    result, expected = run(op, operands), in_real_numbers(op, operands)
    np.testing.assert_allclose((result["output"] - 5.0) / 64, expected["output"], atol=0.06)
    np.testing.assert_allclose(result["cell_state_out"] * 2.0**-11, expected["cell_state_out"], atol=0.02)
    np.testing.assert_array_equal(result["output"], result["output_state_out"])


def test_cell_and_projection_are_clipped():
    op = layer(projection=True, cell_clip=0.25, projection_clip=0.125)
    result = run(op, tensors(op))
    assert np.abs(result["cell_state_out"]).max() == 0.25 * 2**11
    assert result["output"].max() == 0.125 * 64  # stored integers are bound, whatever their zero point, as in TFLite


@pytest.mark.parametrize("projection", [False, True])
def test_the_zero_point_of_the_hidden_state_moves_what_lies_between_only(projection):
    op = layer(projection=projection, hidden_state_scale=1 / 60)
    operands = tensors(op)
    plain, moved = (run(op.replace(hidden_state_zero_point=point), operands)["output"] for point in (0, 9))
    np.testing.assert_array_equal(moved.astype(int) - plain, 0 if projection else 9)


def test_without_projection_the_hidden_state_is_stored_like_the_output_if_nothing_else_is_said():
    op = layer()
    operands = tensors(op)
    silent = op.replace(hidden_state_scale=0.0, hidden_state_zero_point=0)
    np.testing.assert_array_equal(run(silent, operands)["output"], run(op, operands)["output"])


def test_a_sequence_is_steps_one_after_the_other():
    op = layer(True, True, True, True)
    operands, steps = tensors(op), np.random.default_rng(5).integers(-128, 128, (4, BATCH, INPUTS)).astype(np.int8)
    names = ("cifg_enabled", "peephole_enabled", "projection_enabled", "layer_norm_enabled")
    attributes = {name: getattr(op, name) for name in (*names, *SCALES, *HIDDEN)}
    sequence_op = UnidirectionalSequenceLstm(activation_func=FusedActivation.TANH, time_major=True, **attributes)
    result = run(sequence_op, operands | {"input": (steps, DATA)})
    for step, x in enumerate(steps):
        last = run(op, operands | {"input": (x, DATA)})
        np.testing.assert_array_equal(result["output"][step], last["output"])
        operands |= {
            "output_state_in": (last["output_state_out"], DATA),
            "cell_state_in": (last["cell_state_out"], CELL),
        }
    np.testing.assert_array_equal(result["cell_state_out"], operands["cell_state_in"][0])
    turned = run(sequence_op.replace(time_major=False), tensors(op) | {"input": (steps.swapaxes(0, 1), DATA)})
    np.testing.assert_array_equal(turned["output"], result["output"].swapaxes(0, 1))


def test_a_sequence_whose_function_is_no_tangent_is_computed_in_real_numbers():
    op = layer(True)
    operands = tensors(op)
    sequence_op = UnidirectionalSequenceLstm(activation_func=FusedActivation.RELU)
    result = run(sequence_op, operands | {"input": (operands["input"][0][:, np.newaxis], DATA)})
    expected = run(Lstm(), {name: (array, None) for name, array in real(operands).items()})
    np.testing.assert_allclose((result["output"][:, 0] - 5.0) / 64, expected["output"].clip(-2.1, 1.9), atol=0.01)


@pytest.mark.parametrize(
    ("op", "change", "reason"),
    [
        (layer(), {"cell_state_in": Quantization(0.001)},
         "cell_state_in is int16[2, 5] q(0.001, 0); takes a scale that is a power of 2, from 2**-15 to 2**-9"),
        (layer(), {"cell_state_in": Quantization(2**-8)},
         "cell_state_in is int16[2, 5] q(0.00390625, 0); takes a scale that is a power of 2, from 2**-15 to 2**-9"),
        (layer(), {"input": None}, "input is int8[2, 3]; takes tensors quantized with one scale"),
        (layer(), {"input_to_cell_weights": Quantization(0.1, 4)},
         "input_to_cell_weights has zero point 4; takes 0"),
        (layer(norm=True, cell_intermediate_scale=0.0), {},
         "cell_intermediate_scale is 0; takes the scale of what is normalized"),
        (layer(projection=True, hidden_state_scale=0.0), {},
         "hidden_state_scale is 0; takes the scale of what is projected"),
    ],
)  # fmt: skip
def test_what_the_integers_cannot_compute_is_refused(op, change, reason):
    operands = tensors(op)
    operands |= {name: (operands[name][0], quantization) for name, quantization in change.items()}
    with pytest.raises(InvalidArgumentError) as caught:
        run(op, operands)
    assert str(caught.value) == f"QLstm: {reason}"


def test_results_are_quantized_like_the_states():
    op = layer()
    with pytest.raises(InvalidArgumentError) as caught:
        run(op, tensors(op), {"output": Quantization(0.5)})
    assert str(caught.value) == (
        "QLstm: output 2 is int8[2, 5] q(0.5, 0); takes one quantized like output_state_in, "
        "which is int8[2, 5] q(0.015625, 5)"
    )


@pytest.mark.parametrize("absent", [{"output_state_in"}, {"cell_state_in"}, {"output_state_in", "cell_state_in"}])
def test_a_sequence_of_integers_without_states_is_computed_in_real_numbers(absent):
    operands = tensors(layer(True))
    x = operands["input"][0][:, np.newaxis]
    zeros = {
        name: (np.full_like(operands[name][0], operands[name][1].zero_point), operands[name][1]) for name in absent
    }
    op = UnidirectionalSequenceLstm(activation_func=FusedActivation.TANH)
    arguments = operands | {"input": (x, DATA)}
    results = {"output_state_out": DATA, "cell_state_out": Quantization(0.05), "output": DATA}
    without = run(op, {name: value for name, value in arguments.items() if name not in absent}, results)
    expected = run(Lstm(activation_func=FusedActivation.TANH), {
        name: (array, None) for name, array in real(operands | zeros).items()
    })  # fmt: skip
    stored_cell = np.round(expected["cell_state_out"] / 0.05) * 0.05  # the output is made of the cell that is stored
    output = expected["output"] / np.tanh(expected["cell_state_out"]) * np.tanh(stored_cell)
    np.testing.assert_array_equal(without["cell_state_out"], np.round(stored_cell / 0.05))
    np.testing.assert_allclose((without["output"][:, 0] - 5.0) / 64, output, atol=0.01)


# --- QuantizedLstm ----------------------------------------------------------------------------------------------------

CODES, CELL16, WEIGHTS8 = Quantization(1 / 128, 128), Quantization(2**-11), Quantization(1 / 50, 120)


def basic_tensors(inputs=UNITS, seed=0):
    rng = np.random.default_rng(seed)
    operands = {
        "input": (rng.integers(0, 256, (BATCH, inputs)).astype(np.uint8), CODES),
        "cell_state_in": (rng.integers(-9000, 9000, (BATCH, UNITS)).astype(np.int16), CELL16),
        "output_state_in": (rng.integers(0, 256, (BATCH, UNITS)).astype(np.uint8), CODES),
    }
    for gate in GATES:
        for kind, count in (("input", inputs), ("recurrent", UNITS)):
            operands[f"{kind}_to_{gate}_weights"] = rng.integers(0, 256, (UNITS, count)).astype(np.uint8), WEIGHTS8
        bias = rng.integers(-5000, 5000, UNITS).astype(np.int32)
        operands["cell_bias" if gate == "cell" else f"{gate}_gate_bias"] = bias, Quantization(1 / 50 / 128)
    return operands


def test_the_basic_layer_is_near_real_numbers_with_its_weights_crossed():
    """Where there are as many inputs as units, crossing means that the two kinds of weights change places."""
    operands = basic_tensors()
    result = run(QuantizedLstm(), operands)
    crossed = operands | {
        f"{kind}_to_{gate}_weights": operands[f"{other}_to_{gate}_weights"]
        for kind, other in (("input", "recurrent"), ("recurrent", "input"))
        for gate in GATES
    }
    arrays = {name: (array, None) for name, array in real(crossed).items()}
    expected = run(Lstm(activation_func=FusedActivation.TANH, cifg_enabled=False), arrays)
    np.testing.assert_allclose((result["output"] - 128.0) / 128, expected["output"], atol=0.01)
    np.testing.assert_allclose(result["cell_state_out"] * 2.0**-11, expected["cell_state_out"], atol=0.005)


def test_the_first_weights_of_a_row_meet_the_inputs():
    operands = basic_tensors(inputs=2)
    for gate in GATES:
        operands[f"recurrent_to_{gate}_weights"][0][:, :2] = 120  # the zero point
    changed = operands | {"input": (255 - operands["input"][0], CODES)}
    np.testing.assert_array_equal(run(QuantizedLstm(), changed)["output"], run(QuantizedLstm(), operands)["output"])


@pytest.mark.parametrize(
    ("name", "quantization", "reason"),
    [
        ("input", Quantization(0.5, 128), "input is uint8[2, 5] q(0.5, 128); takes q(0.0078125, 128)"),
        ("recurrent_to_cell_weights", Quantization(0.5),
         "recurrent_to_cell_weights is uint8[5, 5] q(0.5, 0); takes weights that all have one quantization"),
        ("cell_state_in", Quantization(2**-12),
         "cell_state_in is int16[2, 5] q(0.000244141, 0); takes scale 2**-11 and zero point 0"),
    ],
)  # fmt: skip
def test_other_quantizations_are_refused_by_the_basic_layer(name, quantization, reason):
    operands = basic_tensors()
    operands[name] = operands[name][0], quantization
    with pytest.raises(InvalidArgumentError) as caught:
        run(QuantizedLstm(), operands)
    assert reason in str(caught.value)

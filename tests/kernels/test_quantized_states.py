"""Quantized states of recurrent layers: every step uses a state as it is stored, rounded and clamped to its type."""

from __future__ import annotations

import numpy as np
import pytest

from interposer import ops
from interposer.core.schema import Op
from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.kernels.evaluation import evaluate, reference
from interposer.kernels.table import KernelInfo

BATCH, STEPS, INPUTS, UNITS = 2, 5, 3, 4
COARSE = Quantization(1 / 8, 3)
DATA = TensorInfo((BATCH, STEPS, INPUTS), DataType.INT8, Quantization(1 / 32, -3))


def drawn(info: TensorInfo, seed: int) -> Array:
    return np.random.default_rng(seed).integers(-100, 100, tuple(info.shape)).astype(info.dtype.numpy)


def operand(name: str, op: Op) -> TensorInfo:
    """An info for a small recurrent layer, in which all states are of 8 bits with few steps for each unit."""
    sequence = "Sequence" in op.op_name() and op.op_name().startswith(("Rnn", "Gru", "Lstm"))
    gates = {"RnnSequence": 1, "GruSequence": 3, "LstmSequence": 4}.get(op.op_name(), 1)
    if name.endswith("state_in"):
        return TensorInfo((1, BATCH, UNITS) if sequence else (BATCH, UNITS), DataType.INT8, COARSE)
    if sequence:
        sizes = {"weights": INPUTS, "recurrent_weights": UNITS}
        shape = (1, gates * UNITS, sizes[name]) if name in sizes else (1, 2 * gates * UNITS)
    elif name.endswith("bias"):
        shape = (UNITS,)
    else:
        shape = (UNITS, UNITS if "recurrent" in name else INPUTS)
    return TensorInfo(shape, DataType.INT8, Quantization(1 / 128))


def results_of(
    op: Op, x: Array, arrays: dict[str, Array], infos: dict[str, TensorInfo], state: dict[str, Array]
) -> dict[str, Array]:
    """Run a layer on a sequence; return its output and its last states."""
    names = [declared.name for declared in op.operands]
    given = {"input": x, **arrays, **state}
    given_infos = {**infos, "input": DATA.with_shape(x.shape)}
    in_order = [given_infos.get(name) for name in names]
    results = [declared.name for declared in op.results]
    outputs = [info.with_dtype(DataType.INT8).with_quantization(COARSE) for info in op.infer_infos(*in_order)]
    return dict(zip(results, evaluate(op, [given.get(name) for name in names], in_order, outputs), strict=True))


@pytest.mark.parametrize(
    "op",
    [
        ops.UnidirectionalSequenceRnn(),
        ops.UnidirectionalSequenceLstm(peephole_enabled=False),
        ops.RnnSequence(time_major=True),
        ops.GruSequence(time_major=True),
        ops.LstmSequence(time_major=True),
    ],
    ids=lambda op: op.op_name(),
)
def test_a_sequence_with_quantized_states_gives_the_results_of_its_steps_one_by_one(op: Op) -> None:
    time_axis = 0 if getattr(op, "time_major", False) else 1
    shape = (STEPS, BATCH, INPUTS) if time_axis == 0 else (BATCH, STEPS, INPUTS)
    required = [
        declared.name for declared in op.operands if not declared.optional or declared.name.endswith("state_in")
    ]
    if isinstance(op, ops.UnidirectionalSequenceLstm):
        required += ["input_to_input_weights", "recurrent_to_input_weights", "input_gate_bias"]
    infos = {name: operand(name, op) for name in dict.fromkeys(required) if name != "input"}
    arrays = {name: drawn(info, seed) for seed, (name, info) in enumerate(infos.items())}
    states = {name: arrays.pop(name) for name in list(arrays) if name.endswith("state_in")}
    x = drawn(DATA.with_shape(shape), 99)
    whole = results_of(op, x, arrays, infos, states)
    pieces = []
    for part in np.split(x, STEPS, axis=time_axis):
        latest = results_of(op, part, arrays, infos, states)
        states = {name: latest[f"{name.removesuffix('_in')}_out"] for name in states}
        pieces.append(latest["output"])
    np.testing.assert_array_equal(whole["output"], np.concatenate(pieces, axis=time_axis))
    for name, state in states.items():
        np.testing.assert_array_equal(whole[f"{name.removesuffix('_in')}_out"], state)


def test_svdf_with_a_state_of_8_bits_uses_the_new_projection_as_it_is_stored() -> None:
    state = TensorInfo((1, 2), DataType.INT8, Quantization(0.5))
    infos = [
        TensorInfo((1, 1), DataType.INT8, Quantization(1.0)),
        TensorInfo((1, 1), DataType.INT8, Quantization(0.7)),
        TensorInfo((1, 2), DataType.INT8, Quantization(1.0)),
        None,
        state,
    ]
    outputs = [state, TensorInfo((1, 1), DataType.INT16, Quantization(0.1))]

    def output(x: int) -> float:
        arrays = [np.int8([[x]]), np.int8([[1]]), np.int8([[0, 1]]), None, np.int8([[0, 0]])]
        return float(evaluate(ops.Svdf(), arrays, infos, outputs)[1][0, 0]) * 0.1

    assert output(1) == pytest.approx(0.5)  # the projection of 0.7 is stored as 0.5
    assert output(127) == pytest.approx(63.5)  # that of 88.9 is clamped


@pytest.mark.parametrize(
    ("activation", "expected"),
    [("NONE", [-5, 5]), ("RELU", [0, 5]), ("RELU_N1_TO_1", [-1, 1]), ("RELU6", [0, 5])],
)
def test_svdf_of_integers_clamps_to_the_bounds_of_its_activation(activation: str, expected: list[float]) -> None:
    state = TensorInfo((1, 2), DataType.INT16, Quantization(1.0))
    infos = [
        TensorInfo((1, 1), DataType.INT8, Quantization(1.0)),
        TensorInfo((1, 1), DataType.INT8, Quantization(1.0)),
        TensorInfo((1, 2), DataType.INT16, Quantization(1.0)),
        None,
        state,
    ]
    outputs = [state, TensorInfo((1, 1), DataType.INT8, Quantization(0.5))]
    op = ops.Svdf(activation_func=ops.FusedActivation[activation])

    def output(x: int) -> float:
        arrays = [np.int8([[x]]), np.int8([[1]]), np.int16([[0, 1]]), None, np.int16([[0, 0]])]
        return float(evaluate(op, arrays, infos, outputs)[1][0, 0]) * 0.5

    assert [output(-5), output(5)] == expected


def test_a_state_with_scales_along_an_axis_is_refused_by_name() -> None:
    state = TensorInfo((1, 2), DataType.INT8, Quantization((0.5, 0.25), (0, 0), axis=1))
    x = TensorInfo((1, 1), DataType.FLOAT32)
    infos = [x, x, TensorInfo((1, 2), DataType.FLOAT32), None, state]
    [*_, of_floats] = reference().kernels(ops.Svdf)
    [reason] = of_floats.reasons(ops.Svdf(), KernelInfo.of(ops.Svdf(), infos, [state, x]))
    assert reason == "state_out has scales along axis 1; takes states with one scale"

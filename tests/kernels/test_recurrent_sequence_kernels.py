"""Whole recurrent layers, against their formulas sequence by sequence, and against the evaluator of ONNX."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer.core.errors import InvalidValueError
from interposer.core.types import DataType, TensorInfo
from interposer.kernels import evaluate
from interposer.ops import ActivationFunction, GruSequence, LstmSequence, RecurrentDirection, RnnSequence

STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 4, 2
LAYERS = (RnnSequence, GruSequence, LstmSequence)
DIRECTIONS = tuple(RecurrentDirection)


def random(*shape, seed):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def operands(cls, directions=1, *, seed=0, peephole=True):
    """Random operands by name, with states."""
    rows = cls.gates * HIDDEN
    arrays = {
        "input": random(STEPS, BATCH, INPUTS, seed=seed),
        "weights": random(directions, rows, INPUTS, seed=seed + 1),
        "recurrent_weights": random(directions, rows, HIDDEN, seed=seed + 2),
        "bias": random(directions, 2 * rows, seed=seed + 3),
        "hidden_state_in": random(directions, BATCH, HIDDEN, seed=seed + 4),
    }
    if cls is LstmSequence:
        arrays["cell_state_in"] = random(directions, BATCH, HIDDEN, seed=seed + 5)
        arrays |= {"peephole_weights": random(directions, 3 * HIDDEN, seed=seed + 6)} if peephole else {}
    return arrays


def run(op, **arrays):
    """All results by name."""
    order = [arrays.get(declared.name) for declared in op.operands]
    infos = [None if x is None else TensorInfo(x.shape, x.dtype) for x in order]
    assert op.violations(*infos) == []
    names = [op.result_name(index) for index in range(op.num_results())]
    return dict(zip(names, evaluate(op, order, infos, op.infer_infos(*infos)), strict=True))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rnn(op, w, x, h, c):
    return np.tanh(w["W"] @ x + w["R"] @ h + w["Wb"] + w["Rb"]), c


def gru(op, w, x, h, c):
    (wz, wr, wh), (rz, rr, rh) = np.split(w["W"], 3), np.split(w["R"], 3)
    (wbz, wbr, wbh), (rbz, rbr, rbh) = np.split(w["Wb"], 3), np.split(w["Rb"], 3)
    z, r = sigmoid(wz @ x + rz @ h + wbz + rbz), sigmoid(wr @ x + rr @ h + wbr + rbr)
    hidden_products = r * (rh @ h + rbh) if op.linear_before_reset else rh @ (r * h) + rbh
    return (1 - z) * np.tanh(wh @ x + hidden_products + wbh) + z * h, c


def lstm(op, w, x, h, c):
    i, o, f, g = np.split(w["W"] @ x + w["R"] @ h + w["Wb"] + w["Rb"], 4)
    pi, po, pf = np.split(w["P"], 3)
    i = sigmoid(i + pi * c)
    f = 1 - i if op.input_forget else sigmoid(f + pf * c)
    c = f * c + i * np.tanh(g)
    return sigmoid(o + po * c) * np.tanh(c), c


FORMULAS = {RnnSequence: rnn, GruSequence: gru, LstmSequence: lstm}


@pytest.mark.parametrize("cls", LAYERS)
def test_a_wide_input_is_not_rounded_to_the_type_of_the_weights(cls):
    weights = {name: operands(cls)[name] for name in ("weights", "recurrent_weights")}
    weights["recurrent_weights"][:] = 0
    thirds = np.full((STEPS, BATCH, INPUTS), 1 / 3)
    results = run(cls(), input=thirds, **weights)
    expected = run(cls(), input=thirds, **{name: array.astype(np.float64) for name, array in weights.items()})
    np.testing.assert_allclose(results["output"], expected["output"], rtol=1e-13)


def by_formula(op, arrays, lengths=None):
    """All results by name, computed for every sequence alone."""
    lengths = [STEPS] * BATCH if lengths is None else lengths
    reversals = op.direction.reversals
    outputs = np.zeros((STEPS, len(reversals), BATCH, HIDDEN))
    hidden, cell = np.zeros(outputs.shape[1:]), np.zeros(outputs.shape[1:])
    for d, reverse in enumerate(reversals):
        bias = np.split(arrays["bias"][d], 2)
        w = {"W": arrays["weights"][d], "R": arrays["recurrent_weights"][d], "Wb": bias[0], "Rb": bias[1]}
        w["P"] = arrays["peephole_weights"][d] if "peephole_weights" in arrays else np.zeros(3 * HIDDEN)
        for b, length in enumerate(lengths):
            h = arrays["hidden_state_in"][d, b]
            c = arrays["cell_state_in"][d, b] if "cell_state_in" in arrays else None
            for t in reversed(range(length)) if reverse else range(length):
                h, c = FORMULAS[type(op)](op, w, arrays["input"][t, b], h, c)
                outputs[t, d, b] = h
            hidden[d, b] = h
            cell[d, b] = 0 if c is None else c
    result = {"output": outputs, "hidden_state_out": hidden}
    return result | ({"cell_state_out": cell} if isinstance(op, LstmSequence) else {})


def same(actual, expected, tolerance=1e-5):
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=tolerance, atol=tolerance, err_msg=name)


OPTIONS = [
    RnnSequence(),
    GruSequence(),
    GruSequence(linear_before_reset=True),
    LstmSequence(),
    LstmSequence(input_forget=True),
]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op", OPTIONS, ids=repr)
def test_a_layer_follows_its_formula_in_every_direction(op, direction):
    op = op.replace(direction=direction)
    arrays = operands(type(op), op.directions)
    same(run(op, **arrays), by_formula(op, arrays))


@given(st.lists(st.integers(0, STEPS), min_size=BATCH, max_size=BATCH), st.sampled_from(LAYERS))
def test_sequences_end_where_their_lengths_say(lengths, cls):
    op = cls(direction=RecurrentDirection.BIDIRECTIONAL)
    arrays = operands(cls, 2)
    result = run(op, sequence_lengths=np.array(lengths, np.int32), **arrays)
    same(result, by_formula(op, arrays, lengths))


def test_equal_lengths_of_all_steps_change_nothing():
    arrays = operands(GruSequence)
    lengths = np.full(BATCH, STEPS, np.int64)
    same(run(GruSequence(), sequence_lengths=lengths, **arrays), run(GruSequence(), **arrays), 0)


def test_lengths_beyond_the_steps_are_refused():
    with pytest.raises(InvalidValueError, match=r"^sequence_lengths has 6 at \[1\]; expected 0 to 5$"):
        run(RnnSequence(), sequence_lengths=np.int32([5, 6, 1]), **operands(RnnSequence))


@pytest.mark.parametrize("cls", LAYERS)
def test_batch_and_time_can_change_places(cls):
    op, arrays = cls(direction=RecurrentDirection.BIDIRECTIONAL), operands(cls, 2)
    turned = {
        name: array.swapaxes(0, 1) if name == "input" or name.endswith("state_in") else array
        for name, array in arrays.items()
    }
    result = run(op.replace(time_major=False), **turned)
    for name, expected in run(op, **arrays).items():
        batch_first = expected.transpose(2, 0, 1, 3) if name == "output" else expected.swapaxes(0, 1)
        np.testing.assert_array_equal(result[name], batch_first)


@pytest.mark.parametrize("cls", LAYERS)
def test_what_is_absent_is_zeros(cls):
    arrays = operands(cls)
    zeros = {name: np.zeros_like(array) for name, array in arrays.items()}
    zeros |= {name: arrays[name] for name in ("input", "weights", "recurrent_weights")}
    few = {name: arrays[name] for name in ("input", "weights", "recurrent_weights")}
    same(run(cls(), **few), run(cls(), **zeros), 1e-6)


def test_both_directions_have_functions_of_their_own_with_parameters():
    op = RnnSequence(
        direction=RecurrentDirection.BIDIRECTIONAL,
        activations=(ActivationFunction.TANH, ActivationFunction.LINEAR),
        activation_a=(0.5, 0.25),
        activation_b=(2.0, 1.0),
    )
    arrays = operands(RnnSequence, 2) | {"recurrent_weights": np.zeros((2, HIDDEN, HIDDEN), np.float32)}
    result = run(op, **arrays)["output"]
    for direction, function in enumerate((lambda x: 0.5 * np.tanh(2 * x), lambda x: 0.25 * x + 1)):
        total = arrays["input"] @ arrays["weights"][direction].T + np.split(arrays["bias"][direction], 2)[0]
        expected = function(total + np.split(arrays["bias"][direction], 2)[1])
        np.testing.assert_allclose(result[:, direction], expected, rtol=1e-5, atol=1e-5)


def test_what_goes_into_the_gates_is_clipped_and_the_cell_state_is_not():
    op = LstmSequence(clip=0.1, activations=(ActivationFunction.LINEAR,) * 3, activation_b=(0.0,) * 3)
    arrays = operands(LstmSequence, peephole=False) | {"cell_state_in": np.full((1, BATCH, HIDDEN), 50, np.float32)}
    one_direction = {name: array[:1] if name == "input" else array for name, array in arrays.items()}
    one_direction |= {"weights": arrays["weights"] * 1e6}  # so that everything is clipped
    result = run(op, **one_direction)
    signs = np.sign(np.split((one_direction["input"] @ one_direction["weights"][0].T)[0], 4, axis=-1))
    cell = 0.1 * signs[2] * 50 + 0.01 * signs[0] * signs[3]
    np.testing.assert_allclose(result["cell_state_out"][0], cell, rtol=1e-5)
    np.testing.assert_allclose(result["output"][0, 0], 0.1 * signs[1] * cell, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_floats_of_any_width_are_taken_and_rounded_once(dtype):
    kind = DataType.of(dtype).numpy
    arrays = {name: array.astype(kind) for name, array in operands(LstmSequence).items()}
    wide = np.float64 if dtype == "float64" else np.float32
    expected = run(LstmSequence(), **{name: array.astype(wide) for name, array in arrays.items()})
    for name, array in run(LstmSequence(), **arrays).items():
        np.testing.assert_array_equal(array, expected[name].astype(kind), strict=True)


@pytest.mark.parametrize(
    ("name", "op", "attributes"),
    [
        ("RNN", RnnSequence(), {}),
        ("GRU", GruSequence(), {}),
        ("GRU", GruSequence(linear_before_reset=True), {"linear_before_reset": 1}),
        ("LSTM", LstmSequence(), {}),
    ],
)
def test_the_evaluator_of_onnx_gives_the_same(name, op, attributes):
    helper = pytest.importorskip("onnx.helper", reason="the evaluator of ONNX is not installed")
    from onnx import TensorProto
    from onnx.reference import ReferenceEvaluator

    arrays = operands(type(op), peephole=True)
    order = [arrays.get(declared.name) for declared in op.operands]
    names = [declared.name if array is not None else "" for declared, array in zip(op.operands, order, strict=True)]
    results = [result.name for result in op.results]
    node = helper.make_node(name, names, results, hidden_size=HIDDEN, **attributes)
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info(key, TensorProto.FLOAT, x.shape) for key, x in arrays.items()],
        [helper.make_tensor_value_info(key, TensorProto.FLOAT, None) for key in results],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
    expected = ReferenceEvaluator(model).run(None, arrays)
    actual = run(op, **arrays)
    for key, array in zip(results, expected, strict=True):
        np.testing.assert_allclose(actual[key], array, rtol=1e-5, atol=1e-5, err_msg=key)

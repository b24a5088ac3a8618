"""LSTMs of float values, against the definition step by step and by what must be the same."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.kernels import evaluate
from interposer.ops import BidirectionalSequenceLstm, FusedActivation, Lstm, UnidirectionalSequenceLstm

BATCH, STEPS, INPUTS, UNITS, OUTPUTS, AUX = 2, 4, 3, 5, 2, 6
FEATURES = list(product([False, True], repeat=4))
FUNCTIONS = {
    FusedActivation.NONE: lambda x: x,
    FusedActivation.RELU: lambda x: np.maximum(x, 0),
    FusedActivation.RELU_N1_TO_1: lambda x: np.minimum(np.maximum(x, -1), 1),
    FusedActivation.RELU6: lambda x: np.minimum(np.maximum(x, 0), 6),
    FusedActivation.TANH: np.tanh,
    FusedActivation.SIGMOID: lambda x: 1 / (1 + np.exp(-x)),
}


def flags(cifg, peephole, projection, norm):
    return {
        "cifg_enabled": cifg,
        "peephole_enabled": peephole,
        "projection_enabled": projection,
        "layer_norm_enabled": norm,
    }


def weights(cifg, peephole, projection, norm, *, seed=0, inputs=INPUTS, aux=0):
    """Random operands of one direction, by name."""
    rng = np.random.default_rng(seed)
    outputs = OUTPUTS if projection else UNITS
    shapes = {}
    for gate in ("input", "forget", "cell", "output")[cifg:]:
        shapes[f"input_to_{gate}_weights"] = (UNITS, inputs)
        shapes[f"recurrent_to_{gate}_weights"] = (UNITS, outputs)
        shapes["cell_bias" if gate == "cell" else f"{gate}_gate_bias"] = (UNITS,)
        if aux:
            shapes[f"aux_input_to_{gate}_weights"] = (UNITS, aux)
        if peephole and gate != "cell":
            shapes[f"cell_to_{gate}_weights"] = (UNITS,)
        if norm:
            shapes[f"{gate}_layer_norm_weights"] = (UNITS,)
    if projection:
        shapes |= {"projection_weights": (outputs, UNITS), "projection_bias": (outputs,)}
    shapes |= {"output_state_in": (BATCH, outputs), "cell_state_in": (BATCH, UNITS)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def sequence(inputs=INPUTS, seed=1):
    return np.random.default_rng(seed).normal(size=(STEPS, BATCH, inputs)).astype(np.float32)


def run(op, quantizations=None, **arrays):
    """All results by name."""
    order = [arrays.get(declared.name) for declared in op.operands]
    infos = [
        None if x is None else TensorInfo(x.shape, x.dtype, (quantizations or {}).get(declared.name))
        for declared, x in zip(op.operands, order, strict=True)
    ]
    assert op.violations(*infos) == []
    names = [op.result_name(index) for index in range(op.num_results())]
    return dict(zip(names, evaluate(op, order, infos, op.infer_infos(*infos)), strict=True))


def by_definition(x, w, *, function=np.tanh, aux=None, cell_bound=np.inf, projection_bound=np.inf):
    """One batch entry, one number at a time in float64: all outputs, the last output and the last cell state."""
    w = {name: value.astype(np.float64) for name, value in w.items()}
    results = []
    for batch in range(x.shape[1]):
        output, cell = w["output_state_in"][batch], w["cell_state_in"][batch]
        outputs = []
        for step in range(len(x)):

            def gate(name, cell, step=step, batch=batch, output=output):
                total = w[f"input_to_{name}_weights"] @ x[step, batch] + w[f"recurrent_to_{name}_weights"] @ output
                if aux is not None:
                    total += w[f"aux_input_to_{name}_weights"] @ aux[step, batch]
                total += w.get(f"cell_to_{name}_weights", 0) * cell
                if "forget_layer_norm_weights" in w:
                    total = (total - total.mean()) / np.sqrt(total.var() + 1e-8) * w[f"{name}_layer_norm_weights"]
                return total + w["cell_bias" if name == "cell" else f"{name}_gate_bias"]

            forget = 1 / (1 + np.exp(-gate("forget", cell)))
            input_gate = 1 - forget
            if "input_to_input_weights" in w:
                input_gate = 1 / (1 + np.exp(-gate("input", cell)))
            cell = np.clip(forget * cell + input_gate * function(gate("cell", cell)), -cell_bound, cell_bound)
            output = 1 / (1 + np.exp(-gate("output", cell))) * function(cell)
            if "projection_weights" in w:
                output = w["projection_weights"] @ output + w["projection_bias"]
                output = np.clip(output, -projection_bound, projection_bound)
            outputs.append(output)
        results.append((np.array(outputs), output, cell))
    outputs, states, cells = zip(*results, strict=True)
    return np.stack(outputs, axis=1), np.array(states), np.array(cells)


def close(actual, expected, tolerance=1e-5):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


# --- one direction ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", FEATURES)
def test_a_sequence_follows_the_definition_with_every_combination_of_features(features):
    x, w = sequence(), weights(*features)
    op = UnidirectionalSequenceLstm(activation_func=FusedActivation.TANH, time_major=True, **flags(*features))
    result = run(op, input=x, **w)
    for name, expected in zip(("output", "output_state_out", "cell_state_out"), by_definition(x, w), strict=True):
        close(result[name], expected)


@pytest.mark.parametrize("features", FEATURES)
def test_a_sequence_is_steps_one_after_the_other(features):
    x, w = sequence(), weights(*features)
    result = run(UnidirectionalSequenceLstm(time_major=True, **flags(*features)), input=x, **w)
    for step in range(STEPS):
        last = run(Lstm(**flags(*features)), **w | {"input": x[step]})
        close(result["output"][step], last["output"], 1e-6)
        w |= {"output_state_in": last["output_state_out"], "cell_state_in": last["cell_state_out"]}
    close(result["output_state_out"], w["output_state_in"], 1e-6)
    close(result["cell_state_out"], w["cell_state_in"], 1e-6)


@pytest.mark.parametrize("activation", FusedActivation)
def test_the_activation_function_is_that_of_the_cell(activation):
    x, w = sequence(), weights(False, False, False, False)
    w |= {name: value / 4 for name, value in w.items()}  # so that nothing grows without bounds
    op = UnidirectionalSequenceLstm(activation_func=activation, time_major=True, cifg_enabled=False)
    expected, _, _ = by_definition(x, w, function=FUNCTIONS[activation])
    close(run(op, input=x, **w)["output"], expected)


def test_cell_and_projection_are_clipped():
    x, w = sequence(), weights(False, True, True, False)
    w["projection_weights"] = w["projection_weights"] * 5
    op = UnidirectionalSequenceLstm(
        activation_func=FusedActivation.TANH,
        time_major=True,
        clipping_thres_cell=0.4,
        clipping_thres_proj=0.9,
        **flags(False, True, True, False),
    )
    result = run(op, input=x, **w)
    expected, _, cell = by_definition(x, w, cell_bound=0.4, projection_bound=0.9)
    close(result["output"], expected)
    close(result["cell_state_out"], cell)
    assert np.abs(result["output"]).max() == np.float32(0.9)
    assert np.abs(result["cell_state_out"]).max() == np.float32(0.4)


def test_the_bound_of_a_projection_does_nothing_without_one():
    x, w = sequence(), weights(True, False, False, False)
    free, bound = (
        run(UnidirectionalSequenceLstm(time_major=True, clipping_thres_proj=limit), input=x, **w)
        for limit in (0.0, 1e-3)
    )
    np.testing.assert_array_equal(free["output"], bound["output"])


def test_a_projection_that_changes_nothing_can_be_left_out():
    x, w = sequence(), weights(False, True, False, True)
    plain = run(UnidirectionalSequenceLstm(**flags(False, True, False, True)), input=x.swapaxes(0, 1), **w)
    w |= {"projection_weights": np.eye(UNITS, dtype=np.float32)}
    projected = run(UnidirectionalSequenceLstm(**flags(False, True, True, True)), input=x.swapaxes(0, 1), **w)
    close(projected["output"], plain["output"], 1e-6)


def test_peephole_weights_of_zero_change_nothing():
    x, w = sequence()[0], weights(False, True, False, False)
    zeros = {name: np.zeros_like(value) for name, value in w.items() if name.startswith("cell_to")}
    plain = {name: value for name, value in w.items() if name not in zeros}
    with_zeros = run(Lstm(cifg_enabled=False, peephole_enabled=True), input=x, **w | zeros)
    without = run(Lstm(cifg_enabled=False), input=x, **plain)
    np.testing.assert_array_equal(with_zeros["output"], without["output"])


def test_the_input_gate_of_cifg_is_one_minus_the_forget_gate():
    x, w = sequence()[0], weights(True, False, False, False)
    mirrored = {name.replace("forget", "input"): -value for name, value in w.items() if "forget" in name}
    op = Lstm(activation_func=FusedActivation.TANH)
    close(run(op.replace(cifg_enabled=False), input=x, **w | mirrored)["output"], run(op, input=x, **w)["output"], 1e-6)


def test_the_output_gate_looks_at_the_new_cell_state_and_the_others_at_the_old_one():
    one, zero = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)
    w = {f"{kind}_to_{gate}_weights": zero for kind in ("input", "recurrent")
         for gate in ("input", "forget", "cell", "output")}  # fmt: skip
    w |= dict.fromkeys(("input_gate_bias", "forget_gate_bias", "output_gate_bias"), zero[0])
    w |= {f"cell_to_{gate}_weights": np.float32([9]) for gate in ("input", "forget", "output")}
    op = Lstm(activation_func=FusedActivation.NONE, cifg_enabled=False, peephole_enabled=True)
    w |= {"cell_bias": np.float32([3]), "output_state_in": one, "cell_state_in": zero}
    result = run(op, input=one, **w)
    assert result["cell_state_out"].item() == 1.5  # both gates are sigmoid(0), as the old state is 0
    close(result["output"].item(), 1.5 / (1 + np.exp(-9 * 1.5)), 1e-6)


def test_scratch_shows_the_gates_with_the_input_gate_first():
    x, w = sequence()[0], weights(False, False, False, False)
    result = run(Lstm(activation_func=FusedActivation.TANH, cifg_enabled=False), input=x, **w)
    input_gate, candidate, forget_gate, output_gate = np.split(result["scratch"], 4, axis=1)
    cell = forget_gate * w["cell_state_in"] + input_gate * candidate
    close(result["cell_state_out"], cell, 1e-6)
    close(result["output"], output_gate * np.tanh(cell), 1e-6)
    assert run(Lstm(), input=x, **weights(True, False, False, False))["scratch"].shape == (BATCH, 3 * UNITS)


def test_states_that_are_absent_are_zeros():
    x, w = sequence(), weights(True, False, True, False)
    zeros = {name: np.zeros_like(value) for name, value in w.items() if name.endswith("state_in")}
    op = UnidirectionalSequenceLstm(time_major=True, projection_enabled=True)
    without_states = {name: value for name, value in w.items() if name not in zeros}
    np.testing.assert_array_equal(run(op, input=x, **without_states)["output"], run(op, input=x, **w | zeros)["output"])


def test_a_sequence_without_steps_leaves_the_states_alone():
    w = weights(True, False, False, False)
    result = run(UnidirectionalSequenceLstm(time_major=True), input=sequence()[:0], **w)
    assert result["output"].shape == (0, BATCH, UNITS)
    np.testing.assert_array_equal(result["output_state_out"], w["output_state_in"])
    np.testing.assert_array_equal(result["cell_state_out"], w["cell_state_in"])


@given(st.permutations(range(BATCH)), st.sampled_from(FEATURES))
@settings(max_examples=10)
def test_the_entries_of_a_batch_do_not_know_each_other(order, features):
    x, w = sequence(), weights(*features)
    op = UnidirectionalSequenceLstm(time_major=True, **flags(*features))
    moved = {name: value[order] if name.endswith("state_in") else value for name, value in w.items()}
    result, shuffled = run(op, input=x, **w), run(op, input=x[:, order], **moved)
    close(shuffled["output"], result["output"][:, order], 1e-6)


# --- both directions --------------------------------------------------------------------------------------------------


def both(features, *, inputs=(INPUTS, INPUTS), aux=0):
    """Operands of two directions, by name."""
    sides = {
        direction: weights(*features, seed=seed, inputs=count, aux=aux)
        for seed, (direction, count) in enumerate(zip(("forward", "backward"), inputs, strict=True))
    }
    return {f"{direction}_{name}": value for direction, side in sides.items() for name, value in side.items()}, sides


@pytest.mark.parametrize("features", FEATURES)
def test_the_backward_direction_is_the_forward_one_on_the_sequence_turned_round(features):
    x = sequence()
    w, sides = both(features)
    result = run(BidirectionalSequenceLstm(time_major=True), input=x, **w)
    forward, backward = by_definition(x, sides["forward"]), by_definition(x[::-1], sides["backward"])
    close(result["output"], forward[0])
    close(result["backward_output"], backward[0][::-1])
    for direction, (_, output, cell) in (("forward", forward), ("backward", backward)):
        close(result[f"{direction}_output_state_out"], output)
        close(result[f"{direction}_cell_state_out"], cell)


def test_outputs_are_merged_along_the_last_axis():
    x, (w, _) = sequence(), both((False, True, True, False))
    apart = run(BidirectionalSequenceLstm(time_major=True), input=x, **w)
    merged = run(BidirectionalSequenceLstm(time_major=True, merge_outputs=True), input=x, **w)
    assert list(merged) == [name for name in apart if name != "backward_output"]
    np.testing.assert_array_equal(merged["output"], np.concatenate([apart["output"], apart["backward_output"]], -1))


@pytest.mark.parametrize("merge", [False, True])
def test_batch_and_time_can_change_places(merge):
    x, (w, _) = sequence(), both((True, False, False, True))
    time = run(BidirectionalSequenceLstm(time_major=True, merge_outputs=merge), input=x, **w)
    batch = run(BidirectionalSequenceLstm(merge_outputs=merge), input=x.swapaxes(0, 1), **w)
    for name, expected in time.items():
        np.testing.assert_array_equal(batch[name], expected.swapaxes(0, 1) if expected.ndim == 3 else expected)


@pytest.mark.parametrize("cifg", [False, True])
def test_an_auxiliary_input_with_weights_joins_both_directions(cifg):
    x, aux = sequence(), sequence(AUX, seed=2)
    w, sides = both((cifg, False, False, False), aux=AUX)
    result = run(BidirectionalSequenceLstm(time_major=True), input=x, aux_input=aux, **w)
    close(result["output"], by_definition(x, sides["forward"], aux=aux)[0])
    close(result["backward_output"], by_definition(x[::-1], sides["backward"], aux=aux[::-1])[0][::-1])


def test_an_auxiliary_input_without_weights_is_the_input_of_the_backward_direction():
    x, aux = sequence(), sequence(AUX, seed=2)
    w, sides = both((False, False, True, False), inputs=(INPUTS, AUX))
    result = run(BidirectionalSequenceLstm(time_major=True), input=x, aux_input=aux, **w)
    close(result["output"], by_definition(x, sides["forward"])[0])
    close(result["backward_output"], by_definition(aux[::-1], sides["backward"])[0][::-1])


# --- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 2e-2), ("float64", 1e-6)])
def test_floats_of_any_width_are_taken(dtype, tolerance):
    kind = DataType.of(dtype).numpy
    x, w = sequence(), weights(False, True, True, True)
    op = UnidirectionalSequenceLstm(
        activation_func=FusedActivation.TANH, time_major=True, **flags(False, True, True, True)
    )
    narrow = {name: value.astype(kind) for name, value in w.items()}
    result = run(op, input=x.astype(kind), **narrow)
    assert {value.dtype for value in result.values()} == {kind}
    exact = {name: value.astype(np.float64) for name, value in narrow.items()}
    expected, _, _ = by_definition(x.astype(kind).astype(np.float64), exact)
    close(result["output"].astype(np.float64), expected, tolerance)


def test_narrow_floats_are_rounded_at_the_end_only():
    x, w = sequence().astype(np.float16), weights(True, False, False, False)
    half = {name: value.astype(np.float16) for name, value in w.items()}
    single = {name: value.astype(np.float32) for name, value in half.items()}
    op = UnidirectionalSequenceLstm(time_major=True, activation_func=FusedActivation.TANH)
    expected = run(op, input=x.astype(np.float32), **single)["output"]
    np.testing.assert_array_equal(run(op, input=x, **half)["output"], expected.astype(np.float16))


def test_eight_bit_weights_of_a_float_layer_stand_for_real_numbers():
    x, w = sequence(), weights(True, False, False, False)
    codes = {name: np.round(value * 40).astype(np.int8) for name, value in w.items() if name.endswith("weights")}
    scales = dict.fromkeys(codes, Quantization(1 / 40))
    exact = {name: value / np.float32(40) for name, value in codes.items()}
    op = UnidirectionalSequenceLstm(time_major=True, activation_func=FusedActivation.TANH)
    close(run(op, scales, input=x, **w | codes)["output"], run(op, input=x, **w | exact)["output"], 1e-6)


def test_a_layer_of_16_bit_integers_is_computed_in_real_numbers():
    x, w = sequence()[0], weights(True, False, False, False)
    arrays = {"input": x, **w}
    codes = {name: np.round(value * 4096).astype(np.int16) for name, value in arrays.items()}
    scales = dict.fromkeys(codes, Quantization(1 / 4096))
    op = Lstm(activation_func=FusedActivation.TANH)
    expected = run(op, **{name: value.astype(np.float32) / 4096 for name, value in codes.items()})
    result = run(op, scales, **codes)
    assert result["output"].dtype == np.int16
    np.testing.assert_allclose(result["output"] / 4096, expected["output"], atol=2**-12)


def test_integers_that_stand_for_nothing_are_refused():
    op = Lstm()
    arrays = {"input": sequence()[0], **weights(True, False, False, False)}
    arrays["cell_bias"] = arrays["cell_bias"].astype(np.int32)
    with pytest.raises(ValueError, match="Lstm: cell_bias is int32; takes floats and quantized tensors"):
        run(op, **arrays)

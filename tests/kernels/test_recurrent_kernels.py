"""Simple recurrent layers and SVDF, against their definitions and by what must be the same."""

from __future__ import annotations

import numpy as np
import pytest

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.kernels import evaluate
from interposer.ops import BidirectionalSequenceRnn, FusedActivation, Rnn, Svdf, UnidirectionalSequenceRnn

BATCH, STEPS, INPUTS, UNITS, AUX = 2, 4, 3, 5, 6


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def run(op, quantizations=None, results=None, **arrays):
    """All results by name."""
    order = [arrays.get(declared.name) for declared in op.operands]
    infos = [
        None if x is None else TensorInfo(x.shape, x.dtype, (quantizations or {}).get(declared.name))
        for declared, x in zip(op.operands, order, strict=True)
    ]
    assert op.violations(*infos) == []
    names = [op.result_name(index) for index in range(op.num_results())]
    outputs = [
        info.with_quantization((results or {}).get(name, info.quantization))
        for name, info in zip(names, op.infer_infos(*infos), strict=True)
    ]
    return dict(zip(names, evaluate(op, order, infos, outputs), strict=True))


def weights(units=UNITS, inputs=INPUTS, aux=0, seed=0):
    arrays = {
        "weights": random(units, inputs, seed=seed),
        "recurrent_weights": random(units, units, seed=seed + 1) / 2,
        "bias": random(units, seed=seed + 2),
        "hidden_state_in": random(BATCH, units, seed=seed + 3),
    }
    return arrays | ({"aux_weights": random(units, aux, seed=seed + 4)} if aux else {})


def by_definition(x, w, function=np.tanh, aux=None):
    """All outputs and the last state."""
    state, outputs = w["hidden_state_in"].astype(np.float64), []
    for step, part in enumerate(x):
        total = part @ w["weights"].T + state @ w["recurrent_weights"].T + w["bias"]
        state = function(total if aux is None else total + aux[step] @ w["aux_weights"].T)
        outputs.append(state)
    return np.array(outputs), state


def close(actual, expected, tolerance=1e-5):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def test_a_step_multiplies_input_and_state_and_adds_the_bias():
    result = run(
        Rnn(activation_func=FusedActivation.RELU),
        input=np.float32([[1, 2]]),
        weights=np.float32([[1, 10], [-1, -1]]),
        recurrent_weights=np.float32([[0, 100], [0, 0]]),
        bias=np.float32([1000, 1]),
        hidden_state_in=np.float32([[7, 3]]),
    )
    assert result["output"].tolist() == result["hidden_state_out"].tolist() == [[1321, 0]]


def test_a_sequence_follows_the_definition_and_is_steps_one_after_the_other():
    x, w = random(STEPS, BATCH, INPUTS, seed=9), weights()
    result = run(UnidirectionalSequenceRnn(time_major=True), input=x, **w)
    expected, state = by_definition(x, w)
    close(result["output"], expected)
    close(result["hidden_state_out"], state)
    for step in range(STEPS):
        w |= {"hidden_state_in": run(Rnn(), **w | {"input": x[step]})["hidden_state_out"]}
        close(result["output"][step], w["hidden_state_in"], 1e-6)


def test_the_usual_function_is_the_tangent():
    assert Rnn() == Rnn(activation_func=FusedActivation.TANH)


def test_a_state_that_is_absent_is_zeros():
    x, w = random(BATCH, INPUTS, seed=9), weights()
    w["hidden_state_in"] = np.zeros_like(w["hidden_state_in"])
    without_state = {name: value for name, value in w.items() if name != "hidden_state_in"}
    np.testing.assert_array_equal(run(Rnn(), input=x, **without_state)["output"], run(Rnn(), input=x, **w)["output"])


def test_a_sequence_without_steps_leaves_the_state_alone():
    w = weights()
    result = run(UnidirectionalSequenceRnn(), input=random(BATCH, 0, INPUTS), **w)
    assert result["output"].shape == (BATCH, 0, UNITS)
    np.testing.assert_array_equal(result["hidden_state_out"], w["hidden_state_in"])


# --- both directions --------------------------------------------------------------------------------------------------


def both(forward, backward):
    sides = {"forward": forward, "backward": backward}
    return {f"{direction}_{name}": value for direction, side in sides.items() for name, value in side.items()}


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("time_major", [False, True])
def test_the_backward_direction_is_the_forward_one_on_the_sequence_turned_round(time_major, merge):
    x, forward, backward = random(STEPS, BATCH, INPUTS, seed=9), weights(), weights(units=2, seed=20)
    op = BidirectionalSequenceRnn(time_major=time_major, merge_outputs=merge)
    result = run(op, input=x if time_major else x.swapaxes(0, 1), **both(forward, backward))
    outputs = [by_definition(x, forward)[0], by_definition(x[::-1], backward)[0][::-1]]
    outputs = [np.concatenate(outputs, axis=-1)] if merge else outputs
    for name, expected in zip(("output", "backward_output"), outputs, strict=False):
        close(result[name], expected if time_major else expected.swapaxes(0, 1))
    close(result["forward_hidden_state_out"], by_definition(x, forward)[1])
    close(result["backward_hidden_state_out"], by_definition(x[::-1], backward)[1])
    assert ("backward_output" in result) != merge


def test_an_auxiliary_input_with_weights_joins_both_directions():
    x, aux = random(STEPS, BATCH, INPUTS, seed=9), random(STEPS, BATCH, AUX, seed=10)
    forward, backward = weights(aux=AUX), weights(units=2, aux=AUX, seed=20)
    result = run(BidirectionalSequenceRnn(time_major=True), input=x, aux_input=aux, **both(forward, backward))
    close(result["output"], by_definition(x, forward, aux=aux)[0])
    close(result["backward_output"], by_definition(x[::-1], backward, aux=aux[::-1])[0][::-1])


def test_an_auxiliary_input_without_weights_is_the_input_of_the_backward_direction():
    x, aux = random(STEPS, BATCH, INPUTS, seed=9), random(STEPS, BATCH, AUX, seed=10)
    forward, backward = weights(), weights(units=2, inputs=AUX, seed=20)
    result = run(BidirectionalSequenceRnn(time_major=True), input=x, aux_input=aux, **both(forward, backward))
    close(result["output"], by_definition(x, forward)[0])
    close(result["backward_output"], by_definition(aux[::-1], backward)[0][::-1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_floats_of_any_width_are_taken_and_rounded_once(dtype):
    kind = DataType.of(dtype).numpy
    x, w = random(STEPS, BATCH, INPUTS, seed=9).astype(kind), weights()
    w = {name: value.astype(kind) for name, value in w.items()}
    wide = np.float64 if dtype == "float64" else np.float32
    expected = run(
        UnidirectionalSequenceRnn(time_major=True),
        input=x.astype(wide),
        **{name: value.astype(wide) for name, value in w.items()},
    )["output"]
    result = run(UnidirectionalSequenceRnn(time_major=True), input=x, **w)["output"]
    np.testing.assert_array_equal(result, expected.astype(kind), strict=True)


def test_eight_bit_weights_of_a_float_layer_stand_for_real_numbers():
    x, w = random(BATCH, INPUTS, seed=9), weights()
    codes = {name: np.round(w[name] * 40).astype(np.int8) for name in ("weights", "recurrent_weights")}
    result = run(Rnn(), dict.fromkeys(codes, Quantization(1 / 40)), input=x, **w | codes)
    exact = {name: value / np.float32(40) for name, value in codes.items()}
    close(result["output"], run(Rnn(), input=x, **w | exact)["output"], 1e-6)


# --- SVDF -------------------------------------------------------------------------------------------------------------


def test_svdf_remembers_projections_and_moves_on():
    """One unit of two filters, which remember two steps."""
    arrays = {
        "weights_feature": np.float32([[1, 0], [0, 1]]),
        "weights_time": np.float32([[10, 1], [1000, 100]]),
        "bias": np.float32([0.5]),
    }
    first = run(Svdf(rank=2), input=np.float32([[3, 4]]), **arrays)
    assert first["output"].tolist() == [[3 + 400 + 0.5]]
    assert first["state_out"].tolist() == [[3, 0, 4, 0]]
    second = run(Svdf(rank=2), input=np.float32([[5, 6]]), state_in=first["state_out"], **arrays)
    assert second["output"].tolist() == [[30 + 5 + 4000 + 600 + 0.5]]
    assert second["state_out"].tolist() == [[5, 0, 6, 0]]


def test_svdf_of_an_empty_batch_gives_an_empty_batch():
    arrays = {"weights_feature": random(4, 3), "weights_time": random(4, 2)}
    result = run(Svdf(rank=2), input=np.zeros((0, 3), np.float32), **arrays)
    assert (result["output"].shape, result["state_out"].shape) == ((0, 2), (0, 8))


def test_the_free_place_of_the_state_is_not_read():
    arrays = {"input": random(2, 3), "weights_feature": random(4, 3), "weights_time": random(4, 2)}
    state = random(2, 8, seed=5)
    other = state.reshape(2, 4, 2).copy()
    other[..., -1] = 99
    result = run(Svdf(), state_in=state, **arrays)
    changed = run(Svdf(), state_in=other.reshape(2, 8), **arrays)
    np.testing.assert_array_equal(result["output"], changed["output"])
    np.testing.assert_array_equal(result["state_out"], changed["state_out"])


def test_svdf_over_time_is_a_filter_of_the_projected_sequence():
    x, feature, time = random(7, 1, 3), random(4, 3, seed=1), random(4, 3, seed=2)
    projected = np.concatenate([np.zeros((2, 4)), x[:, 0] @ feature.T])
    expected = [(projected[step : step + 3] * time.T).sum(axis=0) for step in range(7)]
    arrays = {"weights_feature": feature, "weights_time": time}
    result, state = [], {}
    for part in x:
        results = run(Svdf(activation_func=FusedActivation.TANH), input=part, **arrays, **state)
        state = {"state_in": results["state_out"]}
        result.append(results["output"][0])
    close(result, np.tanh(expected))


def integer_svdf():
    arrays = {
        "input": np.int8([[10, -20], [100, 5]]),
        "weights_feature": np.int8([[30, 7], [-80, 9]]),
        "weights_time": np.int16([[900, -700], [3000, 250]]),
        "bias": np.int32([100, -50]),
        "state_in": np.int16([[500, 0, -300, 0], [0, 0, 12, 0]]),
    }
    scales = {
        "input": Quantization(0.05, 3),
        "weights_feature": Quantization(0.02),
        "weights_time": Quantization(0.001),
        "bias": Quantization(1e-6),
        "state_in": Quantization(0.01),
    }
    return arrays, scales


def test_svdf_of_integers_is_near_that_of_real_numbers():
    arrays, scales = integer_svdf()
    result = run(Svdf(), scales, {"output": Quantization(0.1, -7)}, **arrays)
    real = {
        name: (value.astype(np.float32) - scales[name].zero_point) * np.float32(scales[name].scale)
        for name, value in arrays.items()
    }
    real["bias"] = arrays["bias"] * np.float32(0.01 * 0.001)  # the scale of the sums over time
    expected = run(Svdf(), **real)
    np.testing.assert_allclose((result["output"] + 7.0) * 0.1, expected["output"], atol=0.1)
    np.testing.assert_allclose(result["state_out"] * 0.01, expected["state_out"], atol=0.01)


def test_svdf_of_integers_clamps_at_the_bounds_of_the_activation_function():
    arrays, scales = integer_svdf()
    free = run(Svdf(), scales, {"output": Quantization(0.1, -7)}, **arrays)["output"]
    bound = run(Svdf(activation_func=FusedActivation.RELU6), scales, {"output": Quantization(0.1, -7)}, **arrays)
    assert free.min() < -7
    np.testing.assert_array_equal(bound["output"], np.clip(free, -7, 53))


@pytest.mark.parametrize(
    ("name", "quantization", "reason"),
    [
        ("weights_time", Quantization(0.001, 3), "weights_time is int16[2, 2] q(0.001, 3); takes tensors quantized"),
        ("state_in", None, "state_in is int16[2, 4]; takes tensors quantized with one scale"),
    ],
)
def test_what_integers_cannot_compute_is_refused_or_left_to_real_numbers(name, quantization, reason):
    from interposer.kernels.evaluation import reference
    from interposer.kernels.table import KernelInfo

    arrays, scales = integer_svdf()
    op, scales = Svdf(), scales | {name: quantization}
    infos = [TensorInfo.of(arrays[declared.name], scales[declared.name]) for declared in op.operands]
    state, output = op.infer_infos(*infos)
    info = KernelInfo.of(op, infos, [state, output.with_quantization(Quantization(0.1))])
    of_integers, _ = reference().kernels(Svdf)
    [result] = of_integers.reasons(op, info)
    assert result.startswith(reason)

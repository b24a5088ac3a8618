"""Recurrent operators: what they refuse, and the shapes that they infer."""

from __future__ import annotations

import pytest

from interposer.core.schema import Op
from interposer.core.types import Quantization, TensorInfo, TensorShape
from interposer.ops import (
    ActivationFunction,
    ActivationRounding,
    BidirectionalSequenceLstm,
    BidirectionalSequenceRnn,
    FusedActivation,
    GruSequence,
    Lstm,
    LstmSequence,
    QLstm,
    QuantizedLstm,
    RecurrentDirection,
    Rnn,
    RnnSequence,
    Svdf,
    UnidirectionalSequenceLstm,
    UnidirectionalSequenceRnn,
)

GATES = ("input", "forget", "cell", "output")
B, T, I, U, O, A, V = 2, 6, 3, 5, 4, 7, 8  # noqa: E741


def bias(gate):
    return "cell_bias" if gate == "cell" else f"{gate}_gate_bias"


def cell(*, cifg=True, peephole=False, projection=False, norm=False, inputs=I, units=U):
    """The shapes of one direction's operands by name, without the input."""
    outputs = O if projection else units
    shapes = {"output_state_in": (B, outputs), "cell_state_in": (B, units)}
    for gate in GATES[cifg:]:
        shapes |= {f"input_to_{gate}_weights": (units, inputs), f"recurrent_to_{gate}_weights": (units, outputs)}
        shapes |= {bias(gate): (units,)}
        shapes |= {f"cell_to_{gate}_weights": (units,)} if peephole and gate != "cell" else {}
        shapes |= {f"{gate}_layer_norm_weights": (units,)} if norm else {}
    return shapes | ({"projection_weights": (O, units), "projection_bias": (O,)} if projection else {})


def infos(op, shapes, dtype="float32"):
    return [
        None if declared.name not in shapes else TensorInfo(shapes[declared.name], dtype) for declared in op.operands
    ]


def problems(op, shapes):
    return op.violations(*infos(op, shapes))


def inferred(op, shapes):
    """The shapes of the results by name."""
    operand_infos = infos(op, shapes)
    assert op.violations(*operand_infos) == []
    inferred = op.infer_infos(*operand_infos)
    return {op.result_name(index): info.shape for index, info in enumerate(inferred)}


# --- LSTM -------------------------------------------------------------------------------------------------------------


def test_a_step_infers_scratch_states_and_output():
    shapes = cell(projection=True) | {"input": (B, I)}
    assert inferred(Lstm(projection_enabled=True), shapes) == {
        "scratch": (B, 3 * U),
        "output_state_out": (B, O),
        "cell_state_out": (B, U),
        "output": (B, O),
    }
    shapes = cell(cifg=False) | {"input": (B, I)}
    assert inferred(Lstm(cifg_enabled=False), shapes)["scratch"] == (B, 4 * U)


def test_the_attributes_have_the_defaults_of_arm_nn():
    assert Lstm().attribute_values() == {
        "cifg_enabled": True,
        "peephole_enabled": False,
        "projection_enabled": False,
        "layer_norm_enabled": False,
        "activation_func": FusedActivation.RELU,
        "clipping_thres_cell": 0.0,
        "clipping_thres_proj": 0.0,
        "activation_rounding": ActivationRounding.NONE,  # Arm NN has none
    }
    assert FusedActivation(4) is FusedActivation.TANH


@pytest.mark.parametrize(("time_major", "frame"), [(True, (T, B)), (False, (B, T))])
def test_a_sequence_keeps_its_first_two_axes(time_major, frame):
    result = inferred(UnidirectionalSequenceLstm(time_major=time_major), cell() | {"input": (*frame, I)})
    assert result == {"output": (*frame, U), "output_state_out": (B, U), "cell_state_out": (B, U)}


def test_an_unknown_batch_stays_unknown_and_is_known_where_a_state_knows_it():
    shapes = cell() | {"input": ("batch", I)}
    stateless = {name: shape for name, shape in shapes.items() if not name.endswith("state_in")}
    assert inferred(Lstm(), stateless)["output"] == TensorShape(("batch", U))
    assert inferred(Lstm(), shapes)["output"] == (B, U)
    shapes = stateless | {"input": (None, "steps", I)}
    assert inferred(UnidirectionalSequenceLstm(), shapes)["output"] == TensorShape((None, "steps", U))


@pytest.mark.parametrize(
    ("op", "change", "fault"),
    [
        (Lstm(cifg_enabled=False), {}, [
            "input_to_input_weights is not connected, but cifg_enabled is False",
            "recurrent_to_input_weights is not connected, but cifg_enabled is False",
            "input_gate_bias is not connected, but cifg_enabled is False",
        ]),
        (Lstm(), {"input_gate_bias": (U,)}, ["input_gate_bias is connected, but cifg_enabled is True"]),
        (Lstm(), {"cell_to_output_weights": (U,)}, [
            "cell_to_output_weights is connected, but peephole_enabled is False",
        ]),
        (Lstm(peephole_enabled=True), {"cell_to_output_weights": (U,), "cell_to_input_weights": (U,)}, [
            "cell_to_forget_weights is not connected, but peephole_enabled is True",
            "cell_to_input_weights is connected, but cifg_enabled is True",
        ]),
        (Lstm(projection_enabled=True), {}, ["projection_weights is not connected, but projection_enabled is True"]),
        (Lstm(), {"projection_bias": (U,)}, ["projection_bias is connected, but projection_enabled is False"]),
        (Lstm(), {"forget_layer_norm_weights": (U,)}, [
            "forget_layer_norm_weights is connected, but layer_norm_enabled is False",
        ]),
        (Lstm(), {"cell_bias": (U + 1,)}, [
            "cell_bias (U) has shape [6] and output_state_in (B, U) [2, 5]; U must be the same",
        ]),
        (Lstm(), {"input": (B + 1, I)}, [
            "output_state_in (B, U) has shape [2, 5] and input (B, I) [3, 3]; B must be the same",
            "cell_state_in (B, U) has shape [2, 5] and input (B, I) [3, 3]; B must be the same",
        ]),
        (Lstm(), {"recurrent_to_cell_weights": (U, O)}, [
            "recurrent_to_cell_weights (U, U) has shape [5, 4] and output_state_in (B, U) [2, 5]; U must be the same",
        ]),
        (Lstm(), {"cell_bias": None}, ["cell_bias is not connected"]),
        (Lstm(), {"input": (B, T, I)}, ["input has rank 3, shape [2, 6, 3]; expected rank 2"]),
    ],
)  # fmt: skip
def test_operands_that_do_not_fit_flags_or_each_other_are_named(op, change, fault):
    shapes = cell() | {"input": (B, I)} | change
    assert problems(op, {name: shape for name, shape in shapes.items() if shape is not None}) == fault


def test_clipping_bounds_are_not_negative():
    with pytest.raises(ValueError, match="clipping_thres_cell is -1"):
        Lstm(clipping_thres_cell=-1.0)


def test_states_keep_type_and_quantization_of_the_states_that_go_in():
    op = QLstm()
    scales = {"output_state_in": Quantization(0.5, 3), "cell_state_in": Quantization(2**-11)}
    value = [
        info and info.with_dtype(dtype).with_quantization(scales.get(declared.name))
        for declared, info in zip(op.operands, infos(op, cell() | {"input": (B, I)}), strict=True)
        for dtype in [TensorInfo((), "int16" if declared.name == "cell_state_in" else "int8").dtype]
    ]
    output_state, cell_state, output = op.infer_infos(*value)
    assert str(output_state) == str(output) == "int8[2, 5] q(0.5, 3)"
    assert str(cell_state) == "int16[2, 5] q(0.000488281, 0)"


# --- LSTM in both directions ------------------------------------------------------------------------------------------


def directions(forward, backward, **more):
    sides = {"forward": forward, "backward": backward}
    return more | {f"{direction}_{name}": s for direction, side in sides.items() for name, s in side.items()}


def test_both_directions_have_sizes_and_features_of_their_own():
    shapes = directions(cell(peephole=True), cell(cifg=False, projection=True, units=V), input=(B, T, I))
    apart = {
        "output": (B, T, U),
        "forward_output_state_out": (B, U),
        "forward_cell_state_out": (B, U),
        "backward_output_state_out": (B, O),
        "backward_cell_state_out": (B, V),
        "backward_output": (B, T, O),
    }
    assert inferred(BidirectionalSequenceLstm(), shapes) == apart
    merged = apart | {"output": (B, T, U + O)}
    del merged["backward_output"]
    assert inferred(BidirectionalSequenceLstm(merge_outputs=True), shapes) == merged


def test_an_auxiliary_input_without_weights_has_the_backward_weights_size():
    shapes = directions(cell(), cell(inputs=A), input=(B, T, I), aux_input=(B, T, A))
    assert inferred(BidirectionalSequenceLstm(), shapes)["backward_output"] == (B, T, U)
    del shapes["aux_input"]
    result = problems(BidirectionalSequenceLstm(), shapes)
    assert result[0] == (
        "backward: input_to_forget_weights (U, I) has shape [5, 7] and input (B, T, I) [2, 6, 3]; I must be the same"
    )


def aux_weights(*gates):
    return {f"aux_input_to_{gate}_weights": (U, A) for gate in gates}


@pytest.mark.parametrize(
    ("forward", "backward", "more", "fault"),
    [
        ({"cell_to_output_weights": (U,)}, {}, {},
         "forward_cell_to_forget_weights is not connected, but forward_cell_to_output_weights is connected"),
        ({}, {"input_gate_bias": (U,)}, {},
         "backward_input_gate_bias is connected, but backward_input_to_input_weights is not connected"),
        ({}, {"projection_bias": (U,)}, {},
         "backward_projection_bias is connected, but backward_projection_weights is not connected"),
        (aux_weights("forget", "cell", "output"), aux_weights("forget", "cell"), {"aux_input": (B, T, A)},
         "backward_aux_input_to_output_weights is not connected, but forward_aux_input_to_forget_weights is"),
        (aux_weights("forget", "cell", "output"), aux_weights("forget", "cell", "output"), {},
         "forward_aux_input_to_forget_weights is connected, but aux_input is not"),
        (aux_weights(*GATES), aux_weights(*GATES), {"aux_input": (B, T, A)},
         "forward_aux_input_to_input_weights is connected, but forward_input_to_input_weights is not connected"),
        ({}, {}, {"aux_input": (B, T + 1, I)},
         "aux_input (B, T, A) has shape [2, 7, 3] and input (B, T, I) [2, 6, 3]; T must be the same"),
    ],
)  # fmt: skip
def test_directions_whose_operands_do_not_fit_are_named(forward, backward, more, fault):
    shapes = directions(cell() | forward, cell() | backward, input=(B, T, I)) | more
    assert fault in problems(BidirectionalSequenceLstm(), shapes)


# --- without gates ----------------------------------------------------------------------------------------------------


def simple(units=U, inputs=I):
    return {
        "weights": (units, inputs),
        "recurrent_weights": (units, units),
        "bias": (units,),
        "hidden_state_in": (B, units),
    }


def test_simple_layers_infer_outputs_and_states():
    assert inferred(Rnn(), simple() | {"input": (B, I)}) == {"hidden_state_out": (B, U), "output": (B, U)}
    shapes = simple() | {"input": (None, B, I)}
    result = inferred(UnidirectionalSequenceRnn(time_major=True), shapes)
    assert result == {"output": TensorShape((None, B, U)), "hidden_state_out": (B, U)}
    shapes = directions(simple(), simple(units=V), input=(B, T, I))
    result = inferred(BidirectionalSequenceRnn(), shapes)
    assert result == {
        "output": (B, T, U),
        "forward_hidden_state_out": (B, U),
        "backward_hidden_state_out": (B, V),
        "backward_output": (B, T, V),
    }
    assert inferred(BidirectionalSequenceRnn(merge_outputs=True), shapes)["output"] == (B, T, U + V)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"forward_bias": (V,)}, "forward: bias (U) has shape [8] and weights (U, I) [5, 3]; U must be the same"),
        ({"forward_aux_weights": (U, A)}, "backward_aux_weights is not connected, but forward_aux_weights is"),
        ({"forward_aux_weights": (U, A), "backward_aux_weights": (U, A)},
         "forward_aux_weights is connected, but aux_input is not"),
        ({"aux_input": (B, T, A)},
         "backward: weights (U, I) has shape [5, 3] and input (B, T, I) [2, 6, 7]; I must be the same"),
    ],
)  # fmt: skip
def test_simple_directions_whose_operands_do_not_fit_are_named(change, fault):
    assert fault in problems(BidirectionalSequenceRnn(), directions(simple(), simple(), input=(B, T, I)) | change)


FILTERS = {"input": (B, I), "weights_feature": (6, I), "weights_time": (6, 4)}


def test_svdf_infers_its_state_and_its_units():
    assert inferred(Svdf(rank=2), FILTERS | {"bias": (3,)}) == {"state_out": (B, 24), "output": (B, 3)}
    unknown = inferred(Svdf(rank=2), FILTERS | {"input": (None, I)})
    assert unknown == {"state_out": TensorShape((None, 24)), "output": TensorShape((None, 3))}


@pytest.mark.parametrize(
    ("rank", "change", "fault"),
    [
        (4, {}, "weights_feature has 6 filters; expected a multiple of the rank, 4"),
        (2, {"bias": (6,)}, "bias has shape [6]; expected [3]"),
        (2, {"state_in": (B, 18)}, "state_in has shape [2, 18]; expected [2, 24]"),
        (1, {"weights_time": (5, 4)},
         "weights_time (F, M) has shape [5, 4] and weights_feature (F, I) [6, 3]; F must be the same"),
    ],
)  # fmt: skip
def test_filters_that_do_not_fit_are_named(rank, change, fault):
    assert fault in problems(Svdf(rank=rank), FILTERS | change)


def test_the_basic_quantized_layer_infers_cell_state_and_output():
    shapes = {"input": (B, I), "cell_state_in": (None, U), "output_state_in": (None, U)}
    for gate in GATES:
        shapes |= {f"input_to_{gate}_weights": (U, I), f"recurrent_to_{gate}_weights": (U, U), bias(gate): (U,)}
    assert inferred(QuantizedLstm(), shapes) == {"cell_state_out": (B, U), "output": (B, U)}
    shapes["recurrent_to_cell_weights"] = (U, V)
    assert problems(QuantizedLstm(), shapes) == [
        "recurrent_to_cell_weights (U, U) has shape [5, 8] and cell_state_in (B, U) [?, 5]; U must be the same"
    ]


# --- whole layers -----------------------------------------------------------------------------------------------------


def layer(gates, directions=1):
    return {"input": (T, B, I), "weights": (directions, gates * U, I), "recurrent_weights": (directions, gates * U, U)}


@pytest.mark.parametrize(("op", "gates"), [(RnnSequence(), 1), (GruSequence(), 3), (LstmSequence(), 4)])
def test_a_whole_layer_infers_outputs_and_states(op, gates):
    states = ["hidden_state_out", "cell_state_out"][: 1 + isinstance(op, LstmSequence)]
    assert inferred(op, layer(gates)) == {"output": (T, 1, B, U)} | dict.fromkeys(states, (1, B, U))
    bidirectional = op.replace(direction=RecurrentDirection.BIDIRECTIONAL, time_major=False)
    result = inferred(bidirectional, layer(gates, 2) | {"input": (B, None, I)})
    assert result == {"output": TensorShape((B, None, 2, U))} | dict.fromkeys(states, (B, 2, U))


@pytest.mark.parametrize(
    ("op", "change", "fault"),
    [
        (LstmSequence(), {"weights": (1, 3 * U, I), "recurrent_weights": (1, 3 * U, U)},
         "weights has shape [1, 15, 3]; expected (1, 4 * H, I), where H is 5, from recurrent_weights"),
        (LstmSequence(direction=RecurrentDirection.BIDIRECTIONAL), {},
         "weights has shape [1, 20, 3]; expected (2, 4 * H, I), where H is 5, from recurrent_weights"),
        (LstmSequence(), {"bias": (1, 4 * U)}, "bias has shape [1, 20]; expected [1, 40]"),
        (LstmSequence(), {"peephole_weights": (1, U)}, "peephole_weights has shape [1, 5]; expected [1, 15]"),
        (LstmSequence(), {"cell_state_in": (B, 1, U)},
         "cell_state_in (D, B, H) has shape [2, 1, 5] and input (T, B, I) [6, 2, 3]; B must be the same"),
        (LstmSequence(activations=(ActivationFunction.RELU,)), {},
         "activations has 1 functions; expected 3, or none"),
        (LstmSequence(activation_a=(1.0, 2.0)), {}, "activation_a has 2 numbers; expected 3, or none"),
    ],
)  # fmt: skip
def test_whole_layers_whose_operands_do_not_fit_are_named(op, change, fault):
    assert fault in problems(op, layer(4) | change)


def test_lengths_are_integers():
    op = GruSequence()
    problems = op.violations(*infos(op, layer(3) | {"sequence_lengths": (B,)}))
    assert problems == ["sequence_lengths is float32; expected one of int32, int64"]


@pytest.mark.parametrize(
    "op",
    [
        Lstm(activation_func=FusedActivation.TANH, peephole_enabled=True),
        UnidirectionalSequenceLstm(time_major=True, hidden_state_zero_point=-3),
        BidirectionalSequenceRnn(merge_outputs=True),
        LstmSequence(direction=RecurrentDirection.REVERSE, activations=(ActivationFunction.ELU,) * 3, clip=0.5),
    ],
    ids=repr,
)
def test_recurrent_operators_are_written_and_read_back(op):
    assert Op.from_plain(op.to_plain()) == op


def test_the_work_of_a_layer_is_its_steps_times_its_weights():
    op = UnidirectionalSequenceRnn()
    value = infos(op, simple() | {"input": (B, T, I)})
    assert op.operations(value, op.infer_infos(*value)) == 2 * B * T * (U * I + U * U)

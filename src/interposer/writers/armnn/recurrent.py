"""Arm NN writers for recurrent layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from interposer.core.types import TensorInfo
from interposer.formats.armnn.schema import LSTM_PARAMS, QLSTM_PARAMS, QUANTIZED_LSTM_PARAMS
from interposer.ops.lstm import Lstm, UnidirectionalSequenceLstm
from interposer.ops.quantized_recurrent import QLstm, QuantizedLstm
from interposer.ops.recurrent import ActivationRounding, FusedActivation
from interposer.writers.armnn.armnn_layer_writers import writer
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.scratch import scratch_of
from interposer.writers.armnn.sheet import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []

_FEATURES: Final = ("cifg_enabled", "peephole_enabled", "projection_enabled", "layer_norm_enabled")
_STATES_SINCE: Final = "22.05"


def _camel(name: str) -> str:
    """Return the name of a constant for that of an operand: inputGateBias for input_gate_bias."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


def _fields(op: Any, *names: str) -> dict[str, Any]:
    return {_camel(name): getattr(op, name) for name in (*_FEATURES, *names)}


def _parameters(draft: Draft, names: Sequence[str]) -> dict[str, Tensor]:
    """Return the weights and biases, which must be constants, by the names of the file."""
    numbers = {_camel(operand.name): number for number, operand in enumerate(draft.layer.op.operands)}
    parameter_of_name = {name: draft.optional(numbers[name]) for name in names}
    return {name: draft.stored(tensor, name) for name, tensor in parameter_of_name.items() if tensor is not None}


def _state(draft: Draft, index: int, shape: Sequence[int]) -> Tensor:
    """Return a state, operand `index`; without one, it is zero."""
    state = draft.optional(index)
    return state if state is not None else draft.constant(np.zeros(shape), draft.info(0).dtype, f"state_{index}")


def _check(op: Lstm | UnidirectionalSequenceLstm) -> None:
    if op.activation_rounding is not ActivationRounding.NONE:
        refuse("it rounds activations, which Arm NN does not")
    if op.activation_func is FusedActivation.RELU_N1_TO_1:
        refuse("Arm NN's LSTM has no activation function RELU_N1_TO_1")


@writer(Lstm)
def lstm(draft: Draft, op: Lstm) -> list[Tensor]:
    """Write Lstm, unless its gates, the first result, are used: Arm NN gives something else instead."""
    _check(op)
    scratch = scratch_of(draft.layer)
    if draft.layer.outputs[0].uses and scratch is None:
        refuse("its gates are used, and Arm NN's Lstm does not give them")
    results = _of_floats(draft, op, draft.results)
    if scratch is not None:
        draft.sheet.values[scratch.value] = results[0]
        draft.sheet.written |= scratch.layers
    return results


def _of_floats(draft: Draft, op: Lstm | UnidirectionalSequenceLstm, giving: Sequence[TensorInfo]) -> list[Tensor]:
    """Write an LSTM of floats; the reader of 20.08 needs weights of the cell state even if they are not used."""
    fields = _fields(op, "clipping_thres_cell", "clipping_thres_proj") | {"activationFunc": op.activation_func.value}
    if isinstance(op, UnidirectionalSequenceLstm):
        fields["timeMajor"] = op.time_major
    state, cell = draft.results[1], draft.results[2]
    operands = [draft.operand(0), _state(draft, 1, state.shape), _state(draft, 2, cell.shape)]
    parameters = _parameters(draft, LSTM_PARAMS)
    if not op.cifg_enabled and "cellToInputWeights" not in parameters:
        zeros = np.zeros(int(cell.shape[1]))
        parameters["cellToInputWeights"] = draft.constant(zeros, draft.info(0).dtype, "cellToInputWeights")
    return draft.nodes(
        type(op).__name__, *operands, giving=giving, name=draft.layer.name, descriptor=fields, parameters=parameters
    )


@writer(UnidirectionalSequenceLstm)
def sequence_lstm(draft: Draft, op: UnidirectionalSequenceLstm) -> list[Tensor]:
    """Write UnidirectionalSequenceLstm; its last states are outputs since release 22.05."""
    _check(op)
    if draft.is_quantized:
        refuse("it computes with quantized values, for which Arm NN's files have no scales")
    uses_states = any(value.uses for value in draft.layer.outputs[1:])
    if not uses_states and not draft.release.prefers(_STATES_SINCE):
        [sequence] = _of_floats(draft, op, [draft.result])
        return [sequence, *(Tensor(info) for info in draft.results[1:])]
    draft.need(_STATES_SINCE, "the last states of UnidirectionalSequenceLstm")
    state, cell, sequence = _of_floats(draft, op, [draft.results[1], draft.results[2], draft.results[0]])
    return [sequence, state, cell]


@writer(QLstm)
def q_lstm(draft: Draft, op: QLstm) -> list[Tensor]:
    """Write QLstm."""
    _check_biases(draft, op)
    names = [f"{gate}_intermediate_scale" for gate in ("input", "forget", "cell", "output")]
    fields = _fields(op, "cell_clip", "projection_clip", *names, "hidden_state_zero_point", "hidden_state_scale")
    operands = [draft.operand(number) for number in range(3)]
    return draft.finals("QLstm", *operands, descriptor=fields, parameters=_parameters(draft, QLSTM_PARAMS))


def _check_biases(draft: Draft, op: QLstm) -> None:
    """Refuse biases of gates that are not zero if there is no layer normalization: Arm NN's reference drops them."""
    for number, operand in enumerate(op.operands):
        if op.layer_norm_enabled or not operand.name.endswith("_bias") or operand.name == "projection_bias":
            continue
        if draft.optional(number) is not None and draft.array(number, operand.name).any():
            refuse(f"its {operand.name} is not zero, and Arm NN adds biases of gates only with layer normalization")


@writer(QuantizedLstm)
def quantized_lstm(draft: Draft, op: QuantizedLstm) -> list[Tensor]:
    """Write QuantizedLstm."""
    operands = [draft.operand(number) for number in range(3)]
    return draft.finals("QuantizedLstm", *operands, parameters=_parameters(draft, QUANTIZED_LSTM_PARAMS))

"""Converters of recurrent layers, whose weights are constants of the layer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from interposer.core.schema import Op
from interposer.formats.armnn.schema import LSTM_PARAMS, QLSTM_PARAMS, QUANTIZED_LSTM_PARAMS
from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.frontends.elementwise import RELU, RELU6, RELU_N1_TO_1, SIGMOID, TANH
from interposer.frontends.recurrent import FUSED_FUNCTIONS, q_lstm_operands
from interposer.ir.graph import Value
from interposer.ops.elementwise import Multiplication, Subtraction
from interposer.ops.lstm import Lstm, UnidirectionalSequenceLstm
from interposer.ops.quantized_recurrent import QLstm, QuantizedLstm
from interposer.ops.rearrange import Splitter, Stack
from interposer.ops.recurrent import FusedActivation
from interposer.ops.reshape import Reshape

__all__: list[str] = []

_ACTIVATIONS: Final = {
    FusedActivation.RELU: RELU,
    FusedActivation.RELU_N1_TO_1: RELU_N1_TO_1,
    FusedActivation.RELU6: RELU6,
    FusedActivation.TANH: TANH,
    FusedActivation.SIGMOID: SIGMOID,
}


def _snake(name: str) -> str:
    """Return the name of an operand for that of a constant: input_gate_bias for inputGateBias."""
    return re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", name)


def _values(node: Node, op: type[Op], params: tuple[str, ...], states: tuple[str, ...]) -> list[Value | None]:
    """Return the operands of an operator: the inputs of the layer, then its constants.

    `states` are the names of the operands that input slots have after the first one.
    """
    record = node.layer.record["inputParams"]
    if record is None:
        node.fail("it has no inputParams, which are its weights")
    used_fields = (
        [name for name in params if _is_used(_snake(name), _features(node.descriptor))] if _has_features(op) else params
    )
    operands_by_name = {_snake(name): node.stored(name, scaled=True, fields=record.fields) for name in used_fields}
    operands_by_name |= {name: node.value(number) for number, name in enumerate(("input", *states))}
    return [operands_by_name.get(operand.name) for operand in op.operands]


def _has_features(op: type[Op]) -> bool:
    return "cifg_enabled" in op.attributes


def _is_used(name: str, features: Mapping[str, Any]) -> bool:
    """Return False for a constant of a feature that is disabled; files may have it all the same."""
    if "layer_norm" in name and not features["layer_norm_enabled"]:
        return False
    if name.startswith("cell_to_") and not features["peephole_enabled"]:
        return False
    if name.startswith("projection_") and not features["projection_enabled"]:
        return False
    return not (
        features["cifg_enabled"]
        and ("to_input_" in name or name.startswith("input_gate") or name.startswith("input_layer"))
    )


def _features(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {_snake(name): fields[name] for name in fields if name.endswith("Enabled")}


def _function(node: Node) -> FusedActivation:
    number = node.descriptor["activationFunc"]
    if number not in FUSED_FUNCTIONS:
        node.fail(f"activationFunc is {number}, which is not known ({', '.join(map(str, FUSED_FUNCTIONS))} are)")
    return FUSED_FUNCTIONS[number]


def _float_attributes(node: Node) -> dict[str, Any]:
    fields = node.descriptor
    clips = {_snake(name): float(fields[name]) for name in ("clippingThresCell", "clippingThresProj")}
    return {**_features(fields), **clips, "activation_func": _function(node)}


@layer("Lstm")
def lstm(node: Node) -> list[Value]:
    """Convert Lstm."""
    op = Lstm(**_float_attributes(node))
    values = node.outcome(op, *_values(node, Lstm, LSTM_PARAMS, ("output_state_in", "cell_state_in")))
    if node.is_read(0):
        values[0] = _scratch(node, op, values[0], values[2])
    return [node.given(value, slot) for slot, value in enumerate(values)]


def _scratch(node: Node, op: Lstm, gates: Value, cell_state: Value) -> Value:
    """Return the scratch tensor of Arm NN, which holds four blocks (three with CIFG), each with all batches.

    The blocks are the input gate, the activated cell state, the forget gate, and the product of output gate and
    activated cell state. With CIFG, the third block is the input gate that follows from the forget gate.
    """
    if not gates.known.dtype.is_float:
        return gates
    batch, width = node.shape(gates)
    count = 3 if op.cifg_enabled else 4
    *first, _, forget, output = node.steps(Splitter(1, (width // count,) * count), gates)
    function = _ACTIVATIONS.get(op.activation_func)
    cell = cell_state if function is None else node.step(function, cell_state)
    if op.cifg_enabled:
        forget = node.step(Subtraction(), node.constant(np.ones((1, 1), gates.known.dtype.numpy)), forget)
    blocks = [*first, cell, forget, node.step(Multiplication(), output, cell)]
    return node.step(Reshape((batch, width)), node.step(Stack(0), *blocks))


@layer("UnidirectionalSequenceLstm")
def sequence_lstm(node: Node) -> list[Value]:
    """Convert UnidirectionalSequenceLstm; before release 22.05, its only output is the sequence."""
    kind = UnidirectionalSequenceLstm
    op = kind(**_float_attributes(node), time_major=node.descriptor["timeMajor"])
    values = _values(node, kind, LSTM_PARAMS, ("output_state_in", "cell_state_in"))
    return node.reordered(op, values, [0] if len(node.infos) == 1 else [1, 2, 0])


@layer("QLstm")
def q_lstm(node: Node) -> list[Value]:
    """Convert QLstm; without layer normalization, the biases of gates do not count."""
    fields = node.descriptor
    numbers: dict[str, Any] = {_snake(name): float(fields[name]) for name in fields if name.endswith(("Scale", "Clip"))}
    op = QLstm(**_features(fields), **numbers, hidden_state_zero_point=fields["hiddenStateZeroPoint"])
    values = _values(node, QLstm, QLSTM_PARAMS, ("output_state_in", "cell_state_in"))
    return node.results(op, *q_lstm_operands(node, op, values))


@layer("QuantizedLstm")
def quantized_lstm(node: Node) -> list[Value]:
    """Convert QuantizedLstm, whose cell state comes before the output state."""
    values = _values(node, QuantizedLstm, QUANTIZED_LSTM_PARAMS, ("cell_state_in", "output_state_in"))
    return node.results(QuantizedLstm(), *values)

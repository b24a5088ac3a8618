"""TFLite converters for recurrent layers; most operands have the order of the layers' own operands.

The states of these operators are variable tensors: an operator reads its states, and writes the new ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import TensorInfo
from interposer.frontends.elementwise import SIGMOID, TANH
from interposer.frontends.recurrent import FUSED_FUNCTIONS, lstm_operands
from interposer.frontends.tflite.hybrid import is_hybrid, signed
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Multiplication
from interposer.ops.lstm import BidirectionalSequenceLstm, Lstm, UnidirectionalSequenceLstm
from interposer.ops.matmul import FullyConnected
from interposer.ops.quantized_recurrent import QLstm, QuantizedLstm
from interposer.ops.rearrange import Concat, Splitter
from interposer.ops.recurrent import (
    ActivationRounding,
    BidirectionalSequenceRnn,
    FusedActivation,
    Rnn,
    Svdf,
    UnidirectionalSequenceRnn,
)

__all__: list[str] = []

_RECURRENT: Final = slice(7, 11)
"""The recurrent weights among the operands of LSTM layers."""
_GATES: Final = ("input", "forget", "cell", "output")


def _function(node: Node) -> FusedActivation:
    function_number = node.options["fused_activation_function"]
    if function_number not in FUSED_FUNCTIONS:
        node.fail(f"the fused activation {function_number} is not supported")
    return FUSED_FUNCTIONS[function_number]


def _rounding(node: Node) -> ActivationRounding:
    """Return how activations are rounded: only for hybrid operators, which have quantized weights in floats."""
    weights = node.optional(2)
    if weights is None or not is_hybrid(node.value(0), weights):
        return ActivationRounding.NONE
    is_asymmetric = node.options["asymmetric_quantize_inputs"]
    return ActivationRounding.ASYMMETRIC if is_asymmetric else ActivationRounding.SYMMETRIC


def _values(node: Node, count: int) -> list[Value | None]:
    """Return the first `count` inputs of the operator, with None for absent ones.

    The weights of hybrid operators stay quantized.
    """
    values = [node.optional(index) for index in range(count)]
    if not node.info(0).dtype.is_float:
        return values
    return [value if value is None else signed(node, value) for value in values]


def _outputs(
    node: Node, op: Op, values: Sequence[Value | None], outputs: Sequence[int], states: Mapping[int, int]
) -> list[Value]:
    """Add a layer, write its new states, and return the outputs of the operator.

    `outputs` are the numbers of the layer's results that are outputs of the operator. `states` maps the number of an
    input of the operator, a state, to the number of the result with its new value.
    """
    if len(node.operator.outputs) != len(outputs):
        node.fail(f"it has {len(node.operator.outputs)} outputs; expected {len(outputs)}")
    declared_infos: list[TensorInfo | None] = [None] * op.num_results()
    for place, number in enumerate(outputs):
        declared_infos[number] = node.output_infos[place]
    for index, number in states.items():
        declared_infos[number] = node.info(index)
    results = node.layer(op, *values, declared=declared_infos)
    for index, number in states.items():
        node.write_state(index, results[number])
    return [results[number] for number in outputs]


# --- layers without gates ---------------------------------------------------------------------------------------------


@operator("RNN", options=True)
def rnn(node: Node) -> Sequence[Value | None]:
    """Convert RNN: one time step."""
    return _outputs(node, Rnn(_function(node), activation_rounding=_rounding(node)), _values(node, 5), [1], {4: 0})


@operator("UNIDIRECTIONAL_SEQUENCE_RNN", options=True)
def sequence_rnn(node: Node) -> Sequence[Value | None]:
    """Convert UNIDIRECTIONAL_SEQUENCE_RNN."""
    op = UnidirectionalSequenceRnn(_function(node), node.options["time_major"], _rounding(node))
    return _outputs(node, op, _values(node, 5), [0], {4: 1})


@operator("BIDIRECTIONAL_SEQUENCE_RNN", options=True)
def bidirectional_rnn(node: Node) -> Sequence[Value | None]:
    """Convert BIDIRECTIONAL_SEQUENCE_RNN."""
    merges_outputs = node.options["merge_outputs"]
    op = BidirectionalSequenceRnn(_function(node), node.options["time_major"], merges_outputs, _rounding(node))
    return _outputs(node, op, _values(node, 12), [0] if merges_outputs else [0, 3], {4: 1, 8: 2})


@operator("SVDF", options=True)
def svdf(node: Node) -> Sequence[Value | None]:
    """Convert SVDF: one time step.

    In integers, LiteRT applies RELU by saturation alone: the zero point of the output is the smallest integer.
    """
    function = _function(node)
    if _in_integers(node) and function is FusedActivation.RELU:
        function = FusedActivation.NONE
    return _outputs(node, Svdf(node.options["rank"], function, _rounding(node)), _values(node, 5), [1], {4: 0})


# --- LSTM -------------------------------------------------------------------------------------------------------------


def _gated(node: Node) -> tuple[list[Value | None], dict[str, Any]]:
    """Return the inputs of an LSTM in the order of the layer's operands, and the layer's attributes for its features.

    The features, such as peephole connections, follow from the inputs that are present.
    """
    inputs = _values(node, 24)
    values = [inputs[0], *inputs[18:20], *inputs[1:18], *inputs[20:24]]
    return lstm_operands(values, ("cell_to_input_weights", "input_layer_norm_weights", "input_gate_bias"))


def _matrix(node: Node, diagonal: Value) -> Value:
    """Return constant recurrent weights, which the file has as the diagonal of a matrix, as the matrix."""
    info, array = diagonal.known, diagonal.constant
    if array is None or info.rank != 1:
        node.fail(f"diagonal recurrent weights have shape {info.shape}; expected constants of rank 1")
    if info.quantization is not None and (info.quantization.per_axis or info.zero_point):
        node.fail("diagonal recurrent weights have several scales, or a zero point; expected one scale")
    return node.constant(np.diag(array), info.quantization)


def _clips(node: Node, cell: str, projection: str) -> dict[str, Any]:
    return {cell: node.options["cell_clip"], projection: node.options["proj_clip"]}


def _intermediates(node: Node) -> dict[str, Any]:
    """Return the layer's attributes for the scales of an LSTM in integers, which are those of intermediate tensors."""
    infos = node.intermediate_infos
    if len(infos) != 5:
        node.fail(f"it has {len(infos)} intermediate tensors; only LSTMs in integers with 5 of them are supported")
    scales: dict[str, Any] = {
        f"{gate}_intermediate_scale": info.scale if info is not None and info.quantization else 0.0
        for gate, info in zip(_GATES, infos, strict=False)
    }
    hidden = infos[4]
    if hidden is not None and hidden.quantization:
        scales |= {"hidden_state_scale": hidden.scale, "hidden_state_zero_point": hidden.zero_point}
    return scales


def _in_integers(node: Node) -> bool:
    return node.info(0).is_quantized


@operator("UNIDIRECTIONAL_SEQUENCE_LSTM", options=True)
def sequence_lstm(node: Node) -> Sequence[Value | None]:
    """Convert UNIDIRECTIONAL_SEQUENCE_LSTM, in floats or in integers."""
    values, features = _gated(node)
    if node.options["diagonal_recurrent_tensors"]:
        values[_RECURRENT] = [value if value is None else _matrix(node, value) for value in values[_RECURRENT]]
    scales = _intermediates(node) if _in_integers(node) else {}
    op = UnidirectionalSequenceLstm(
        activation_func=FusedActivation.TANH if _in_integers(node) else _function(node),
        time_major=node.options["time_major"],
        activation_rounding=_rounding(node),
        **_clips(node, "clipping_thres_cell", "clipping_thres_proj"),
        **features,
        **scales,
    )
    return _outputs(node, op, values, [0], {18: 1, 19: 2})


@operator("LSTM", options=True)
def lstm(node: Node) -> Sequence[Value | None]:
    """Convert LSTM: one time step of the full kernel, in floats or in integers, or of the basic kernel."""
    if node.options["kernel_type"]:
        return _basic(node)
    values, features = _gated(node)
    if _in_integers(node):
        clips = _clips(node, "cell_clip", "projection_clip")
        return _outputs(node, QLstm(**clips, **features, **_intermediates(node)), values, [2], {18: 0, 19: 1})
    clips = _clips(node, "clipping_thres_cell", "clipping_thres_proj")
    op = Lstm(activation_func=_function(node), activation_rounding=_rounding(node), **clips, **features)
    return _outputs(node, op, values, [3], {18: 1, 19: 2})


# --- the basic kernel of LSTM -----------------------------------------------------------------------------------------


def _basic(node: Node) -> Sequence[Value | None]:
    """Convert LSTM of the basic kernel: one time step, with the weights of all gates in one matrix.

    The outputs are the new output and cell state, the concatenated inputs, and the sums of the gates in floats.
    """
    if node.num_inputs != 5 or len(node.operator.outputs) != 4:
        node.fail(f"it has {node.num_inputs} inputs and {len(node.operator.outputs)} outputs; expected 5 and 4")
    inputs = node.output(2, Concat(axis=1), node.value(0), node.value(1))
    output, cell, sums = _basic_of_integers(node) if node.info(0).is_quantized else _basic_of_floats(node, inputs)
    for index, value in ((1, output), (4, cell)):
        if node.is_state(index):
            node.write_state(index, value)
    return [output, cell, inputs, sums]


def _basic_of_floats(node: Node, inputs: Value) -> tuple[Value, Value, Value | None]:
    sums = node.output(3, FullyConnected(transpose_weight_matrix=True), inputs, node.value(2, rank=2), node.value(3))
    of_gates = node.steps(Splitter(1, (sums.known.shape[1] // 4,) * 4), sums)
    input_gate, forget_gate, output_gate = (node.step(SIGMOID, of_gates[index]) for index in (0, 2, 3))
    gated_candidate = node.step(Multiplication(), input_gate, node.step(TANH, of_gates[1]))
    cell = node.output(1, Addition(), gated_candidate, node.step(Multiplication(), forget_gate, node.value(4)))
    return node.output(0, Multiplication(), output_gate, node.step(TANH, cell)), cell, sums


def _basic_of_integers(node: Node) -> tuple[Value, Value, Value | None]:
    """Add a QuantizedLstm layer.

    Each row of the weights belongs to the inputs and then the outputs. The operator concatenates the recurrent weights
    and those of the inputs, so the first part of a row has as many elements as the outputs.
    """
    weights, bias = node.array(2, "the weights"), node.array(3, "the biases")
    units, row = len(bias) // 4, weights.shape[-1]
    if weights.shape != (4 * units, row) or row < units:
        node.fail(f"the weights have shape {weights.shape}, for {len(bias)} biases")
    of_gates = [weights[number * units : (number + 1) * units] for number in (0, 2, 1, 3)]
    biases = [bias[number * units : (number + 1) * units] for number in (0, 2, 1, 3)]
    of_inputs = [node.constant(gate[:, units:], node.info(2).quantization) for gate in of_gates]
    of_outputs = [node.constant(gate[:, :units], node.info(2).quantization) for gate in of_gates]
    vectors = [node.constant(part, node.info(3).quantization) for part in biases]
    values = [node.value(0), node.value(4), node.value(1), *of_inputs, *of_outputs, *vectors]
    infos = node.output_infos
    cell, output = node.layer(QuantizedLstm(), *values, declared=[infos[1], infos[0]])
    return output, cell, None


@operator("BIDIRECTIONAL_SEQUENCE_LSTM", options=True)
def bidirectional_lstm(node: Node) -> Sequence[Value | None]:
    """Convert BIDIRECTIONAL_SEQUENCE_LSTM."""
    merges_outputs = node.options["merge_outputs"]
    op = BidirectionalSequenceLstm(
        activation_func=_function(node),
        time_major=node.options["time_major"],
        merge_outputs=merges_outputs,
        activation_rounding=_rounding(node),
        **_clips(node, "clipping_thres_cell", "clipping_thres_proj"),
    )
    return _outputs(node, op, _values(node, 48), [0] if merges_outputs else [0, 5], {35: 1, 36: 2, 37: 3, 38: 4})

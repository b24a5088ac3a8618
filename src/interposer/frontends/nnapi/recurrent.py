"""NNAPI converters for recurrent layers; most operands have the order of the layers' own operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from interposer.core.schema import Op
from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.node import Node
from interposer.frontends.recurrent import FUSED_FUNCTIONS, lstm_operands, q_lstm_operands
from interposer.ir.graph import Value
from interposer.ops.lstm import BidirectionalSequenceLstm, Lstm, UnidirectionalSequenceLstm
from interposer.ops.quantized_recurrent import QLstm, QuantizedLstm
from interposer.ops.recurrent import BidirectionalSequenceRnn, FusedActivation, Rnn, Svdf, UnidirectionalSequenceRnn

__all__: list[str] = []

_INTERMEDIATE_SCALES: Final = {
    f"{gate}_intermediate_scale": 26 + number for number, gate in enumerate(("input", "forget", "cell", "output"))
}


def _function(node: Node, index: int) -> FusedActivation:
    number = node.integer_of(index, "the activation")
    if number not in FUSED_FUNCTIONS:
        known_numbers = ", ".join(map(str, FUSED_FUNCTIONS))
        node.fail(f"the activation (input {index}) is {number}; expected one of {known_numbers}")
    return FUSED_FUNCTIONS[number]


def _outputs(node: Node, op: Op, values: Sequence[Value | None], output_of: Sequence[int]) -> list[Value]:
    """Add a layer with these inputs, and return the outputs that the operation declares, in the document's order.

    `output_of` has the number of the layer's output for each output of the operation. The document may declare only the
    first few of these.
    """
    count = len(node.outputs)
    numbers: list[int | None] = [None] * op.num_results()
    for number, output in enumerate(output_of[:count]):
        numbers[output] = number
    layer_outputs = node.layer(op, *values, output_numbers=numbers)
    return [layer_outputs[output] for output in output_of[:count]]


# --- layers without gates ---------------------------------------------------------------------------------------------


@operator("RNN", inputs=6)
def rnn(node: Node) -> list[Value]:
    """Convert RNN: one time step."""
    return node.results(Rnn(_function(node, 5)), *node.optionals(stop=5))


@operator("UNIDIRECTIONAL_SEQUENCE_RNN", inputs=7)
def sequence_rnn(node: Node) -> list[Value]:
    """Convert UNIDIRECTIONAL_SEQUENCE_RNN; time major is an integer, and the state is an output since NNAPI 1.3."""
    time_major = node.integer_of(6, "whether time comes first") != 0
    op = UnidirectionalSequenceRnn(_function(node, 5), time_major)
    return _outputs(node, op, node.optionals(stop=5), (0, 1))


@operator("BIDIRECTIONAL_SEQUENCE_RNN", inputs=15)
def bidirectional_rnn(node: Node) -> list[Value]:
    """Convert BIDIRECTIONAL_SEQUENCE_RNN; the states are outputs since NNAPI 1.3."""
    merges_outputs = node.flag_of(14, "whether to merge the outputs")
    op = BidirectionalSequenceRnn(_function(node, 12), node.flag_of(13, "whether time comes first"), merges_outputs)
    return _outputs(node, op, node.optionals(stop=12), (0, 1, 2) if merges_outputs else (0, 3, 1, 2))


@operator("SVDF", inputs=7)
def svdf(node: Node) -> list[Value]:
    """Convert SVDF: one time step."""
    rank = node.integer_of(5, "the rank")
    return node.results(Svdf(rank, _function(node, 6)), *node.optionals(stop=5))


# --- LSTM -------------------------------------------------------------------------------------------------------------


def _gated(node: Node, states: int, norms: int) -> tuple[list[Value | None], dict[str, Any]]:
    """Return the inputs of an LSTM in the order of the layer's operands, and the layer's attributes.

    `states` is the number of the first of two state inputs, `norms` that of the first of four layer normalization
    weights. The attributes say which of the optional parts (such as peephole weights) the LSTM has.
    """
    ranges = ((0, 1), (states, states + 2), (1, 18), (norms, norms + 4))
    values = [value for start, stop in ranges for value in node.optionals(start, stop)]
    return lstm_operands(values, ("cell_to_input_weights", "input_layer_norm_weights"))


def _clips(node: Node, first: int) -> dict[str, Any]:
    return {
        "clipping_thres_cell": node.number_of(first, "the bound of the cell state"),
        "clipping_thres_proj": node.number_of(first + 1, "the bound of the projection"),
    }


@operator("LSTM", inputs=(23, 27))
def lstm(node: Node) -> list[Value]:
    """Convert LSTM: one time step.

    The first output, the scratch buffer, is ignored.
    """
    values, features = _gated(node, states=18, norms=23)
    op = Lstm(activation_func=_function(node, 20), **_clips(node, 21), **features)
    if len(node.outputs) != 4:
        node.fail(f"it has {len(node.outputs)} outputs; expected 4")
    return node.layer(op, *values, output_numbers=(None, 1, 2, 3))


@operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs=(24, 28))
def sequence_lstm(node: Node) -> list[Value]:
    """Convert UNIDIRECTIONAL_SEQUENCE_LSTM; the states are outputs since NNAPI 1.3."""
    values, features = _gated(node, states=18, norms=24)
    op = UnidirectionalSequenceLstm(
        activation_func=_function(node, 20),
        time_major=node.flag_of(23, "whether time comes first"),
        **_clips(node, 21),
        **features,
    )
    return _outputs(node, op, values, (0, 1, 2))


@operator("BIDIRECTIONAL_SEQUENCE_LSTM", inputs=(53, 61))
def bidirectional_lstm(node: Node) -> list[Value]:
    """Convert BIDIRECTIONAL_SEQUENCE_LSTM; the states are outputs since NNAPI 1.3."""
    merges_outputs = node.flag_of(51, "whether to merge the outputs")
    op = BidirectionalSequenceLstm(
        activation_func=_function(node, 48),
        time_major=node.flag_of(52, "whether time comes first"),
        merge_outputs=merges_outputs,
        **_clips(node, 49),
    )
    values = [*node.optionals(stop=48), *node.optionals(53, 61)]
    return _outputs(node, op, values, (0, 1, 2, 3, 4) if merges_outputs else (0, 5, 1, 2, 3, 4))


@operator("QUANTIZED_LSTM", inputs=32)
def quantized_lstm(node: Node) -> list[Value]:
    """Convert QUANTIZED_LSTM: one time step of 8-bit data with a 16-bit cell state.

    Without layer normalization, the biases of gates do not count.
    """
    values, features = _gated(node, states=18, norms=20)
    scales: dict[str, Any] = {
        name: node.number_of(index, name.replace("_", " ")) for name, index in _INTERMEDIATE_SCALES.items()
    }
    op = QLstm(
        cell_clip=node.number_of(24, "the bound of the cell state"),
        projection_clip=node.number_of(25, "the bound of the projection"),
        hidden_state_zero_point=node.integer_of(30, "the zero point of the hidden state"),
        hidden_state_scale=node.number_of(31, "the scale of the hidden state"),
        **scales,
        **features,
    )
    return node.results(op, *q_lstm_operands(node, op, values))


@operator("QUANTIZED_16BIT_LSTM", inputs=15)
def quantized_16bit_lstm(node: Node) -> list[Value]:
    """Convert QUANTIZED_16BIT_LSTM: one time step, with 8-bit weights of one scale."""
    return node.results(QuantizedLstm(), *node.optionals(0, 1), *node.optionals(13, 15), *node.optionals(1, 13))

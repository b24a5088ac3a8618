"""Converters for recurrent layers, which stay whole, and for recurrent cells, which become products and gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.frontends.elementwise import SIGMOID, TANH
from interposer.frontends.torch.call import Call
from interposer.frontends.torch.matmul import linear
from interposer.frontends.torch.registry import aten
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.matmul import BatchMatMul
from interposer.ops.recurrent_sequence import GruSequence, LstmSequence, RecurrentDirection, RnnSequence

__all__: list[str] = []

_LSTM: Final = (0, 3, 1, 2)
_GRU: Final = (1, 0, 2)
_RNN: Final = (0,)
"""For each gate of Interposer's operators, the place of the gate in PyTorch's weights."""


@aten("lstm.input")
def lstm(
    c: Call, x: Value, states: Sequence[Value], params: Sequence[Value], biases: bool, layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> list[Value]:  # fmt: skip
    """Convert lstm; the results are the output, the hidden states and the cell states."""
    directions = 2 if bidirectional else 1
    _check_inference(c, dropout, train)
    if len(params) != layers * directions * (4 if biases else 2):
        return _projected(c, x, states, params, biases, directions, batch_first)
    direction = RecurrentDirection.BIDIRECTIONAL if bidirectional else RecurrentDirection.FORWARD
    op = LstmSequence(direction)
    return _stacked(c, op, x, list(states), _Weights(c, params, biases, directions, _LSTM), layers, batch_first)


def _projected(
    c: Call, x: Value, states: Sequence[Value], params: Sequence[Value], biases: bool, directions: int,
    batch_first: bool,
) -> list[Value]:  # fmt: skip
    """Return an lstm with projections of its hidden states, step by step, as the operator has none."""
    params_per_direction = 5 if biases else 3
    x = c.transpose(x, [1, 0, 2]) if batch_first else x
    finals: list[list[Value]] = [[], []]
    for first_param in range(0, len(params), params_per_direction * directions):
        outputs = []
        for direction in range(directions):
            state_index = len(finals[0])
            initial_states = [c.squeezed(c.cut(state, 0, state_index, 1), 0) for state in states]
            direction_params = params[
                first_param + direction * params_per_direction : first_param + (direction + 1) * params_per_direction
            ]
            output, *final_states = _projected_steps(c, x, initial_states, direction_params, reverse=bool(direction))
            outputs.append(output)
            for column, state in zip(finals, final_states, strict=True):
                column.append(c.unsqueezed(state, 0))
        x = c.joined(outputs, 2)
    x = c.transpose(x, [1, 0, 2]) if batch_first else x
    return [x, *(c.joined(column, 0) for column in finals)]


def _projected_steps(
    c: Call, x: Value, states: Sequence[Value], params: Sequence[Value], *, reverse: bool
) -> list[Value]:
    """Return the output of one direction of an lstm with projections, and its final states."""
    hidden, cell = states
    weights, recurrent, *biases, projection = params
    gates = c.step(BatchMatMul(transpose_y=True), x, weights)
    for bias in biases:
        gates = c.plus(gates, bias)
    steps = range(c.size(x, 0))
    outputs = dict[int, Value]()
    for step in reversed(steps) if reverse else steps:
        step_gates = c.plus(
            c.squeezed(c.cut(gates, 0, step, 1), 0), c.step(BatchMatMul(transpose_y=True), hidden, recurrent)
        )
        unprojected, cell = _gated(c, step_gates, cell)
        hidden = c.step(BatchMatMul(transpose_y=True), unprojected, projection)
        outputs[step] = c.unsqueezed(hidden, 0)
    return [c.joined([outputs[step] for step in steps], 0), hidden, cell]


def _gated(c: Call, gates: Value, cell: Value) -> tuple[Value, Value]:
    """Return the next hidden state and cell state of an lstm; `gates` has the arguments of all gates in its columns."""
    size = c.size(cell, 1)
    input_gate, forget_gate, candidate, output_gate = (c.cut(gates, 1, i * size, size) for i in range(4))
    input_gate, forget_gate, output_gate = (c.step(SIGMOID, gate) for gate in (input_gate, forget_gate, output_gate))
    cell = c.plus(c.times(forget_gate, cell), c.times(input_gate, c.step(TANH, candidate)))
    return c.times(output_gate, c.step(TANH, cell)), cell


@aten("gru.input")
def gru(
    c: Call, x: Value, state: Value, params: Sequence[Value], biases: bool, layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> list[Value]:  # fmt: skip
    """Convert gru; the results are the output and the hidden states."""
    _check_inference(c, dropout, train)
    op = GruSequence(
        RecurrentDirection.BIDIRECTIONAL if bidirectional else RecurrentDirection.FORWARD, linear_before_reset=True
    )
    weights = _Weights(c, params, biases, 2 if bidirectional else 1, _GRU)
    return _stacked(c, op, x, [state], weights, layers, batch_first)


@aten("rnn_tanh.input", "rnn_relu.input")
def rnn(
    c: Call, x: Value, state: Value, params: Sequence[Value], biases: bool, layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> list[Value]:  # fmt: skip
    """Convert the simple recurrent layers."""
    _check_inference(c, dropout, train)
    is_relu = "relu" in str(c.node.target)
    directions = 2 if bidirectional else 1
    functions = (ActivationFunction.RELU if is_relu else ActivationFunction.TANH,) * directions
    op = RnnSequence(
        RecurrentDirection.BIDIRECTIONAL if bidirectional else RecurrentDirection.FORWARD, activations=functions
    )
    return _stacked(c, op, x, [state], _Weights(c, params, biases, directions, _RNN), layers, batch_first)


# --- cells ------------------------------------------------------------------------------------------------------------


@aten("lstm_cell")
def lstm_cell(
    c: Call, x: Value, states: Sequence[Value], weights: Value, recurrent: Value, bias: Value | None = None,
    recurrent_bias: Value | None = None,
) -> list[Value]:  # fmt: skip
    """Convert lstm_cell; the results are the hidden state and the cell state.

    A cell is often called for each step of a sequence. All its calls use the same constants, in the order of PyTorch.
    """
    hidden, cell = states
    gates = c.plus(linear(c, x, weights, bias), linear(c, hidden, recurrent, recurrent_bias))
    return list(_gated(c, gates, cell))


@aten("gru_cell")
def gru_cell(
    c: Call, x: Value, hidden: Value, weights: Value, recurrent: Value, bias: Value | None = None,
    recurrent_bias: Value | None = None,
) -> Value:  # fmt: skip
    """Convert gru_cell; the reset gate is applied to the product with the hidden state."""
    size = c.size(hidden, 1)
    of_input, of_hidden = linear(c, x, weights, bias), linear(c, hidden, recurrent, recurrent_bias)
    reset_gate, update_gate = (
        c.step(SIGMOID, c.plus(c.cut(of_input, 1, start, size), c.cut(of_hidden, 1, start, size)))
        for start in (0, size)
    )
    candidate = c.plus(c.cut(of_input, 1, 2 * size, size), c.times(reset_gate, c.cut(of_hidden, 1, 2 * size, size)))
    new = c.step(TANH, candidate)
    return c.plus(c.times(c.minus(hidden, new), update_gate), new)


@aten("rnn_tanh_cell", "rnn_relu_cell")
def rnn_cell(
    c: Call, x: Value, hidden: Value, weights: Value, recurrent: Value, bias: Value | None = None,
    recurrent_bias: Value | None = None,
) -> Value:  # fmt: skip
    """Convert the cells of simple recurrent layers."""
    function = Activation(ActivationFunction.RELU) if "relu" in str(c.node.target) else TANH
    return c.step(function, c.plus(linear(c, x, weights, bias), linear(c, hidden, recurrent, recurrent_bias)))


# --- weights and stacks -----------------------------------------------------------------------------------------------


def _check_inference(c: Call, dropout: float, train: bool) -> None:
    if dropout and train:
        c.unsupported("it is in training mode; call eval() on the module before the export")


class _Weights:
    """The weights of all layers: `of` returns those of one layer, in the order of gates of Interposer's operators."""

    def __init__(self, c: Call, params: Sequence[Value], biases: bool, directions: int, gates: Sequence[int]) -> None:
        self._c, self._params, self._gates = c, params, gates
        self._params_per_direction = 4 if biases else 2
        self._directions = directions

    def of(self, layer: int) -> tuple[Value, Value, Value | None]:
        """Return input weights, recurrent weights and biases (None if there are none), with an axis of directions."""
        first = layer * self._directions * self._params_per_direction
        rows = [
            self._params[first + i * self._params_per_direction : first + (i + 1) * self._params_per_direction]
            for i in range(self._directions)
        ]
        ordered_rows = [[self._ordered(param) for param in row] for row in rows]
        weights, recurrent = (self._joined([row[i] for row in ordered_rows]) for i in (0, 1))
        if self._params_per_direction == 2:
            return weights, recurrent, None
        return weights, recurrent, self._joined([self._c.joined(row[2:], 0) for row in ordered_rows])

    def _ordered(self, param: Value) -> Value:
        count = len(self._gates)
        size = self._c.size(param, 0) // count
        rows = np.concatenate([np.arange(gate * size, (gate + 1) * size) for gate in self._gates])
        return param if count == 1 else self._c.gather(param, rows, 0)

    def _joined(self, params: Sequence[Value]) -> Value:
        return self._c.joined([self._c.unsqueezed(param, 0) for param in params], 0)


def _stacked(
    c: Call,
    op: LstmSequence | GruSequence | RnnSequence,
    x: Value,
    states: Sequence[Value],
    weights: _Weights,
    layers: int,
    batch_first: bool,
) -> list[Value]:
    """Add the layers one after the other; return the output and the final states of all layers."""
    directions = op.directions
    x = c.transpose(x, [1, 0, 2]) if batch_first else x
    finals: list[list[Value]] = [[] for _ in states]
    for layer in range(layers):
        initial_states = [c.cut(state, 0, layer * directions, directions) for state in states]
        w, r, b = weights.of(layer)
        output, *final_states = c.steps(op, x, w, r, b, None, *initial_states)
        x = _merged(c, output, directions)
        for column, state in zip(finals, final_states, strict=True):
            column.append(state)
    x = c.transpose(x, [1, 0, 2]) if batch_first else x
    return [x, *(c.joined(column, 0) for column in finals)]


def _merged(c: Call, output: Value, directions: int) -> Value:
    """Return an output [steps, directions, batch, units] as [steps, batch, directions * units]."""
    if directions == 1:
        return c.squeezed(output, 1)
    steps, count, batch, units = c.shape(output)
    return c.reshape(c.transpose(output, [0, 2, 1, 3]), [steps, batch, count * units])

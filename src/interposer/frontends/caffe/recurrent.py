"""Caffe converters for recurrent layers: sequences of several streams, in which a second bottom marks where one begins.

The bottoms are the sequence (T, N, ...) and the marks (T, N), where 0 begins a new sequence; a static bottom (N, ...)
may follow, and the initial states with ``expose_hidden``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from interposer.core.types import Array, TensorInfo
from interposer.frontends.caffe.caffe_converters import layer
from interposer.frontends.caffe.node import Node
from interposer.frontends.elementwise import SIGMOID, TANH
from interposer.frontends.importer import Importer, input_of_region
from interposer.ir.graph import Value
from interposer.ir.network import Network
from interposer.ops.control import Output
from interposer.ops.control_flow import Scan
from interposer.ops.elementwise import BinaryOperation
from interposer.ops.matmul import FullyConnected
from interposer.ops.rearrange import Splitter

__all__: list[str] = []

Step = Callable[[Node, Sequence[Value], Value, Value], Sequence[Value]]
"""Adds the layers of one time step to a region: from its states, what the inputs contribute, and the marks."""


class _Sequence(NamedTuple):
    """The bottoms of a recurrent layer, and the sizes of time, batch and state."""

    x: Value
    marks: Value
    static: Value | None
    states: tuple[Value, ...]
    steps: int
    batch: int
    size: int


@layer("LSTM")
def lstm(node: Node) -> list[Value]:
    """Convert LSTM; the weights have the gates i, f and o and the candidate g."""
    sequence = _sequence(node, states=2)
    projected, next_blob = _projected(node, sequence, 4 * sequence.size)
    weights = node.weights(next_blob, (4 * sequence.size, sequence.size), "recurrent weights")

    def step(inner: Node, states: Sequence[Value], x: Value, mark: Value) -> Sequence[Value]:
        hidden_before = inner.binary(BinaryOperation.MUL, states[0], mark)
        gates = inner.binary(BinaryOperation.ADD, _product(inner, hidden_before, weights), x)
        return _lstm_unit(inner, states[1], gates, mark)

    hidden, states = _scanned(node, sequence, projected, step)
    return [hidden, *_exposed(node, sequence, states)]


@layer("LSTMUnit")
def lstm_unit(node: Node) -> list[Value]:
    """Convert LSTMUnit, one step of LSTM: from the cell state, the gates and the marks to cell state and output."""
    if node.num_inputs != 3 or any(len(node.shape(value)) != 3 for value in node.values()[:2]):
        node.fail(f"it has {node.num_inputs} bottoms; expected cell state and gates with three axes, and marks")
    state, gates, marks = node.values()
    _, batch, size = node.shape(state)
    if node.shape(gates) != (1, batch, 4 * size) or node.shape(marks) != (1, batch):
        node.fail(f"its gates have the shape {list(node.shape(gates))}; expected {[1, batch, 4 * size]}")
    output, next_state = _lstm_unit(node, state, gates, node.reshaped(marks, (1, batch, 1)))
    return [next_state, output]


@layer("RNN")
def rnn(node: Node) -> list[Value]:
    """Convert RNN: hidden states with tanh, and outputs with tanh of them."""
    sequence = _sequence(node, states=1)
    size = sequence.size
    projected, next_blob = _projected(node, sequence, size)
    weights = node.weights(next_blob, (size, size), "recurrent weights")

    def step(inner: Node, states: Sequence[Value], x: Value, mark: Value) -> Sequence[Value]:
        hidden_before = inner.binary(BinaryOperation.MUL, states[0], mark)
        return [inner.result(TANH, inner.binary(BinaryOperation.ADD, _product(inner, hidden_before, weights), x))]

    hidden, states = _scanned(node, sequence, projected, step)
    rows = node.reshaped(hidden, (sequence.steps * sequence.batch, size))
    bias = node.weights(next_blob + 2, (size,), "bias of the output")
    outputs = node.result(TANH, _product(node, rows, node.weights(next_blob + 1, (size, size), "output weights"), bias))
    return [node.reshaped(outputs, (sequence.steps, sequence.batch, size)), *_exposed(node, sequence, states)]


def _sequence(node: Node, states: int) -> _Sequence:
    parameters = node.parameters("recurrent_param")
    num_exposed = states if parameters.expose_hidden else 0
    count, size = node.num_inputs, parameters.num_output
    if count not in (2 + num_exposed, 3 + num_exposed) or size < 1:
        node.fail(
            f"it has {count} bottoms and num_output {size}; expected {2 + num_exposed} or {3 + num_exposed} bottoms"
        )
    x, marks = node.values()[:2]
    steps, batch = (*node.shape(x), 0, 0)[:2]
    if len(node.shape(x)) < 2 or node.shape(marks) != (steps, batch):
        node.fail(
            f"its bottoms have the shapes {x.known.shape} and {marks.known.shape}; expected (T, N, ...) and (T, N)"
        )
    static = node.value(2) if count == 3 + num_exposed else None
    if static is not None and node.shape(static)[:1] != (batch,):
        node.fail(f"its static bottom has the shape {static.known.shape}; expected ({batch}, ...)")
    initial_states = node.values()[count - num_exposed :] if num_exposed else ()
    return _Sequence(x, marks, static, tuple(initial_states), steps, batch, size)


def _projected(node: Node, sequence: _Sequence, outputs: int) -> tuple[Value, int]:
    """Return what the inputs contribute to all steps (T, N, outputs), and the number of blobs of weights for that."""
    steps, batch = sequence.steps, sequence.batch
    depth = math.prod(node.shape(sequence.x)[2:])
    rows = node.reshaped(sequence.x, (steps * batch, depth))
    bias = node.weights(1, (outputs,), "bias")
    contribution = _product(node, rows, node.weights(0, (outputs, depth), "weights"), bias)
    contribution = node.reshaped(contribution, (steps, batch, outputs))
    if sequence.static is None:
        return contribution, 2
    depth = math.prod(node.shape(sequence.static)[1:])
    static = node.reshaped(sequence.static, (batch, depth))
    weights = node.weights(2, (outputs, depth), "weights of the static bottom")
    return node.binary(BinaryOperation.ADD, contribution, _product(node, static, weights)), 3


def _product(node: Node, x: Value, weights: Array, bias: Array | None = None) -> Value:
    constants = [node.constant(array) for array in (weights, bias) if array is not None]
    return node.result(FullyConnected(transpose_weight_matrix=True), x, *constants)


def _lstm_unit(node: Node, state: Value, gates: Value, mark: Value) -> tuple[Value, Value]:
    """Return the output and the cell state after one step; a mark of 0 forgets the cell state."""
    size = node.shape(gates)[-1] // 4
    axis = len(node.shape(gates)) - 1
    into, forget, out, candidate = node.results(Splitter(axis=axis, sizes=(size,) * 4), gates)
    forget = node.binary(BinaryOperation.MUL, node.result(SIGMOID, forget), mark)
    kept_state = node.binary(BinaryOperation.MUL, forget, state)
    gated_candidate = node.binary(BinaryOperation.MUL, node.result(SIGMOID, into), node.result(TANH, candidate))
    next_state = node.binary(BinaryOperation.ADD, kept_state, gated_candidate)
    return node.binary(BinaryOperation.MUL, node.result(SIGMOID, out), node.result(TANH, next_state)), next_state


def _scanned(node: Node, sequence: _Sequence, projected: Value, step: Step) -> tuple[Value, Sequence[Value]]:
    """Return the first state after every step (T, N, D), and all states after the last step (N, D)."""
    batch, size = sequence.batch, sequence.size
    count = 2 if node.layer.type == "LSTM" else 1
    zeros = np.zeros((batch, size), np.float32)
    initial = [node.reshaped(value, (batch, size)) for value in sequence.states]
    initial = initial or [node.constant(zeros) for _ in range(count)]
    marks = node.reshaped(sequence.marks, (sequence.steps, batch, 1))
    body_node = node.inside(Importer(Network("body"), node.importer))
    region = body_node.importer.network.graph
    shapes = [*[(batch, size)] * count, (batch, node.shape(projected)[-1]), (batch, 1)]
    inputs = [input_of_region(region, number, TensorInfo(shape), "") for number, shape in enumerate(shapes)]
    next_states = step(body_node, inputs[:count], inputs[count], inputs[count + 1])
    for number, value in enumerate([*next_states, next_states[0]]):
        region.add(Output(number), [value])
    op = Scan(num_states=count, num_scan_inputs=2, num_scan_outputs=1)
    *states, hidden = node.control(op, [*initial, projected, marks], [region])
    return hidden, states


def _exposed(node: Node, sequence: _Sequence, states: Sequence[Value]) -> list[Value]:
    """Return the last states as tops (1, N, D), if the layer exposes them."""
    if not sequence.states:
        return []
    return [node.reshaped(state, (1, sequence.batch, sequence.size)) for state in states]

"""ONNX converter for DynamicQuantizeLSTM, whose input and hidden states are quantized while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import Dim, TensorInfo, TensorShape
from interposer.frontends.elementwise import ADD, LESS, MUL, SUB
from interposer.frontends.importer import input_of_region
from interposer.frontends.onnx.contrib_matmul import scaled_product
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.onnx.proto import onnx_package
from interposer.frontends.onnx.recurrent import lstm_op
from interposer.frontends.onnx.subgraphs import Scope
from interposer.frontends.reshaping import reshaped
from interposer.ir.graph import Value
from interposer.ir.network import Network
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.control_flow import Scan
from interposer.ops.elementwise import Where
from interposer.ops.gather import Gather
from interposer.ops.quantization import DynamicQuantize
from interposer.ops.rearrange import Concat, Splitter, Stack
from interposer.ops.recurrent_sequence import LstmSequence
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.reshape import Fill, Shape
from interposer.ops.sequence import Range, ReverseSequence

__all__: list[str] = []


class _Weights(NamedTuple):
    """Quantized weights (K, 4 * H) with their scale and zero point: one number each, or one for every column."""

    values: Value
    scale: Value
    zero_point: Value | None


class _Lengths(NamedTuple):
    """The lengths of the sequences (B,), and whether a sequence has a step (T, B, 1)."""

    lengths: Value
    has_step: Value


@operator("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(node: Node) -> Sequence[Value]:
    """Convert DynamicQuantizeLSTM: its products with weights are those of integers, its gates are float.

    The input is quantized to uint8 with the range of all its values, and the hidden state before each step with the
    range of that state, as ONNX Runtime does with one thread.
    """
    op = lstm_op(node)
    if not op.time_major:
        node.unsupported("its layout is 1; ONNX Runtime computes layout 0 only")
    _check_shapes(node, op)
    lengths = _lengths(node)
    x = node.value(0) if lengths is None else _without_unread_steps(node, lengths)
    quantized = node.steps(DynamicQuantize(), x)
    results = [_direction(node, op, index, quantized, lengths) for index in range(op.directions)]
    return [node.step(Stack(axis), *values) for axis, values in zip((1, 0, 0), zip(*results, strict=True), strict=True)]


def _check_shapes(node: Node, op: LstmSequence) -> None:
    units = _num_units(node)
    expected_shapes = {1: (node.info(0).shape[-1], 4 * units), 2: (units, 4 * units), 3: (8 * units,), 7: (3 * units,)}
    for index, sizes in expected_shapes.items():
        operand, expected = node.optional(index), TensorShape((op.directions, *sizes))
        if operand is not None and not expected.accepts(operand.known.shape):
            raise ParseError(f"its input number {index} has shape {operand.known.shape}; expected {expected}")


def _num_units(node: Node) -> int:
    shape = node.info(2).shape
    if len(shape) != 3 or node.info(0).rank != 3:
        raise ParseError(f"its input has shape {node.info(0).shape}, its recurrent weights {shape}; expected rank 3")
    return node.known(shape[1], "number of units")


# --- sequences of different lengths -----------------------------------------------------------------------------------


def _lengths(node: Node) -> _Lengths | None:
    lengths = node.optional(4)
    if lengths is None:
        return None
    zero, one = (node.scalar_like(number, lengths) for number in (0, 1))
    num_steps = node.step(Gather(0), node.step(Shape(lengths.known.dtype), node.value(0)), zero)
    steps = reshaped(node, node.step(Range(), zero, num_steps, one), [-1, 1, 1])
    return _Lengths(lengths, node.step(LESS, steps, reshaped(node, lengths, [1, -1, 1])))


def _without_unread_steps(node: Node, lengths: _Lengths) -> Value:
    """Return the input with zeros in the steps that no sequence has: they do not count for the range of the input."""
    is_read = node.step(Reduce((1,), keep_dims=True, operation=ReduceOperation.ANY), lengths.has_step)
    return node.step(Where(), is_read, node.value(0), node.scalar_like(0, node.value(0)))


def _reversed(node: Node, x: Value, lengths: _Lengths | None) -> Value:
    return x if lengths is None else node.step(ReverseSequence(), x, lengths.lengths)


# --- one direction ----------------------------------------------------------------------------------------------------


def _direction(
    node: Node, op: LstmSequence, index: int, quantized: Sequence[Value], lengths: _Lengths | None
) -> tuple[Value, Value, Value]:
    """Return the hidden states of all steps (T, B, H), and the last hidden and cell states (B, H)."""
    reverse = op.direction.reversals[index]
    x = _product(node, quantized, _weights(node, 1, 8, index), _bias(node, index))
    x = _reversed(node, x, lengths) if reverse else x
    states = [_initial_state(node, number, index) for number in (5, 6)]
    if lengths is None:
        (hidden, cell), outputs = _scanned(node, op, index, states, [x], reverse=reverse)
        return outputs, hidden, cell
    zeros = _zeros(node)
    states, outputs = _scanned(node, op, index, [*states, zeros], [x, lengths.has_step], reverse=False)
    has_steps = reshaped(node, node.step(LESS, node.scalar_like(0, lengths.lengths), lengths.lengths), [-1, 1])
    outputs = _reversed(node, outputs, lengths) if reverse else outputs
    return outputs, states[2], node.step(Where(), has_steps, states[1], zeros)


def _of_direction(node: Node, operand: int, index: int) -> Value | None:
    """Return the part of an operand, whose first axis is that of the directions, that belongs to one of them."""
    value = node.optional(operand)
    return None if value is None else node.step(Gather(0), value, node.constant(np.array(index)))


def _weights(node: Node, operand: int, scale_operand: int, index: int) -> _Weights:
    node.value(operand), node.value(scale_operand)
    values, scale, zero_point = (
        _of_direction(node, number, index) for number in (operand, scale_operand, scale_operand + 1)
    )
    assert values is not None and scale is not None
    return _Weights(values, scale, zero_point)


def _bias(node: Node, index: int) -> Value | None:
    """Return the sum of the biases of input and state, or None if there is no bias."""
    biases = _of_direction(node, 3, index)
    if biases is None:
        return None
    return node.step(ADD, *node.steps(Splitter(axis=0, sizes=(4 * _num_units(node),) * 2), biases))


def _initial_state(node: Node, operand: int, index: int) -> Value:
    state = _of_direction(node, operand, index)
    return _zeros(node) if state is None else state


def _zeros(node: Node) -> Value:
    """Return a state (B, H) of zeros, where the number of sequences may be unknown."""
    batch, units = node.info(0).shape[1], _num_units(node)
    if not isinstance(batch, Dim):
        return node.constant(np.zeros((batch, units), np.float32))
    num_sequences = node.step(Gather(0), node.step(Shape(), node.value(0)), node.constant(np.array([1])))
    return node.step(Fill(), node.step(Concat(0), num_sequences, node.constant(np.array([units], np.int32))))


def _product(node: Node, quantized: Sequence[Value], weights: _Weights, bias: Value | None) -> Value:
    values, scale, zero_point = quantized
    zero_points, scales = (zero_point, weights.zero_point), (scale, weights.scale)
    return scaled_product(node, (values, weights.values), zero_points, scales, bias)


# --- one step ---------------------------------------------------------------------------------------------------------


def _scanned(
    node: Node, op: LstmSequence, index: int, states: Sequence[Value], scanned: Sequence[Value], *, reverse: bool
) -> tuple[list[Value], Value]:
    """Return the states after the last step, and the outputs of all steps, the first states (T, B, H)."""
    network = Network(node.name)
    scope = Scope(node.importer, onnx_package().GraphProto(), network)
    slices = [TensorInfo(value.known.shape[1:], value.known.dtype) for value in scanned]
    infos = [*(TensorInfo(value.known.shape, value.known.dtype) for value in states), *slices]
    inputs = [input_of_region(network.graph, number, info, f"step_{number}") for number, info in enumerate(infos)]
    values, scale, zero_point = _weights(node, 2, 10, index)
    weights = _Weights(scope.capture(values), scope.capture(scale), zero_point and scope.capture(zero_point))
    peephole = _of_direction(node, 7, index)
    step = _Step(node.inside(scope), op, index, weights, peephole and scope.capture(peephole))
    next_states = step.next_states(inputs[: len(states)], *inputs[len(states) :])
    for number, value in enumerate([*next_states, next_states[0]]):
        network.add_output_layer(number, value)
    scan = Scan(len(states), len(scanned), 1, reverse_inputs=(reverse,) * len(scanned), reverse_outputs=(reverse,))
    *last_states, outputs = node.control(scan, [*states, *scanned, *scope.captured], [network.graph])
    return last_states, outputs


class _Step:
    """Adds the layers of one step in a direction to the region of a Scan, with the weights of the hidden state."""

    def __init__(self, node: Node, op: LstmSequence, index: int, weights: _Weights, peephole: Value | None) -> None:
        self._node, self._op, self._weights = node, op, weights
        self._units = units = weights.values.known.shape[-1] // 4
        count = len(op.defaults)
        self._functions = [Activation(*function) for function in op.functions()[index * count : (index + 1) * count]]
        self._peepholes = [] if peephole is None else node.steps(Splitter(axis=0, sizes=(units,) * 3), peephole)

    def next_states(self, states: Sequence[Value], x: Value, has_step: Value | None = None) -> list[Value]:
        """Return the output and the cell state after a step, from those before and what the input contributes.

        With `has_step` (B, 1), the output of a sequence without the step is zero, its cell state remains, and the third
        state is its last output.
        """
        hidden, cell = self._cell(states[0], states[1], x)
        if has_step is None:
            return [hidden, cell]
        before = (self._node.scalar_like(0, hidden), states[1], states[2])
        return [
            self._node.step(Where(), has_step, new, old)
            for new, old in zip((hidden, cell, hidden), before, strict=True)
        ]

    def _cell(self, hidden: Value, cell: Value, x: Value) -> tuple[Value, Value]:
        node = self._node
        sums = node.step(ADD, x, _product(node, node.steps(DynamicQuantize(), hidden), self._weights, None))
        into, out, forget, candidate = node.steps(Splitter(axis=1, sizes=(self._units,) * 4), sums)
        input_gate = self._gate(into, 0, cell)
        forget_gate = self._one_minus(input_gate) if self._op.input_forget else self._gate(forget, 2, cell)
        new = node.step(MUL, input_gate, self._function(1, candidate))
        next_cell = node.step(ADD, node.step(MUL, forget_gate, cell), new)
        output_gate = self._gate(out, 1, next_cell)
        return node.step(MUL, output_gate, node.step(self._functions[2], next_cell)), next_cell

    def _gate(self, sums: Value, peephole: int, cell: Value) -> Value:
        """Return a gate; `peephole` is the number of its peephole weights, by which the cell state contributes."""
        if not self._peepholes:
            return self._function(0, sums)
        contribution = self._node.step(MUL, cell, self._peepholes[peephole])
        return self._function(0, self._node.step(ADD, sums, contribution))

    def _function(self, number: int, sums: Value) -> Value:
        """Return function number 0 or 1 of sums that are clipped before."""
        clip = self._op.clip
        if clip > 0:
            sums = self._node.step(Activation(ActivationFunction.BOUNDED_RELU, a=clip, b=-clip), sums)
        return self._node.step(self._functions[number], sums)

    def _one_minus(self, x: Value) -> Value:
        return self._node.step(SUB, self._node.scalar_like(1, x), x)

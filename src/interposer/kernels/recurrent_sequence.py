"""Kernels of RnnSequence, GruSequence and LstmSequence, in float values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from interposer.core.types import Array
from interposer.kernels.activation import FUNCTIONS
from interposer.kernels.dynamic_range import rounded_as_onnx
from interposer.kernels.operand_values import check_range
from interposer.kernels.recurrent import (
    INPUT,
    Function,
    Reals,
    converted,
    needed,
    real_valued,
    reals,
    states_as_stored,
    store_all,
    time_first,
)
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.recurrent_sequence import GruSequence, LstmSequence, RnnSequence

__all__: list[str] = []

Layer: TypeAlias = RnnSequence | GruSequence | LstmSequence
States: TypeAlias = tuple[Array, ...]
Step: TypeAlias = Callable[[Array, States], States]


class _Weights:
    """The weights, biases and functions of one direction of a layer; `direction` is 0 or 1.

    The rows of all gates are concatenated, in the order of the operator.
    """

    def __init__(self, op: Layer, operands: Reals, direction: int) -> None:
        self.input, self.recurrent = (
            needed(operands, "weights")[direction],
            needed(operands, "recurrent_weights")[direction],
        )
        bias = operands["bias"]
        biases = np.zeros(2 * len(self.input), self.input.dtype) if bias is None else bias[direction]
        self.input_bias, self.recurrent_bias = np.split(biases, 2)
        peephole = operands.get("peephole_weights")
        self.peephole = None if peephole is None else np.split(peephole[direction], 3)
        function_count = len(op.defaults)
        self.functions = [
            _function(op, direction * function_count + index, gate=index < 2) for index in range(function_count)
        ]

    def of_input(self, x: Array) -> Array:
        """Return the input (T, B, I) times the weights of every gate plus their bias, (T, B, gates * H)."""
        return np.asarray(x @ self.input.T + self.input_bias)

    def of_state(self, hidden: Array, gates: slice = slice(None)) -> Array:
        """Return the hidden state (B, H) times the recurrent weights plus bias; `gates` are the rows to use."""
        return np.asarray(hidden @ self.recurrent[gates].T + self.recurrent_bias[gates])


def _function(op: Layer, index: int, *, gate: bool) -> Function:
    """Return the layer's activation function number `index`.

    If `gate`, its argument is first clipped to the range of the operator's `clip`; the output cell state is never
    clipped.
    """
    function, a, b = op.functions()[index]
    if op.clip > 0 and gate:
        return lambda x: FUNCTIONS[function](np.clip(x, -op.clip, op.clip), a, b)
    return lambda x: FUNCTIONS[function](x, a, b)


def _rnn(op: RnnSequence, weights: _Weights) -> Step:
    [f] = weights.functions

    def step(input_products: Array, states: States) -> States:
        return (f(input_products + weights.of_state(states[0])),)

    return step


def _gru(op: GruSequence, weights: _Weights) -> Step:
    f, g = weights.functions
    size = weights.recurrent.shape[1]
    update_reset_rows, hidden_rows = slice(2 * size), slice(2 * size, None)

    def step(input_products: Array, states: States) -> States:
        [hidden] = states
        update_gate, reset_gate = np.split(
            f(input_products[:, update_reset_rows] + weights.of_state(hidden, update_reset_rows)), 2, axis=-1
        )
        if op.linear_before_reset:
            hidden_products = reset_gate * weights.of_state(hidden, hidden_rows)
        else:
            hidden_products = weights.of_state(reset_gate * hidden, hidden_rows)
        return ((1 - update_gate) * g(input_products[:, hidden_rows] + hidden_products) + update_gate * hidden,)

    return step


def _lstm(op: LstmSequence, weights: _Weights, stored_cell: Function) -> Step:
    f, g, h = weights.functions
    peephole = weights.peephole or [np.zeros((), weights.input.dtype)] * 3

    def state_products(hidden: Array) -> Array:
        if not op.dynamic_quantization:
            return weights.of_state(hidden)
        dtype = np.result_type(hidden, weights.recurrent)
        return weights.of_state(rounded_as_onnx(hidden)).astype(dtype)

    def step(input_products: Array, states: States) -> States:
        hidden, cell = states
        sums = input_products + state_products(hidden)
        input_sum, output_sum, forget_sum, cell_sum = np.split(sums, 4, axis=-1)
        input_gate = f(input_sum + peephole[0] * cell)
        forget_gate = 1 - input_gate if op.input_forget else f(forget_sum + peephole[2] * cell)
        cell = stored_cell(forget_gate * cell + input_gate * g(cell_sum))
        return f(output_sum + peephole[1] * cell) * h(cell), cell

    return step


def _lengths(operands: Reals, steps: int, batches: int) -> Array:
    lengths = operands["sequence_lengths"]
    if lengths is None:
        return np.full(batches, steps)
    check_range("sequence_lengths", lengths, 0, steps)
    return lengths


def _reversed_within(x: Array, lengths: Array) -> Array:
    """Reverse each sequence of (T, B, ...) within its length; the steps after its end stay in place.

    `lengths` (B,) are the lengths in steps.
    """
    steps = np.arange(len(x))[:, np.newaxis]
    source_steps = np.where(steps < lengths, lengths - 1 - steps, steps)
    return x[source_steps, np.arange(x.shape[1])]


def _run(
    step: Step, input_products: Array, states: States, lengths: Array, stored_hidden: Function
) -> tuple[Array, States]:
    """Compute all steps of one direction from the initial states.

    `input_products` are the products of `_Weights.of_input`; `step` computes the new states from the products of one
    step and the old states, the hidden state first. `stored_hidden` rounds a hidden state as the result stores it.
    Return the hidden states of all steps, (T, B, H), which are zero after the end of each sequence, and the states
    after the last step of each sequence.
    """
    outputs = np.zeros((*input_products.shape[:2], states[0].shape[-1]), input_products.dtype)
    for index, step_products in enumerate(input_products):
        is_running = (index < lengths)[:, np.newaxis]
        had_previous_step = (index <= lengths)[:, np.newaxis]
        read_states = tuple(np.where(had_previous_step, state, 0) for state in states)
        hidden, *other_states = step(step_products, read_states)
        outputs[index] = np.where(is_running, hidden, 0)
        new_states = (stored_hidden(hidden), *other_states)
        states = tuple(np.where(is_running, new, old) for new, old in zip(new_states, states, strict=True))
    return outputs, states


def _states(op: Layer, operands: Reals, direction: int, shape: tuple[int, int]) -> States:
    """Return the initial states of a direction, each with this shape, (B, H); zeros for absent operands.

    These are the hidden state, and for an LSTM the cell state.
    """
    names = [declared_operand.name for declared_operand in op.operands if declared_operand.name.endswith("_state_in")]
    initial_states = [operands[name] for name in names]
    zeros = np.zeros(shape, np.float32)
    return tuple(zeros if x is None else np.take(x, direction, axis=0 if op.time_major else 1) for x in initial_states)


def _layer(
    op: Layer, operands: Reals, stored_hidden: Function, make_step: Callable[[_Weights], Step]
) -> tuple[Array, ...]:
    """Return the results of the operator: the output of all steps and directions, then the last states.

    `make_step` returns, for the weights of a direction, the function that computes one step. `stored_hidden` rounds a
    hidden state as the result stores it.
    """
    x = time_first(needed(operands, "input"), op.time_major)
    lengths = _lengths(operands, *x.shape[:2])
    rounded_x, dtype = x, np.result_type(x, needed(operands, "weights"))
    is_rounded = isinstance(op, LstmSequence) and op.dynamic_quantization
    if is_rounded:
        is_read = (np.arange(len(x)) < lengths.max(initial=0))[:, np.newaxis, np.newaxis]
        rounded_x = rounded_as_onnx(np.where(is_read, x, 0))
    outputs, states = [], []
    for direction, reverse in enumerate(op.direction.reversals):
        weights = _Weights(op, operands, direction)
        initial_states = _states(op, operands, direction, (x.shape[1], weights.recurrent.shape[1]))
        input_products = weights.of_input(_reversed_within(rounded_x, lengths) if reverse else rounded_x)
        input_products = input_products.astype(dtype) if is_rounded else input_products
        hidden_states, last_states = _run(make_step(weights), input_products, initial_states, lengths, stored_hidden)
        outputs.append(_reversed_within(hidden_states, lengths) if reverse else hidden_states)
        states.append(last_states)
    output = np.stack(outputs, axis=1)
    ends = [np.stack(by_direction, axis=0 if op.time_major else 1) for by_direction in zip(*states, strict=True)]
    return output if op.time_major else output.transpose(2, 0, 1, 3), *ends


@kernel(RnnSequence, dtypes=INPUT, when=real_valued)
def rnn_sequence(
    op: RnnSequence, *arrays: Array | None, info: KernelInfo, out: tuple[Array, ...], prepared: Reals | None
) -> None:
    """Compute `RnnSequence` step by step."""
    operands = reals(arrays, info, prepared)
    stored = states_as_stored(op, info)
    store_all(_layer(op, operands, stored["hidden_state"], lambda weights: _rnn(op, weights)), info, out)


@kernel(GruSequence, dtypes=INPUT, when=real_valued)
def gru_sequence(
    op: GruSequence, *arrays: Array | None, info: KernelInfo, out: tuple[Array, ...], prepared: Reals | None
) -> None:
    """Compute `GruSequence` step by step."""
    operands = reals(arrays, info, prepared)
    stored = states_as_stored(op, info)
    store_all(_layer(op, operands, stored["hidden_state"], lambda weights: _gru(op, weights)), info, out)


@kernel(LstmSequence, dtypes=INPUT, when=real_valued)
def lstm_sequence(
    op: LstmSequence, *arrays: Array | None, info: KernelInfo, out: tuple[Array, ...], prepared: Reals | None
) -> None:
    """Compute `LstmSequence` step by step."""
    operands = reals(arrays, info, prepared)
    stored = states_as_stored(op, info)
    results = _layer(op, operands, stored["hidden_state"], lambda weights: _lstm(op, weights, stored["cell_state"]))
    store_all(results, info, out)


for _kernel in (rnn_sequence, gru_sequence, lstm_sequence):
    kernel.prepare(_kernel)(converted)

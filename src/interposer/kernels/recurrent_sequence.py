"""Kernels of RnnSequence, GruSequence and LstmSequence, in float values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Array
from interposer.kernels.activation import FUNCTIONS
from interposer.kernels.recurrent import Function, Reals, converted, needed, real_valued, reals, store_all, time_first
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.recurrent_sequence import GruSequence, LstmSequence, RnnSequence

__all__: list[str] = []

Layer: TypeAlias = RnnSequence | GruSequence | LstmSequence
States: TypeAlias = tuple[Array, ...]
Step: TypeAlias = Callable[[Array, States], States]


class _Weights:
    """The weights, biases and functions of one direction of a layer; `place` is the direction's index, 0 or 1.

    The rows of all gates are concatenated, in the order of the operator.
    """

    def __init__(self, op: Layer, values: Reals, place: int) -> None:
        self.input, self.recurrent = needed(values, "weights")[place], needed(values, "recurrent_weights")[place]
        bias = values["bias"]
        rows = np.zeros(2 * len(self.input), self.input.dtype) if bias is None else bias[place]
        self.input_bias, self.recurrent_bias = np.split(rows, 2)
        peephole = values.get("peephole_weights")
        self.peephole = None if peephole is None else np.split(peephole[place], 3)
        count = len(op.defaults)
        self.functions = [_function(op, place * count + index, gate=index < 2) for index in range(count)]

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

    def step(array: Array, states: States) -> States:
        return (f(array + weights.of_state(states[0])),)

    return step


def _gru(op: GruSequence, weights: _Weights) -> Step:
    f, g = weights.functions
    size = weights.recurrent.shape[1]
    upper, lower = slice(2 * size), slice(2 * size, None)

    def step(array: Array, states: States) -> States:
        [hidden] = states
        update, reset = np.split(f(array[:, upper] + weights.of_state(hidden, upper)), 2, axis=-1)
        if op.linear_before_reset:
            cached = reset * weights.of_state(hidden, lower)
        else:
            cached = weights.of_state(reset * hidden, lower)
        return ((1 - update) * g(array[:, lower] + cached) + update * hidden,)

    return step


def _lstm(op: LstmSequence, weights: _Weights) -> Step:
    f, g, h = weights.functions
    peephole = weights.peephole or [np.zeros((), weights.input.dtype)] * 3

    def step(array: Array, states: States) -> States:
        hidden, cell = states
        of_input, of_output, of_forget, of_cell = np.split(array + weights.of_state(hidden), 4, axis=-1)
        entry = f(of_input + peephole[0] * cell)
        forget = 1 - entry if op.input_forget else f(of_forget + peephole[2] * cell)
        cell = forget * cell + entry * g(of_cell)
        return f(of_output + peephole[1] * cell) * h(cell), cell

    return step


def _lengths(values: Reals, steps: int, batches: int) -> Array:
    value = values["sequence_lengths"]
    if value is None:
        return np.full(batches, steps)
    for wrong in value[(value < 0) | (value > steps)]:
        raise InvalidArgumentError(f"sequence_lengths has {wrong}; expected 0 to {steps}, the steps of the input")
    return value


def _turned(x: Array, lengths: Array) -> Array:
    """Reverse each sequence of (T, B, ...) within its length; the steps after its end stay in place.

    `lengths` (B,) are the lengths in steps.
    """
    places = np.arange(len(x))[:, np.newaxis]
    order = np.where(places < lengths, lengths - 1 - places, places)
    return x[order, np.arange(x.shape[1])]


def _run(step: Step, array: Array, states: States, lengths: Array) -> tuple[Array, States]:
    """Compute all steps of one direction from the initial states.

    `array` is what `_Weights.of_input` returned; `step` computes the new states from its part for one step and the old
    states, the hidden state first. Return the hidden states of all steps, (T, B, H), which are zero after the end of
    each sequence, and the states after the last step of each sequence.
    """
    outputs = np.zeros((*array.shape[:2], states[0].shape[-1]), array.dtype)
    for place, part in enumerate(array):
        running = (place < lengths)[:, np.newaxis]
        result = step(part, states)
        outputs[place] = np.where(running, result[0], 0)
        states = tuple(np.where(running, new, old) for new, old in zip(result, states, strict=True))
    return outputs, states


def _states(op: Layer, values: Reals, place: int, shape: tuple[int, int]) -> States:
    """Return the initial states of direction number `place`, each with this shape, (B, H); zeros for absent operands.

    These are the hidden state, and for an LSTM the cell state.
    """
    names = [declared.name for declared in op.operands if declared.name.endswith("_state_in")]
    value = [values[name] for name in names]
    zeros = np.zeros(shape, np.float32)
    return tuple(zeros if x is None else np.take(x, place, axis=0 if op.time_major else 1) for x in value)


def _layer(op: Layer, values: Reals, begin: Callable[[_Weights], Step]) -> tuple[Array, ...]:
    """Return the results of the operator: the output of all steps and directions, then the last states.

    `begin` returns, for the weights of a direction, the function that computes one step.
    """
    x = time_first(needed(values, "input"), op.time_major)
    lengths = _lengths(values, *x.shape[:2])
    outputs, states = [], []
    for place, reverse in enumerate(op.direction.reversals):
        weights = _Weights(op, values, place)
        start = _states(op, values, place, (x.shape[1], weights.recurrent.shape[1]))
        value = weights.of_input(_turned(x, lengths) if reverse else x)
        result, last = _run(begin(weights), value, start, lengths)
        outputs.append(_turned(result, lengths) if reverse else result)
        states.append(last)
    output = np.stack(outputs, axis=1)
    ends = [np.stack(parts, axis=0 if op.time_major else 1) for parts in zip(*states, strict=True)]
    return output if op.time_major else output.transpose(2, 0, 1, 3), *ends


@kernel(RnnSequence, when=real_valued)
def rnn_sequence(
    op: RnnSequence, *arrays: Array | None, info: KernelInfo, out: tuple[Array, ...], prepared: Reals | None
) -> None:
    """Compute `RnnSequence` step by step."""
    values = reals(arrays, info, prepared)
    store_all(_layer(op, values, lambda weights: _rnn(op, weights)), info, out)


@kernel(GruSequence, when=real_valued)
def gru_sequence(
    op: GruSequence, *arrays: Array | None, info: KernelInfo, out: tuple[Array, ...], prepared: Reals | None
) -> None:
    """Compute `GruSequence` step by step."""
    values = reals(arrays, info, prepared)
    store_all(_layer(op, values, lambda weights: _gru(op, weights)), info, out)


@kernel(LstmSequence, when=real_valued)
def lstm_sequence(
    op: LstmSequence, *arrays: Array | None, info: KernelInfo, out: tuple[Array, ...], prepared: Reals | None
) -> None:
    """Compute `LstmSequence` step by step."""
    values = reals(arrays, info, prepared)
    store_all(_layer(op, values, lambda weights: _lstm(op, weights)), info, out)


for _kernel in (rnn_sequence, gru_sequence, lstm_sequence):
    kernel.prepare(_kernel)(converted)

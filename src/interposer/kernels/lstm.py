"""Kernels of the LSTM operators on float values, and of UnidirectionalSequenceLstm on integers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from interposer.core.types import Array
from interposer.kernels.dynamic_range import rounded_rows
from interposer.kernels.integer_lstm import INTEGER_RULES, INTEGER_TYPES, IntegerLstm, tanh_only
from interposer.kernels.recurrent import (
    FUSED,
    Function,
    Reals,
    converted,
    direction_of,
    joined,
    needed,
    real_valued,
    reals,
    sides,
    store_all,
    time_first,
    zeros_unless,
)
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.lstm import BidirectionalSequenceLstm, Lstm, UnidirectionalSequenceLstm
from interposer.ops.recurrent import FusedActivation

__all__: list[str] = []

_sigmoid = FUSED[FusedActivation.SIGMOID]
_VARIANCE_GUARD = 1e-8


class _Gate(NamedTuple):
    """The weights of one gate, with which it computes the argument of its sigmoid or tanh.

    `peephole` is None if the gate does not use the cell state, `norm` (the layer normalization weights) without layer
    normalization, and `aux_weights` without weights for an auxiliary input.
    """

    weights: Array
    aux_weights: Array | None
    recurrent_weights: Array
    peephole: Array | None
    norm: Array | None
    bias: Array

    @classmethod
    def of(cls, values: Reals, name: str) -> _Gate:
        return cls(
            needed(values, f"input_to_{name}_weights"),
            values.get(f"aux_input_to_{name}_weights"),
            needed(values, f"recurrent_to_{name}_weights"),
            values.get(f"cell_to_{name}_weights"),
            values[f"{name}_layer_norm_weights"],
            needed(values, "cell_bias" if name == "cell" else f"{name}_gate_bias"),
        )

    def given(self, x: Array, aux: Array | None) -> Array:
        """Return the products (T, B, U) of the inputs (T, B, I) and (T, B, A) with their weights, for all steps."""
        result = x @ self.weights.T
        if aux is not None and self.aux_weights is not None:
            result = result + aux @ self.aux_weights.T
        return np.asarray(result)

    def sum(self, array: Array, output: Array, cell: Array) -> Array:
        """Return the argument of the gate's function for one step, (B, U).

        `array` is the step's part of what `given` returned, `output` the previous output, and `cell` the cell state.
        """
        total = array + output @ self.recurrent_weights.T
        if self.peephole is not None:
            total = total + self.peephole * cell
        if self.norm is not None:
            total = _normalized(total) * self.norm
        return np.asarray(total + self.bias)


def _normalized(x: Array) -> Array:
    """Normalize each row to mean 0 and variance 1 over the units."""
    offset = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(offset).mean(axis=-1, keepdims=True)
    return np.asarray(offset / np.sqrt(variance + np.asarray(_VARIANCE_GUARD, x.dtype)))


class _Outcome(NamedTuple):
    """The results of `_Cell.run`: the outputs of all steps (T, B, O), and the last output, cell state and gates.

    The gates are input (absent with CIFG), cell, forget and output, each (B, U).
    """

    outputs: Array
    output: Array
    cell: Array
    gates: tuple[Array, ...]


class _Cell(NamedTuple):
    """The weights and attributes of an LSTM in one direction, with which `run` computes it.

    Without an input gate, 1 minus the forget gate is used. A bound of 0 means none.
    """

    input: _Gate | None
    forget: _Gate
    cell: _Gate
    output: _Gate
    projection: Array | None
    projection_bias: Array | None
    function: Function
    cell_bound: float
    projection_bound: float
    rounded: Function

    @classmethod
    def of(cls, values: Reals, op: Lstm | UnidirectionalSequenceLstm | BidirectionalSequenceLstm) -> _Cell:
        return cls(
            None if values["input_to_input_weights"] is None else _Gate.of(values, "input"),
            _Gate.of(values, "forget"),
            _Gate.of(values, "cell"),
            _Gate.of(values, "output"),
            values["projection_weights"],
            values["projection_bias"],
            FUSED[op.activation_func],
            op.clipping_thres_cell,
            op.clipping_thres_proj,
            rounded_rows(op.activation_rounding),
        )

    def run(self, x: Array, aux: Array | None, values: Reals) -> _Outcome:
        """Compute all steps of a sequence (T, B, I) from the initial states in `values`, which are zeros if absent.

        `aux` is the auxiliary input (T, B, A), or None.
        """
        units, outputs = self.output.recurrent_weights.shape
        output = zeros_unless(values["output_state_in"], x.shape[1], outputs)
        cell = zeros_unless(values["cell_state_in"], x.shape[1], units)
        gates = [gate for gate in (self.input, self.forget, self.cell, self.output) if gate is not None]
        x, aux = self.rounded(x), None if aux is None else self.rounded(aux)
        parts = [gate.given(x, aux) for gate in gates]
        array = np.empty((*x.shape[:2], outputs), parts[0].dtype)
        last: tuple[Array, ...] = ()
        for step, value in enumerate(zip(*parts, strict=True)):
            output, cell, last = self._step(value, output, cell)
            array[step] = output
        return _Outcome(array, output, cell, last)

    def _step(self, arrays: tuple[Array, ...], output: Array, cell: Array) -> tuple[Array, Array, tuple[Array, ...]]:
        *first, of_forget, of_cell, of_output = arrays
        output = self.rounded(output)
        forget = _sigmoid(self.forget.sum(of_forget, output, cell))
        entry = 1 - forget if self.input is None else _sigmoid(self.input.sum(first[0], output, cell))
        new = self.function(self.cell.sum(of_cell, output, cell))
        cell = _bounded(forget * cell + entry * new, self.cell_bound)
        opening = _sigmoid(self.output.sum(of_output, output, cell))
        gates = (new, forget, opening) if self.input is None else (entry, new, forget, opening)
        return self._projected(opening * self.function(cell)), cell, gates

    def _projected(self, hidden: Array) -> Array:
        if self.projection is None:
            return hidden
        projected = self.rounded(hidden) @ self.projection.T
        if self.projection_bias is not None:
            projected = projected + self.projection_bias
        return _bounded(projected, self.projection_bound)


def _bounded(x: Array, bound: float) -> Array:
    return np.clip(x, -bound, bound) if bound > 0 else x


@kernel(Lstm, when=real_valued)
def lstm(op: Lstm, *arrays: Array | None, info: KernelInfo, out: tuple[Array, ...], prepared: Reals | None) -> None:
    """Compute `Lstm` as a sequence of one step; the first result, the scratch tensor, receives the gates."""
    values = reals(arrays, info, prepared)
    result = _Cell.of(values, op).run(needed(values, "input")[np.newaxis], None, values)
    store_all((np.concatenate(result.gates, axis=-1), result.output, result.cell, result.output), info, out)


@kernel(UnidirectionalSequenceLstm, quantized=True, dtypes=INTEGER_TYPES, when=(*INTEGER_RULES, tanh_only))
def unidirectional_sequence_lstm_of_integers(
    op: UnidirectionalSequenceLstm, *arrays: Array, info: KernelInfo
) -> tuple[Array, Array, Array]:
    """Compute `UnidirectionalSequenceLstm` step by step in integers, bit for bit as TFLite's reference.

    Return the outputs of all steps, the last output and the last cell state.
    """
    machine = IntegerLstm.of(op, arrays, info, (op.clipping_thres_cell, op.clipping_thres_proj))
    x, output, cell = time_first(arrays[0], op.time_major), arrays[1], arrays[2].astype(np.int64)
    outputs = np.empty((*x.shape[:2], output.shape[-1]), np.int64)
    for step, part in enumerate(x):
        output, cell = machine.step(part, output, cell)
        outputs[step] = output
    return time_first(outputs, op.time_major), output, cell


@kernel(UnidirectionalSequenceLstm, when=real_valued)
def unidirectional_sequence_lstm(
    op: UnidirectionalSequenceLstm,
    *arrays: Array | None,
    info: KernelInfo,
    out: tuple[Array, ...],
    prepared: Reals | None,
) -> None:
    """Compute `UnidirectionalSequenceLstm` step by step on float values."""
    values = reals(arrays, info, prepared)
    result = _Cell.of(values, op).run(time_first(needed(values, "input"), op.time_major), None, values)
    store_all((time_first(result.outputs, op.time_major), result.output, result.cell), info, out)


@kernel(BidirectionalSequenceLstm, when=real_valued)
def bidirectional_sequence_lstm(
    op: BidirectionalSequenceLstm,
    *arrays: Array | None,
    info: KernelInfo,
    out: tuple[Array, ...],
    prepared: Reals | None,
) -> None:
    """Compute `BidirectionalSequenceLstm`; the backward direction runs over the reversed sequence."""
    values = reals(arrays, info, prepared)
    inputs = sides(values, op.time_major, "forward_aux_input_to_output_weights")
    result = []
    for direction, (x, aux) in zip(("forward", "backward"), inputs, strict=True):
        own = direction_of(values, direction)
        result.append(_Cell.of(own, op).run(x, aux, own))
    first, *second = joined(result[0].outputs, result[1].outputs, op.time_major, op.merge_outputs)
    states = [state for item in result for state in (item.output, item.cell)]
    store_all((first, *states, *second), info, out)


for _function in (lstm, unidirectional_sequence_lstm, bidirectional_sequence_lstm):
    kernel.prepare(_function)(converted)

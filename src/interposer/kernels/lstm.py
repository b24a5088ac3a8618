"""Kernels of the LSTM operators on float values, and of UnidirectionalSequenceLstm on integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from interposer.core.types import Array, DataType
from interposer.kernels.dynamic_range import rounded_rows
from interposer.kernels.integer_lstm import INTEGER_RULES, INTEGER_TYPES, IntegerLstm, tanh_only
from interposer.kernels.recurrent import (
    FUSED,
    INPUT,
    Function,
    Reals,
    converted,
    direction_of,
    joined,
    needed,
    real_valued,
    reals,
    sides,
    states_as_stored,
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
    def of(cls, operands: Reals, name: str) -> _Gate:
        return cls(
            needed(operands, f"input_to_{name}_weights"),
            operands.get(f"aux_input_to_{name}_weights"),
            needed(operands, f"recurrent_to_{name}_weights"),
            operands.get(f"cell_to_{name}_weights"),
            operands[f"{name}_layer_norm_weights"],
            needed(operands, "cell_bias" if name == "cell" else f"{name}_gate_bias"),
        )

    def of_inputs(self, x: Array, aux: Array | None) -> Array:
        """Return the products (T, B, U) of the inputs (T, B, I) and (T, B, A) with their weights, for all steps."""
        products = x @ self.weights.T
        if aux is not None and self.aux_weights is not None:
            products = products + aux @ self.aux_weights.T
        return np.asarray(products)

    def sum(self, input_products: Array, output: Array, cell: Array) -> Array:
        """Return the argument of the gate's function for one step, (B, U).

        `input_products` is the step's part of the products of `of_inputs`, `output` the previous output.
        """
        total = input_products + output @ self.recurrent_weights.T
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

    Without an input gate, 1 minus the forget gate is used. A bound of 0 means none. `stored_output` and `stored_cell`
    round a state as the result stores it.
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
    stored_output: Function
    stored_cell: Function

    @classmethod
    def of(
        cls,
        operands: Reals,
        op: Lstm | UnidirectionalSequenceLstm | BidirectionalSequenceLstm,
        stored: Mapping[str, Function],
        direction: str = "",
    ) -> _Cell:
        return cls(
            None if operands["input_to_input_weights"] is None else _Gate.of(operands, "input"),
            _Gate.of(operands, "forget"),
            _Gate.of(operands, "cell"),
            _Gate.of(operands, "output"),
            operands["projection_weights"],
            operands["projection_bias"],
            FUSED[op.activation_func],
            op.clipping_thres_cell,
            op.clipping_thres_proj,
            rounded_rows(op.activation_rounding),
            stored[f"{direction}output_state"],
            stored[f"{direction}cell_state"],
        )

    def run(self, x: Array, aux: Array | None, operands: Reals) -> _Outcome:
        """Compute all steps of a sequence (T, B, I) from the initial states in `operands`, which are zeros if absent.

        `aux` is the auxiliary input (T, B, A), or None.
        """
        units, output_size = self.output.recurrent_weights.shape
        output = zeros_unless(operands["output_state_in"], x.shape[1], output_size)
        cell = zeros_unless(operands["cell_state_in"], x.shape[1], units)
        gates = [gate for gate in (self.input, self.forget, self.cell, self.output) if gate is not None]
        x, aux = self.rounded(x), None if aux is None else self.rounded(aux)
        gate_products = [gate.of_inputs(x, aux) for gate in gates]
        step_outputs = np.empty((*x.shape[:2], output_size), gate_products[0].dtype)
        gate_values: tuple[Array, ...] = ()
        for step, step_products in enumerate(zip(*gate_products, strict=True)):
            step_outputs[step], cell, gate_values = self._step(step_products, output, cell)
            output = self.stored_output(step_outputs[step])
        return _Outcome(step_outputs, output, cell, gate_values)

    def _step(
        self, input_products: tuple[Array, ...], output: Array, cell: Array
    ) -> tuple[Array, Array, tuple[Array, ...]]:
        *of_input, of_forget, of_cell, of_output = input_products
        output = self.rounded(output)
        forget_gate = _sigmoid(self.forget.sum(of_forget, output, cell))
        input_gate = 1 - forget_gate if self.input is None else _sigmoid(self.input.sum(of_input[0], output, cell))
        candidate = self.function(self.cell.sum(of_cell, output, cell))
        cell = self.stored_cell(_bounded(forget_gate * cell + input_gate * candidate, self.cell_bound))
        output_gate = _sigmoid(self.output.sum(of_output, output, cell))
        gates = (
            (candidate, forget_gate, output_gate)
            if self.input is None
            else (input_gate, candidate, forget_gate, output_gate)
        )
        return self._projected(output_gate * self.function(cell)), cell, gates

    def _projected(self, hidden: Array) -> Array:
        if self.projection is None:
            return hidden
        projected = self.rounded(hidden) @ self.projection.T
        if self.projection_bias is not None:
            projected = projected + self.projection_bias
        return _bounded(projected, self.projection_bound)


def _bounded(x: Array, bound: float) -> Array:
    return np.clip(x, -bound, bound) if bound > 0 else x


@kernel(Lstm, dtypes={"input": INPUT["input"] | {DataType.INT16}}, when=real_valued)
def lstm(op: Lstm, *arrays: Array | None, info: KernelInfo, out: tuple[Array, ...], prepared: Reals | None) -> None:
    """Compute `Lstm` as a sequence of one step; the first result, the scratch tensor, receives the gates."""
    operands = reals(arrays, info, prepared)
    cell = _Cell.of(operands, op, states_as_stored(op, info))
    outcome = cell.run(needed(operands, "input")[np.newaxis], None, operands)
    store_all((np.concatenate(outcome.gates, axis=-1), outcome.output, outcome.cell, outcome.outputs[0]), info, out)


@kernel(UnidirectionalSequenceLstm, quantized=True, dtypes=INTEGER_TYPES, when=(*INTEGER_RULES, tanh_only))
def unidirectional_sequence_lstm_of_integers(
    op: UnidirectionalSequenceLstm, *arrays: Array, info: KernelInfo
) -> tuple[Array, Array, Array]:
    """Compute `UnidirectionalSequenceLstm` step by step in integers, bit for bit as TFLite's reference.

    Return the outputs of all steps, the last output and the last cell state.
    """
    integer_lstm = IntegerLstm.of(op, arrays, info, (op.clipping_thres_cell, op.clipping_thres_proj))
    x, output, cell = time_first(arrays[0], op.time_major), arrays[1], arrays[2].astype(np.int64)
    outputs = np.empty((*x.shape[:2], output.shape[-1]), np.int64)
    for step, step_input in enumerate(x):
        output, cell = integer_lstm.step(step_input, output, cell)
        outputs[step] = output
    return time_first(outputs, op.time_major), output, cell


@kernel(UnidirectionalSequenceLstm, dtypes=INPUT, when=real_valued)
def unidirectional_sequence_lstm(
    op: UnidirectionalSequenceLstm,
    *arrays: Array | None,
    info: KernelInfo,
    out: tuple[Array, ...],
    prepared: Reals | None,
) -> None:
    """Compute `UnidirectionalSequenceLstm` step by step on float values."""
    operands = reals(arrays, info, prepared)
    cell = _Cell.of(operands, op, states_as_stored(op, info))
    outcome = cell.run(time_first(needed(operands, "input"), op.time_major), None, operands)
    store_all((time_first(outcome.outputs, op.time_major), outcome.output, outcome.cell), info, out)


@kernel(BidirectionalSequenceLstm, dtypes=INPUT, when=real_valued)
def bidirectional_sequence_lstm(
    op: BidirectionalSequenceLstm,
    *arrays: Array | None,
    info: KernelInfo,
    out: tuple[Array, ...],
    prepared: Reals | None,
) -> None:
    """Compute `BidirectionalSequenceLstm`; the backward direction runs over the reversed sequence."""
    operands = reals(arrays, info, prepared)
    inputs = sides(operands, op.time_major, "forward_aux_input_to_output_weights")
    outcomes = []
    for direction, (x, aux) in zip(("forward", "backward"), inputs, strict=True):
        direction_operands = direction_of(operands, direction)
        cell = _Cell.of(direction_operands, op, states_as_stored(op, info), f"{direction}_")
        outcomes.append(cell.run(x, aux, direction_operands))
    outputs, *backward_outputs = joined(outcomes[0].outputs, outcomes[1].outputs, op.time_major, op.merge_outputs)
    states = [state for outcome in outcomes for state in (outcome.output, outcome.cell)]
    store_all((outputs, *states, *backward_outputs), info, out)


for _function in (lstm, unidirectional_sequence_lstm, bidirectional_sequence_lstm):
    kernel.prepare(_function)(converted)

"""ONNX writers for TFLite's recurrent layers, unrolled step by step; ONNX's have no projection or normalization."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from interposer.ops.lstm import BidirectionalSequenceLstm, Lstm, UnidirectionalSequenceLstm
from interposer.ops.recurrent import (
    BidirectionalSequenceRnn,
    FusedActivation,
    Rnn,
    Svdf,
    UnidirectionalSequenceRnn,
    without_rounding,
)
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []

Values: TypeAlias = Mapping[str, Tensor | None]
SequenceOp: TypeAlias = (
    UnidirectionalSequenceRnn | BidirectionalSequenceRnn | UnidirectionalSequenceLstm | BidirectionalSequenceLstm
)
LstmOp: TypeAlias = Lstm | UnidirectionalSequenceLstm | BidirectionalSequenceLstm
_MOST_STEPS: Final = 128
_VARIANCE_GUARD: Final = 1e-8
_FUNCTIONS: Final[dict[FusedActivation, Callable[[Draft, Tensor], Tensor]]] = {
    FusedActivation.NONE: lambda draft, x: x,
    FusedActivation.RELU: lambda draft, x: draft.node("Relu", x),
    FusedActivation.RELU_N1_TO_1: lambda draft, x: draft.clip(x, -1, 1),
    FusedActivation.RELU6: lambda draft, x: draft.clip(x, 0, 6),
    FusedActivation.TANH: lambda draft, x: draft.node("Tanh", x),
    FusedActivation.SIGMOID: lambda draft, x: draft.node("Sigmoid", x),
}


class _Step(NamedTuple):
    """The input of one time step, (batch, features), and the auxiliary input of a bidirectional layer, if any."""

    x: Tensor
    aux: Tensor | None = None


def _values(draft: Draft) -> dict[str, Tensor | None]:
    """Return the operands of the layer by the names that its operator declares; None for absent ones."""
    if without_rounding(draft.layer.op) is not None:
        refuse("it rounds its activations, for which ONNX has no operator")
    names = [declared_operand.name for declared_operand in draft.layer.op.operands]
    return {name: draft.optional(index) for index, name in enumerate(names)}


def _needed(values: Values, name: str) -> Tensor:
    operand = values[name]
    assert operand is not None, name
    return operand


def _side(values: Values, direction: str) -> dict[str, Tensor | None]:
    """Return the operands of one direction, "forward" or "backward", by their names without this prefix."""
    return {name.removeprefix(f"{direction}_"): x for name, x in values.items() if name.startswith(direction)}


def _product(draft: Draft, x: Tensor, weights: Tensor) -> Tensor:
    return draft.node("Gemm", x, weights, transB=1)


def _zeros(draft: Draft, batch: int, size: int, like: Tensor) -> Tensor:
    return draft.constant(np.zeros((draft.known(batch, "batch"), size)), like.dtype, "zeros")


# --- sequences --------------------------------------------------------------------------------------------------------


def _count(draft: Draft, op: SequenceOp) -> int:
    count = draft.known(draft.info(0).shape[0 if op.time_major else 1], "number of steps")
    if not 1 <= count <= _MOST_STEPS:
        refuse(f"it has {count} steps; 1 to {_MOST_STEPS} are written, one after the other")
    return count


def _parts(draft: Draft, op: SequenceOp, x: Tensor) -> list[Tensor]:
    axis = 0 if op.time_major else 1
    return [draft.node("Gather", x, draft.ints(step), axis=axis) for step in range(_count(draft, op))]


def _stacked(draft: Draft, op: SequenceOp, parts: Sequence[Tensor]) -> Tensor:
    axis = 0 if op.time_major else 1
    return draft.concat([draft.unsqueeze(part, [axis]) for part in parts], axis)


def _both_sides(
    draft: Draft, op: BidirectionalSequenceRnn | BidirectionalSequenceLstm, values: Values, weights_name: str
) -> tuple[list[_Step], list[_Step]]:
    """Return the time steps of the forward direction, and those of the backward direction, last time first.

    `weights_name` is the operand with the weights for the auxiliary input. If it is absent, an auxiliary input replaces
    the input of the backward direction.
    """
    x = _parts(draft, op, _needed(values, "input"))
    if values["aux_input"] is None:
        return [_Step(part) for part in x], [_Step(part) for part in x[::-1]]
    aux = _parts(draft, op, _needed(values, "aux_input"))
    if values[weights_name] is None:
        return [_Step(part) for part in x], [_Step(part) for part in aux[::-1]]
    steps = [_Step(*pair) for pair in zip(x, aux, strict=True)]
    return steps, steps[::-1]


def _merged(
    draft: Draft,
    op: BidirectionalSequenceRnn | BidirectionalSequenceLstm,
    forward: list[Tensor],
    backward: list[Tensor],
) -> list[Tensor]:
    parts = [_stacked(draft, op, forward), _stacked(draft, op, backward[::-1])]
    return [draft.node("Concat", *parts, axis=2)] if op.merge_outputs else parts


# --- simple recurrent layers ------------------------------------------------------------------------------------------


def _rnn(draft: Draft, function: FusedActivation, values: Values, steps: Sequence[_Step]) -> list[Tensor]:
    """Write an RNN without gates as nodes for each time step, and return the state (the output) after each step.

    `values` are the operands by name, the initial state among them, and `function` is the activation.
    """
    weights = _needed(values, "recurrent_weights")
    state, states = values["hidden_state_in"], list[Tensor]()
    for step in steps:
        weighted_sum = draft.node("Gemm", step.x, _needed(values, "weights"), _needed(values, "bias"), transB=1)
        if step.aux is not None:
            weighted_sum = draft.node("Add", weighted_sum, _product(draft, step.aux, _needed(values, "aux_weights")))
        if state is not None:
            weighted_sum = draft.node("Add", weighted_sum, _product(draft, state, weights))
        state = _FUNCTIONS[function](draft, weighted_sum)
        states.append(state)
    return states


@writer(Rnn)
def rnn(draft: Draft, op: Rnn) -> list[Tensor]:
    """Write Rnn: one time step, whose output is the new state."""
    values = _values(draft)
    return _rnn(draft, op.activation_func, values, [_Step(_needed(values, "input"))]) * 2


@writer(UnidirectionalSequenceRnn)
def unidirectional_rnn(draft: Draft, op: UnidirectionalSequenceRnn) -> list[Tensor]:
    """Write UnidirectionalSequenceRnn as the nodes of every time step."""
    values = _values(draft)
    steps = [_Step(part) for part in _parts(draft, op, _needed(values, "input"))]
    states = _rnn(draft, op.activation_func, values, steps)
    return [_stacked(draft, op, states), states[-1]]


@writer(BidirectionalSequenceRnn)
def bidirectional_rnn(draft: Draft, op: BidirectionalSequenceRnn) -> list[Tensor]:
    """Write BidirectionalSequenceRnn as the nodes of every time step, for each direction separately."""
    values = _values(draft)
    steps_of_directions = _both_sides(draft, op, values, "forward_aux_weights")
    forward, backward = (
        _rnn(draft, op.activation_func, _side(values, name), steps)
        for name, steps in zip(("forward", "backward"), steps_of_directions, strict=True)
    )
    first, *second = _merged(draft, op, forward, backward)
    return [first, forward[-1], backward[-1], *second]


@writer(Svdf)
def svdf(draft: Draft, op: Svdf) -> list[Tensor]:
    """Write Svdf; the memory of each filter is a separate axis."""
    values, (filters, places) = _values(draft), draft.info(2).shape
    filters, places = draft.known(filters, "number of filters"), draft.known(places, "memory")
    projected = _product(draft, _needed(values, "input"), _needed(values, "weights_feature"))
    state = values["state_in"] or _zeros(draft, draft.info(0).shape[0], filters * places, projected)
    memory = draft.reshape(state, [-1, filters, places])
    memory_and_new = draft.concat([draft.slice(memory, [0], [places - 1], [2]), draft.unsqueeze(projected, [2])], 2)
    products = draft.node("Mul", memory_and_new, _needed(values, "weights_time"))
    sums = draft.reduce("ReduceSum", products, [2], keep=False)
    units = draft.reduce("ReduceSum", draft.reshape(sums, [-1, filters // op.rank, op.rank]), [2], keep=False)
    biased_units = units if values["bias"] is None else draft.node("Add", units, values["bias"])
    kept_memory = draft.slice(memory_and_new, [1], [places], [2])
    next_memory = draft.node("Pad", kept_memory, draft.ints([0, 0, 0, 0, 0, 1], "pads"), draft.like(0, kept_memory))
    return [draft.reshape(next_memory, [-1, filters * places]), _FUNCTIONS[op.activation_func](draft, biased_units)]


# --- long short-term memory -------------------------------------------------------------------------------------------


class _Outcome(NamedTuple):
    """What an LSTM computes: the output after each time step, the last cell state, and the gates of the last step."""

    outputs: list[Tensor]
    cell: Tensor
    gates: list[Tensor]


def _gate(draft: Draft, values: Values, name: str, step: _Step, output: Tensor, cell: Tensor) -> Tensor:
    """Return the argument of a gate's activation function: weighted inputs and states, and the bias.

    `name` is the gate's name in those of its operands ("input", "forget", "cell" or "output"), `output` is the output
    of the previous step, and `cell` the cell state for the peephole connection.
    """
    weighted_sum = _product(draft, step.x, _needed(values, f"input_to_{name}_weights"))
    aux = values.get(f"aux_input_to_{name}_weights")
    if step.aux is not None and aux is not None:
        weighted_sum = draft.node("Add", weighted_sum, _product(draft, step.aux, aux))
    weighted_sum = draft.node(
        "Add", weighted_sum, _product(draft, output, _needed(values, f"recurrent_to_{name}_weights"))
    )
    peephole, norm_weights = values.get(f"cell_to_{name}_weights"), values.get(f"{name}_layer_norm_weights")
    if peephole is not None:
        weighted_sum = draft.node("Add", weighted_sum, draft.node("Mul", cell, peephole))
    if norm_weights is not None:
        weighted_sum = draft.node("Mul", _normalized(draft, weighted_sum), norm_weights)
    return draft.node("Add", weighted_sum, _needed(values, "cell_bias" if name == "cell" else f"{name}_gate_bias"))


def _normalized(draft: Draft, x: Tensor) -> Tensor:
    centered = draft.node("Sub", x, draft.reduce("ReduceMean", x, [1]))
    variance = draft.reduce("ReduceMean", draft.node("Mul", centered, centered), [1])
    return draft.node("Div", centered, draft.node("Sqrt", draft.node("Add", variance, draft.like(_VARIANCE_GUARD, x))))


def _lstm(draft: Draft, op: LstmOp, values: Values, steps: Sequence[_Step], batch: int, units: int) -> _Outcome:
    """Write an LSTM as nodes for each time step, and return its outputs, last cell state and last gates.

    `values` are the operands by name. The initial states are among them; an absent one is zeros of shape (batch,
    units), or with a projection (batch, outputs).
    """
    projection = values["projection_weights"]
    outputs, gates = list[Tensor](), list[Tensor]()
    size = units if projection is None else _dimension(draft, projection)
    output = values["output_state_in"] or _zeros(draft, batch, size, steps[0].x)
    cell = values["cell_state_in"] or _zeros(draft, batch, units, steps[0].x)
    for step in steps:
        output, cell, gates = _lstm_step(draft, op, values, step, output, cell)
        outputs.append(output)
    return _Outcome(outputs, cell, gates)


def _dimension(draft: Draft, weights: Tensor) -> int:
    """Return the first dimension of an operand with weights; refuse the layer if it is unknown."""
    return draft.known(draft.info(draft.operands.index(weights)).shape[0], "number of outputs")


def _lstm_step(
    draft: Draft, op: LstmOp, values: Values, step: _Step, output: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor, list[Tensor]]:
    function = _FUNCTIONS[op.activation_func]

    def opened(name: str, state: Tensor) -> Tensor:
        return draft.node("Sigmoid", _gate(draft, values, name, step, output, state))

    forget, is_coupled = opened("forget", cell), values["input_to_input_weights"] is None
    input_gate = draft.node("Sub", draft.like(1, forget), forget) if is_coupled else opened("input", cell)
    candidate = function(draft, _gate(draft, values, "cell", step, output, cell))
    remembered, gated_candidate = draft.node("Mul", forget, cell), draft.node("Mul", input_gate, candidate)
    new_cell = _bounded(draft, draft.node("Add", remembered, gated_candidate), op.clipping_thres_cell)
    opening = opened("output", new_cell)
    hidden = draft.node("Mul", opening, function(draft, new_cell))
    gates = [candidate, forget, opening] if is_coupled else [input_gate, candidate, forget, opening]
    return _projected(draft, op, values, hidden), new_cell, gates


def _projected(draft: Draft, op: LstmOp, values: Values, hidden: Tensor) -> Tensor:
    if values["projection_weights"] is None:
        return hidden
    bias = values["projection_bias"]
    projected = draft.node("Gemm", hidden, values["projection_weights"], bias, transB=1)
    return _bounded(draft, projected, op.clipping_thres_proj)


def _bounded(draft: Draft, x: Tensor, bound: float) -> Tensor:
    return draft.clip(x, -bound, bound) if bound > 0 else x


def _batch(draft: Draft, op: SequenceOp) -> int:
    return draft.info(0).shape[1 if op.time_major else 0]


@writer(Lstm)
def lstm(draft: Draft, op: Lstm) -> list[Tensor]:
    """Write Lstm: one time step, with its gates as results."""
    values, (batch, units) = _values(draft), draft.results[2].shape
    outcome = _lstm(draft, op, values, [_Step(_needed(values, "input"))], batch, draft.known(units, "units"))
    [output] = outcome.outputs
    return [draft.node("Concat", *outcome.gates, axis=1), output, outcome.cell, output]


@writer(UnidirectionalSequenceLstm)
def unidirectional_lstm(draft: Draft, op: UnidirectionalSequenceLstm) -> list[Tensor]:
    """Write UnidirectionalSequenceLstm as the nodes of every time step."""
    values, units = _values(draft), draft.known(draft.results[2].shape[1], "units")
    steps = [_Step(part) for part in _parts(draft, op, _needed(values, "input"))]
    outcome = _lstm(draft, op, values, steps, _batch(draft, op), units)
    return [_stacked(draft, op, outcome.outputs), outcome.outputs[-1], outcome.cell]


@writer(BidirectionalSequenceLstm)
def bidirectional_lstm(draft: Draft, op: BidirectionalSequenceLstm) -> list[Tensor]:
    """Write BidirectionalSequenceLstm as the nodes of every time step, for each direction separately."""
    values = _values(draft)
    steps_of_directions = _both_sides(draft, op, values, "forward_aux_input_to_output_weights")
    outcomes = []
    for number, (name, steps) in enumerate(zip(("forward", "backward"), steps_of_directions, strict=True)):
        units = draft.known(draft.results[2 + 2 * number].shape[1], "units")
        outcomes.append(_lstm(draft, op, _side(values, name), steps, _batch(draft, op), units))
    forward_outcome, backward_outcome = outcomes
    first, *second = _merged(draft, op, forward_outcome.outputs, backward_outcome.outputs)
    return [
        first,
        forward_outcome.outputs[-1],
        forward_outcome.cell,
        backward_outcome.outputs[-1],
        backward_outcome.cell,
        *second,
    ]

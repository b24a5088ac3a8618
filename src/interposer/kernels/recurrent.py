"""Kernels of the recurrent layers without gates, and what all recurrent kernels have in common.

They compute with float values. Narrow floats are converted to float32, and quantized tensors, such as the 8-bit weights
of a float layer, are dequantized. A quantized state is rounded and clamped in every step, before it is used again, so
that a sequence gives the results of its steps one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import FLOATS, Array, DataType, TensorInfo
from interposer.kernels.dynamic_range import rounded_rows
from interposer.kernels.fixedpoint import (
    clamp_to,
    dequantize,
    multiply_by_quantized_multiplier,
    quantize,
    quantize_multiplier,
)
from interposer.kernels.quantized_functions import quantized_bounds
from interposer.kernels.real import WIDE_FLOATS, precisely, real, store
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.recurrent import BidirectionalSequenceRnn, FusedActivation, Rnn, Svdf, UnidirectionalSequenceRnn

__all__ = [
    "FUSED",
    "INPUT",
    "Function",
    "Reals",
    "converted",
    "direction_of",
    "joined",
    "needed",
    "next_state",
    "real_valued",
    "reals",
    "sides",
    "states_as_stored",
    "store_all",
    "time_first",
    "zeros_unless",
]

Function = Callable[[Array], Array]
Reals = Mapping[str, Array | None]
FUSED: Final[dict[FusedActivation, Function]] = {
    FusedActivation.NONE: lambda x: x,
    FusedActivation.RELU: lambda x: np.maximum(x, 0),
    FusedActivation.RELU_N1_TO_1: lambda x: np.clip(x, -1, 1),
    FusedActivation.RELU6: lambda x: np.clip(x, 0, 6),
    FusedActivation.TANH: precisely(np.tanh),
    FusedActivation.SIGMOID: precisely(lambda x: 1 / (1 + np.exp(-x))),
}


_BOUNDS: Final = {
    FusedActivation.NONE: (-math.inf, math.inf),
    FusedActivation.RELU: (0.0, math.inf),
    FusedActivation.RELU_N1_TO_1: (-1.0, 1.0),
    FusedActivation.RELU6: (0.0, 6.0),
}

INPUT: Final = {"input": WIDE_FLOATS | {DataType.INT8}}
"""The types of the inputs of recurrent layers that are computed in floats."""


def real_valued(op: Op, info: KernelInfo) -> str | None:
    """Return why a tensor is refused: all but the sequence lengths must be floats or quantized; None if they are.

    States must have one scale, as they are rounded in each step.
    """
    results = [
        (declared_result.name, tensor) for declared_result, tensor in zip(op.results, info.outputs, strict=False)
    ]
    for name, tensor in (*zip(info.names, info.inputs, strict=False), *results):
        if tensor is None or name == "sequence_lengths":
            continue
        if not (tensor.dtype in FLOATS or tensor.is_quantized):
            return f"{name} is {tensor.dtype}; takes floats and quantized tensors"
        if name.endswith("state_out") and tensor.quantization is not None and tensor.quantization.per_axis:
            return f"{name} has scales along axis {tensor.quantization.axis}; takes states with one scale"
    return None


def states_as_stored(op: Op, info: KernelInfo) -> dict[str, Function]:
    """Return for each state, by name without its ``_out``, a function that rounds its values as the result stores them.

    Values of a quantized state are rounded and clamped to its type; floats are returned as they are.
    """
    return {
        declared_result.name.removesuffix("_out"): _as_stored(tensor)
        for declared_result, tensor in zip(op.results, info.outputs, strict=False)
        if declared_result.name.endswith("state_out")
    }


def _as_stored(info: TensorInfo) -> Function:
    quantization = info.quantization
    if quantization is None:
        return lambda x: x
    return lambda x: dequantize(quantize(x, quantization, info.dtype), quantization).astype(x.dtype)


def converted(op: object, info: KernelInfo) -> Reals:
    """Return the constant operands as float values, by name; kernels compute them once, before their first call."""
    return {
        name: real(tensor.constant, tensor)
        for name, tensor in zip(info.names, info.inputs, strict=False)
        if tensor is not None and tensor.constant is not None
    }


def reals(arrays: tuple[Array | None, ...], info: KernelInfo, prepared: Reals | None) -> dict[str, Array | None]:
    """Return all operands as float values, by name; None for absent ones.

    `prepared` is the result of `converted`, whose operands are not converted again.
    """
    values: dict[str, Array | None] = dict(prepared or {})
    for name, array in zip(info.names, arrays, strict=True):
        tensor = info.get(name)
        if name not in values:
            values[name] = None if array is None or tensor is None else real(array, tensor)
    return values


def store_all(values: tuple[Array, ...], info: KernelInfo, out: tuple[Array, ...]) -> None:
    """Write float values to the arrays `out`, one for each result, converted or quantized as `info.outputs` says."""
    for array, tensor, target in zip(values, info.outputs, out, strict=True):
        store(array, tensor, target)


def time_first(x: Array, time_major: bool) -> Array:
    """Swap the first two axes of a sequence unless it is time-major; the same call undoes the swap."""
    return x if time_major else x.swapaxes(0, 1)


def zeros_unless(state: Array | None, batches: int, size: int) -> Array:
    """Return the initial state (batches, size), or zeros of this shape if it is absent."""
    return np.zeros((batches, size), np.float32) if state is None else state


def needed(operands: Reals, name: str) -> Array:
    """Return the operand of this name, which must not be absent: it is an assertion for the type checker."""
    array = operands[name]
    assert array is not None, name
    return array


class _Cell(NamedTuple):
    """The weights and the activation of one direction of a recurrent layer without gates, which `run` computes.

    `rounded` rounds the rows of a dynamic range layer, and `stored` rounds a state as the result stores it.
    """

    weights: Array
    recurrent_weights: Array
    bias: Array
    aux_weights: Array | None
    function: Function
    rounded: Function
    stored: Function

    @classmethod
    def of(
        cls, operands: Reals, op: Rnn | UnidirectionalSequenceRnn | BidirectionalSequenceRnn, stored: Function
    ) -> _Cell:
        return cls(
            needed(operands, "weights"),
            needed(operands, "recurrent_weights"),
            needed(operands, "bias"),
            operands.get("aux_weights"),
            FUSED[op.activation_func],
            rounded_rows(op.activation_rounding),
            stored,
        )

    def run(self, x: Array, aux: Array | None, state: Array | None) -> tuple[Array, Array]:
        """Return the outputs of all steps, (T, B, U), and the last state, (B, U), from inputs (T, B, I) and (T, B, A).

        An absent initial state is zeros. The products with the inputs are computed for all steps at once, and the
        recurrent products step by step.
        """
        input_products = self.rounded(x) @ self.weights.T + self.bias
        if aux is not None and self.aux_weights is not None:
            input_products = input_products + self.rounded(aux) @ self.aux_weights.T
        state = zeros_unless(state, x.shape[1], len(self.bias))
        outputs = np.empty_like(input_products)
        for step, step_products in enumerate(input_products):
            outputs[step] = self.function(step_products + self.rounded(state) @ self.recurrent_weights.T)
            state = self.stored(outputs[step])
        return outputs, state


@kernel(Rnn, dtypes=INPUT, when=real_valued)
def rnn(op: Rnn, *arrays: Array | None, info: KernelInfo, out: tuple[Array, ...], prepared: Reals | None) -> None:
    """Compute `Rnn` as a sequence of one step."""
    operands = reals(arrays, info, prepared)
    x = needed(operands, "input")[np.newaxis]
    stored = states_as_stored(op, info)["hidden_state"]
    outputs, state = _Cell.of(operands, op, stored).run(x, None, operands["hidden_state_in"])
    store_all((state, outputs[0]), info, out)


@kernel(UnidirectionalSequenceRnn, dtypes=INPUT, when=real_valued)
def unidirectional_sequence_rnn(
    op: UnidirectionalSequenceRnn,
    *arrays: Array | None,
    info: KernelInfo,
    out: tuple[Array, ...],
    prepared: Reals | None,
) -> None:
    """Compute `UnidirectionalSequenceRnn` step by step."""
    operands = reals(arrays, info, prepared)
    x = time_first(needed(operands, "input"), op.time_major)
    stored = states_as_stored(op, info)["hidden_state"]
    outputs, state = _Cell.of(operands, op, stored).run(x, None, operands["hidden_state_in"])
    store_all((time_first(outputs, op.time_major), state), info, out)


def direction_of(operands: Reals, direction: str) -> Reals:
    """Return the operands of a direction, "forward" or "backward", by their names without the direction's prefix."""
    return {name.removeprefix(f"{direction}_"): array for name, array in operands.items() if name.startswith(direction)}


def sides(operands: Reals, time_major: bool, aux_weights: str) -> tuple[tuple[Array, Array | None], ...]:
    """Return for both directions the input and the auxiliary input (None if it has no weights), time axis first.

    The backward direction's are reversed in time. `aux_weights` is the name of an operand with weights for the
    auxiliary input; if this operand is absent, the auxiliary input replaces the backward direction's input.
    """
    x, aux = time_first(needed(operands, "input"), time_major), operands["aux_input"]
    if aux is None:
        return (x, None), (x[::-1], None)
    aux = time_first(aux, time_major)
    if operands[aux_weights] is None:
        return (x, None), (aux[::-1], None)
    return (x, aux), (x[::-1], aux[::-1])


def joined(forward: Array, backward: Array, time_major: bool, merge_outputs: bool) -> list[Array]:
    """Return the outputs of both directions as the operator's results: merged along the last axis, or two arrays.

    The arrays have time as first axis, and those of the backward direction are in the order of computation, last step
    first.
    """
    ordered_outputs = [time_first(forward, time_major), time_first(backward[::-1], time_major)]
    return [np.concatenate(ordered_outputs, axis=-1)] if merge_outputs else ordered_outputs


@kernel(BidirectionalSequenceRnn, dtypes=INPUT, when=real_valued)
def bidirectional_sequence_rnn(
    op: BidirectionalSequenceRnn,
    *arrays: Array | None,
    info: KernelInfo,
    out: tuple[Array, ...],
    prepared: Reals | None,
) -> None:
    """Compute `BidirectionalSequenceRnn`; the backward direction runs over the reversed sequence."""
    operands = reals(arrays, info, prepared)
    outputs, states = [], []
    for direction, (x, aux) in zip(
        ("forward", "backward"), sides(operands, op.time_major, "forward_aux_weights"), strict=True
    ):
        direction_operands = direction_of(operands, direction)
        stored = states_as_stored(op, info)[f"{direction}_hidden_state"]
        output, state = _Cell.of(direction_operands, op, stored).run(x, aux, direction_operands["hidden_state_in"])
        outputs.append(output)
        states.append(state)
    merged_or_forward, *backward_output = joined(outputs[0], outputs[1], op.time_major, op.merge_outputs)
    store_all((merged_or_forward, *states, *backward_output), info, out)


_INTEGER_SVDF: Final = {
    **dict.fromkeys(("input", "weights_feature", "output"), frozenset({DataType.INT8})),
    **dict.fromkeys(("weights_time", "state_in", "state_out"), frozenset({DataType.INT16})),
    "bias": frozenset({DataType.INT32}),
}


def _integer_svdf_reason(op: Svdf, info: KernelInfo) -> str | None:
    """Return why the operator is not quantized as TFLite's integer reference requires; None if it is.

    The reference requires an activation that only clamps, per-tensor scales, a zero point of 0 for both weights and
    the state, and the same quantization for the state before and after the step.
    """
    if op.activation_func not in _BOUNDS:
        return f"{op.activation_func.name} in integers; takes {', '.join(bound.name for bound in _BOUNDS)}"
    inputs = [(name, info.get(name)) for name in ("input", "weights_feature", "weights_time", "state_in")]
    for name, tensor in (*inputs, ("output", info.outputs[1])):
        quantization = None if tensor is None else tensor.quantization
        if (
            quantization is None
            or quantization.per_axis
            or (quantization.zero_point and name not in {"input", "output"})
        ):
            return f"{name} is {tensor}; takes tensors quantized with one scale, and zero points of data only"
    state = info.at(4)
    if state.quantization != info.output.quantization:
        return f"state_in is {state} and state_out {info.output}; takes equal scales"
    return None


@kernel(Svdf, quantized=True, dtypes=_INTEGER_SVDF, when=_integer_svdf_reason)
def svdf_of_integers(
    op: Svdf, x: Array, feature: Array, time: Array, bias: Array | None, state: Array, *, info: KernelInfo
) -> tuple[Array, Array]:
    """Compute `Svdf` as TFLite's integer reference does: 16-bit projections, 32-bit sums over time."""
    output = info.outputs[1]
    tensors = [*(info.at(index) for index in range(3)), info.output, output]
    input_scale, feature_scale, time_scale, state_scale, output_scale = (
        float(np.float32(tensor.scale)) for tensor in tensors
    )
    projection_factor = quantize_multiplier(input_scale * feature_scale / state_scale)
    output_factor = quantize_multiplier(state_scale * time_scale / output_scale)
    sums = (x.astype(np.int64) - info.input.zero_point) @ feature.astype(np.int64).T
    projected = clamp_to(multiply_by_quantized_multiplier(sums, projection_factor), DataType.INT16)
    memory = state.astype(np.int64).reshape(len(x), *time.shape)
    memory = np.concatenate([memory[..., :-1], projected[..., np.newaxis]], axis=-1)
    unit_sums = (memory * time).sum(axis=-1).reshape(len(x), len(time) // op.rank, op.rank).sum(axis=-1)
    unit_sums = (unit_sums if bias is None else unit_sums + bias).astype(np.int32)
    scaled = multiply_by_quantized_multiplier(unit_sums, output_factor) + output.zero_point
    return next_state(memory), np.clip(scaled, *quantized_bounds(*_BOUNDS[op.activation_func], output))


@kernel(Svdf, dtypes=INPUT, when=real_valued)
def svdf(op: Svdf, *arrays: Array | None, info: KernelInfo, out: tuple[Array, ...], prepared: Reals | None) -> None:
    """Compute `Svdf` on floats; the new projection is written to the free last position of each filter's memory.

    A quantized state, such as one of 8 bits, holds the new projection rounded and clamped, also in this step.
    """
    operands = reals(arrays, info, prepared)
    feature, time, bias = needed(operands, "weights_feature"), needed(operands, "weights_time"), operands["bias"]
    projected = rounded_rows(op.activation_rounding)(needed(operands, "input")) @ feature.T
    projected = states_as_stored(op, info)["state"](projected)
    memory = zeros_unless(operands["state_in"], len(projected), time.size).reshape(len(projected), *time.shape)
    memory = np.concatenate([memory[..., :-1], projected[..., np.newaxis]], axis=-1)
    sums = (memory * time).sum(axis=-1).reshape(len(projected), len(time) // op.rank, op.rank).sum(axis=-1)
    output = FUSED[op.activation_func](sums if bias is None else sums + bias)
    store_all((next_state(memory), output), info, out)


def next_state(memory: Array) -> Array:
    """Return the memory (B, F, M) of filters after a step as the operator's state (B, F * M).

    The oldest number of every filter is dropped, and the last position is set to zero.
    """
    zeros = np.zeros_like(memory[..., :1])
    return np.concatenate([memory[..., 1:], zeros], axis=-1).reshape(len(memory), math.prod(memory.shape[1:]))


for _function in (rnn, unidirectional_sequence_rnn, bidirectional_sequence_rnn, svdf):
    kernel.prepare(_function)(converted)

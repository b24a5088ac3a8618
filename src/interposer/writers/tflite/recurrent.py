"""TFLite writers for recurrent layers, whose states are variable tensors of the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from interposer.core.traits import Role
from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ir.graph import Layer
from interposer.ops.control import Output
from interposer.ops.lstm import BidirectionalSequenceLstm, Lstm, UnidirectionalSequenceLstm
from interposer.ops.quantized_recurrent import QLstm, QuantizedLstm
from interposer.ops.recurrent import (
    ActivationRounding,
    BidirectionalSequenceRnn,
    FusedActivation,
    Rnn,
    Svdf,
    UnidirectionalSequenceRnn,
)
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.states import STATES
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []

_GATES: Final = ("input", "forget", "cell", "output")
_BASIC: Final = (0, 2, 1, 3)
"""The gates in the order in which the basic kernel of LSTM has them: input, cell, forget and output."""
_SUMS: Final = Quantization(2**-12)
"""The quantization of the sums of the gates in the basic kernel of LSTM."""


@writer(Rnn, also_quantized=True, typed=True)
def rnn(draft: Draft, op: Rnn) -> list[Tensor]:
    """Write Rnn: one time step."""
    return _results(draft, "RNN", _operands(draft), fused_activation_function=op.activation_func.value)


@writer(UnidirectionalSequenceRnn, also_quantized=True, typed=True)
def sequence_rnn(draft: Draft, op: UnidirectionalSequenceRnn) -> list[Tensor]:
    """Write UnidirectionalSequenceRnn."""
    fields: dict[str, Any] = {"fused_activation_function": op.activation_func.value, "time_major": op.time_major}
    return _results(draft, "UNIDIRECTIONAL_SEQUENCE_RNN", _operands(draft), **fields)


@writer(BidirectionalSequenceRnn, also_quantized=True, typed=True)
def bidirectional_rnn(draft: Draft, op: BidirectionalSequenceRnn) -> list[Tensor]:
    """Write BidirectionalSequenceRnn, with the outputs of both directions merged or apart."""
    fields: dict[str, Any] = {
        "fused_activation_function": op.activation_func.value,
        "time_major": op.time_major,
        "merge_outputs": op.merge_outputs,
    }
    return _results(draft, "BIDIRECTIONAL_SEQUENCE_RNN", _operands(draft), **fields)


@writer(Svdf, also_quantized=True, typed=True)
def svdf(draft: Draft, op: Svdf) -> list[Tensor]:
    """Write Svdf: one time step. In integers, TFLite has RELU, which only saturates."""
    function = op.activation_func
    if draft.info(0).is_quantized:
        if function is not FusedActivation.NONE:
            refuse(f"its function is {function.name}; SVDF of integers has none")
        if draft.results[1].zero_point != -128:
            refuse("the zero point of its output is not -128, and SVDF of integers cuts off what is below")
        function = FusedActivation.RELU
    return _results(draft, "SVDF", _operands(draft), rank=op.rank, fused_activation_function=function.value)


@writer(Lstm, also_quantized=True, typed=True)
def lstm(draft: Draft, op: Lstm) -> list[Tensor]:
    """Write Lstm: one time step."""
    if draft.layer.outputs[0].uses:
        refuse("its result scratch is used, which is no output of LSTM")
    clips: dict[str, Any] = {"cell_clip": op.clipping_thres_cell, "proj_clip": op.clipping_thres_proj}
    return _results(draft, "LSTM", _gated(draft), fused_activation_function=op.activation_func.value, **clips)


@writer(QLstm, also_quantized=True, typed=True)
def lstm_of_integers(draft: Draft, op: QLstm) -> list[Tensor]:
    """Write QLstm: one time step in integers."""
    clips: dict[str, Any] = {"cell_clip": op.cell_clip, "proj_clip": op.projection_clip}
    function = FusedActivation.TANH.value
    return _results(draft, "LSTM", _gated(draft), _between(draft, op), fused_activation_function=function, **clips)


@writer(UnidirectionalSequenceLstm, also_quantized=True, typed=True)
def sequence_lstm(draft: Draft, op: UnidirectionalSequenceLstm) -> list[Tensor]:
    """Write UnidirectionalSequenceLstm, in floats or in integers."""
    fields: dict[str, Any] = {
        "fused_activation_function": op.activation_func.value,
        "cell_clip": op.clipping_thres_cell,
        "proj_clip": op.clipping_thres_proj,
        "time_major": op.time_major,
    }
    in_integers = draft.info(0).is_quantized
    if in_integers and op.activation_func is not FusedActivation.TANH:
        refuse(f"its function is {op.activation_func.name}; an LSTM of integers has TANH")
    between = _between(draft, op) if in_integers else []
    return _results(draft, "UNIDIRECTIONAL_SEQUENCE_LSTM", _gated(draft), between, **fields)


@writer(BidirectionalSequenceLstm, also_quantized=True, typed=True)
def bidirectional_lstm(draft: Draft, op: BidirectionalSequenceLstm) -> list[Tensor]:
    """Write BidirectionalSequenceLstm without normalization, with the outputs of both directions merged or apart."""
    operands = _operands(draft)
    if any(operands[48:]):
        refuse("it normalizes its gates, which BIDIRECTIONAL_SEQUENCE_LSTM does not")
    fields: dict[str, Any] = {
        "fused_activation_function": op.activation_func.value,
        "cell_clip": op.clipping_thres_cell,
        "proj_clip": op.clipping_thres_proj,
        "merge_outputs": op.merge_outputs,
        "time_major": op.time_major,
    }
    return _results(draft, "BIDIRECTIONAL_SEQUENCE_LSTM", operands[:48], **fields)


@writer(QuantizedLstm, also_quantized=True, typed=True)
def basic_lstm(draft: Draft, op: QuantizedLstm) -> list[Tensor]:
    """Write QuantizedLstm as the basic kernel of LSTM, whose weights are one matrix, and whose states are operands.

    The kernel writes to its states, so that nothing else may read them.
    """
    x, cell, output, *gate_tensors = draft.tensors()
    if any(tensor.array is None for tensor in gate_tensors):
        refuse("its weights are not constant")
    if any(tensor.array is not None for tensor in (cell, output)) or _are_read_elsewhere(draft):
        refuse("LSTM writes to its states, which are constant or which other layers read")
    parameters = [np.asarray(tensor.array) for tensor in gate_tensors]
    matrix = np.concatenate([np.hstack([parameters[4 + gate], parameters[gate]]) for gate in _BASIC])
    bias = np.concatenate([parameters[8 + gate] for gate in _BASIC])
    weights = draft.constant(matrix, DataType.UINT8, "weights", gate_tensors[0].info.quantization)
    biases = draft.constant(bias, DataType.INT32, "biases", gate_tensors[8].info.quantization)
    batch, units = x.shape[0], len(bias) // 4
    joined = TensorInfo((batch, matrix.shape[1]), x.dtype, x.info.quantization)
    sums = TensorInfo((batch, 4 * units), DataType.INT16, _SUMS)
    infos = [draft.results[1], draft.results[0], joined, sums]
    results = draft.recurrent("LSTM", [x, output, weights, biases, cell], infos, [], kernel_type=1)
    return [results[1], results[0]]


def _are_read_elsewhere(draft: Draft) -> bool:
    uses = [use.layer for value in draft.layer.values[1:3] for use in value.uses]
    return any(reader is not draft.layer and _has_results_in_use(reader) for reader in uses)


def _has_results_in_use(layer: Layer) -> bool:
    return isinstance(layer.op, Output) or any(value.uses for value in layer.outputs)


# --- operands ---------------------------------------------------------------------------------------------------------


def _operands(draft: Draft) -> list[Tensor | None]:
    """Return the operands of the layer in their order, None for absent ones."""
    return [draft.optional(index) for index in range(len(draft.layer.op.operands))]


def _gated(draft: Draft) -> list[Tensor | None]:
    """Return the operands of an LSTM of one direction in TFLite's order: the states follow the projection."""
    operands = _operands(draft)
    return [operands[0], *operands[3:20], *operands[1:3], *operands[20:]]


def _between(draft: Draft, op: QLstm | UnidirectionalSequenceLstm) -> list[Tensor]:
    """Return the intermediate tensors of an LSTM of integers, which have the scales of the gates and of the output."""
    scales = [float(getattr(op, f"{gate}_intermediate_scale")) for gate in _GATES]
    infos = [TensorInfo((1,), DataType.INT16, Quantization(scale) if scale else None) for scale in scales]
    hidden = Quantization(op.hidden_state_scale, op.hidden_state_zero_point) if op.hidden_state_scale else None
    infos.append(TensorInfo((1,), DataType.INT8, hidden))
    return [Tensor(draft.sheet.names.free(f"{draft.layer.name}/between"), info) for info in infos]


# --- the operator -----------------------------------------------------------------------------------------------------


def _results(
    draft: Draft, kind: str, operands: Sequence[Tensor | None], between: Sequence[Tensor] = (), **options: Any
) -> list[Tensor]:
    """Add a recurrent operator, and return the results of the layer: outputs, and variables for the states."""
    for reason in (*_state_reasons(draft), *_type_reasons(draft)):
        refuse(reason)
    layer, updated = draft.layer, _updated(draft)
    if getattr(layer.op, "activation_rounding", ActivationRounding.NONE) is ActivationRounding.ASYMMETRIC:
        options["asymmetric_quantize_inputs"] = True
    is_output = [result not in updated and not _is_scratch(draft, result) for result in _result_names(draft)]
    infos = [info for info, shown in zip(draft.results, is_output, strict=True) if shown]
    outputs = iter(draft.recurrent(kind, operands, infos, between, **options))
    unused = Tensor(draft.sheet.names.free(f"{layer.name}/unused"), draft.result)
    return [
        next(outputs) if shown else updated.get(result, unused)
        for result, shown in zip(_result_names(draft), is_output, strict=True)
    ]


def _result_names(draft: Draft) -> list[str]:
    return [declared.name for declared in draft.layer.op.results][: len(draft.results)]


def _is_scratch(draft: Draft, result: str) -> bool:
    return isinstance(draft.layer.op, Lstm) and result == "scratch"


def _updated(draft: Draft) -> dict[str, Tensor]:
    """Return the variable tensor of each result that is the new value of a state."""
    numbers = {declared.name: number for number, declared in enumerate(draft.layer.op.operands)}
    return {new: draft.operand(numbers[old]) for old, new in STATES[type(draft.layer.op)].items()}


def _state_reasons(draft: Draft) -> Iterator[str]:
    """Yield a reason for each state that is not a variable tensor of the file."""
    names = [declared.name for declared in draft.layer.op.operands]
    for name in STATES[type(draft.layer.op)]:
        tensor = draft.optional(names.index(name))
        if tensor is None or not tensor.is_variable:
            yield (
                f"its operand {name} is {'absent' if tensor is None else 'no state of the network'}; TFLite's operator "
                "needs a state that begins with zeros and that this layer alone reads and sets"
            )


def _type_reasons(draft: Draft) -> Iterator[str]:
    """Yield a reason for each operand whose type TFLite's operator does not have beside the others."""
    if draft.info(0).is_quantized:
        yield from _integer_reasons(draft)
        return
    rounds = getattr(draft.layer.op, "activation_rounding", ActivationRounding.NONE) is not ActivationRounding.NONE
    for name, role, info in _described(draft):
        if role is Role.WEIGHTS and rounds:
            if info.dtype is not DataType.INT8 or info.quantization is None or info.quantization.per_axis:
                yield f"{name} is {info}, and its activations are rounded; TFLite has int8 weights with one scale then"
            elif info.zero_point:
                yield f"{name} has the zero point {info.zero_point}; TFLite has 0"
        elif info.is_quantized:
            yield f"{name} is quantized, but its activations are not rounded, as TFLite does with such weights"
        elif info.dtype is not DataType.FLOAT32:
            yield f"{name} is {info.dtype}; TFLite has float32"


def _integer_reasons(draft: Draft) -> Iterator[str]:
    for name, role, info in _described(draft):
        if role is not Role.BIAS and (info.quantization is None or info.quantization.per_axis):
            yield f"{name} is {info}; TFLite has one scale for each operand of a layer of integers"
        elif role is Role.WEIGHTS and info.zero_point:
            yield f"{name} has the zero point {info.zero_point}; TFLite has 0"
        elif role is Role.BIAS and info.dtype is not DataType.INT32:
            yield f"{name} is {info.dtype}; TFLite has int32"


def _described(draft: Draft) -> Iterator[tuple[str, Role, TensorInfo]]:
    for declared, info in zip(draft.layer.op.operands, draft.infos, strict=False):
        if info is not None:
            yield declared.name, declared.role, info

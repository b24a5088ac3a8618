"""ONNX writers for recurrent layers over whole sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from interposer.core.types import DataType
from interposer.ops.activation import ActivationFunction
from interposer.ops.recurrent_sequence import GruSequence, LstmSequence, RnnSequence
from interposer.writers.onnx.draft import Draft, fits
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.sheet import Node
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__ = ["FUNCTIONS"]

F = ActivationFunction
FUNCTIONS: Final = {
    F.LINEAR: ("Affine", 2),
    F.ELU: ("Elu", 1),
    F.HARD_SIGMOID: ("HardSigmoid", 2),
    F.LEAKY_RELU: ("LeakyRelu", 1),
    F.RELU: ("Relu", 0),
    F.SIGMOID: ("Sigmoid", 0),
    F.SOFT_RELU: ("Softplus", 0),
    F.SOFTSIGN: ("Softsign", 0),
    F.THRESHOLDED_RELU: ("ThresholdedRelu", 1),
}
"""The names of the functions in ONNX, and their number of parameters."""
_KINDS: Final = {RnnSequence: "RNN", GruSequence: "GRU", LstmSequence: "LSTM"}

MICROSOFT: Final = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""
_TYPES: Final = (DataType.FLOAT32, DataType.INT32, DataType.INT64)
"""The types of operands of DynamicQuantizeLSTM whose weights are dequantized: floats, and lengths."""

STATES: Final = (5, 6)
"""The numbers of the operands that are states."""


@writer(RnnSequence, GruSequence, LstmSequence)
def whole_layer(draft: Draft, op: RnnSequence | GruSequence | LstmSequence) -> list[Tensor]:
    """Write recurrent layers as the operators of the same names, time first."""
    operands = [draft.optional(index) for index in range(len(op.operands))]
    if operands[4] is not None:
        operands[4] = draft.cast(operands[4], DataType.INT32)
    if isinstance(op, LstmSequence) and op.dynamic_quantization:
        return _dynamically_quantized(draft, op, operands)
    return draft.nodes(_KINDS[type(op)], *operands, count=op.num_results(), **_attributes(draft, op))


def _dynamically_quantized(draft: Draft, op: LstmSequence, operands: Sequence[Tensor | None]) -> list[Tensor]:
    """Write an LSTM that quantizes its input and states when it runs as ONNX Runtime's DynamicQuantizeLSTM.

    That operator forgets the initial states of empty sequences, which are restored after it.
    """
    if any(info is not None and info.dtype not in _TYPES for info in draft.infos):
        refuse("DynamicQuantizeLSTM of ONNX Runtime takes float32 only")
    weights = [_quantized_weights(draft, index) for index in (1, 2)]
    inputs = [operands[0], *(values for values, _, _ in weights), *operands[3:]]
    inputs += [parameter for _, *parameters in weights for parameter in parameters]
    starts = [operands[index] for index in STATES]
    names = [draft.name_of(tensor) if tensor else "" for tensor in inputs]
    given_attributes = {key: attribute for key, attribute in _attributes(draft, op).items() if attribute is not None}
    node = Node("DynamicQuantizeLSTM", names, [], given_attributes, domain=MICROSOFT)
    outputs, *ends = draft.put(node, [DataType.FLOAT32] * op.num_results())
    return [outputs, *(_restored(draft, end, operands[4], start) for end, start in zip(ends, starts, strict=True))]


def _restored(draft: Draft, end: Tensor, lengths: Tensor | None, start: Tensor | None) -> Tensor:
    """Return the states (D, B, H) after the last steps, with the initial states of sequences without steps."""
    if lengths is None or start is None:
        return end
    has_steps = draft.node("Reshape", draft.node("Less", draft.like(0, lengths), lengths), draft.ints([1, -1, 1]))
    return draft.node("Where", has_steps, end, start)


def _quantized_weights(draft: Draft, index: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weights (D, K, 4 * H) of the input or the state, their scales and their zero points (D, 4 * H)."""
    tensor = draft.operand(index)
    q, values = tensor.quantization, tensor.array
    dtype = None if values is None else DataType.of(values.dtype)
    if values is None or q is None or dtype not in (DataType.INT8, DataType.UINT8) or q.axis not in (None, 1):
        refuse(
            "DynamicQuantizeLSTM of ONNX Runtime takes constant weights of 8 bits, with one scale or one for each row"
        )
    if len({*q.zero_points} | ({0} if dtype is DataType.INT8 else set())) > 1:
        refuse(
            "DynamicQuantizeLSTM of ONNX Runtime takes int8 weights with zero points of 0, uint8 ones with equal ones"
        )
    shape = values.shape[:2]
    return (
        draft.constant(values.transpose(0, 2, 1), dtype, "quantized"),
        draft.constant(np.broadcast_to(np.asarray(q.scales), shape), DataType.FLOAT32, "scale"),
        draft.constant(np.broadcast_to(np.asarray(q.zero_points), shape), dtype, "zero_point"),
    )


def _attributes(draft: Draft, op: RnnSequence | GruSequence | LstmSequence) -> dict[str, Any]:
    """Return the attributes of the ONNX operator (RNN, GRU or LSTM) for a layer.

    Activation functions are given by name, and their parameters alpha and beta are in two lists.
    """
    attributes: dict[str, Any] = {
        "hidden_size": draft.known(draft.info(2).shape[2], "number of units"),
        "direction": op.direction.value,
        "clip": op.clip or None,
    }
    if isinstance(op, GruSequence):
        attributes["linear_before_reset"] = 1 if op.linear_before_reset else None
    if isinstance(op, LstmSequence):
        attributes["input_forget"] = 1 if op.input_forget else None
    return attributes | (_functions(draft, list(op.functions())) if op.activations else {})


def _functions(draft: Draft, functions: list[tuple[ActivationFunction, float, float]]) -> dict[str, Any]:
    names_of_functions = list(_named(functions))
    for name, parameters in names_of_functions:
        if not fits(draft.operand(0), *parameters):
            refuse(f"a parameter of its function {name} has more digits than an attribute holds")
    alphas = [parameters[0] for _, parameters in names_of_functions if parameters]
    betas = [parameters[1] for _, parameters in names_of_functions if len(parameters) > 1]
    return {
        "activations": [name for name, _ in names_of_functions],
        "activation_alpha": alphas or None,
        "activation_beta": betas or None,
    }


def _named(functions: list[tuple[ActivationFunction, float, float]]) -> Iterator[tuple[str, tuple[float, ...]]]:
    for function, a, b in functions:
        if function is F.TANH:
            yield ("Tanh", ()) if (a, b) == (1, 1) else ("ScaledTanh", (a, b))
        elif function in FUNCTIONS:
            name, count = FUNCTIONS[function]
            yield name, (a, b)[:count]
        else:
            refuse(f"its function {function.name} is none that ONNX's recurrent layers know")

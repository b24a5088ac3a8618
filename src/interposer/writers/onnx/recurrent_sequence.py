"""ONNX writers for recurrent layers over whole sequences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from interposer.core.types import DataType
from interposer.ops.activation import ActivationFunction
from interposer.ops.recurrent_sequence import GruSequence, LstmSequence, RnnSequence
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.onnx_layer_writers import writer
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

STATES: Final = (5, 6)
"""The numbers of the operands that are states."""


@writer(RnnSequence, GruSequence, LstmSequence)
def whole_layer(draft: Draft, op: RnnSequence | GruSequence | LstmSequence) -> list[Tensor]:
    """Write recurrent layers as the operators of the same names, time first."""
    if isinstance(op, LstmSequence) and op.dynamic_quantization:
        refuse("it quantizes its input and states when it runs, which ONNX's LSTM does not")
    operands = [draft.optional(index) for index in range(len(op.operands))]
    if operands[4] is not None:
        operands[4] = draft.cast(operands[4], DataType.INT32)
    return draft.nodes(_KINDS[type(op)], *operands, count=op.num_results(), **_attributes(draft, op))


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
    return attributes | (_functions(list(op.functions())) if op.activations else {})


def _functions(functions: list[tuple[ActivationFunction, float, float]]) -> dict[str, Any]:
    names_of_functions = list(_named(functions))
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

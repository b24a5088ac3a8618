"""ONNX converters for recurrent layers over whole sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from interposer.core.errors import ParseError
from interposer.core.schema import Op
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.ir.graph import Value
from interposer.ops.activation import ActivationFunction
from interposer.ops.recurrent_sequence import GruSequence, LstmSequence, RecurrentDirection, RnnSequence

__all__ = ["lstm_op"]

F = ActivationFunction
# The functions by their lower-case names, with the defaults of their activation_alpha and activation_beta.
_FUNCTIONS: Final[dict[str, tuple[ActivationFunction, tuple[float, ...]]]] = {
    "affine": (F.LINEAR, (1.0, 0.0)),
    "elu": (F.ELU, (1.0,)),
    "hardsigmoid": (F.HARD_SIGMOID, (0.2, 0.5)),
    "leakyrelu": (F.LEAKY_RELU, (0.01,)),
    "relu": (F.RELU, ()),
    "scaledtanh": (F.TANH, (1.0, 1.0)),
    "sigmoid": (F.SIGMOID, ()),
    "softplus": (F.SOFT_RELU, ()),
    "softsign": (F.SOFTSIGN, ()),
    "tanh": (F.TANH, ()),
    "thresholdedrelu": (F.THRESHOLDED_RELU, (1.0,)),
}


@operator("RNN")
def rnn(node: Node) -> Sequence[Value]:
    """Convert RNN, which has no gates."""
    return _layer(node, RnnSequence(**_common(node)), 6)


@operator("GRU")
def gru(node: Node) -> Sequence[Value]:
    """Convert GRU; since opset 3 a flag says where the reset gate is applied."""
    op = GruSequence(**_common(node), linear_before_reset=node.flag("linear_before_reset"))
    return _layer(node, op, 6)


@operator("LSTM")
def lstm(node: Node) -> Sequence[Value]:
    """Convert LSTM, with an optional initial cell state and optional peephole weights."""
    return _layer(node, lstm_op(node), 8)


def lstm_op(node: Node) -> LstmSequence:
    """Return the operator with the attributes of an LSTM node."""
    return LstmSequence(**_common(node), input_forget=node.flag("input_forget"))


def _layer(node: Node, op: Op, num_operands: int) -> Sequence[Value]:
    return node.results(op, *(node.optional(i) for i in range(num_operands)))


def _common(node: Node) -> dict[str, Any]:
    direction = node.text("direction", "forward")
    if direction not in {member.value for member in RecurrentDirection}:
        raise ParseError(f"its direction is {direction!r}; expected forward, reverse or bidirectional")
    functions = list(_functions(node)) if node.has_attribute("activations") else []
    return {
        "direction": RecurrentDirection(direction),
        "time_major": not node.flag("layout"),
        "activations": tuple(function for function, _, _ in functions),
        "activation_a": tuple(a for _, a, _ in functions),
        "activation_b": tuple(b for _, _, b in functions),
        "clip": node.number("clip", 0.0),
    }


def _functions(node: Node) -> Iterator[tuple[ActivationFunction, float, float]]:
    """Yield each activation function of the node with its alpha and beta.

    The attributes activation_alpha and activation_beta have values only for functions with such a parameter, in order;
    missing values are the function's defaults.
    """
    alphas, betas = (iter(node.numbers(f"activation_{name}", ())) for name in ("alpha", "beta"))
    for name in node.texts("activations"):
        if name.lower() not in _FUNCTIONS:
            node.unsupported(f"its activation {name!r} is not known")
        function, defaults = _FUNCTIONS[name.lower()]
        parameters = [next(given, default) for given, default in zip((alphas, betas), defaults, strict=False)]
        a, b = (*parameters, 1.0, 1.0)[:2]
        yield function, a, b

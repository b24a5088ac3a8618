"""Activation functions, softmax among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeAlias

from interposer.ops.activation import Activation, ActivationFunction, Hardmax, LogSoftmax, Softmax
from interposer.types import DataType
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.registry import writer
from interposer.writers.onnx.tensor import Tensor

__all__ = ["FUNCTIONS"]

F = ActivationFunction
Function: TypeAlias = Callable[[Draft, Tensor, float, float], Tensor]
_UNDER_A_NAME: Final = {
    F.SIGMOID: "Sigmoid",
    F.RELU: "Relu",
    F.SOFT_RELU: "Softplus",
    F.ABS: "Abs",
    F.SQRT: "Sqrt",
    F.SOFTSIGN: "Softsign",
}


def _tanh(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return _scaled(draft, draft.node("Tanh", _scaled(draft, x, b)), a)


def _scaled(draft: Draft, x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else draft.node("Mul", x, draft.like(factor, x))


def _linear(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return draft.node("Add", _scaled(draft, x, a), draft.like(b, x))


def _bounded(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return draft.clip(x, b, a)


def _square(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return draft.node("Mul", x, x)


def _hard_swish(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    if draft.opset >= 14:
        return draft.node("HardSwish", x)
    return draft.node("Mul", x, draft.node("HardSigmoid", x, alpha=1 / 6, beta=0.5))


def _gelu(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    if draft.opset >= 20:
        return draft.node("Gelu", x)
    turned = draft.node("Erf", _scaled(draft, x, math.sqrt(0.5)))
    return draft.node("Mul", x, _linear(draft, turned, 0.5, 0.5))


def _gelu_tanh(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    if draft.opset >= 20:
        return draft.node("Gelu", x, approximate="tanh")
    cubed = draft.node("Mul", draft.node("Mul", x, x), x)
    inner = draft.node("Add", x, _scaled(draft, cubed, 0.044715))
    turned = draft.node("Tanh", _scaled(draft, inner, math.sqrt(2 / math.pi)))
    return draft.node("Mul", x, _linear(draft, turned, 0.5, 0.5))


def _swish(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    if draft.opset >= 24 and x.dtype is not DataType.FLOAT64:
        return draft.node("Swish", x, alpha=a)
    return draft.node("Mul", x, draft.node("Sigmoid", _scaled(draft, x, a)))


def _mish(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    if draft.opset >= 18:
        return draft.node("Mish", x)
    return draft.node("Mul", x, draft.node("Tanh", draft.node("Softplus", x)))


def _elu(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return draft.node("Elu", x, alpha=a)


_FUNCTIONS: Final[dict[ActivationFunction, Function]] = {
    F.TANH: _tanh,
    F.LINEAR: _linear,
    F.BOUNDED_RELU: _bounded,
    F.SQUARE: _square,
    F.ELU: _elu,
    F.HARD_SWISH: _hard_swish,
    F.GELU: _gelu,
    F.GELU_TANH: _gelu_tanh,
    F.SWISH: _swish,
    F.MISH: _mish,
    F.LEAKY_RELU: lambda draft, x, a, b: draft.node("LeakyRelu", x, alpha=a),
    F.SELU: lambda draft, x, a, b: draft.node("Selu", x, alpha=a, gamma=b),
    F.CELU: lambda draft, x, a, b: draft.node("Celu", x, alpha=a),
    F.HARD_SIGMOID: lambda draft, x, a, b: draft.node("HardSigmoid", x, alpha=a, beta=b),
    F.THRESHOLDED_RELU: lambda draft, x, a, b: draft.node("ThresholdedRelu", x, alpha=a),
    F.SHRINK: lambda draft, x, a, b: draft.node("Shrink", x, lambd=a, bias=b),
}
FUNCTIONS: Final = _FUNCTIONS


@writer(Activation)
def activation(draft: Draft, op: Activation) -> Tensor:
    """Under the function's own name, or made of others."""
    x = draft.operand(0)
    if op.function in _UNDER_A_NAME:
        return draft.node(_UNDER_A_NAME[op.function], x)
    return _FUNCTIONS[op.function](draft, x, op.a, op.b)


@writer(Softmax)
def softmax(draft: Draft, op: Softmax) -> Tensor:
    """Scores are multiplied first."""
    return draft.node("Softmax", _scaled(draft, draft.operand(0), op.beta), axis=op.axis)


@writer(LogSoftmax)
def log_softmax(draft: Draft, op: LogSoftmax) -> Tensor:
    """Likewise."""
    return draft.node("LogSoftmax", _scaled(draft, draft.operand(0), op.beta), axis=op.axis)


@writer(Hardmax)
def hardmax(draft: Draft, op: Hardmax) -> Tensor:
    """The same operator."""
    return draft.node("Hardmax", draft.operand(0), axis=op.axis)

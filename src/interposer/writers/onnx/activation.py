"""ONNX writers for activation functions, softmax included."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from interposer.core.types import integer_range
from interposer.ops.activation import Activation, ActivationFunction, Hardmax, LogSoftmax, Softmax
from interposer.writers.onnx.draft import Draft, fits
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor

__all__: list[str] = []

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
_ATTRIBUTES: Final = {
    F.LEAKY_RELU: ("LeakyRelu", "alpha", None),
    F.ELU: ("Elu", "alpha", None),
    F.SELU: ("Selu", "alpha", "gamma"),
    F.CELU: ("Celu", "alpha", None),
    F.HARD_SIGMOID: ("HardSigmoid", "alpha", "beta"),
    F.THRESHOLDED_RELU: ("ThresholdedRelu", "alpha", None),
    F.SHRINK: ("Shrink", "lambd", "bias"),
}
"""Functions that are a single operator, and the names of its float32 attributes."""


def _tanh(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return scaled(draft, draft.node("Tanh", scaled(draft, x, b)), a)


def scaled(draft: Draft, x: Tensor, factor: float) -> Tensor:
    """Return the tensor `x` multiplied by the number `factor`."""
    return x if factor == 1 else draft.node("Mul", x, draft.like(factor, x))


def _linear(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return draft.node("Add", scaled(draft, x, a), draft.like(b, x))


def _bounded(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    if not x.dtype.is_integer:
        return draft.clip(x, b, a)
    low, high = integer_range(x.dtype)
    return draft.clip(x, math.ceil(max(b, low)), math.floor(min(a, high)))


def _square(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return draft.node("Mul", x, x)


def _hard_swish(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    if draft.opset >= 14:
        return draft.node("HardSwish", x)
    return draft.node("Mul", x, _hard_sigmoid(draft, x, 1 / 6, 0.5))


def _hard_sigmoid(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return draft.clip(_linear(draft, x, a, b), 0, 1)


def _gelu(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    if draft.opset >= 20:
        return draft.node("Gelu", x)
    erf = draft.node("Erf", scaled(draft, x, math.sqrt(0.5)))
    return draft.node("Mul", x, _linear(draft, erf, 0.5, 0.5))


def _gelu_tanh(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    if draft.opset >= 20:
        return draft.node("Gelu", x, approximate="tanh")
    cubed = draft.node("Mul", draft.node("Mul", x, x), x)
    tanh_argument = draft.node("Add", x, scaled(draft, cubed, 0.044715))
    tanh = draft.node("Tanh", scaled(draft, tanh_argument, math.sqrt(2 / math.pi)))
    return draft.node("Mul", x, _linear(draft, tanh, 0.5, 0.5))


def _swish(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    if draft.opset >= 24 and fits(x, a):
        return draft.node("Swish", x, alpha=a)
    return draft.node("Mul", x, draft.node("Sigmoid", scaled(draft, x, a)))


def _mish(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    if draft.opset >= 18:
        return draft.node("Mish", x)
    return draft.node("Mul", x, draft.node("Tanh", draft.node("Softplus", x)))


def _leaky_relu(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return draft.node("PRelu", x, draft.like(a, x))


def _elu(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    negative_part = draft.node("Elu", draft.clip(x, None, 0))
    return draft.node("Add", draft.node("Relu", x), scaled(draft, negative_part, a))


def _selu(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return scaled(draft, _elu(draft, x, a, b), b)


def _celu(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    exponential_part = _linear(draft, draft.node("Exp", scaled(draft, x, 1 / a)), a, -a)
    return draft.node("Add", draft.node("Relu", x), draft.clip(exponential_part, None, 0))


def _thresholded_relu(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return draft.node("Where", draft.node("Greater", x, draft.like(a, x)), x, draft.like(0, x))


def _shrink(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    is_above, is_below = draft.node("Greater", x, draft.like(a, x)), draft.node("Less", x, draft.like(-a, x))
    raised_below = draft.node("Where", is_below, draft.node("Add", x, draft.like(b, x)), draft.like(0, x))
    return draft.node("Where", is_above, draft.node("Sub", x, draft.like(b, x)), raised_below)


_FUNCTIONS: Final[dict[ActivationFunction, Function]] = {
    F.TANH: _tanh,
    F.LINEAR: _linear,
    F.BOUNDED_RELU: _bounded,
    F.SQUARE: _square,
    F.HARD_SWISH: _hard_swish,
    F.GELU: _gelu,
    F.GELU_TANH: _gelu_tanh,
    F.SWISH: _swish,
    F.MISH: _mish,
    F.LEAKY_RELU: _leaky_relu,
    F.ELU: _elu,
    F.SELU: _selu,
    F.CELU: _celu,
    F.HARD_SIGMOID: _hard_sigmoid,
    F.THRESHOLDED_RELU: _thresholded_relu,
    F.SHRINK: _shrink,
}


@writer(Activation)
def activation(draft: Draft, op: Activation) -> Tensor:
    """Write Activation as one operator if its parameters can be attributes, else as several operators."""
    x = draft.operand(0)
    if op.function is F.RELU and x.dtype.is_integer and not str(x.dtype).startswith("int"):
        return x
    if op.function in _UNDER_A_NAME:
        return draft.node(_UNDER_A_NAME[op.function], x)
    if op.function in _ATTRIBUTES and fits(x, op.a, op.b):
        kind, *names = _ATTRIBUTES[op.function]
        attributes: dict[str, Any] = dict(zip(filter(None, names), (op.a, op.b), strict=False))
        return draft.node(kind, x, **attributes)
    return _FUNCTIONS[op.function](draft, x, op.a, op.b)


@writer(Softmax)
def softmax(draft: Draft, op: Softmax) -> Tensor:
    """Write Softmax; the factor beta is multiplied into the scores first."""
    return draft.node("Softmax", scaled(draft, draft.operand(0), op.beta), axis=op.axis)


@writer(LogSoftmax)
def log_softmax(draft: Draft, op: LogSoftmax) -> Tensor:
    """Write LogSoftmax; the factor beta is multiplied into the scores first."""
    return draft.node("LogSoftmax", scaled(draft, draft.operand(0), op.beta), axis=op.axis)


@writer(Hardmax)
def hardmax(draft: Draft, op: Hardmax) -> Tensor:
    """Write Hardmax as the operator of this name."""
    return draft.node("Hardmax", draft.operand(0), axis=op.axis)

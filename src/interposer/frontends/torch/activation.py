"""Converters for activation functions and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from interposer.frontends.elementwise import ABS, EQUAL, EXP, GREATER, IS_INF, LESS_OR_EQUAL, MAXIMUM, NEG, SOFTPLUS
from interposer.frontends.torch.call import Call, Number, Operand
from interposer.frontends.torch.elementwise import bounded
from interposer.frontends.torch.registry import aten
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction, LogSoftmax, Softmax
from interposer.ops.elementwise import Prelu
from interposer.ops.reduction import Reduce, ReduceOperation

__all__ = ["activated"]


def activated(c: Call, x: Value, function: ActivationFunction, a: float = 0.0, b: float = 0.0) -> Value:
    """Apply an activation function in the type of the node's result."""
    return c.step(Activation(function, float(a), float(b)), c.cast(x, c.dtype))


_PLAIN: Final = {
    "sigmoid": (ActivationFunction.SIGMOID, 0.0, 0.0),
    "tanh": (ActivationFunction.TANH, 1.0, 1.0),
    "silu": (ActivationFunction.SWISH, 1.0, 0.0),
    "mish": (ActivationFunction.MISH, 0.0, 0.0),
    "hardswish": (ActivationFunction.HARD_SWISH, 0.0, 0.0),
    "hardsigmoid": (ActivationFunction.HARD_SIGMOID, 1 / 6, 0.5),
    "selu": (ActivationFunction.SELU, 1.6732632423543772, 1.0507009873554805),
}


def _plain(function: ActivationFunction, a: float, b: float) -> Callable[[Call, Value], Value]:
    def convert(c: Call, x: Value) -> Value:
        """Convert an activation function without parameters."""
        return activated(c, x, function, a, b)

    return convert


for _name, (_function, _a, _b) in _PLAIN.items():
    aten(_name)(_plain(_function, _a, _b))


@aten("relu", "relu6")
def relu(c: Call, x: Value) -> Value:
    """Convert relu and relu6; of integers it is a maximum."""
    high = 6 if "relu6" in str(c.node.target) else None
    if not c.dtype.is_float:
        return bounded(c, x, 0, high)
    return (
        activated(c, x, ActivationFunction.RELU)
        if high is None
        else activated(c, x, ActivationFunction.BOUNDED_RELU, 6)
    )


@aten("hardtanh")
def hardtanh(c: Call, x: Value, low: Number = -1, high: Number = 1) -> Value:
    """Convert hardtanh, which ReLU6 is a form of."""
    if not c.dtype.is_float:
        return bounded(c, x, low, high)
    return activated(c, x, ActivationFunction.BOUNDED_RELU, high, low)


@aten("gelu")
def gelu(c: Call, x: Value, approximate: str = "none") -> Value:
    """Convert gelu, exact or approximated by tanh."""
    return activated(c, x, ActivationFunction.GELU_TANH if approximate == "tanh" else ActivationFunction.GELU)


@aten("leaky_relu")
def leaky_relu(c: Call, x: Value, slope: Number = 0.01) -> Value:
    """Convert leaky_relu."""
    return activated(c, x, ActivationFunction.LEAKY_RELU, slope)


@aten("elu")
def elu(c: Call, x: Value, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Value:
    """Convert elu: scale * (x where x > 0, else alpha * (exp(input_scale * x) - 1))."""
    if input_scale == 1:
        activated_x = activated(c, x, ActivationFunction.ELU, alpha)
        return activated_x if scale == 1 else c.times(activated_x, scale)
    positive = c.binary(GREATER, x, 0)
    negative_part = c.times(c.minus(c.step(EXP, c.times(x, input_scale)), 1), alpha * scale)
    return c.where(positive, c.times(x, scale), negative_part)


@aten("rrelu_with_noise_functional")
def rrelu(
    c: Call, x: Value, noise: Value, lower: Number = 0.125, upper: Number = 1 / 3, train: bool = False, *_: Any
) -> list[Value]:
    """Convert the random leaky ReLU in inference, whose slope is the mean of the two limits."""
    if train:
        c.unsupported("it is in training mode; call eval() on the module before the export")
    return [activated(c, x, ActivationFunction.LEAKY_RELU, (lower + upper) / 2), noise]


@aten("celu")
def celu(c: Call, x: Value, alpha: Number = 1) -> Value:
    """Convert celu."""
    return activated(c, x, ActivationFunction.CELU, alpha)


@aten("softplus")
def softplus(c: Call, x: Value, beta: Number = 1, threshold: Number = 20) -> Value:
    """Convert softplus, which is x itself where beta * x exceeds the threshold."""
    x = c.cast(x, c.dtype)
    z = x if beta == 1 else c.times(x, beta)
    soft = c.step(SOFTPLUS, z)
    soft = soft if beta == 1 else c.over(soft, beta)
    return c.where(c.binary(GREATER, z, threshold), x, soft)


@aten("log_sigmoid")
def log_sigmoid(c: Call, x: Value) -> Value:
    """Convert logsigmoid: -softplus(-x)."""
    soft = c.step(SOFTPLUS, c.step(NEG, c.cast(x, c.dtype)))
    return c.step(NEG, soft)


@aten("prelu", "_prelu_kernel")
def prelu(c: Call, x: Value, slope: Value) -> Value:
    """Convert prelu; a vector of slopes is along the axis of the channels."""
    if slope.known.rank == 1 and x.known.rank != 1:
        size = c.size(slope, 0)
        slope = c.reshape(slope, [size if i == 1 and size > 1 else 1 for i in range(x.known.rank)])
    return c.step(Prelu(), x, slope)


@aten("threshold")
def threshold(c: Call, x: Value, limit: Number, value: Number) -> Value:
    """Convert threshold: x where it is above the limit, else a value."""
    is_below = c.binary(LESS_OR_EQUAL, x, limit)
    return c.where(is_below, c.cast(value, c.dtype), x)


# --- softmax ----------------------------------------------------------------------------------------------------------


@aten("_softmax", "softmax.int")
def softmax(c: Call, x: Value, dim: int, *_: Operand) -> Value:
    """Convert softmax; a row of minus infinities gives NaN."""
    return _along(c, x, dim, Softmax)


@aten("_log_softmax", "log_softmax.int")
def log_softmax(c: Call, x: Value, dim: int, *_: Operand) -> Value:
    """Convert log_softmax."""
    return _along(c, x, dim, LogSoftmax)


def _along(c: Call, x: Value, dim: int, operator: type[Softmax] | type[LogSoftmax]) -> Value:
    x = c.cast(x, c.dtype)
    if x.known.rank == 0:
        return c.reshape(c.step(operator(axis=0), c.reshape(x, [1])), [])
    return c.step(operator(axis=c.axis(dim, x.known.rank)), x)


@aten("_safe_softmax")
def safe_softmax(c: Call, x: Value, dim: int, *_: Operand) -> Value:
    """Convert the softmax whose rows of minus infinities are 0."""
    x = c.cast(x, c.dtype)
    axis = c.axis(dim, x.known.rank)
    masked = c.binary(EQUAL, x, -math.inf)
    is_fully_masked = c.step(Reduce((axis,), True, ReduceOperation.ALL), masked)
    return c.where(is_fully_masked, c.scalar(0, c.dtype), c.step(Softmax(axis=axis), x))


@aten("logsumexp")
def logsumexp(c: Call, x: Value, dims: list[int] | int, keepdim: bool = False) -> Value:
    """Convert logsumexp."""
    x = c.cast(x, c.dtype)
    if x.known.rank == 0:
        return x
    return c.step(Reduce(c.axes(dims, x.known.rank), keepdim, ReduceOperation.LOG_SUM_EXP), x)


@aten("logaddexp")
def logaddexp(c: Call, a: Value, b: Value) -> Value:
    """Convert logaddexp: the maximum plus log(1 + exp(-abs(a - b)))."""
    a, b = c.cast(a, c.dtype), c.cast(b, c.dtype)
    distance = c.step(NEG, c.step(ABS, c.minus(a, b)))
    total = c.plus(c.binary(MAXIMUM, a, b), c.step(SOFTPLUS, distance))
    equal_infinities = c.both(c.binary(EQUAL, a, b), c.step(IS_INF, a))
    return c.where(equal_infinities, a, total)

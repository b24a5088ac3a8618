"""ONNX converters for the activation functions of ONNX Runtime's own domain, which its optimizers write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from interposer.core.errors import ParseError
from interposer.core.types import DataType, differ
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.reshaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.elementwise import Addition, Maximum, Minimum, Multiplication
from interposer.ops.rearrange import Splitter

__all__ = ["fused_activation"]

_FUSED: Final = {
    "Elu": (ActivationFunction.ELU, (1.0,)),
    "HardSigmoid": (ActivationFunction.HARD_SIGMOID, (0.2, 0.5)),
    "HardSwish": (ActivationFunction.HARD_SWISH, ()),
    "LeakyRelu": (ActivationFunction.LEAKY_RELU, (0.01,)),
    "Relu": (ActivationFunction.RELU, ()),
    "Selu": (ActivationFunction.SELU, (1.67326319217681884765625, 1.05070102214813232421875)),
    "Sigmoid": (ActivationFunction.SIGMOID, ()),
    "Softplus": (ActivationFunction.SOFT_RELU, ()),
    "Softsign": (ActivationFunction.SOFTSIGN, ()),
    "Tanh": (ActivationFunction.TANH, (1.0, 1.0)),
    "ThresholdedRelu": (ActivationFunction.THRESHOLDED_RELU, (1.0,)),
}
"""The functions that ONNX Runtime fuses with other operators, with the defaults of their parameters."""
_UNPARAMETERIZED: Final = frozenset({"Tanh"})
_GELU: Final = Activation(ActivationFunction.GELU)
_GELU_TANH: Final = Activation(ActivationFunction.GELU_TANH)


@operator("Gelu", domain=MICROSOFT)
def gelu(node: Node) -> Value:
    """Convert Gelu, the exact function."""
    return node.result(_GELU, node.value(0))


@operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(node: Node) -> Value:
    """Convert BiasGelu: the exact Gelu of the sum of the input and a vector along the last axis."""
    return node.result(_GELU, _biased(node, node.value(1)))


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(node: Node) -> Value:
    """Convert FastGelu: Gelu with the tanh approximation, of the input or of its sum with a vector."""
    bias = node.optional(1)
    return node.result(_GELU_TANH, node.value(0) if bias is None else _biased(node, bias))


def _biased(node: Node, bias: Value) -> Value:
    """Return the sum of the node's input and `bias`, a vector with one element for each of the last dimension."""
    x = node.value(0)
    if not x.known.rank or bias.known.rank != 1 or differ(bias.known.shape[0], x.known.shape[-1]):
        raise ParseError(f"its bias has shape {bias.known.shape}, and its input {x.known.shape}; expected a vector")
    return node.step(Addition(), x, bias)


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(node: Node) -> Value:
    """Convert QuickGelu: x * sigmoid(alpha * x)."""
    return node.result(Activation(ActivationFunction.SWISH, node.number("alpha", 1.702)), node.value(0))


def fused_activation(node: Node, value: Value) -> Value:
    """Return the function that the attribute activation names, applied to `value`; without it, return `value`.

    The attributes activation_alpha, activation_beta and activation_gamma are its parameters.
    """
    name = node.text("activation", "")
    names_of_parameters = [f"activation_{letter}" for letter in ("alpha", "gamma" if name == "Selu" else "beta")]
    parameters = [
        node.number(parameter_name) if node.has_attribute(parameter_name) else None
        for parameter_name in names_of_parameters
    ]
    return activated(node, value, name, parameters)


def activated(node: Node, value: Value, name: str, given_parameters: Sequence[float | None]) -> Value:
    """Return the function `name` applied to `value`, with `given_parameters`, in which None is the default.

    An empty name returns `value`.
    """
    if name in ("", "Clip"):
        low, high = [*given_parameters, None, None][:2]
        limits = (_bound_or(low, -math.inf), _bound_or(high, math.inf))
        return value if not name else _bounded(node, value, *limits)
    if name not in _FUSED:
        raise ParseError(f"its activation is {name!r}; expected {', '.join(_FUSED)} or Clip")
    function, defaults = _FUSED[name]
    pairs = zip_longest(defaults, given_parameters[: len(defaults)] if name not in _UNPARAMETERIZED else ())
    parameters = [default if parameter is None else parameter for default, parameter in pairs]
    return node.step(Activation(function).replace(**dict(zip("ab", parameters, strict=False))), value)


def _bound_or(bound: float | None, unbounded: float) -> float:
    return unbounded if bound is None or math.isnan(bound) else bound


def _bounded(node: Node, value: Value, low: float, high: float) -> Value:
    if math.isfinite(low) and math.isfinite(high) and low <= high:
        return node.step(Activation(ActivationFunction.BOUNDED_RELU, high, low), value)
    clamped_below = node.step(Maximum(), value, node.scalar_like(low, value)) if low > -math.inf else value
    return (
        node.step(Minimum(), clamped_below, node.scalar_like(high, clamped_below)) if high < math.inf else clamped_below
    )


@operator("ScaledSiLU", domain=MICROSOFT)
def scaled_silu(node: Node) -> Value:
    """Convert ScaledSiLU: Swish of the input times a number, which is the second operand or the attribute alpha."""
    x, scale = node.value(0), node.optional(1)
    x32 = node.cast(x, DataType.FLOAT32)
    if scale is None:
        factor = node.scalar_like(node.number("alpha", 1.0), x32)
    else:
        factor = reshaped(node, node.cast(scale, DataType.FLOAT32), [])
    scaled = node.cast(node.step(Multiplication(), x32, factor), x.known.dtype)
    return node.result(Activation(ActivationFunction.SWISH, 1.0), scaled)


@operator("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(node: Node) -> Value:
    """Convert BiasSplitGelu: the sum with a vector is divided into halves; the first times the Gelu of the second."""
    biased = _biased(node, node.value(1))
    if biased.known.shape[-1] % 2:
        raise ParseError(f"its input has shape {biased.known.shape}, which cannot be divided into two halves")
    size = node.known(biased.known.shape[-1], "last dimension") // 2
    left_half, right_half = node.results(Splitter(axis=-1, sizes=(size, size)), biased)
    return node.result(Multiplication(), left_half, node.step(_GELU, right_half))


@operator("BiasAdd", domain=MICROSOFT)
def bias_add(node: Node) -> Value:
    """Convert BiasAdd: the sum of the input, a vector along the last axis, and a tensor of the input's shape."""
    return node.result(Addition(), node.step(Addition(), node.value(0), node.value(1)), node.value(2))

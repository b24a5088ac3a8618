"""ONNX converters for the activation functions of ONNX Runtime's own domain, which its optimizers write."""

from __future__ import annotations

from typing import Final

from interposer.core.errors import ParseError
from interposer.core.types import differ
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.elementwise import Addition

__all__: list[str] = []

_GELU: Final = Activation(ActivationFunction.GELU)
_GELU_TANH: Final = Activation(ActivationFunction.GELU_TANH)


@operator("Gelu", domain=MICROSOFT)
def gelu(node: Node) -> Value:
    """Convert Gelu, the exact function."""
    return node.add(_GELU, node.value(0))


@operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(node: Node) -> Value:
    """Convert BiasGelu: the exact Gelu of the sum of the input and a vector along the last axis."""
    return node.add(_GELU, _biased(node, node.value(1)))


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(node: Node) -> Value:
    """Convert FastGelu: Gelu with the tanh approximation, of the input or of its sum with a vector."""
    bias = node.optional(1)
    return node.add(_GELU_TANH, node.value(0) if bias is None else _biased(node, bias))


def _biased(node: Node, bias: Value) -> Value:
    """Return the sum of the node's input and `bias`, a vector with one element for each of the last dimension."""
    x = node.value(0)
    if not x.known.rank or bias.known.rank != 1 or differ(bias.known.shape[0], x.known.shape[-1]):
        raise ParseError(f"its bias has shape {bias.known.shape}, and its input {x.known.shape}; expected a vector")
    return node.step(Addition(), x, bias)


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(node: Node) -> Value:
    """Convert QuickGelu: x * sigmoid(alpha * x)."""
    return node.add(Activation(ActivationFunction.SWISH, node.number("alpha", 1.702)), node.value(0))

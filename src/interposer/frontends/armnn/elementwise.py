"""Converters of layers that compute every element independently."""

from __future__ import annotations

from typing import Final

from interposer.formats.armnn.schema import ACTIVATIONS, BINARY, COMPARISONS, LOGICAL, UNARY
from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.elementwise import (
    Addition,
    BinaryOperation,
    Comparison,
    ComparisonOperation,
    Division,
    ElementwiseBinary,
    ElementwiseUnary,
    Floor,
    LogicalBinary,
    LogicalBinaryOperation,
    Maximum,
    Minimum,
    Multiplication,
    Prelu,
    Subtraction,
    UnaryOperation,
)

__all__: list[str] = []

_BINARY: Final = {
    "Addition": Addition(),
    "Division": Division(),
    "Maximum": Maximum(),
    "Minimum": Minimum(),
    "Multiplication": Multiplication(),
    "Subtraction": Subtraction(),
    "Prelu": Prelu(),
    "Equal": Comparison(ComparisonOperation.EQUAL),
    "Greater": Comparison(ComparisonOperation.GREATER),
}
_UNARY: Final = {
    "Abs": ElementwiseUnary(UnaryOperation.ABS),
    "Rsqrt": ElementwiseUnary(UnaryOperation.RSQRT),
    "Floor": Floor(),
}


@layer("Activation")
def activation(node: Node) -> list[Value]:
    """Convert Activation; an upper bound below the lower bound is the result for all elements."""
    function, a, b = node.member("activationFunction", ACTIVATIONS, ActivationFunction), *_parameters(node)
    if function is ActivationFunction.BOUNDED_RELU:
        b = min(a, b)
    return node.results(Activation(function, a=a, b=b), node.value(0))


def _parameters(node: Node) -> tuple[float, float]:
    return float(node.descriptor["a"]), float(node.descriptor["b"])


@layer(*_BINARY)
def binary(node: Node) -> list[Value]:
    """Convert a layer with two inputs and no descriptor."""
    return node.results(_BINARY[node.layer.kind], node.value(0), node.value(1))


@layer(*_UNARY)
def unary(node: Node) -> list[Value]:
    """Convert a layer with one input and no descriptor."""
    return node.results(_UNARY[node.layer.kind], node.value(0))


@layer("ElementwiseBinary")
def elementwise_binary(node: Node) -> list[Value]:
    """Convert ElementwiseBinary."""
    operation = node.member("operation", BINARY, BinaryOperation)
    return node.results(ElementwiseBinary(operation), node.value(0), node.value(1))


@layer("ElementwiseUnary")
def elementwise_unary(node: Node) -> list[Value]:
    """Convert ElementwiseUnary."""
    return node.results(ElementwiseUnary(node.member("operation", UNARY, UnaryOperation)), node.value(0))


@layer("Comparison")
def comparison(node: Node) -> list[Value]:
    """Convert Comparison."""
    operation = node.member("operation", COMPARISONS, ComparisonOperation)
    return node.results(Comparison(operation), node.value(0), node.value(1))


@layer("LogicalBinary")
def logical_binary(node: Node) -> list[Value]:
    """Convert LogicalBinary."""
    operation = node.member("operation", LOGICAL, LogicalBinaryOperation)
    return node.results(LogicalBinary(operation), node.value(0), node.value(1))

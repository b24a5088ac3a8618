"""Converters of layers that compute elements independently, quantize them, or reduce axes."""

from __future__ import annotations

from typing import Any, Final

from interposer.core.types import DataType
from interposer.formats.armnn.schema import ACTIVATIONS, BINARY, COMPARISONS, LOGICAL, REDUCTIONS, UNARY
from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.frontends.elementwise import ABS, EQUAL, GREATER, RSQRT
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
from interposer.ops.quantization import Cast, Dequantize, Quantize
from interposer.ops.reduction import ArgMinMax, ArgMinMaxFunction, Mean, Reduce, ReduceOperation

__all__: list[str] = []

_BINARY: Final = {
    "Addition": Addition(),
    "Division": Division(),
    "Maximum": Maximum(),
    "Minimum": Minimum(),
    "Multiplication": Multiplication(),
    "Subtraction": Subtraction(),
    "Prelu": Prelu(),
    "Equal": EQUAL,
    "Greater": GREATER,
}
_UNARY: Final = {
    "Abs": ABS,
    "Rsqrt": RSQRT,
    "Floor": Floor(),
}
_BY_OPERATION: Final[dict[str, tuple[Any, tuple[str, ...], Any]]] = {
    "Comparison": (Comparison, COMPARISONS, ComparisonOperation),
    "ElementwiseBinary": (ElementwiseBinary, BINARY, BinaryOperation),
    "ElementwiseUnary": (ElementwiseUnary, UNARY, UnaryOperation),
    "LogicalBinary": (LogicalBinary, LOGICAL, LogicalBinaryOperation),
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


@layer(*_BY_OPERATION)
def by_operation(node: Node) -> list[Value]:
    """Convert a layer whose descriptor names its operation."""
    kind, names, operations = _BY_OPERATION[node.layer.kind]
    return node.results(kind(node.member("operation", names, operations)), *node.values())


# --- quantization -----------------------------------------------------------------------------------------------------


@layer("Quantize")
def quantize(node: Node) -> list[Value]:
    """Convert Quantize, whose type, scale and offset are those of its output slot."""
    return node.results(Quantize(node.infos[0].dtype), node.value(0))


@layer("Dequantize")
def dequantize(node: Node) -> list[Value]:
    """Convert Dequantize; floats are only converted to another type."""
    x, dtype = node.value(0), node.infos[0].dtype
    return node.results(Dequantize(dtype) if x.known.is_quantized else Cast(dtype), x)


@layer("Cast")
def cast(node: Node) -> list[Value]:
    """Convert Cast, which converts the real values of quantized tensors."""
    x, info = node.value(0), node.infos[0]
    if x.known.is_quantized and not info.is_quantized:
        dequantized = node.step(Dequantize(), x)
        return (
            [node.given(dequantized)]
            if info.dtype is dequantized.known.dtype
            else node.results(Cast(info.dtype), dequantized)
        )
    if not info.is_quantized:
        return node.results(Cast(info.dtype), x)
    if not x.known.is_quantized and not x.known.dtype.is_float:
        x = node.step(Cast(DataType.FLOAT32), x)
    return node.results(Quantize(info.dtype), x)


# --- reduction --------------------------------------------------------------------------------------------------------


@layer("Mean")
def mean(node: Node) -> list[Value]:
    """Convert Mean; without axes, all elements are averaged."""
    return node.results(Mean(node.integers("axis"), node.descriptor["keepDims"]), node.tensor(0))


@layer("Reduce")
def reduce(node: Node) -> list[Value]:
    """Convert Reduce; without axes, all elements are reduced."""
    operation = node.member("reduceOperation", REDUCTIONS, ReduceOperation)
    return node.results(Reduce(node.integers("axis"), node.descriptor["keepDims"], operation), node.tensor(0))


@layer("ArgMinMax")
def arg_min_max(node: Node) -> list[Value]:
    """Convert ArgMinMax; the type of the result is that of the output slot."""
    function = node.member("argMinMaxFunction", ("MIN", "MAX"), ArgMinMaxFunction)
    op = ArgMinMax(function=function, axis=node.descriptor["axis"], dtype=node.infos[0].dtype)
    return node.results(op, node.tensor(0))

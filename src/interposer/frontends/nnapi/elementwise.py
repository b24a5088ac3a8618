"""NNAPI converters for elementwise operators, quantization and casts."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.types import DataType
from interposer.frontends.elementwise import DIV, FLOOR_DIV, operators_by_name
from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value
from interposer.ops.elementwise import Floor, Maximum, Minimum, Prelu, Where
from interposer.ops.quantization import Cast, Dequantize, Quantize

__all__: list[str] = []

_BINARY: Final = operators_by_name(
    "EQUAL", "GREATER", "LESS", "LOGICAL_AND", "LOGICAL_OR", "MAXIMUM", "MINIMUM", "NOT_EQUAL",
    GREATER_EQUAL="GREATER_OR_EQUAL", LESS_EQUAL="LESS_OR_EQUAL", POW="POWER", PRELU=Prelu(),
)  # fmt: skip
_UNARY: Final = operators_by_name("ABS", "EXP", "LOG", "LOGICAL_NOT", "NEG", "RSQRT", "SIN", "SQRT", FLOOR=Floor())
_ARITHMETIC: Final = operators_by_name("ADD", "SUB", "MUL")


@operator(*_ARITHMETIC, inputs=3)
def arithmetic(node: Node) -> list[Value]:
    """Convert ADD, SUB and MUL; input 2 is the fused activation function."""
    return node.results(_ARITHMETIC[node.operation.name], node.value(0), node.value(1), activation=2)


@operator("DIV", inputs=3)
def division(node: Node) -> list[Value]:
    """Convert DIV; input 2 is the fused activation function. Quotients of integers are rounded down."""
    rounds_down = node.info(0).dtype is DataType.INT32
    return node.results(FLOOR_DIV if rounds_down else DIV, node.value(0), node.value(1), activation=2)


@operator(*_BINARY, inputs=2)
def binary(node: Node) -> list[Value]:
    """Convert operations on two tensors without further inputs: MAXIMUM, MINIMUM, POW, comparisons and logical ones."""
    return node.results(_BINARY[node.operation.name], node.value(0), node.value(1))


@operator(*_UNARY, inputs=1)
def unary(node: Node) -> list[Value]:
    """Convert elementwise operations on one tensor without further inputs, such as ABS, EXP and FLOOR."""
    return node.results(_UNARY[node.operation.name], node.value(0))


@operator("SELECT", inputs=3)
def select(node: Node) -> list[Value]:
    """Convert SELECT; condition and both choices must have the same shape."""
    condition, a, b = (node.value(index) for index in range(3))
    for index, choice in ((1, a), (2, b)):
        if not condition.known.shape.accepts(choice.known.shape):
            node.fail(
                f"input {index} has shape {choice.known.shape}; expected that of input 0, {condition.known.shape}"
            )
    return node.results(Where(), condition, a, b)


# --- quantization -----------------------------------------------------------------------------------------------------


_CODES: Final = {DataType.UINT8: (0, 255), DataType.INT8: (-128, 127)}


@operator("QUANTIZE", inputs=1)
def quantize(node: Node) -> list[Value]:
    """Convert QUANTIZE; scale and zero point are those of the output."""
    return node.results(Quantize(node.outputs[0].dtype), node.value(0))


@operator("DEQUANTIZE", inputs=1)
def dequantize(node: Node) -> list[Value]:
    """Convert DEQUANTIZE to the type of the output."""
    return node.results(Dequantize(node.outputs[0].dtype), node.value(0))


@operator("CAST", inputs=1)
def cast(node: Node) -> list[Value]:
    """Convert CAST; quantized values are cast as plain integers, and values too large for 8 bits are clamped."""
    x, dtype = node.value(0), node.outputs[0].dtype
    limits = _CODES.get(dtype)
    if x.known.dtype is DataType.INT32 and limits is not None:
        low, high = (node.constant(np.array(limit, np.int32)) for limit in limits)
        x = node.step(Minimum(), node.step(Maximum(), x, low), high)
    return node.results(Cast(dtype), x)

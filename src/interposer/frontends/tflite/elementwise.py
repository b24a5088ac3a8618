"""TFLite converters for elementwise operators."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.types import DataType
from interposer.frontends.elementwise import LESS, LOGICAL_NOT, operators_by_name
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.reshape import reshape_to
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Floor, Where
from interposer.ops.quantization import Cast
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.reshape import Reshape

__all__: list[str] = []

_BINARY: Final = operators_by_name(
    "ATAN2", "BITWISE_XOR", "EQUAL", "FLOOR_DIV", "GREATER", "LESS", "LOGICAL_AND", "LOGICAL_OR", "MAXIMUM", "MINIMUM",
    "NOT_EQUAL", FLOOR_MOD="MOD", GREATER_EQUAL="GREATER_OR_EQUAL", LESS_EQUAL="LESS_OR_EQUAL", POW="POWER",
    RIGHT_SHIFT="SHIFT_RIGHT", SQUARED_DIFFERENCE="SQ_DIFF",
)  # fmt: skip
_UNARY: Final = operators_by_name(
    "ABS", "EXP", "SQRT", "RSQRT", "NEG", "LOG", "SIN", "COS", "CEIL", "ROUND", "SIGN", "SQUARE", "LOGICAL_NOT",
    FLOOR=Floor(),
)  # fmt: skip
_ARITHMETIC: Final = operators_by_name("ADD", "SUB", "MUL", "DIV")


@operator(*_ARITHMETIC, options=True)
def arithmetic(node: Node) -> Value:
    """Convert ADD, SUB, MUL and DIV, with a fused activation function as an option."""
    activation = node.options["fused_activation_function"]
    return node.result(_ARITHMETIC[node.kind], node.value(0), node.value(1), activation=activation)


@operator(*_BINARY)
def binary(node: Node) -> Value:
    """Convert elementwise operators on two tensors without options, such as MAXIMUM, POW and comparisons."""
    return node.result(_BINARY[node.kind], node.value(0), node.value(1))


@operator(*_UNARY)
def unary(node: Node) -> Value:
    """Convert elementwise operators on one tensor without options, such as ABS, EXP and ROUND."""
    return node.result(_UNARY[node.kind], node.value(0))


@operator("ADD_N")
def add_all(node: Node) -> Value:
    """Convert ADD_N to a chain of additions."""
    return node.chain(Addition(), node.values())


@operator("SELECT_V2")
def select(node: Node) -> Value:
    """Convert SELECT_V2: condition and both choices are broadcast."""
    return node.result(Where(), *node.values())


@operator("SELECT")
def select_rows(node: Node) -> Value:
    """Convert SELECT, whose condition of rank 1 selects whole rows."""
    condition, a, b = (node.value(i) for i in range(3))
    rank = a.known.rank
    if condition.known.rank == 1 and rank > 1:
        condition = node.step(Reshape((-1, *[1] * (rank - 1))), condition)
    return node.result(Where(), condition, a, b)


@operator("BUCKETIZE", options=True)
def bucketize(node: Node) -> Value:
    """Convert BUCKETIZE: the number of boundaries that are not greater than the element.

    As in TFLite, integers are compared as float32, and NaN comes after all boundaries.
    """
    x, boundaries = node.value(0), np.array(node.options["boundaries"] or (), np.float32)
    dtype = DataType.FLOAT64 if x.known.dtype is DataType.FLOAT64 else DataType.FLOAT32
    if x.known.dtype is not dtype:
        x = node.step(Cast(dtype), x)
    column = node.step(reshape_to(node, (*x.known.shape, 1)), x)
    is_less = node.step(LESS, column, node.constant(boundaries.astype(dtype.numpy)))
    is_past = node.step(LOGICAL_NOT, is_less)
    ones = node.step(Cast(node.output_info.dtype), is_past)
    return node.result(Reduce((-1,), operation=ReduceOperation.SUM), ones)

"""TFLite converters for elementwise operators."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import DataType
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.reshape import reshape_to
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.elementwise import (
    Addition,
    BinaryOperation,
    Comparison,
    ComparisonOperation,
    ElementwiseBinary,
    ElementwiseUnary,
    Floor,
    LogicalBinary,
    LogicalBinaryOperation,
    UnaryOperation,
    Where,
)
from interposer.ops.quantization import Cast
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.reshape import Reshape

__all__: list[str] = []

_BINARY: Final[dict[str, Op]] = {
    "MAXIMUM": ElementwiseBinary(BinaryOperation.MAXIMUM),
    "MINIMUM": ElementwiseBinary(BinaryOperation.MINIMUM),
    "SQUARED_DIFFERENCE": ElementwiseBinary(BinaryOperation.SQ_DIFF),
    "POW": ElementwiseBinary(BinaryOperation.POWER),
    "FLOOR_DIV": ElementwiseBinary(BinaryOperation.FLOOR_DIV),
    "FLOOR_MOD": ElementwiseBinary(BinaryOperation.MOD),
    "ATAN2": ElementwiseBinary(BinaryOperation.ATAN2),
    "BITWISE_XOR": ElementwiseBinary(BinaryOperation.BITWISE_XOR),
    "RIGHT_SHIFT": ElementwiseBinary(BinaryOperation.SHIFT_RIGHT),
    "EQUAL": Comparison(ComparisonOperation.EQUAL),
    "NOT_EQUAL": Comparison(ComparisonOperation.NOT_EQUAL),
    "GREATER": Comparison(ComparisonOperation.GREATER),
    "GREATER_EQUAL": Comparison(ComparisonOperation.GREATER_OR_EQUAL),
    "LESS": Comparison(ComparisonOperation.LESS),
    "LESS_EQUAL": Comparison(ComparisonOperation.LESS_OR_EQUAL),
    "LOGICAL_AND": LogicalBinary(LogicalBinaryOperation.LOGICAL_AND),
    "LOGICAL_OR": LogicalBinary(LogicalBinaryOperation.LOGICAL_OR),
}
_UNARY: Final = {
    name: ElementwiseUnary(UnaryOperation[name])
    for name in (
        "ABS", "EXP", "SQRT", "RSQRT", "NEG", "LOG", "SIN", "COS", "CEIL", "ROUND", "SIGN", "SQUARE", "LOGICAL_NOT",
    )
}  # fmt: skip


@operator("ADD", "SUB", "MUL", "DIV", options=True)
def arithmetic(node: Node) -> Value:
    """Convert ADD, SUB, MUL and DIV, with a fused activation function as an option."""
    op = ElementwiseBinary(BinaryOperation[node.kind])
    return node.result(op, node.value(0), node.value(1), activation=node.options["fused_activation_function"])


@operator(*_BINARY)
def binary(node: Node) -> Value:
    """Convert elementwise operators on two tensors without options, such as MAXIMUM, POW and comparisons."""
    return node.result(_BINARY[node.kind], node.value(0), node.value(1))


@operator(*_UNARY)
def unary(node: Node) -> Value:
    """Convert elementwise operators on one tensor without options, such as ABS, EXP and ROUND."""
    return node.result(_UNARY[node.kind], node.value(0))


@operator("FLOOR")
def floor(node: Node) -> Value:
    """Convert FLOOR to a layer of type `Floor`, a separate operator as in Arm NN."""
    return node.result(Floor(), node.value(0))


@operator("ADD_N")
def add_all(node: Node) -> Value:
    """Convert ADD_N to a chain of additions."""
    total, *others = node.values()
    if not others:
        return total
    for addend in others[:-1]:
        total = node.step(Addition(), total, addend)
    return node.result(Addition(), total, others[-1])


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
    is_less = node.step(Comparison(ComparisonOperation.LESS), column, node.constant(boundaries.astype(dtype.numpy)))
    is_past = node.step(ElementwiseUnary(UnaryOperation.LOGICAL_NOT), is_less)
    ones = node.step(Cast(node.output_info.dtype), is_past)
    return node.result(Reduce((-1,), operation=ReduceOperation.SUM), ones)

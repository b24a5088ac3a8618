"""Elementwise operators and activation functions without parameters, ready to be added as layers.

A format says in a table which of its operators they are: `operators_by_name`.
"""

from __future__ import annotations

from typing import Final

from interposer.core.schema import Op
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.elementwise import (
    BinaryOperation,
    Comparison,
    ComparisonOperation,
    ElementwiseBinary,
    ElementwiseUnary,
    LogicalBinary,
    LogicalBinaryOperation,
    UnaryOperation,
)

ABS: Final = ElementwiseUnary(UnaryOperation.ABS)
EXP: Final = ElementwiseUnary(UnaryOperation.EXP)
SQRT: Final = ElementwiseUnary(UnaryOperation.SQRT)
RSQRT: Final = ElementwiseUnary(UnaryOperation.RSQRT)
NEG: Final = ElementwiseUnary(UnaryOperation.NEG)
LOGICAL_NOT: Final = ElementwiseUnary(UnaryOperation.LOGICAL_NOT)
LOG: Final = ElementwiseUnary(UnaryOperation.LOG)
SIN: Final = ElementwiseUnary(UnaryOperation.SIN)
CEIL: Final = ElementwiseUnary(UnaryOperation.CEIL)
COS: Final = ElementwiseUnary(UnaryOperation.COS)
TAN: Final = ElementwiseUnary(UnaryOperation.TAN)
FLOOR: Final = ElementwiseUnary(UnaryOperation.FLOOR)
ROUND: Final = ElementwiseUnary(UnaryOperation.ROUND)
SIGN: Final = ElementwiseUnary(UnaryOperation.SIGN)
RECIPROCAL: Final = ElementwiseUnary(UnaryOperation.RECIPROCAL)
SQUARE: Final = ElementwiseUnary(UnaryOperation.SQUARE)
ERF: Final = ElementwiseUnary(UnaryOperation.ERF)
ASIN: Final = ElementwiseUnary(UnaryOperation.ASIN)
ACOS: Final = ElementwiseUnary(UnaryOperation.ACOS)
ATAN: Final = ElementwiseUnary(UnaryOperation.ATAN)
SINH: Final = ElementwiseUnary(UnaryOperation.SINH)
COSH: Final = ElementwiseUnary(UnaryOperation.COSH)
ASINH: Final = ElementwiseUnary(UnaryOperation.ASINH)
ACOSH: Final = ElementwiseUnary(UnaryOperation.ACOSH)
ATANH: Final = ElementwiseUnary(UnaryOperation.ATANH)
IS_NAN: Final = ElementwiseUnary(UnaryOperation.IS_NAN)
IS_INF: Final = ElementwiseUnary(UnaryOperation.IS_INF)
IS_POSITIVE_INF: Final = ElementwiseUnary(UnaryOperation.IS_POSITIVE_INF)
IS_NEGATIVE_INF: Final = ElementwiseUnary(UnaryOperation.IS_NEGATIVE_INF)
BITWISE_NOT: Final = ElementwiseUnary(UnaryOperation.BITWISE_NOT)

ADD: Final = ElementwiseBinary(BinaryOperation.ADD)
DIV: Final = ElementwiseBinary(BinaryOperation.DIV)
MAXIMUM: Final = ElementwiseBinary(BinaryOperation.MAXIMUM)
MINIMUM: Final = ElementwiseBinary(BinaryOperation.MINIMUM)
MUL: Final = ElementwiseBinary(BinaryOperation.MUL)
SUB: Final = ElementwiseBinary(BinaryOperation.SUB)
SQ_DIFF: Final = ElementwiseBinary(BinaryOperation.SQ_DIFF)
POWER: Final = ElementwiseBinary(BinaryOperation.POWER)
FLOOR_DIV: Final = ElementwiseBinary(BinaryOperation.FLOOR_DIV)
MOD: Final = ElementwiseBinary(BinaryOperation.MOD)
FMOD: Final = ElementwiseBinary(BinaryOperation.FMOD)
ATAN2: Final = ElementwiseBinary(BinaryOperation.ATAN2)
BITWISE_AND: Final = ElementwiseBinary(BinaryOperation.BITWISE_AND)
BITWISE_OR: Final = ElementwiseBinary(BinaryOperation.BITWISE_OR)
BITWISE_XOR: Final = ElementwiseBinary(BinaryOperation.BITWISE_XOR)
SHIFT_LEFT: Final = ElementwiseBinary(BinaryOperation.SHIFT_LEFT)
SHIFT_RIGHT: Final = ElementwiseBinary(BinaryOperation.SHIFT_RIGHT)

EQUAL: Final = Comparison(ComparisonOperation.EQUAL)
GREATER: Final = Comparison(ComparisonOperation.GREATER)
GREATER_OR_EQUAL: Final = Comparison(ComparisonOperation.GREATER_OR_EQUAL)
LESS: Final = Comparison(ComparisonOperation.LESS)
LESS_OR_EQUAL: Final = Comparison(ComparisonOperation.LESS_OR_EQUAL)
NOT_EQUAL: Final = Comparison(ComparisonOperation.NOT_EQUAL)

LOGICAL_AND: Final = LogicalBinary(LogicalBinaryOperation.LOGICAL_AND)
LOGICAL_OR: Final = LogicalBinary(LogicalBinaryOperation.LOGICAL_OR)
LOGICAL_XOR: Final = LogicalBinary(LogicalBinaryOperation.LOGICAL_XOR)

ELU: Final = Activation(ActivationFunction.ELU, a=1.0)
HARD_SWISH: Final = Activation(ActivationFunction.HARD_SWISH)
MISH: Final = Activation(ActivationFunction.MISH)
RELU: Final = Activation(ActivationFunction.RELU)
RELU6: Final = Activation(ActivationFunction.BOUNDED_RELU, a=6.0)
RELU_0_TO_1: Final = Activation(ActivationFunction.BOUNDED_RELU, a=1.0)
RELU_N1_TO_1: Final = Activation(ActivationFunction.BOUNDED_RELU, a=1.0, b=-1.0)
SELU: Final = Activation(ActivationFunction.SELU, a=1.6732632423543772, b=1.0507009873554805)
SIGMOID: Final = Activation(ActivationFunction.SIGMOID)
SOFTPLUS: Final = Activation(ActivationFunction.SOFT_RELU)
SOFTSIGN: Final = Activation(ActivationFunction.SOFTSIGN)
TANH: Final = Activation(ActivationFunction.TANH, a=1.0, b=1.0)


def operators_by_name(*names: str, **others: str | Op) -> dict[str, Op]:
    """Return operators by what a format calls them: by the names of their operations, or by the names in `others`.

    >>> operators_by_name("EQUAL", Pow="POWER")["Pow"].operation
    <BinaryOperation.POWER: 'power'>
    """
    return {
        name: _OPERATORS[op] if isinstance(op, str) else op
        for name, op in (*zip(names, names, strict=True), *others.items())
    }


_OPERATORS: Final[dict[str, Op]] = {name: op for name, op in globals().items() if isinstance(op, Op)}

"""TensorFlow converters for elementwise operators, with broadcasting."""

from __future__ import annotations

from functools import reduce
from typing import Final

from interposer.core.schema import Op
from interposer.frontends.reshaping import reshaped
from interposer.frontends.tensorflow.convolution import biased
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.elementwise import (
    Addition,
    BinaryOperation,
    Comparison,
    ComparisonOperation,
    ElementwiseBinary,
    ElementwiseUnary,
    LogicalBinary,
    LogicalBinaryOperation,
    UnaryOperation,
    Where,
)

__all__: list[str] = []

U, B, C, L = UnaryOperation, BinaryOperation, ComparisonOperation, LogicalBinaryOperation
_UNARY: Final = {
    "Abs": U.ABS, "Acos": U.ACOS, "Acosh": U.ACOSH, "Asin": U.ASIN, "Asinh": U.ASINH, "Atan": U.ATAN,
    "Atanh": U.ATANH, "Ceil": U.CEIL, "Cos": U.COS, "Cosh": U.COSH, "Erf": U.ERF, "Exp": U.EXP, "Floor": U.FLOOR,
    "Inv": U.RECIPROCAL, "Invert": U.BITWISE_NOT, "IsInf": U.IS_INF, "IsNan": U.IS_NAN, "Log": U.LOG,
    "LogicalNot": U.LOGICAL_NOT, "Neg": U.NEG, "Reciprocal": U.RECIPROCAL, "Rint": U.ROUND, "Round": U.ROUND,
    "Rsqrt": U.RSQRT, "Sign": U.SIGN, "Sin": U.SIN, "Sinh": U.SINH, "Sqrt": U.SQRT, "Square": U.SQUARE, "Tan": U.TAN,
}  # fmt: skip
_BINARY: Final = {
    "Atan2": B.ATAN2, "BitwiseAnd": B.BITWISE_AND, "BitwiseOr": B.BITWISE_OR, "BitwiseXor": B.BITWISE_XOR,
    "Div": B.DIV, "FloorDiv": B.FLOOR_DIV, "FloorMod": B.MOD, "LeftShift": B.SHIFT_LEFT, "Maximum": B.MAXIMUM,
    "Minimum": B.MINIMUM, "Mod": B.FMOD, "Mul": B.MUL, "Pow": B.POWER, "RealDiv": B.DIV, "RightShift": B.SHIFT_RIGHT,
    "SquaredDifference": B.SQ_DIFF, "Sub": B.SUB, "TruncateDiv": B.DIV, "TruncateMod": B.FMOD,
}  # fmt: skip
_COMPARISONS: Final = {
    "Equal": C.EQUAL, "Greater": C.GREATER, "GreaterEqual": C.GREATER_OR_EQUAL, "Less": C.LESS,
    "LessEqual": C.LESS_OR_EQUAL, "NotEqual": C.NOT_EQUAL,
}  # fmt: skip
_LOGICAL: Final = {"LogicalAnd": L.LOGICAL_AND, "LogicalOr": L.LOGICAL_OR}


@operator(*_UNARY)
def unary(node: Node) -> Value:
    """Convert operators with one operand."""
    return node.result(ElementwiseUnary(_UNARY[node.kind]), node.value(0))


@operator(*_BINARY)
def binary(node: Node) -> Value:
    """Convert arithmetic with two operands."""
    return node.result(ElementwiseBinary(_BINARY[node.kind]), node.value(0), node.value(1))


@operator("Add", "AddV2")
def addition(node: Node) -> Value:
    """Convert an addition; a constant vector may become the bias of the convolution or product before it."""
    a, b = node.value(0), node.value(1)
    for x, bias in ((a, b), (b, a)):
        is_channels_last = getattr(getattr(x.producer.op, "data_layout", None), "channels_last", True)
        with_bias = biased(node, x, bias) if is_channels_last else None
        if with_bias is not None:
            return with_bias
    return node.result(Addition(), a, b)


@operator(*_COMPARISONS)
def comparison(node: Node) -> Value:
    """Convert comparisons."""
    return node.result(Comparison(_COMPARISONS[node.kind]), node.value(0), node.value(1))


@operator(*_LOGICAL)
def logical(node: Node) -> Value:
    """Convert LogicalAnd and LogicalOr."""
    return node.result(LogicalBinary(_LOGICAL[node.kind]), node.value(0), node.value(1))


@operator("AddN", "AccumulateNV2")
def sum_of_all(node: Node) -> Value:
    """Convert AddN: the sum of all operands."""
    *previous, last = node.values()
    if not previous:
        return last
    return node.result(Addition(), reduce(lambda a, b: node.step(Addition(), a, b), previous), last)


@operator("DivNoNan", "MulNoNan", "Xdivy", "Xlogy")
def safe_product(node: Node) -> Value:
    """Convert quotients and products that are 0 where one operand is 0, whatever the other one is."""
    x, y = node.value(0), node.value(1)
    zero = node.scalar_like(0, x)
    is_zero = node.step(Comparison(C.EQUAL), x if node.kind.startswith("X") else y, zero)
    second = node.step(ElementwiseUnary(U.LOG), y) if node.kind == "Xlogy" else y
    op: Op = ElementwiseBinary(B.DIV if node.kind in {"DivNoNan", "Xdivy"} else B.MUL)
    return node.result(Where(), is_zero, zero, node.step(op, x, second))


@operator("Log1p")
def log_of_one_more(node: Node) -> Value:
    """Convert Log1p: log(1 + x), computed with atanh so that small numbers keep their precision."""
    x = node.value(0)
    quotient = node.step(ElementwiseBinary(B.DIV), x, node.step(Addition(), x, node.scalar_like(2, x)))
    half = node.step(ElementwiseUnary(U.ATANH), quotient)
    return node.result(Addition(), half, half)


@operator("Expm1")
def exponential_less_one(node: Node) -> Value:
    """Convert Expm1: exp(x) - 1, computed as 2 * sinh(x / 2) * exp(x / 2)."""
    x = node.value(0)
    half = node.step(ElementwiseBinary(B.MUL), x, node.scalar_like(0.5, x))
    product = node.step(
        ElementwiseBinary(B.MUL), node.step(ElementwiseUnary(U.SINH), half), node.step(ElementwiseUnary(U.EXP), half)
    )
    return node.result(Addition(), product, product)


@operator("Erfc")
def complementary_error_function(node: Node) -> Value:
    """Convert Erfc: 1 - erf(x)."""
    unit = node.scalar_like(1, node.value(0))
    return node.result(ElementwiseBinary(B.SUB), unit, node.step(ElementwiseUnary(U.ERF), node.value(0)))


@operator("IsFinite")
def is_finite(node: Node) -> Value:
    """Convert IsFinite: neither infinite nor NaN."""
    x = node.value(0)
    or_op = LogicalBinary(L.LOGICAL_OR)
    is_infinite_or_nan = node.step(
        or_op, node.step(ElementwiseUnary(U.IS_INF), x), node.step(ElementwiseUnary(U.IS_NAN), x)
    )
    return node.result(ElementwiseUnary(U.LOGICAL_NOT), is_infinite_or_nan)


@operator("SelectV2")
def select(node: Node) -> Value:
    """Convert SelectV2: the second operand where the condition is true, else the third."""
    return node.result(Where(), node.value(0), node.value(1), node.value(2))


@operator("Select")
def select_rows(node: Node) -> Value:
    """Convert Select; a condition of rank 1 selects along the first axis."""
    condition, x = node.value(0), node.value(1)
    if condition.known.rank == 1 and x.known.rank > 1:
        condition = reshaped(node, condition, [condition.known.shape[0], *[1] * (x.known.rank - 1)])
    return node.result(Where(), condition, x, node.value(2))


@operator("ClipByValue")
def clip(node: Node) -> Value:
    """Convert ClipByValue: the operand, at least the lower and at most the upper bound."""
    below_upper = node.step(ElementwiseBinary(B.MINIMUM), node.value(0), node.value(2))
    return node.result(ElementwiseBinary(B.MAXIMUM), below_upper, node.value(1))


@operator("ApproximateEqual")
def approximately_equal(node: Node) -> Value:
    """Convert ApproximateEqual: the difference is smaller than the attribute tolerance."""
    a = node.value(0)
    difference = node.step(ElementwiseUnary(U.ABS), node.step(ElementwiseBinary(B.SUB), a, node.value(1)))
    return node.result(Comparison(C.LESS), difference, node.scalar_like(node.number("tolerance", 1e-5), a))

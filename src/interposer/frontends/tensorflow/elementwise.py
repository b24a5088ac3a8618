"""TensorFlow converters for elementwise operators, with broadcasting."""

from __future__ import annotations

from typing import Final

from interposer.frontends.elementwise import (
    ABS,
    ATANH,
    DIV,
    EQUAL,
    ERF,
    EXP,
    IS_INF,
    IS_NAN,
    LESS,
    LOG,
    LOGICAL_NOT,
    LOGICAL_OR,
    MAXIMUM,
    MINIMUM,
    MUL,
    SINH,
    SUB,
    operators_by_name,
)
from interposer.frontends.reshaping import reshaped
from interposer.frontends.tensorflow.convolution import biased
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Where

__all__: list[str] = []

_UNARY: Final = operators_by_name(
    Abs="ABS", Acos="ACOS", Acosh="ACOSH", Asin="ASIN", Asinh="ASINH", Atan="ATAN", Atanh="ATANH", Ceil="CEIL",
    Cos="COS", Cosh="COSH", Erf="ERF", Exp="EXP", Floor="FLOOR", Inv="RECIPROCAL", Invert="BITWISE_NOT", IsInf="IS_INF",
    IsNan="IS_NAN", Log="LOG", LogicalNot="LOGICAL_NOT", Neg="NEG", Reciprocal="RECIPROCAL", Rint="ROUND",
    Round="ROUND", Rsqrt="RSQRT", Sign="SIGN", Sin="SIN", Sinh="SINH", Sqrt="SQRT", Square="SQUARE", Tan="TAN",
)  # fmt: skip
_BINARY: Final = operators_by_name(
    Atan2="ATAN2", BitwiseAnd="BITWISE_AND", BitwiseOr="BITWISE_OR", BitwiseXor="BITWISE_XOR", Div="DIV", Equal="EQUAL",
    FloorDiv="FLOOR_DIV", FloorMod="MOD", Greater="GREATER", GreaterEqual="GREATER_OR_EQUAL", LeftShift="SHIFT_LEFT",
    Less="LESS", LessEqual="LESS_OR_EQUAL", LogicalAnd="LOGICAL_AND", LogicalOr="LOGICAL_OR", Maximum="MAXIMUM",
    Minimum="MINIMUM", Mod="FMOD", Mul="MUL", NotEqual="NOT_EQUAL", Pow="POWER", RealDiv="DIV",
    RightShift="SHIFT_RIGHT", SquaredDifference="SQ_DIFF", Sub="SUB", TruncateDiv="DIV", TruncateMod="FMOD",
)  # fmt: skip


@operator(*_UNARY)
def unary(node: Node) -> Value:
    """Convert operators with one operand."""
    return node.result(_UNARY[node.kind], node.value(0))


@operator(*_BINARY)
def binary(node: Node) -> Value:
    """Convert operators with two operands."""
    return node.result(_BINARY[node.kind], node.value(0), node.value(1))


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


@operator("AddN", "AccumulateNV2")
def sum_of_all(node: Node) -> Value:
    """Convert AddN: the sum of all operands."""
    return node.chain(Addition(), node.values())


@operator("DivNoNan", "MulNoNan", "Xdivy", "Xlogy")
def safe_product(node: Node) -> Value:
    """Convert quotients and products that are 0 where one operand is 0, whatever the other one is."""
    x, y = node.value(0), node.value(1)
    zero = node.scalar_like(0, x)
    is_zero = node.step(EQUAL, x if node.kind.startswith("X") else y, zero)
    second_factor = node.step(LOG, y) if node.kind == "Xlogy" else y
    op = DIV if node.kind in {"DivNoNan", "Xdivy"} else MUL
    return node.result(Where(), is_zero, zero, node.step(op, x, second_factor))


@operator("Log1p")
def log_of_one_more(node: Node) -> Value:
    """Convert Log1p: log(1 + x), computed with atanh so that small numbers keep their precision."""
    x = node.value(0)
    quotient = node.step(DIV, x, node.step(Addition(), x, node.scalar_like(2, x)))
    half = node.step(ATANH, quotient)
    return node.result(Addition(), half, half)


@operator("Expm1")
def exponential_less_one(node: Node) -> Value:
    """Convert Expm1: exp(x) - 1, computed as 2 * sinh(x / 2) * exp(x / 2)."""
    x = node.value(0)
    half = node.step(MUL, x, node.scalar_like(0.5, x))
    product = node.step(MUL, node.step(SINH, half), node.step(EXP, half))
    return node.result(Addition(), product, product)


@operator("Erfc")
def complementary_error_function(node: Node) -> Value:
    """Convert Erfc: 1 - erf(x)."""
    unit = node.scalar_like(1, node.value(0))
    return node.result(SUB, unit, node.step(ERF, node.value(0)))


@operator("IsFinite")
def is_finite(node: Node) -> Value:
    """Convert IsFinite: neither infinite nor NaN."""
    x = node.value(0)
    or_op = LOGICAL_OR
    is_infinite_or_nan = node.step(or_op, node.step(IS_INF, x), node.step(IS_NAN, x))
    return node.result(LOGICAL_NOT, is_infinite_or_nan)


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
    below_upper = node.step(MINIMUM, node.value(0), node.value(2))
    return node.result(MAXIMUM, below_upper, node.value(1))


@operator("ApproximateEqual")
def approximately_equal(node: Node) -> Value:
    """Convert ApproximateEqual: the difference is smaller than the attribute tolerance."""
    a = node.value(0)
    difference = node.step(ABS, node.step(SUB, a, node.value(1)))
    return node.result(LESS, difference, node.scalar_like(node.number("tolerance", 1e-5), a))

"""ONNX converters for elementwise operators, with broadcasting."""

from __future__ import annotations

from functools import reduce
from typing import Final

from interposer.core.errors import ParseError
from interposer.core.schema import Op
from interposer.frontends.axes import checked_axis
from interposer.frontends.elementwise import (
    FMOD,
    IS_INF,
    IS_NEGATIVE_INF,
    IS_POSITIVE_INF,
    MOD,
    SHIFT_LEFT,
    SHIFT_RIGHT,
    operators_by_name,
)
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import Converter, operator
from interposer.frontends.reshaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Division, Maximum, Minimum, Where

__all__ = ["binary_operands", "unary"]

_UNARY: Final = operators_by_name(
    Abs="ABS", Acos="ACOS", Acosh="ACOSH", Asin="ASIN", Asinh="ASINH", Atan="ATAN", Atanh="ATANH",
    BitwiseNot="BITWISE_NOT", Ceil="CEIL", Cos="COS", Cosh="COSH", Erf="ERF", Exp="EXP", Floor="FLOOR", IsNaN="IS_NAN",
    Log="LOG", Neg="NEG", Not="LOGICAL_NOT", Reciprocal="RECIPROCAL", Round="ROUND", Sign="SIGN", Sin="SIN",
    Sinh="SINH", Sqrt="SQRT", Tan="TAN",
)  # fmt: skip
_BINARY: Final = operators_by_name(
    Add="ADD", BitwiseAnd="BITWISE_AND", BitwiseOr="BITWISE_OR", BitwiseXor="BITWISE_XOR", Div="DIV", Mul="MUL",
    Pow="POWER", Sub="SUB", And="LOGICAL_AND", Or="LOGICAL_OR", Xor="LOGICAL_XOR", Equal="EQUAL", Greater="GREATER",
    GreaterOrEqual="GREATER_OR_EQUAL", Less="LESS", LessOrEqual="LESS_OR_EQUAL",
)  # fmt: skip


def unary(op: Op) -> Converter:
    """Return the converter of an operator with one operand and no attributes."""

    def convert(node: Node) -> Value:
        return node.result(op, node.value(0))

    return convert


def _binary(op: Op) -> Converter:
    def convert(node: Node) -> Value:
        return node.result(op, *binary_operands(node))

    return convert


def binary_operands(node: Node) -> tuple[Value, Value]:
    """Return both operands of a binary operator.

    Before opset 7, the second operand broadcasts only if the attribute broadcast is set, and the attribute axis aligns
    its axes.
    """
    a, b = node.value(0), node.value(1)
    if node.version >= 7 or not node.flag("broadcast") or not node.has_attribute("axis"):
        return a, b
    shape = b.known.shape
    axis = checked_axis(node.integer("axis"), a.known.rank)
    num_trailing = a.known.rank - axis - len(shape)
    if num_trailing < 0:
        raise ParseError(f"b of shape {shape} does not fit into a of shape {a.known.shape} from axis {axis} on")
    return a, reshaped(node, b, [*shape, *[1] * num_trailing], len(shape))


for _name, _op in _UNARY.items():
    operator(_name)(unary(_op))
for _name, _binary_op in _BINARY.items():
    operator(_name)(_binary(_binary_op))


def _chain(op: Op) -> Converter:
    """Return a converter for any number of operands, which applies the binary operator `op` from left to right."""

    def convert(node: Node) -> Value:
        return node.chain(op, node.values())

    return convert


operator("Sum")(_chain(Addition()))
operator("Max")(_chain(Maximum()))
operator("Min")(_chain(Minimum()))


@operator("Mean")
def mean(node: Node) -> Value:
    """Convert Mean: the sum of the operands divided by their number."""
    operands = node.values()
    total = reduce(lambda a, b: node.step(Addition(), a, b), operands)
    return node.result(Division(), total, node.scalar_like(len(operands), total))


@operator("Mod", since=10)
def modulo(node: Node) -> Value:
    """Convert Mod: the remainder has the sign of the divisor, or with fmod that of the dividend."""
    return node.result(FMOD if node.flag("fmod") else MOD, *binary_operands(node))


@operator("BitShift", since=11)
def bit_shift(node: Node) -> Value:
    """Convert BitShift, to the left or to the right."""
    direction = node.text("direction")
    op = {"LEFT": SHIFT_LEFT, "RIGHT": SHIFT_RIGHT}.get(direction)
    if op is None:
        raise ParseError(f"its direction is {direction!r}; expected LEFT or RIGHT")
    return node.result(op, *binary_operands(node))


@operator("IsInf", since=10)
def is_infinite(node: Node) -> Value:
    """Convert IsInf; attributes can exclude infinities of one sign."""
    detects_positive, detects_negative = node.flag("detect_positive", True), node.flag("detect_negative", True)
    if not detects_positive and not detects_negative:
        node.unsupported("it looks for infinities of no sign")
    op = IS_INF if detects_positive and detects_negative else IS_POSITIVE_INF if detects_positive else IS_NEGATIVE_INF
    return node.result(op, node.value(0))


@operator("Where", since=9)
def where(node: Node) -> Value:
    """Convert Where: the condition selects elements of the second operand if true, of the third if false."""
    return node.result(Where(), node.value(0), node.value(1), node.value(2))

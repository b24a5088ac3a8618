"""ONNX converters for elementwise operators, with broadcasting."""

from __future__ import annotations

from functools import reduce
from typing import Final

from interposer.core.errors import ParseError
from interposer.core.schema import Op
from interposer.frontends.axes import checked_axis
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import Converter, operator
from interposer.frontends.reshaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.elementwise import (
    Addition,
    BinaryOperation,
    Comparison,
    ComparisonOperation,
    Division,
    ElementwiseBinary,
    ElementwiseUnary,
    LogicalBinary,
    LogicalBinaryOperation,
    Maximum,
    Minimum,
    UnaryOperation,
    Where,
)

__all__ = ["binary_operands"]

_UNARY: Final = {
    "Abs": UnaryOperation.ABS,
    "Acos": UnaryOperation.ACOS,
    "Acosh": UnaryOperation.ACOSH,
    "Asin": UnaryOperation.ASIN,
    "Asinh": UnaryOperation.ASINH,
    "Atan": UnaryOperation.ATAN,
    "Atanh": UnaryOperation.ATANH,
    "BitwiseNot": UnaryOperation.BITWISE_NOT,
    "Ceil": UnaryOperation.CEIL,
    "Cos": UnaryOperation.COS,
    "Cosh": UnaryOperation.COSH,
    "Erf": UnaryOperation.ERF,
    "Exp": UnaryOperation.EXP,
    "Floor": UnaryOperation.FLOOR,
    "IsNaN": UnaryOperation.IS_NAN,
    "Log": UnaryOperation.LOG,
    "Neg": UnaryOperation.NEG,
    "Not": UnaryOperation.LOGICAL_NOT,
    "Reciprocal": UnaryOperation.RECIPROCAL,
    "Round": UnaryOperation.ROUND,
    "Sign": UnaryOperation.SIGN,
    "Sin": UnaryOperation.SIN,
    "Sinh": UnaryOperation.SINH,
    "Sqrt": UnaryOperation.SQRT,
    "Tan": UnaryOperation.TAN,
}
_BINARY: Final[dict[str, Op]] = {
    "Add": ElementwiseBinary(BinaryOperation.ADD),
    "BitwiseAnd": ElementwiseBinary(BinaryOperation.BITWISE_AND),
    "BitwiseOr": ElementwiseBinary(BinaryOperation.BITWISE_OR),
    "BitwiseXor": ElementwiseBinary(BinaryOperation.BITWISE_XOR),
    "Div": ElementwiseBinary(BinaryOperation.DIV),
    "Mul": ElementwiseBinary(BinaryOperation.MUL),
    "Pow": ElementwiseBinary(BinaryOperation.POWER),
    "Sub": ElementwiseBinary(BinaryOperation.SUB),
    "And": LogicalBinary(LogicalBinaryOperation.LOGICAL_AND),
    "Or": LogicalBinary(LogicalBinaryOperation.LOGICAL_OR),
    "Xor": LogicalBinary(LogicalBinaryOperation.LOGICAL_XOR),
    "Equal": Comparison(ComparisonOperation.EQUAL),
    "Greater": Comparison(ComparisonOperation.GREATER),
    "GreaterOrEqual": Comparison(ComparisonOperation.GREATER_OR_EQUAL),
    "Less": Comparison(ComparisonOperation.LESS),
    "LessOrEqual": Comparison(ComparisonOperation.LESS_OR_EQUAL),
}


def _unary(op: Op) -> Converter:
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


for _name, _operation in _UNARY.items():
    operator(_name)(_unary(ElementwiseUnary(_operation)))
for _name, _op in _BINARY.items():
    operator(_name)(_binary(_op))


def _chain(op: Op) -> Converter:
    """Return a converter for any number of operands, which applies the binary operator `op` from left to right."""

    def convert(node: Node) -> Value:
        *previous, last = node.values()
        return node.result(op, reduce(lambda a, b: node.step(op, a, b), previous), last) if previous else last

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
    operation = BinaryOperation.FMOD if node.flag("fmod") else BinaryOperation.MOD
    return node.result(ElementwiseBinary(operation), *binary_operands(node))


@operator("BitShift", since=11)
def bit_shift(node: Node) -> Value:
    """Convert BitShift, to the left or to the right."""
    direction = node.text("direction")
    if direction not in {"LEFT", "RIGHT"}:
        raise ParseError(f"its direction is {direction!r}; expected LEFT or RIGHT")
    return node.result(ElementwiseBinary(BinaryOperation[f"SHIFT_{direction}"]), *binary_operands(node))


@operator("IsInf", since=10)
def is_infinite(node: Node) -> Value:
    """Convert IsInf; attributes can exclude infinities of one sign."""
    positive, negative = node.flag("detect_positive", True), node.flag("detect_negative", True)
    operation = {
        (True, True): UnaryOperation.IS_INF,
        (True, False): UnaryOperation.IS_POSITIVE_INF,
        (False, True): UnaryOperation.IS_NEGATIVE_INF,
    }.get((positive, negative))
    if operation is None:
        node.unsupported("it looks for infinities of no sign")
    return node.result(ElementwiseUnary(operation), node.value(0))


@operator("Where", since=9)
def where(node: Node) -> Value:
    """Convert Where: the condition selects elements of the second operand if true, of the third if false."""
    return node.result(Where(), node.value(0), node.value(1), node.value(2))

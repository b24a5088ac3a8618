"""ONNX writers for elementwise operators, with broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeAlias

from interposer.core.types import UNSIGNED_INTEGERS, DataType
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
    Where,
)
from interposer.ops.fused import Fused
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []

B, U, C = BinaryOperation, UnaryOperation, ComparisonOperation
Function: TypeAlias = Callable[[Draft, Tensor, Tensor], Tensor]

# --- two operands -----------------------------------------------------------------------------------------------------

_BINARY: Final = {B.ADD: "Add", B.SUB: "Sub", B.MUL: "Mul", B.MAXIMUM: "Max", B.MINIMUM: "Min"}
_BITWISE: Final = {B.BITWISE_AND: "And", B.BITWISE_OR: "Or", B.BITWISE_XOR: "Xor"}
_OF_TRUTHS: Final = {**_BITWISE, B.MAXIMUM: "Or", B.MINIMUM: "And"}


def _divisor(draft: Draft, b: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return an integer divisor with its zeros replaced by 1, and a boolean mask of the zeros.

    The mask is None if `b` is a constant without zeros. Where the mask is true, callers return 0 for the division.
    """
    if b.array is not None and b.array.all():
        return b, None
    is_zero = draft.node("Equal", b, draft.like(0, b))
    return draft.node("Where", is_zero, draft.like(1, b), b), is_zero


def _guarded(draft: Draft, zero: Tensor | None, tensor: Tensor) -> Tensor:
    return tensor if zero is None else draft.node("Where", zero, draft.like(0, tensor), tensor)


def _div(draft: Draft, a: Tensor, b: Tensor) -> Tensor:
    if a.dtype.is_float:
        return draft.node("Div", a, b)
    divisor, zero = _divisor(draft, b)
    return _guarded(draft, zero, draft.node("Div", a, divisor))


def _mod(draft: Draft, a: Tensor, b: Tensor) -> Tensor:
    if a.dtype.is_float:
        remainder = draft.node("Mod", a, b, fmod=1)
        signs = [draft.node("Less", number, draft.like(0, number)) for number in (remainder, b)]
        has_other_sign = draft.node(
            "And", draft.node("Xor", *signs), _not(draft, draft.node("Equal", remainder, draft.like(0, remainder)))
        )
        return draft.node("Where", has_other_sign, draft.node("Add", remainder, b), remainder)
    divisor, zero = _divisor(draft, b)
    return _guarded(draft, zero, draft.node("Mod", a, divisor))


def _fmod(draft: Draft, a: Tensor, b: Tensor) -> Tensor:
    if a.dtype.is_float:
        return draft.node("Mod", a, b, fmod=1)
    divisor, zero = _divisor(draft, b)
    return _guarded(draft, zero, draft.node("Mod", a, divisor, fmod=1))


def _floor_div(draft: Draft, a: Tensor, b: Tensor) -> Tensor:
    """Return floor(a / b): the remainder is subtracted first, so that the division is exact."""
    if a.dtype.is_float:
        quotient = draft.node("Round", draft.node("Div", draft.node("Sub", a, _mod(draft, a, b)), b))
        return draft.node("Where", draft.node("Equal", b, draft.like(0, b)), draft.node("Div", a, b), quotient)
    divisor, zero = _divisor(draft, b)
    remainder = draft.node("Mod", a, divisor)
    return _guarded(draft, zero, draft.node("Div", draft.node("Sub", a, remainder), divisor))


def _squared_difference(draft: Draft, a: Tensor, b: Tensor) -> Tensor:
    difference = draft.node("Sub", a, b)
    return draft.node("Mul", difference, difference)


def _power(draft: Draft, a: Tensor, b: Tensor) -> Tensor:
    """Return `a` to the power of `b`; integers with negative exponents give 0, unless the base is 1 or -1."""
    if a.dtype.is_float:
        return draft.node("Pow", a, draft.cast(b, a.dtype))
    if b.dtype.is_float or b.dtype in UNSIGNED_INTEGERS or (b.array is not None and (b.array >= 0).all()):
        return draft.node("Pow", a, b)
    zero, zero_result = draft.like(0, b), draft.like(0, a)
    power = draft.node("Pow", a, draft.node("Max", b, zero))
    is_even = draft.node("Equal", draft.node("Mod", b, draft.like(2, b)), zero)
    is_unit_base = draft.node("Equal", draft.node("Abs", a), draft.like(1, a))
    inverse = draft.node("Where", is_unit_base, draft.node("Where", is_even, draft.like(1, a), a), zero_result)
    return draft.node("Where", draft.node("Less", b, zero), inverse, power)


def _atan2(draft: Draft, a: Tensor, b: Tensor) -> Tensor:
    """Return atan2(a, b): the arc tangent of a / b, plus or minus pi where b is negative; 0 where both are 0."""
    zero, is_origin = (
        draft.like(0, a),
        draft.node("And", *(draft.node("Equal", operand, draft.like(0, operand)) for operand in (a, b))),
    )
    quotient = draft.node("Div", a, draft.node("Where", is_origin, draft.like(1, a), draft.node("Add", b, zero)))
    is_below = draft.node(
        "Less", draft.node("Where", draft.node("Equal", a, zero), draft.node("Reciprocal", a), a), zero
    )
    turn = draft.node("Where", is_below, draft.like(-math.pi, a), draft.like(math.pi, a))
    offset = draft.node("Where", draft.node("Less", b, zero), turn, zero)
    return draft.node("Add", draft.node("Atan", quotient), offset)


def _shift(draft: Draft, a: Tensor, b: Tensor, direction: str) -> Tensor:
    """Return the unsigned integers `a` shifted by `b` bits in a direction, LEFT or RIGHT.

    Shifts by the width of the type or more give 0.
    """
    width = draft.constant(a.dtype.bits, a.dtype)
    is_far = draft.node("GreaterOrEqual", b, width)
    distance = draft.node("Where", is_far, draft.like(0, b), b)
    return draft.node("Where", is_far, draft.like(0, a), draft.node("BitShift", a, distance, direction=direction))


def _shift_left(draft: Draft, a: Tensor, b: Tensor) -> Tensor:
    bits = _bits(a.dtype)
    return draft.cast(_shift(draft, draft.cast(a, bits), draft.cast(b, bits), "LEFT"), a.dtype)


def _shift_right(draft: Draft, a: Tensor, b: Tensor) -> Tensor:
    """Return `a` arithmetically shifted to the right by `b` bits; a negative number is shifted as its complement."""
    bits = _bits(a.dtype)
    if bits is a.dtype:
        return _shift(draft, a, b, "RIGHT")
    minus_one, distance = draft.like(-1, a), draft.cast(b, bits)
    is_negative = draft.node("Less", a, draft.like(0, a))
    magnitude = draft.node("Where", is_negative, draft.node("Sub", minus_one, a), a)
    shifted = draft.cast(_shift(draft, draft.cast(magnitude, bits), distance, "RIGHT"), a.dtype)
    return draft.node("Where", is_negative, draft.node("Sub", minus_one, shifted), shifted)


def _bits(dtype: DataType) -> DataType:
    return DataType.of(f"uint{dtype.bits}")


_FUNCTIONS: Final[dict[BinaryOperation, Function]] = {
    B.DIV: _div,
    B.SQ_DIFF: _squared_difference,
    B.POWER: _power,
    B.FLOOR_DIV: _floor_div,
    B.MOD: _mod,
    B.FMOD: _fmod,
    B.ATAN2: _atan2,
    B.SHIFT_LEFT: _shift_left,
    B.SHIFT_RIGHT: _shift_right,
}


@writer(ElementwiseBinary, Addition, Division, Maximum, Minimum, Multiplication, Subtraction)
def binary(draft: Draft, op: ElementwiseBinary) -> Tensor:
    """Write ElementwiseBinary; unsupported integer types are widened, and the results wrap around when narrowed."""
    a, b = draft.operand(0), draft.operand(1)
    if a.dtype is DataType.BOOL and op.operation in _OF_TRUTHS:
        return draft.node(_OF_TRUTHS[op.operation], a, b)
    if op.operation in _BITWISE:
        return draft.node(f"Bitwise{_BITWISE[op.operation]}", a, b)
    if op.operation in _BINARY:
        return draft.node(_BINARY[op.operation], a, b)
    return _FUNCTIONS[op.operation](draft, a, b)


@writer(Fused)
def fused(draft: Draft, op: Fused) -> list[Tensor]:
    """Write Fused, (a + b) * multiplier + addend; narrow floats are computed in float32 and rounded at the end."""
    operand_type = draft.operand(0).dtype
    sum_type = DataType.FLOAT32 if operand_type.is_float and operand_type.bits < 32 else operand_type
    a, b, multiplier, addend = (draft.cast(tensor, sum_type) for tensor in draft.tensors())
    sum_of_inputs = draft.node("Add", a, b)
    result = draft.node("Add", draft.node("Mul", sum_of_inputs, multiplier), addend)
    return [draft.cast(number, operand_type) for number in (sum_of_inputs, result)][-op.num_outputs :]


# --- one operand ------------------------------------------------------------------------------------------------------

_SAME_NAME: Final = {
    U.ABS: "Abs",
    U.EXP: "Exp",
    U.SQRT: "Sqrt",
    U.LOG: "Log",
    U.SIN: "Sin",
    U.COS: "Cos",
    U.TAN: "Tan",
    U.SIGN: "Sign",
    U.ERF: "Erf",
    U.ASIN: "Asin",
    U.ACOS: "Acos",
    U.ATAN: "Atan",
    U.SINH: "Sinh",
    U.COSH: "Cosh",
    U.ASINH: "Asinh",
    U.ACOSH: "Acosh",
    U.ATANH: "Atanh",
    U.LOGICAL_NOT: "Not",
    U.IS_NAN: "IsNaN",
    U.IS_INF: "IsInf",
}
_ROUNDINGS: Final = {U.CEIL: "Ceil", U.FLOOR: "Floor", U.ROUND: "Round"}


def _not(draft: Draft, x: Tensor) -> Tensor:
    return draft.node("Not", x)


def _negative(draft: Draft, x: Tensor) -> Tensor:
    if x.dtype in UNSIGNED_INTEGERS:
        return draft.node("Sub", draft.like(0, x), x)
    return draft.node("Neg", x)


def _reciprocal(draft: Draft, x: Tensor) -> Tensor:
    if x.dtype.is_float:
        return draft.node("Reciprocal", x)
    is_unit = draft.node("Equal", draft.node("Abs", x), draft.like(1, x))
    return draft.node("Where", is_unit, x, draft.like(0, x))


def _bitwise_not(draft: Draft, x: Tensor) -> Tensor:
    return draft.node("Not" if x.dtype is DataType.BOOL else "BitwiseNot", x)


_UNARY: Final[dict[UnaryOperation, Callable[[Draft, Tensor], Tensor]]] = {
    U.NEG: _negative,
    U.RECIPROCAL: _reciprocal,
    U.BITWISE_NOT: _bitwise_not,
    U.RSQRT: lambda draft, x: draft.node("Reciprocal", draft.node("Sqrt", x)),
    U.SQUARE: lambda draft, x: draft.node("Mul", x, x),
    U.IS_POSITIVE_INF: lambda draft, x: draft.node("IsInf", x, detect_negative=0),
    U.IS_NEGATIVE_INF: lambda draft, x: draft.node("IsInf", x, detect_positive=0),
}


@writer(ElementwiseUnary)
def unary(draft: Draft, op: ElementwiseUnary) -> Tensor:
    """Write ElementwiseUnary; rounding of integers is the identity."""
    x = draft.operand(0)
    if op.operation in _ROUNDINGS:
        return draft.node(_ROUNDINGS[op.operation], x) if x.dtype.is_float else x
    if op.operation in _SAME_NAME:
        return draft.node(_SAME_NAME[op.operation], x)
    return _UNARY[op.operation](draft, x)


@writer(Floor)
def floor(draft: Draft, op: Floor) -> Tensor:
    """Write Floor; the floor of integers is the identity."""
    x = draft.operand(0)
    return draft.node("Floor", x) if x.dtype.is_float else x


# --- comparison, logic and choice -------------------------------------------------------------------------------------

_COMPARISONS: Final = {
    C.EQUAL: "Equal",
    C.GREATER: "Greater",
    C.GREATER_OR_EQUAL: "GreaterOrEqual",
    C.LESS: "Less",
    C.LESS_OR_EQUAL: "LessOrEqual",
}
_JOINTS: Final = {
    LogicalBinaryOperation.LOGICAL_AND: "And",
    LogicalBinaryOperation.LOGICAL_OR: "Or",
    LogicalBinaryOperation.LOGICAL_XOR: "Xor",
}


@writer(Comparison)
def comparison(draft: Draft, op: Comparison) -> Tensor:
    """Write Comparison; NOT_EQUAL is the negation of Equal."""
    if op.operation is C.NOT_EQUAL:
        return _not(draft, draft.node("Equal", *draft.tensors()))
    return draft.node(_COMPARISONS[op.operation], *draft.tensors())


@writer(Comparison, quantized=True)
def quantized_comparison(draft: Draft, op: Comparison) -> Tensor:
    """Write Comparison of quantized values with equal quantization as a comparison of the integers.

    Other layers are refused, and 8-bit per-tensor ones too, as the operator compares these in fixed-point arithmetic.
    """
    a, b = draft.info(0), draft.info(1)
    if a.quantization is None or a.quantization != b.quantization:
        refuse("it compares in fixed-point arithmetic, as the scales differ")
    if not a.quantization.per_axis and a.dtype in (DataType.INT8, DataType.UINT8):
        refuse("it compares 8-bit integers in fixed-point arithmetic")
    return comparison(draft, op)


@writer(LogicalBinary)
def logical(draft: Draft, op: LogicalBinary) -> Tensor:
    """Write LogicalBinary as the operator of the same name."""
    return draft.node(_JOINTS[op.operation], *draft.tensors())


@writer(Where, moves=True)
def where(draft: Draft, op: Where) -> Tensor:
    """Write Where as the operator of this name."""
    return draft.node("Where", *draft.tensors())


@writer(Prelu)
def prelu(draft: Draft, op: Prelu) -> Tensor:
    """Write Prelu; ONNX broadcasts the slope to the input, but not vice versa."""
    x, alpha = draft.operand(0), draft.operand(1)
    if draft.info(0).shape == draft.result.shape:
        return draft.node("PRelu", x, alpha)
    positive = draft.node("GreaterOrEqual", x, draft.like(0, x))
    return draft.node("Where", positive, x, draft.node("Mul", x, alpha))

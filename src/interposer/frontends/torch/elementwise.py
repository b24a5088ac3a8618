"""Converters for arithmetic, comparisons, logic and functions of single elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from interposer.core.schema import Op
from interposer.core.types import DataType
from interposer.frontends.elementwise import (
    ABS,
    ADD,
    BITWISE_AND,
    BITWISE_NOT,
    BITWISE_OR,
    CEIL,
    DIV,
    EQUAL,
    ERF,
    EXP,
    FLOOR,
    FLOOR_DIV,
    IS_NAN,
    LESS,
    LESS_OR_EQUAL,
    LOG,
    MAXIMUM,
    MINIMUM,
    MUL,
    NEG,
    POWER,
    RECIPROCAL,
    ROUND,
    RSQRT,
    SIGN,
    SQRT,
    SQUARE,
    SUB,
    operators_by_name,
)
from interposer.frontends.torch.call import Call, Number, Operand
from interposer.frontends.torch.registry import aten
from interposer.ir.graph import Value

__all__ = ["bounded", "limited", "scaled", "truncated", "two"]


def two(c: Call, op: Op, a: Operand, b: Operand) -> Value:
    """Combine two operands after a cast to the type of the node's result."""
    return c.binary(op, c.cast(a, c.dtype), c.cast(b, c.dtype))


def scaled(c: Call, x: Operand, factor: Number) -> Operand:
    """Multiply an operand of the result's type by a number, unless it is 1."""
    return x if factor == 1 else c.times(c.cast(x, c.dtype), c.cast(factor, c.dtype))


# --- arithmetic -------------------------------------------------------------------------------------------------------


@aten("add.Tensor", "add.Scalar")
def add(c: Call, x: Operand, other: Operand, alpha: Number = 1) -> Value:
    """Convert add; the sum of bools is their or."""
    if c.dtype is DataType.BOOL:
        other = other if alpha else False
        return two(c, BITWISE_OR, x, other)
    return two(c, ADD, x, scaled(c, other, alpha))


@aten("sub.Tensor", "sub.Scalar")
def subtract(c: Call, x: Operand, other: Operand, alpha: Number = 1) -> Value:
    """Convert sub."""
    return two(c, SUB, x, scaled(c, other, alpha))


@aten("rsub.Tensor", "rsub.Scalar")
def reverse_subtract(c: Call, x: Operand, other: Operand, alpha: Number = 1) -> Value:
    """Convert rsub: other - alpha * x."""
    return two(c, SUB, other, scaled(c, x, alpha))


@aten("mul.Tensor", "mul.Scalar")
def multiply(c: Call, x: Operand, other: Operand) -> Value:
    """Convert mul; the product of bools is their and."""
    product = BITWISE_AND if c.dtype is DataType.BOOL else MUL
    return two(c, product, x, other)


@aten("div.Tensor", "div.Scalar", "true_divide.Tensor", "true_divide.Scalar")
def divide(c: Call, x: Operand, other: Operand) -> Value:
    """Convert div; the quotient of integers is a float."""
    return two(c, DIV, x, other)


@aten("div.Tensor_mode", "div.Scalar_mode")
def divide_in_mode(c: Call, x: Operand, other: Operand, rounding_mode: str | None = None) -> Value:
    """Convert div with a rounding mode: none, towards zero ("trunc") or down ("floor")."""
    if rounding_mode == "floor":
        return two(c, FLOOR_DIV, x, other)
    quotient = two(c, DIV, x, other)
    return truncated(c, quotient) if rounding_mode == "trunc" else quotient


@aten("floor_divide", "floor_divide.Scalar")
def floor_divide(c: Call, x: Operand, other: Operand) -> Value:
    """Convert floor_divide."""
    return two(c, FLOOR_DIV, x, other)


def truncated(c: Call, x: Value) -> Value:
    """Round towards zero; integers stay as they are."""
    if not x.known.dtype.is_float:
        return x
    return c.where(c.binary(LESS, x, 0), c.step(CEIL, x), c.step(FLOOR, x))


_BINARY: Final = operators_by_name(
    remainder="MOD", fmod="FMOD", bitwise_and="BITWISE_AND", bitwise_or="BITWISE_OR", bitwise_xor="BITWISE_XOR",
    bitwise_left_shift="SHIFT_LEFT", bitwise_right_shift="SHIFT_RIGHT", __lshift__="SHIFT_LEFT",
    __rshift__="SHIFT_RIGHT", __and__="BITWISE_AND", __or__="BITWISE_OR", __xor__="BITWISE_XOR",
)  # fmt: skip
_BINARY_OF_TENSORS: Final = operators_by_name(atan2="ATAN2", maximum="MAXIMUM", minimum="MINIMUM")


def _binary(op: Op) -> Callable[[Call, Operand, Operand], Value]:
    def convert(c: Call, a: Operand, b: Operand) -> Value:
        """Convert an operator of two operands that has an operation of its own."""
        return two(c, op, a, b)

    return convert


for _name, _operation in _BINARY.items():
    _shift = "_shift" in _name
    _kinds = ("Tensor", "Tensor_Scalar", "Scalar_Tensor") if _shift else ("Tensor", "Scalar")
    aten(*(f"{_name}.{_kind}" for _kind in _kinds))(_binary(_operation))
for _name in ("remainder", "bitwise_and", "bitwise_or", "bitwise_xor"):
    aten(f"{_name}.Scalar_Tensor")(_binary(_BINARY[_name]))
for _name, _operation in _BINARY_OF_TENSORS.items():
    aten(_name)(_binary(_operation))
aten("max.other")(_binary(MAXIMUM))
aten("min.other")(_binary(MINIMUM))


@aten("fmax", "fmin")
def without_nan(c: Call, a: Value, b: Value) -> Value:
    """Convert fmax and fmin, which ignore NaN."""
    is_max = "fmax" in str(c.node.target)
    a, b = c.cast(a, c.dtype), c.cast(b, c.dtype)
    extreme = c.binary(MAXIMUM if is_max else MINIMUM, a, b)
    if not c.dtype.is_float:
        return extreme
    return c.where(c.step(IS_NAN, a), b, c.where(c.step(IS_NAN, b), a, extreme))


@aten("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(c: Call, x: Operand, exponent: Operand) -> Value:
    """Convert pow; squares, roots and their reciprocals have operators of their own."""
    special_operations = {2: SQUARE, 0.5: SQRT, -0.5: RSQRT, -1: RECIPROCAL}
    dtype = c.dtype
    base = c.cast(x, dtype)
    if not isinstance(exponent, Value) and dtype.is_float and exponent in special_operations:
        return c.step(special_operations[exponent], base)
    if not isinstance(exponent, Value) and exponent == 1:
        return base
    if dtype is DataType.BOOL:
        return c.either(base, c.negated(c.cast(exponent, dtype)))
    return c.binary(POWER, base, c.cast(exponent, dtype))


@aten("addcmul", "addcdiv")
def add_combined(c: Call, x: Value, a: Value, b: Value, value: Number = 1) -> Value:
    """Convert addcmul and addcdiv: x + value * (a * b), or a / b."""
    combined = two(c, DIV if "div" in str(c.node.target) else MUL, a, b)
    return two(c, ADD, x, scaled(c, combined, value))


# --- comparisons and logic --------------------------------------------------------------------------------------------

_COMPARISONS: Final = operators_by_name(
    eq="EQUAL", ne="NOT_EQUAL", lt="LESS", le="LESS_OR_EQUAL", gt="GREATER", ge="GREATER_OR_EQUAL"
)
_ORDERED_BOOLS: Final = DataType.UINT8


def _comparison(op: Op) -> Callable[[Call, Operand, Operand], Value]:
    def convert(c: Call, a: Operand, b: Operand) -> Value:
        """Convert a comparison, which is computed in the common type of the operands."""
        dtype = c.promoted(*c.node.args[:2])
        dtype = _ORDERED_BOOLS if dtype is DataType.BOOL else dtype
        return c.binary(op, c.cast(a, dtype), c.cast(b, dtype))

    return convert


for _name, _comparison_operation in _COMPARISONS.items():
    aten(f"{_name}.Tensor", f"{_name}.Scalar")(_comparison(_comparison_operation))

_LOGIC: Final = operators_by_name(logical_and="LOGICAL_AND", logical_or="LOGICAL_OR", logical_xor="LOGICAL_XOR")


def _logic(op: Op) -> Callable[[Call, Value, Value], Value]:
    def convert(c: Call, a: Value, b: Value) -> Value:
        """Convert a logical operator; numbers are True unless they are 0."""
        return c.step(op, c.cast(a, DataType.BOOL), c.cast(b, DataType.BOOL))

    return convert


for _name, _logical in _LOGIC.items():
    aten(_name)(_logic(_logical))


@aten("logical_not")
def logical_not(c: Call, x: Value) -> Value:
    """Convert logical_not."""
    return c.negated(c.cast(x, DataType.BOOL))


@aten("bitwise_not")
def bitwise_not(c: Call, x: Value) -> Value:
    """Convert bitwise_not, which for bools is the logical not."""
    return c.negated(x) if x.known.dtype is DataType.BOOL else c.step(BITWISE_NOT, x)


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(c: Call, condition: Value, x: Operand, other: Operand) -> Value:
    """Convert where."""
    return c.where(c.cast(condition, DataType.BOOL), c.cast(x, c.dtype), c.cast(other, c.dtype))


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(c: Call, x: Value, mask: Value, value: Operand) -> Value:
    """Convert masked_fill."""
    return c.where(c.cast(mask, DataType.BOOL), c.cast(value, c.dtype), c.cast(x, c.dtype))


# --- functions of one element -----------------------------------------------------------------------------------------

_FUNCTIONS: Final = operators_by_name(
    abs="ABS", acos="ACOS", acosh="ACOSH", asin="ASIN", asinh="ASINH", atan="ATAN", atanh="ATANH", ceil="CEIL",
    cos="COS", cosh="COSH", erf="ERF", exp="EXP", floor="FLOOR", log="LOG", neg="NEG", reciprocal="RECIPROCAL",
    round="ROUND", rsqrt="RSQRT", sign="SIGN", sin="SIN", sinh="SINH", sqrt="SQRT", square="SQUARE", tan="TAN",
)  # fmt: skip
_WHOLE: Final = frozenset({CEIL, FLOOR, ROUND})


def _function(op: Op) -> Callable[[Call, Value], Value]:
    def convert(c: Call, x: Value) -> Value:
        """Convert a function of one element; integers are cast to the type of the result first."""
        if not c.dtype.is_float and op in _WHOLE:
            return x
        if c.dtype is DataType.BOOL:  # abs, sign and square leave truth values as they are
            return x
        return c.step(op, c.cast(x, c.dtype))

    return convert


for _name, _unary in _FUNCTIONS.items():
    aten(_name)(_function(_unary))

_TESTS: Final = operators_by_name(
    isnan="IS_NAN", isinf="IS_INF", isposinf="IS_POSITIVE_INF", isneginf="IS_NEGATIVE_INF"
)


def _test(op: Op) -> Callable[[Call, Value], Value]:
    def convert(c: Call, x: Value) -> Value:
        """Convert a test for special values, which integers never are."""
        return c.step(op, x if x.known.dtype.is_float else c.cast(x, DataType.FLOAT32))

    return convert


for _name, _unary in _TESTS.items():
    aten(_name)(_test(_unary))


@aten("trunc", "fix")
def trunc(c: Call, x: Value) -> Value:
    """Convert trunc."""
    return truncated(c, x)


@aten("round.decimals")
def round_to_decimals(c: Call, x: Value, decimals: int = 0) -> Value:
    """Convert round to a number of decimal places."""
    if not c.dtype.is_float:
        return x
    factor = 10.0 ** abs(decimals)
    if decimals < 0:
        return c.times(c.step(ROUND, c.over(x, factor)), factor)
    return c.over(c.step(ROUND, c.times(x, factor)), factor)


def _wide(c: Call, x: Value, function: Callable[[Value], Value]) -> Value:
    """Apply a function in float64, and return the result in the type of the node's result."""
    return c.cast(function(c.cast(x, DataType.FLOAT64)), c.dtype)


@aten("log2")
def log2(c: Call, x: Value) -> Value:
    """Convert log2, in float64 so that powers of 2 have exact logarithms."""
    return _wide(c, x, lambda wide: c.over(c.step(LOG, wide), math.log(2)))


@aten("log10")
def log10(c: Call, x: Value) -> Value:
    """Convert log10, in float64."""
    return _wide(c, x, lambda wide: c.over(c.step(LOG, wide), math.log(10)))


@aten("exp2")
def exp2(c: Call, x: Value) -> Value:
    """Convert exp2."""
    return c.binary(POWER, c.scalar(2, c.dtype), c.cast(x, c.dtype))


@aten("erfc")
def erfc(c: Call, x: Value) -> Value:
    """Convert erfc, as 1 - erf in float64."""
    return _wide(c, x, lambda wide: c.minus(1, c.step(ERF, wide)))


@aten("log1p")
def log1p(c: Call, x: Value) -> Value:
    """Convert log1p, exact near 0: x * log(u) / (u - 1) with u = 1 + x."""
    x = c.cast(x, c.dtype)
    one_plus_x = c.plus(x, 1)
    logarithm = c.step(LOG, one_plus_x)
    corrected = c.times(x, c.over(logarithm, c.minus(one_plus_x, 1)))
    is_one = c.binary(EQUAL, one_plus_x, 1)
    is_extreme = c.either(c.binary(EQUAL, one_plus_x, math.inf), c.binary(LESS_OR_EQUAL, one_plus_x, 0))
    return c.where(is_one, x, c.where(is_extreme, logarithm, corrected))


@aten("expm1")
def expm1(c: Call, x: Value) -> Value:
    """Convert expm1, exact near 0: (u - 1) * x / log(u) with u = exp(x)."""
    x = c.cast(x, c.dtype)
    exponential = c.step(EXP, x)
    exponential_less_one = c.minus(exponential, 1)
    corrected = c.times(exponential_less_one, c.over(x, c.step(LOG, exponential)))
    is_one = c.binary(EQUAL, exponential, 1)
    is_near_zero = c.binary(LESS, c.step(ABS, x), 1)
    return c.where(is_one, x, c.where(is_near_zero, corrected, exponential_less_one))


@aten("sgn")
def sgn(c: Call, x: Value) -> Value:
    """Convert sgn of floats and integers."""
    return x if c.dtype is DataType.BOOL else c.step(SIGN, x)


@aten("signbit")
def signbit(c: Call, x: Value) -> Value:
    """Convert signbit; a negative zero counts as negative."""
    if x.known.dtype is DataType.BOOL:
        return c.cast(c.minus(c.cast(x, DataType.INT8), c.cast(x, DataType.INT8)), DataType.BOOL)
    negative = c.binary(LESS, x, 0)
    if not x.known.dtype.is_float:
        return negative
    inverse = c.binary(EQUAL, c.step(RECIPROCAL, x), -math.inf)
    return c.either(negative, inverse)


@aten("copysign.Tensor", "copysign.Scalar")
def copysign(c: Call, x: Operand, other: Operand) -> Value:
    """Convert copysign; a negative zero makes the result negative."""
    size, sign = c.step(ABS, c.cast(x, c.dtype)), c.cast(other, c.dtype)
    is_negative = c.binary(LESS, sign, 0)
    is_negative_zero = c.binary(EQUAL, c.step(RECIPROCAL, sign), -math.inf)
    return c.where(c.either(is_negative, is_negative_zero), c.step(NEG, size), size)


@aten("ldexp.Tensor")
def ldexp(c: Call, x: Value, exponent: Value) -> Value:
    """Convert ldexp: x * 2 ** exponent."""
    power = c.binary(POWER, c.scalar(2, c.dtype), c.cast(exponent, c.dtype))
    return c.times(c.cast(x, c.dtype), power)


@aten("hypot")
def hypot(c: Call, a: Value, b: Value) -> Value:
    """Convert hypot, without an overflow of the squares."""
    a, b = (c.step(ABS, c.cast(x, c.dtype)) for x in (a, b))
    larger, smaller = c.binary(MAXIMUM, a, b), c.binary(MINIMUM, a, b)
    ratio = c.over(smaller, larger)
    root = c.times(larger, c.step(SQRT, c.plus(c.step(SQUARE, ratio), 1)))
    returns_larger = c.either(c.binary(EQUAL, larger, 0), c.binary(EQUAL, larger, math.inf))
    return c.where(returns_larger, larger, root)


# --- limits -----------------------------------------------------------------------------------------------------------


def limited(c: Call, x: Value, low: Operand | None, high: Operand | None) -> Value:
    """Return the minimum of `high` and the maximum of `low` and x, in the type of x; None is no limit."""
    clamped_below = x if low is None else c.binary(MAXIMUM, x, low)
    return clamped_below if high is None else c.binary(MINIMUM, clamped_below, high)


def bounded(c: Call, x: Value, low: Operand | None, high: Operand | None) -> Value:
    """Return the minimum of `high` and the maximum of `low` and x; None is no limit."""
    limited_x = c.cast(x, c.dtype)
    if low is not None:
        limited_x = c.binary(MAXIMUM, limited_x, c.cast(low, c.dtype))
    return limited_x if high is None else c.binary(MINIMUM, limited_x, c.cast(high, c.dtype))


@aten("clamp", "clamp.Tensor", "clip", "clip.Tensor")
def clamp(c: Call, x: Value, low: Operand | None = None, high: Operand | None = None) -> Value:
    """Convert clamp."""
    return bounded(c, x, low, high)


@aten("clamp_min", "clamp_min.Tensor")
def clamp_min(c: Call, x: Value, low: Operand) -> Value:
    """Convert clamp_min."""
    return bounded(c, x, low, None)


@aten("clamp_max", "clamp_max.Tensor")
def clamp_max(c: Call, x: Value, high: Operand) -> Value:
    """Convert clamp_max."""
    return bounded(c, x, None, high)


# --- copies and casts -------------------------------------------------------------------------------------------------


@aten(
    "alias", "detach", "clone", "contiguous", "lift_fresh_copy", "lift_fresh", "lift", "dropout", "resolve_conj",
    "resolve_neg", "detach_copy", "alias_copy", "alpha_dropout", "feature_dropout", "_conj_physical", "conj_physical",
    open_sizes=True,
)  # fmt: skip
def identity(c: Call, x: Value, *_: Any, **__: Any) -> Value:
    """Convert operators that return their operand, such as clone, detach, and dropout in inference."""
    is_random = "dropout" in str(c.node.target) and all(_)
    if is_random and _[0] != 1:
        c.unsupported("it is in training mode; call eval() on the module before the export")
    return c.times(x, 0) if is_random else x


@aten("_to_copy", "to.dtype", "to.dtype_layout", "to.device", "to.other", "type_as", "_cast_Float", "_cast_Int",
      "to.prim_dtype", "prims.convert_element_type.default")  # fmt: skip
def to_copy(c: Call, x: Value, *_: Any, **__: Any) -> Value:
    """Convert `aten._to_copy` and other casts; the type is that of the recorded result."""
    return cast_as_torch(c, x, c.dtype)


def cast_as_torch(c: Call, x: Value, dtype: DataType) -> Value:
    """Cast a value as PyTorch does."""
    return c.cast(x, dtype)


@aten("copy", open_sizes=True)
def copy(c: Call, x: Value, source: Value, *_: Any) -> Value:
    """Convert copy: the source in the shape and type of the first operand."""
    return c.broadcast(c.cast(source, x.known.dtype), c.sizes(x) if not x.known.is_concrete else list(x.known.shape))


@aten("native_dropout")
def native_dropout(c: Call, x: Value, p: float, train: bool | None) -> list[Value | None]:
    """Convert native_dropout in inference, which returns its operand and a mask of ones."""
    if train and p:
        c.unsupported("it is in training mode; call eval() on the module before the export")
    ones = c.broadcast(c.scalar(True, DataType.BOOL), list(c.shape(x)))
    return [x, ones]

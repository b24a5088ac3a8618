"""Growers of elementwise operators: arithmetic, functions, comparison, selection and logic."""

from __future__ import annotations

from typing import Final

from interposer.core.schema import Op
from interposer.core.types import DataType, TensorInfo
from interposer.ir.graph import Value
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BinaryOperation,
    Cast,
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
    Reshape,
    Subtraction,
    UnaryOperation,
    Where,
)
from interposer.ops.axes import broadcast_shapes
from interposer.testing.drawing import Draw
from interposer.testing.random_networks.growers import grower
from interposer.testing.random_networks.growth import Growth, Skipped

__all__ = ["POSITIVE_FUNCTIONS", "activated", "activation", "broadcastable", "partner"]

_FLOAT = ("float",)
_F = ActivationFunction
_U = UnaryOperation
_B = BinaryOperation

_PARAMETERS: Final[dict[ActivationFunction, tuple[tuple[float, float], ...]]] = {
    _F.TANH: ((1.0, 1.0), (1.0, 1.0), (1.5, 0.5), (-2.0, 0.75)),
    _F.LINEAR: ((1.0, 0.5), (-0.5, -1.25), (2.0, 0.0), (0.0, 3.0), (0.25, 1.0)),
    _F.BOUNDED_RELU: ((6.0, 0.0), (1.0, -1.0), (1.0, 0.0), (2.5, 0.5), (-0.25, -2.0), (3.0, -0.5)),
    _F.LEAKY_RELU: ((0.1, 0.0), (0.25, 0.0), (-0.5, 0.0), (1.5, 0.0), (0.0, 0.0)),
    _F.ELU: ((1.0, 0.0), (0.5, 0.0), (-1.0, 0.0)),
    _F.SELU: ((1.6732632, 1.050701), (0.5, 2.0)),
    _F.CELU: ((1.0, 0.0), (0.5, 0.0), (-2.0, 0.0)),
    _F.HARD_SIGMOID: ((0.2, 0.5), (1 / 6, 0.5), (-0.5, 0.25), (0.5, 1.5)),
    _F.SWISH: ((1.0, 0.0), (1.702, 0.0), (-0.5, 0.0), (0.0, 0.0)),
    _F.THRESHOLDED_RELU: ((1.0, 0.0), (0.0, 0.0), (-0.5, 0.0)),
    _F.SHRINK: ((0.5, 0.0), (0.5, 0.25), (1.0, -0.5)),
}
"""The possible parameters a and b of each function; those of any other function are 0."""
_WITHIN_ONE: Final = frozenset({_F.SIGMOID, _F.HARD_SIGMOID, _F.SOFTSIGN})
POSITIVE_FUNCTIONS: Final = frozenset({_F.SIGMOID, _F.RELU, _F.SOFT_RELU, _F.ABS, _F.SQRT, _F.SQUARE, _F.HARD_SIGMOID})
"""Functions without negative results."""
_FUNCTIONS: Final = (*_F, _F.RELU, _F.RELU, _F.BOUNDED_RELU, _F.SIGMOID)


def activation(draw: Draw) -> Activation:
    """Draw an activation function with its parameters."""
    function = draw.one_of(_FUNCTIONS)
    a, b = draw.one_of(_PARAMETERS.get(function, ((0.0, 0.0),)))
    return Activation(function, a, b)


def activated(growth: Growth, value: Value, op: Activation | None = None) -> Value:
    """Add an activation function to a float value; by default a random one."""
    op = op or activation(growth.draw)
    reach = growth.reach(value)
    if op.function is _F.SQRT and value not in growth.positive:
        value = growth.add(Activation(_F.ABS), value, positive=True)
    if op.function is _F.SQUARE:
        reach = reach * reach
    elif op.function in _WITHIN_ONE:
        reach = 1.0
    elif op.function in (_F.TANH, _F.BOUNDED_RELU):
        reach = max(abs(op.a), abs(op.b))
    elif op.function in (_F.LINEAR, _F.SELU):
        reach = max(reach * max(abs(op.a), abs(op.b), 0.25), abs(op.b))
    return growth.add(op, value, reach=reach, positive=op.function in POSITIVE_FUNCTIONS)


@grower(14, Activation, kinds=_FLOAT)
def _activation(growth: Growth, value: Value) -> None:
    activated(growth, growth.real(value))


# --- functions of one operand -----------------------------------------------------------------------------------------

_SMOOTH: Final = (_U.ABS, _U.NEG, _U.SQUARE, _U.SIN, _U.COS, _U.ERF, _U.ATAN, _U.ASINH)
_STEPS: Final = (_U.CEIL, _U.FLOOR, _U.ROUND, _U.SIGN)
_PREDICATES: Final = (_U.IS_NAN, _U.IS_INF, _U.IS_POSITIVE_INF, _U.IS_NEGATIVE_INF)
_OF_POSITIVE: Final = (_U.SQRT, _U.RSQRT, _U.LOG, _U.RECIPROCAL, _U.ACOSH)
_WITHIN_ONE_ONLY: Final = (_U.ASIN, _U.ACOS, _U.ATANH)
_SMALL_ONLY: Final = (_U.EXP, _U.SINH, _U.COSH, _U.TAN)


@grower(8, ElementwiseUnary, Floor, kinds=_FLOAT)
def _function(growth: Growth, value: Value) -> None:
    draw, x = growth.draw, growth.real(value)
    operations = draw.weighted(
        (_SMOOTH, _STEPS, _PREDICATES, _OF_POSITIVE, _WITHIN_ONE_ONLY, _SMALL_ONLY), (8, 3, 1, 5, 3, 3)
    )
    operation = draw.one_of(operations)
    if operations is _OF_POSITIVE:
        _of_positive(growth, x, operation)
    elif operations is _WITHIN_ONE_ONLY or operations is _SMALL_ONLY:
        bound = 0.96875 if operations is _WITHIN_ONE_ONLY else 1.25
        bounded_x = growth.add(Activation(_F.BOUNDED_RELU, bound, -bound), x, reach=bound)
        growth.add(ElementwiseUnary(operation), bounded_x, reach=3.5)
    elif operation is _U.FLOOR and draw.chance(1, 2):
        growth.add(Floor(), x)
    else:
        reach = growth.reach(x)
        growth.add(ElementwiseUnary(operation), x, reach=reach * reach if operation is _U.SQUARE else reach)


def _of_positive(growth: Growth, x: Value, operation: UnaryOperation) -> None:
    """Add a function of positive numbers; operands that may be negative are made positive and moved away from zero."""
    dtype = x.known.dtype
    if x not in growth.positive:
        x = growth.add(ElementwiseUnary(_U.ABS), x, positive=True)
    if operation is not _U.SQRT:
        lower_bound = growth.weights((1,) if x.known.rank else (), 1.0, dtype)
        lower_bound = growth.add(Activation(_F.LINEAR, 0.125, 1.25), lower_bound, reach=1.4, positive=True)
        x = growth.add(Addition(), x, lower_bound, reach=growth.reach(x) + 1.4, positive=True)
    growth.add(ElementwiseUnary(operation), x, reach=2.0, positive=operation in (_U.SQRT, _U.RSQRT, _U.RECIPROCAL))


@grower(2, ElementwiseUnary, kinds=())
def _integer_function(growth: Growth, value: Value) -> None:
    x = _integers(growth, value)
    operation = growth.draw.one_of((_U.ABS, _U.NEG, _U.SIGN, _U.SQUARE, _U.BITWISE_NOT))
    growth.add(ElementwiseUnary(operation), x, reach=growth.reach(x) * 2)


def _integers(growth: Growth, value: Value) -> Value:
    """Return an integer value that is not quantized: the value, another one, or a new one."""
    if value.known.dtype.is_integer and not value.known.is_quantized:
        return value
    integers = growth.another(lambda candidate: candidate.known.dtype.is_integer and not candidate.known.is_quantized)
    if integers is not None and growth.draw.chance(1, 2):
        return integers
    dtype = growth.draw.weighted((DataType.INT32, DataType.INT64, DataType.INT8, DataType.INT16), (6, 3, 1, 1))
    return growth.add(Cast(dtype), growth.real(value))


# --- functions of two operands ----------------------------------------------------------------------------------------


def broadcastable(growth: Growth, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Draw a shape that broadcasts with `shape`: the same, scalar, of other rank, with some sizes of 1, or larger."""
    draw, rank = growth.draw, len(shape)
    variant = draw.below(8)
    if variant == 0:
        return ()
    if variant == 1:
        return tuple(shape[rank - draw.integer(0, rank) :]) if rank else ()
    if variant == 2 and rank < 5:
        return (*(draw.size(3) for _ in range(draw.integer(1, 2))), *shape)
    if variant in (3, 4):
        return tuple(size if draw.chance(1, 2) else 1 for size in shape)
    if variant == 5:
        return (1,) * rank
    if variant == 6:
        return tuple(draw.size(9) if size == 1 else size for size in shape)
    return tuple(shape)


def partner(growth: Growth, value: Value) -> Value:
    """Return a value of the same type that broadcasts with `value`: itself, another one, a constant or an input."""
    draw, info = growth.draw, value.known
    if draw.chance(1, 20):
        return value
    if draw.chance(1, 2):
        candidate = growth.another(lambda candidate: candidate is not value and candidate.known == info)
        if candidate is not None:
            return candidate
    if draw.chance(1, 3):
        candidate = growth.another(lambda y: y.known.dtype is info.dtype and not y.known.is_quantized
                                   and y is not value and _broadcast(growth, y, value))  # fmt: skip
        if candidate is not None:
            return candidate
    shape = broadcastable(growth, tuple(info.shape))
    reach = draw.one_of((0.5, 1.0, 2.0))
    if draw.chance(1, 4):
        return growth.input(TensorInfo(shape, info.dtype), reach)
    return growth.weights(shape, reach, info.dtype)


def _broadcast(growth: Growth, value: Value, other_value: Value) -> bool:
    shape = broadcast_shapes(value.known.shape, other_value.known.shape)
    return shape is not None and growth.fits(shape)


def paired(growth: Growth, value: Value) -> tuple[Value, Value]:
    """Return the value and a partner in random order, so that constants are as often first as second."""
    second = partner(growth, value)
    return (value, second) if growth.draw.chance(1, 2) else (second, value)


_ARITHMETIC: Final = (Addition(), Addition(), Subtraction(), Multiplication(), Multiplication(), Maximum(), Minimum())
_RARE: Final = (ElementwiseBinary(_B.SQ_DIFF), ElementwiseBinary(_B.ATAN2), Division(), ElementwiseBinary(_B.POWER),
                ElementwiseBinary(_B.FLOOR_DIV), ElementwiseBinary(_B.MOD), ElementwiseBinary(_B.FMOD))  # fmt: skip


@grower(16, Addition, Subtraction, Multiplication, Maximum, Minimum, kinds=_FLOAT)
def _arithmetic(growth: Growth, value: Value) -> None:
    op = growth.choice(_ARITHMETIC, type)
    a, b = paired(growth, growth.real(value))
    growth.add(op, a, b, reach=_reach_of(growth, op, a, b))


def _reach_of(growth: Growth, op: Op, a: Value, b: Value) -> float:
    first_reach, second_reach = growth.reach(a), growth.reach(b)
    if isinstance(op, Multiplication):
        return first_reach * second_reach
    return first_reach + second_reach if isinstance(op, Addition | Subtraction) else max(first_reach, second_reach)


@grower(5, ElementwiseBinary, Division, kinds=_FLOAT)
def _rare_arithmetic(growth: Growth, value: Value) -> None:
    """Add an operation that is not defined everywhere; the second operand, or for POWER the first, is made positive."""
    op = growth.choice(_RARE, type)
    x = growth.real(value)
    second_operand = partner(growth, x)
    if op == ElementwiseBinary(_B.POWER):
        base = growth.add(Activation(_F.SOFT_RELU), x, positive=True)
        exponent = growth.add(Activation(_F.BOUNDED_RELU, 2.0, -2.0), second_operand, reach=2.0)
        growth.add(op, base, exponent, reach=growth.reach(x) * growth.reach(x))
        return
    if op not in (ElementwiseBinary(_B.SQ_DIFF), ElementwiseBinary(_B.ATAN2)):
        second_operand = growth.add(Activation(_F.ABS), second_operand, positive=True)
        second_operand = growth.add(
            Activation(_F.LINEAR, 1.0, 0.75), second_operand, reach=growth.reach(second_operand) + 0.75, positive=True
        )
    growth.add(op, x, second_operand, reach=growth.reach(x) * 2)


_INTEGER: Final = (_B.ADD, _B.SUB, _B.MUL, _B.DIV, _B.FLOOR_DIV, _B.MOD, _B.FMOD, _B.MAXIMUM, _B.MINIMUM, _B.SQ_DIFF,
                   _B.BITWISE_AND, _B.BITWISE_OR, _B.BITWISE_XOR, _B.SHIFT_LEFT, _B.SHIFT_RIGHT)  # fmt: skip


@grower(3, ElementwiseBinary, kinds=_FLOAT)
def _integer_arithmetic(growth: Growth, value: Value) -> None:
    x = _integers(growth, value)
    operation = growth.draw.one_of(_INTEGER)
    growth.add(ElementwiseBinary(operation), *paired(growth, x), reach=growth.reach(x) * 4)


@grower(3, Prelu, kinds=_FLOAT)
def _prelu(growth: Growth, value: Value) -> None:
    x = growth.real(value)
    shape = tuple(x.known.shape)
    slopes = growth.draw.one_of((shape[-1:], (), shape[1:], (1,) * len(shape)))
    growth.add(Prelu(), x, growth.weights(slopes, 1.0, x.known.dtype))


# --- truth values -----------------------------------------------------------------------------------------------------


@grower(4, Comparison, kinds=_FLOAT)
def _comparison(growth: Growth, value: Value) -> None:
    _compared(growth, value)


def _compared(growth: Growth, value: Value) -> Value:
    x = value if value.known.dtype.is_integer and not value.known.is_quantized else growth.real(value)
    operation = growth.draw.weighted(tuple(ComparisonOperation), (1, 3, 3, 3, 3, 1))
    return growth.add(Comparison(operation), *paired(growth, x), reach=1.0)


def _truth(growth: Growth, value: Value) -> Value:
    """Return a boolean value: an existing one, or the result of a new comparison."""
    if value.known.dtype is DataType.BOOL:
        return value
    truth = growth.another(lambda candidate: candidate.known.dtype is DataType.BOOL)
    return truth if truth is not None and growth.draw.chance(2, 3) else _compared(growth, value)


@grower(5, Where, Comparison, kinds=_FLOAT)
def _where(growth: Growth, value: Value) -> None:
    draw = growth.draw
    x = growth.real(value)
    if draw.chance(1, 3):
        condition: Value = growth.input(TensorInfo(broadcastable(growth, tuple(x.known.shape)), DataType.BOOL))
    else:
        condition = _truth(growth, x)
    if not _broadcast(growth, condition, x):
        condition = _compared(growth, x)
    growth.add(Where(), condition, *paired(growth, x))


@grower(2, LogicalBinary, ElementwiseUnary, kinds=_FLOAT)
def _logic(growth: Growth, value: Value) -> None:
    draw, x = growth.draw, _truth(growth, value)
    if draw.chance(1, 3):
        growth.add(ElementwiseUnary(_U.LOGICAL_NOT), x)
        return
    growth.add(LogicalBinary(draw.one_of(tuple(LogicalBinaryOperation))), *paired(growth, x), reach=1.0)


@grower(4, Cast)
def _cast(growth: Growth, value: Value) -> None:
    draw, dtype = growth.draw, value.known.dtype
    if value.known.is_quantized:
        value = growth.real(value)
    types = (DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT64, DataType.INT32, DataType.INT64,
             DataType.INT8, DataType.UINT8, DataType.INT16, DataType.BOOL)  # fmt: skip
    target_type = draw.weighted(types, (4, 4, 2, 2, 4, 3, 1, 1, 1, 2))
    if target_type is dtype:
        raise Skipped
    if target_type is DataType.UINT8 and value not in growth.positive and value.known.dtype.is_float:
        value = growth.add(Activation(_F.ABS), value, positive=True)
    if target_type.is_integer and value.known.dtype.is_float and growth.reach(value) < 4:
        value = growth.add(Activation(_F.LINEAR, 5.5), value, reach=growth.reach(value) * 5.5)
    growth.add(Cast(target_type), value)


@grower(2, Reshape, Addition, kinds=_FLOAT)
def _outer(growth: Growth, value: Value) -> None:
    """Add arithmetic of a column and a row that are broadcast against each other."""
    x = growth.real(value)
    if x.known.rank != 1:
        raise Skipped
    size = x.known.shape[0]
    column = growth.add(Reshape((size, 1)), x)
    growth.add(growth.choice(_ARITHMETIC, type), *paired(growth, column), reach=8.0)

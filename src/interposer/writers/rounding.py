"""The rounding of activations (DynamicFakeQuantization), which no format has, as layers of ordinary arithmetic."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.types import DataType
from interposer.ir.graph import Layer, Value
from interposer.ops import (
    Addition,
    Cast,
    Division,
    DynamicFakeQuantization,
    ElementwiseUnary,
    Floor,
    Maximum,
    Minimum,
    Multiplication,
    Reduce,
    ReduceOperation,
    Subtraction,
    UnaryOperation,
)
from interposer.ops.reduction import reduced_axes
from interposer.rewriting.pattern import New, constant, rewrite

__all__ = ["expand_rounding"]

_LEAST: Final = 1e-36
"""The smallest range, which replaces a range of 0."""


@rewrite(DynamicFakeQuantization)
def expand_rounding(op: DynamicFakeQuantization, layer: Layer) -> New:
    """Replace DynamicFakeQuantization by layers of float32 arithmetic."""
    x, dtype = layer.values[0], layer.output.known.dtype
    if dtype is DataType.FLOAT32:
        return _rounded(op, x, x.known.rank)
    return New(Cast(dtype), [_rounded(op, New(Cast(DataType.FLOAT32), [x]), x.known.rank)])


def _rounded(op: DynamicFakeQuantization, x: Value | New, rank: int) -> New:
    axes = reduced_axes(op.axes, rank)
    scale, inverse, zero_point = _asymmetric(x, axes) if op.asymmetric else _symmetric(x, axes)
    scaled = New(Addition(), [New(Multiplication(), [x, inverse]), zero_point])
    low = _number(-128.0 if op.asymmetric else -127.0)
    clamped = New(Minimum(), [New(Maximum(), [scaled, low]), _number(127.0)])
    steps = New(Subtraction(), [_nearest(clamped), zero_point])
    return New(Multiplication(), [steps, scale])


def _symmetric(x: Value | New, axes: tuple[int, ...]) -> tuple[New, New, New]:
    """Return scale, inverse of the scale, and zero point."""
    largest = New(Maximum(), [_reduced(ReduceOperation.MAX, _unary(UnaryOperation.ABS, x), axes), _number(_LEAST)])
    steps = _number(127.0)
    return New(Division(), [largest, steps]), New(Division(), [steps, largest]), _number(0.0)


def _asymmetric(x: Value | New, axes: tuple[int, ...]) -> tuple[New, New, New]:
    """Return scale, inverse of the scale, and zero point."""
    low = New(Minimum(), [_reduced(ReduceOperation.MIN, x, axes), _number(0.0)])
    high = New(Maximum(), [_reduced(ReduceOperation.MAX, x, axes), _number(0.0)])
    scale = New(Division(), [New(Subtraction(), [high, low]), _number(255.0)])
    scale = New(Maximum(), [scale, _number(_LEAST)])
    zero_point = New(Subtraction(), [_number(-128.0), New(Division(), [low, scale])])
    return scale, New(Division(), [_number(1.0), scale]), _nearest(zero_point)


def _reduced(operation: ReduceOperation, x: Value | New, axes: tuple[int, ...]) -> Value | New:
    return New(Reduce(axis=axes, keep_dims=True, operation=operation), [x]) if axes else x


def _nearest(x: New) -> New:
    """Round to whole numbers, halves away from zero."""
    raised_magnitude = New(Addition(), [_unary(UnaryOperation.ABS, x), _number(0.5)])
    return New(Multiplication(), [New(Floor(), [raised_magnitude]), _unary(UnaryOperation.SIGN, x)])


def _unary(operation: UnaryOperation, x: Value | New) -> New:
    return New(ElementwiseUnary(operation), [x])


def _number(number: float) -> New:
    return constant(np.array(number, np.float32))

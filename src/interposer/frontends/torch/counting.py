"""Converters for operators that count elements: histc and bincount."""

from __future__ import annotations

import numpy as np

from interposer.core.types import DataType
from interposer.frontends.torch.call import Call, Number
from interposer.frontends.torch.registry import aten
from interposer.ir.graph import Value
from interposer.ops.dynamic import DynamicBroadcastTo
from interposer.ops.elementwise import BinaryOperation, ComparisonOperation
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.scatter import ScatterElements, ScatterFunction

__all__: list[str] = []


@aten("histc")
def histc(c: Call, x: Value, bins: int = 100, low: Number = 0, high: Number = 0) -> Value:
    """Convert histc: the number of elements in each of some bins of equal width; others are not counted."""
    zeros = c.constant(np.zeros(bins, c.dtype.numpy))
    if 0 in x.known.shape:
        return zeros
    line = c.reshape(x, [-1])
    edges = (c.scalar(low, line.known.dtype), c.scalar(high, line.known.dtype))
    start, end = edges if low != high else _extremes(c, line)
    inside = c.both(
        c.compare(ComparisonOperation.GREATER_OR_EQUAL, line, start),
        c.compare(ComparisonOperation.LESS_OR_EQUAL, line, end),
    )
    ratio = c.over(c.times(c.minus(line, start), bins), c.minus(end, start))
    places = c.cast(c.where(inside, ratio, 0), DataType.INT64)
    places = c.binary(BinaryOperation.MINIMUM, places, bins - 1)  # the last bin includes its end
    return _counted(c, zeros, places, c.cast(inside, c.dtype))


def _extremes(c: Call, line: Value) -> tuple[Value, Value]:
    """Return the smallest and the largest element; if they are equal, 1 less and 1 more."""
    low, high = (c.add(Reduce((0,), False, kind), line) for kind in (ReduceOperation.MIN, ReduceOperation.MAX))
    margin = c.cast(c.compare(ComparisonOperation.EQUAL, low, high), line.known.dtype)
    return c.minus(low, margin), c.plus(high, margin)


@aten("bincount")
def bincount(c: Call, x: Value, weights: Value | None = None, minlength: int = 0) -> Value:
    """Convert bincount: how often each integer occurs, or the sum of its weights; negative ones are an error."""
    places = c.cast(x, DataType.INT64)
    largest = c.add(Reduce((0,), False, ReduceOperation.MAX), c.joined([places, _line(c, minlength - 1)], 0))
    size = c.plus(largest, 1)
    zeros = c.add(DynamicBroadcastTo(), c.scalar(0, c.dtype), c.size_vector([size]))
    ones = c.plus(c.times(places, 0), 1)
    is_negative = c.compare(ComparisonOperation.LESS, places, 0)
    return _counted(c, zeros, c.where(is_negative, size, places), c.cast(ones if weights is None else weights, c.dtype))


def _line(c: Call, number: int) -> Value:
    return c.constant(np.array([number], np.int64))


def _counted(c: Call, zeros: Value, places: Value, counts: Value) -> Value:
    return c.add(ScatterElements(0, ScatterFunction.ADD), zeros, places, counts)

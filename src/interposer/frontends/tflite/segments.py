"""TFLite converters for reductions over segments of rows."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.types import Dim
from interposer.frontends.elementwise import LESS
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Where
from interposer.ops.rearrange import Concat, Slice
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.reshape import BroadcastTo, Reshape, Shape
from interposer.ops.scatter import ScatterFunction, ScatterNd

__all__: list[str] = []

_FUNCTIONS: Final = {
    "UNSORTED_SEGMENT_SUM": ScatterFunction.ADD,
    "UNSORTED_SEGMENT_PROD": ScatterFunction.MUL,
    "UNSORTED_SEGMENT_MAX": ScatterFunction.MAX,
    "UNSORTED_SEGMENT_MIN": ScatterFunction.MIN,
}


@operator("SEGMENT_SUM")
def segment_sum(node: Node) -> Value:
    """Convert SEGMENT_SUM: add each row to the result's row with the number of its segment.

    The greatest segment number determines how many rows the result has.
    """
    data, segment_numbers = node.value(0), node.value(1, rank=1)
    before_first, one = (node.constant(np.full(1, number, segment_numbers.known.dtype.numpy)) for number in (-1, 1))
    greatest = node.step(Reduce((0,), True, ReduceOperation.MAX), node.step(Concat(0), segment_numbers, before_first))
    row_shape = node.step(Slice((1,), (-1,)), node.step(Shape(segment_numbers.known.dtype), data))
    shape = node.step(Concat(0), node.step(Addition(), greatest, one), row_shape)
    op = ScatterNd(ScatterFunction.ADD, input_enabled=False)
    return node.result(op, shape, _as_column(node, segment_numbers), data)


@operator(*_FUNCTIONS)
def unsorted_segments(node: Node) -> Value:
    """Convert UNSORTED_SEGMENT_SUM, _PROD, _MAX and _MIN; rows with a negative segment number are dropped.

    They are written to an extra row, which is sliced off.
    """
    data, segment_numbers = node.value(0), node.value(1)
    count = node.integer_of(2, "the number of segments")
    shape = data.known.shape[segment_numbers.known.rank :]
    if any(isinstance(size, Dim) for size in shape):
        node.open_shape("the size of a row is not known")
    if count < 0:
        node.fail(f"the number of segments is {count}; expected 0 or more")
    function = _FUNCTIONS[node.kind]
    start = node.constant(np.full((), function.neutral(data.known.dtype), data.known.dtype.numpy))
    base = node.step(BroadcastTo((count + 1, *shape)), start)
    rows = _as_column(node, _kept(node, segment_numbers, count))
    scattered = node.step(ScatterNd(function), base, rows, node.step(Reshape((-1, *shape)), data))
    return node.result(Slice((0,) * (1 + len(shape)), (count, *shape)), scattered)


def _kept(node: Node, numbers: Value, count: int) -> Value:
    """Return the segment numbers with `count` in place of the negative ones."""
    zero, last = (node.constant(np.full((), number, numbers.known.dtype.numpy)) for number in (0, count))
    is_negative = node.step(LESS, numbers, zero)
    return node.step(Where(), is_negative, last, numbers)


def _as_column(node: Node, numbers: Value) -> Value:
    return node.step(Reshape((-1, 1)), numbers)

"""TensorFlow converters for operators that group rows by numbers, or write them to places that the data determines."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import Array, DataType, Dim
from interposer.frontends.elementwise import EQUAL, LESS, LOGICAL_NOT
from interposer.frontends.reshaping import reshaped
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.dynamic import DynamicBroadcastTo
from interposer.ops.elementwise import Addition, Division, Maximum, Multiplication, Where
from interposer.ops.rearrange import Concat, Slice, Stack
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.reshape import BroadcastTo, Shape
from interposer.ops.scatter import ScatterFunction, ScatterNd
from interposer.ops.selection import Compress, NonZero

__all__: list[str] = []

_UNSORTED: Final = {
    "UnsortedSegmentMax": ScatterFunction.MAX,
    "UnsortedSegmentMin": ScatterFunction.MIN,
    "UnsortedSegmentProd": ScatterFunction.MUL,
    "UnsortedSegmentSum": ScatterFunction.ADD,
}
_MOST_COUNTERS: Final = 1 << 16
_MOST_PARTITIONS: Final = 1 << 10


@operator("DynamicPartition")
def dynamic_partition(node: Node) -> list[Value]:
    """Convert DynamicPartition: for each number, the rows that have it, in their order."""
    num_partitions, data, numbers = node.integer("num_partitions"), node.value(0), node.value(1)
    if not 1 <= num_partitions <= _MOST_PARTITIONS:
        raise ParseError(f"its num_partitions is {num_partitions}; expected 1 to {_MOST_PARTITIONS}")
    rows, flat_numbers = _rows(node, data, numbers), reshaped(node, numbers, [-1])
    partitions = []
    for number in range(num_partitions):
        is_chosen = node.step(EQUAL, flat_numbers, node.scalar_like(number, flat_numbers))
        partitions.append(node.result(Compress(0), rows, is_chosen))
    return partitions


@operator("DynamicStitch", "ParallelDynamicStitch")
def dynamic_stitch(node: Node) -> Value:
    """Convert DynamicStitch: write rows to the places that indices name; the largest index determines the size."""
    if node.num_inputs < 2 or node.num_inputs % 2:
        raise ParseError(f"it has {node.num_inputs} inputs; expected as many indices as data")
    values = node.values()
    indices_and_data = list(zip(values[: len(values) // 2], values[len(values) // 2 :], strict=True))
    positions = _joined(node, [reshaped(node, indices, [-1]) for indices, _ in indices_and_data])
    rows = _joined(node, [_rows(node, data, indices) for indices, data in indices_and_data])
    shape = _shape_of(node, positions, rows)
    return node.result(ScatterNd(ScatterFunction.UPDATE, input_enabled=False), shape, _column(node, positions), rows)


def _joined(node: Node, values: list[Value]) -> Value:
    return values[0] if len(values) == 1 else node.step(Concat(0), *values)


def _rows(node: Node, data: Value, numbers: Value) -> Value:
    """Return the data with one axis instead of those that they have in common with `numbers`."""
    rank = numbers.known.rank
    if data.known.rank < rank:
        raise ParseError(f"its data have the shape {data.known.shape}, less axes than {numbers.known.shape}")
    return data if rank == 1 else reshaped(node, data, [-1, *data.known.shape[rank:]])


def _column(node: Node, numbers: Value) -> Value:
    return reshaped(node, numbers, [-1, 1])


def _shape_of(node: Node, numbers: Value, rows: Value) -> Value:
    """Return a shape with one row more than the largest number, and the other dimensions of the rows."""
    minus_one, one = (node.constant(np.full(1, value, numbers.known.dtype.numpy)) for value in (-1, 1))
    greatest = node.step(Reduce((0,), True, ReduceOperation.MAX), node.step(Concat(0), numbers, minus_one))
    row_shape = node.step(Slice((1,), (-1,)), node.step(Shape(numbers.known.dtype), rows))
    return node.step(Concat(0), node.step(Addition(), greatest, one), row_shape)


# --- segments ---------------------------------------------------------------------------------------------------------


@operator("SegmentSum", "SegmentMean")
def segment_sum(node: Node) -> Value:
    """Convert SegmentSum and SegmentMean: the sum or mean of the rows with the same number; 0 without any."""
    data, segment_numbers = node.value(0), node.value(1)
    sums = _summed(node, data, segment_numbers)
    if node.kind == "SegmentSum":
        return sums
    counts = _summed(node, node.step(BroadcastTo((1,)), node.scalar_like(1, data)), segment_numbers, like=data)
    return node.result(Division(), sums, node.step(Maximum(), counts, node.scalar_like(1, data)))


def _summed(node: Node, rows: Value, numbers: Value, like: Value | None = None) -> Value:
    """Return the sums of rows with the same number; with `like`, the numbers of such rows as a column."""
    if like is not None:
        sizes = [1] * (like.known.rank - 1)
        length = node.step(Slice((0,), (1,)), node.step(Shape(numbers.known.dtype), numbers))
        ones = node.step(DynamicBroadcastTo(), rows, length)
        rows = reshaped(node, ones, [-1, *sizes])
    shape = _shape_of(node, numbers, rows)
    return node.result(ScatterNd(ScatterFunction.ADD, input_enabled=False), shape, _column(node, numbers), rows)


@operator(*_UNSORTED)
def unsorted_segments(node: Node) -> Value:
    """Convert UnsortedSegmentSum, Prod, Max and Min; rows with a negative number are dropped.

    They are written to an extra row, which is sliced off.
    """
    data, segment_numbers, count = node.value(0), node.value(1), node.integer_of(2, "num_segments")
    shape = data.known.shape[segment_numbers.known.rank :]
    if any(isinstance(size, Dim) for size in shape):
        node.open_shape("the size of a row is not known")
    if not 0 <= count < 1 << 31:
        raise ParseError(f"its num_segments is {count}; expected 0 or more")
    function, dtype = _UNSORTED[node.kind], data.known.dtype
    start = node.constant(np.full((), function.neutral(dtype), dtype.numpy))
    base = node.step(BroadcastTo((count + 1, *shape)), start)
    positions = _column(node, _nonnegative(node, reshaped(node, segment_numbers, [-1]), count))
    scattered = node.step(ScatterNd(function), base, positions, _rows(node, data, segment_numbers))
    return node.result(Slice((0,) * (1 + len(shape)), (count, *shape)), scattered)


def _nonnegative(node: Node, numbers: Value, count: int) -> Value:
    """Return the numbers with `count` in place of the negative ones."""
    is_negative = node.step(LESS, numbers, node.scalar_like(0, numbers))
    return node.step(Where(), is_negative, node.scalar_like(count, numbers), numbers)


# --- sets -------------------------------------------------------------------------------------------------------------


@operator("ListDiff", outputs=("out", "idx"))
def list_difference(node: Node) -> list[Value]:
    """Convert ListDiff: the elements of the first operand that are not in the second one, and where they are."""
    x, excluded = node.value(0), node.value(1)
    column, row = reshaped(node, x, [-1, 1]), reshaped(node, excluded, [1, -1])
    matches = node.cast(node.step(EQUAL, column, row), DataType.INT32)
    num_matches = node.step(Reduce((1,), operation=ReduceOperation.SUM), matches)
    is_new = node.step(EQUAL, num_matches, node.scalar_like(0, num_matches))
    positions = reshaped(node, node.step(NonZero(), is_new), [-1])
    return [node.result(Compress(0), x, is_new), node.cast(positions, node.dtype("out_idx", DataType.INT32))]


@operator("Bincount", "DenseBincount")
def counters(node: Node) -> Value:
    """Convert Bincount: how often each number occurs, or the sum of the weights of its occurrences.

    DenseBincount counts every row of a matrix for itself.
    """
    numbers, size = node.value(0), node.integer_of(1, "size")
    weights, dtype = node.value(2), node.value(2).known.dtype
    rank = numbers.known.rank
    if rank not in ((1, 2) if node.kind == "DenseBincount" else (1,)) or not 0 <= size <= _MOST_COUNTERS:
        node.unsupported(f"it counts {size:,} numbers in the shape {numbers.known.shape}")
    row: Array = np.arange(size)
    column = node.step(Stack(rank), numbers)
    is_equal = node.step(EQUAL, column, node.constant(row.astype(numbers.known.dtype.numpy)))
    hits = node.cast(is_equal, dtype)
    if weights.known.num_elements != 0:
        hits = node.step(Multiplication(), hits, node.step(Stack(rank), weights))
    if node.kind == "DenseBincount" and node.flag("binary_output", False):
        occurs = node.step(Reduce((-2,), operation=ReduceOperation.MAX), node.cast(is_equal, DataType.INT32))
        return node.cast(occurs, dtype)
    return node.result(Reduce((-2,), operation=ReduceOperation.SUM), hits)


@operator("SparseToDense")
def sparse_to_dense(node: Node) -> Value:
    """Convert SparseToDense: write values to the positions in the rows of the indices; the rest has a default value."""
    indices, values, default = node.value(0), node.value(2), node.value(3)
    rank = indices.known.rank
    rows = indices if rank == 2 else reshaped(node, indices, [-1, 1])
    base = node.step(DynamicBroadcastTo(), default, node.value(1))
    if values.known.rank == 0:
        num_rows = node.step(Slice((0,), (1,)), node.step(Shape(DataType.INT64), rows))
        values = node.step(DynamicBroadcastTo(), values, num_rows)
    return node.result(ScatterNd(ScatterFunction.UPDATE), base, rows, values)


@operator("Bucketize")
def bucketize(node: Node) -> Value:
    """Convert Bucketize: the number of boundaries that are not greater than the element."""
    x, boundaries_attribute = node.value(0), node.attribute("boundaries")
    boundaries: Array = np.asarray(
        boundaries_attribute.list.f
        if boundaries_attribute is not None and boundaries_attribute.list is not None
        else (),
        np.float32,
    )
    floats = node.cast(x, DataType.FLOAT64 if x.known.dtype is DataType.FLOAT64 else DataType.FLOAT32)
    column = reshaped(node, floats, [*x.known.shape, 1], x.known.rank)
    limits = node.constant(boundaries.astype(floats.known.dtype.numpy))
    is_less = node.step(LESS, column, limits)
    is_past = node.step(LOGICAL_NOT, is_less)
    return node.result(Reduce((-1,), operation=ReduceOperation.SUM), node.cast(is_past, DataType.INT32))

"""Converters for indexing: lookups, gathers, scatters, masks, and assignments to indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.core.types import DataType
from interposer.frontends.elementwise import FLOOR_DIV, MAXIMUM, MINIMUM, NOT_EQUAL
from interposer.frontends.torch.call import Call, Number, Operand
from interposer.frontends.torch.registry import aten
from interposer.ir.graph import Value
from interposer.ops.dynamic import DynamicBroadcastTo
from interposer.ops.embedding import OneHot
from interposer.ops.gather import Gather, GatherNd
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.reshape import Shape
from interposer.ops.scatter import ScatterElements, ScatterFunction, ScatterNd
from interposer.ops.selection import NonZero, Unique
from interposer.ops.sequence import CumSum

__all__: list[str] = []


@aten("embedding", open_sizes=True)
def embedding(c: Call, weight: Value, indices: Value, *_: Any) -> Value:
    """Convert embedding; padding_idx matters in training only."""
    return c.step(Gather(0), weight, _integers(c, indices))


def _integers(c: Call, indices: Value) -> Value:
    """Return indices as int64, unless they are int32 or int64."""
    return indices if indices.known.dtype in (DataType.INT32, DataType.INT64) else c.cast(indices, DataType.INT64)


@aten("index_select")
def index_select(c: Call, x: Value, dim: int, index: Value) -> Value:
    """Convert index_select."""
    if index.known.rank == 0:
        index = c.reshape(index, [1])
    if x.known.rank == 0:
        return c.reshape(c.step(Gather(0), c.reshape(x, [1]), _integers(c, index)), [])
    return c.step(Gather(c.axis(dim, x.known.rank)), x, _integers(c, index))


@aten("take")
def take(c: Call, x: Value, index: Value) -> Value:
    """Convert take: elements of the flattened tensor."""
    return c.step(Gather(0), c.reshape(x, [math.prod(c.shape(x))]), _integers(c, index))


@aten("nonzero")
def nonzero(c: Call, x: Value) -> Value:
    """Convert nonzero: a row of indices for each element that is not 0."""
    if x.known.rank == 0:
        rows = c.step(NonZero(), c.reshape(x, [1]))
        return c.cast(c.cut(c.swapped(rows, 0, 1), 1, 0, 0), DataType.INT64)
    return c.cast(c.swapped(c.step(NonZero(), x), 0, 1), DataType.INT64)


# --- advanced indexing ------------------------------------------------------------------------------------------------


class _Places(NamedTuple):
    """Indices of some axes: `axes` in ascending order, and for each of them a tensor of indices."""

    axes: tuple[int, ...]
    indices: tuple[Value, ...]

    @property
    def adjacent(self) -> bool:
        """True if the axes follow each other."""
        return self.axes == tuple(range(self.axes[0], self.axes[0] + len(self.axes)))


def _places(c: Call, x: Value, indices: Sequence[Value | None]) -> _Places:
    """Return the indices by axis; a mask stands for the indices of its True elements along as many axes as it has."""
    axes, values, axis = list[int](), list[Value](), 0
    for index in indices:
        if index is None:
            axis += 1
        elif index.known.dtype in (DataType.BOOL, DataType.UINT8):
            columns = _true_places(c, index)
            axes += range(axis, axis + len(columns))
            values += columns
            axis += len(columns)
        else:
            axes.append(axis)
            values.append(_integers(c, index))
            axis += 1
    return _Places(tuple(axes), tuple(values))


def _true_places(c: Call, mask: Value) -> list[Value]:
    """Return the indices of the True elements of a mask, a vector for each of its axes."""
    rows = c.step(NonZero(), c.cast(mask, DataType.BOOL))
    return [c.gather(rows, axis, 0) for axis in range(mask.known.rank)]


def _common(c: Call, indices: Sequence[Value]) -> list[Value]:
    """Return tensors of indices, broadcast to their common shape."""
    values = [c.cast(index, DataType.INT64) for index in indices]
    shapes = {tuple(value.known.shape) for value in values}
    if len(shapes) == 1 and values[0].known.shape.is_concrete:
        return values
    if all(value.known.shape.is_concrete for value in values):
        shape = np.broadcast_shapes(*shapes)
        return [c.broadcast(value, list(shape)) for value in values]
    zero = c.times(values[0], 0)
    for value in values[1:]:
        zero = c.plus(zero, c.times(value, 0))
    return [c.plus(value, zero) for value in values]


def _tuples(c: Call, indices: Sequence[Value]) -> Value:
    """Return indices of several axes as index tuples along the last axis."""
    values = _common(c, indices)
    rank = values[0].known.rank
    if len(values) == 1:
        return c.unsqueezed(values[0], rank) if values[0].known.shape.is_concrete else _last_axis(c, values[0])
    return c.joined([_last_axis(c, value) for value in values], rank)


def _last_axis(c: Call, value: Value) -> Value:
    if value.known.shape.is_concrete:
        return c.unsqueezed(value, value.known.rank)
    if value.known.rank == 1:
        return c.reshape(value, [-1, 1])
    return c.reshape(value, [*c.sizes(value), 1])


def _front(rank: int, axes: Sequence[int]) -> list[int]:
    """Return the permutation that moves axes to the front."""
    return [*axes, *(axis for axis in range(rank) if axis not in axes)]


def _index_rank(places: _Places) -> int:
    return max(value.known.rank for value in places.indices)


def _result_order(places: _Places, rank: int) -> list[int]:
    """Return the permutation from (indices, other axes) to the order of axes in PyTorch's result of an index.

    The axes of the indices come first, unless the indexed axes follow each other: then they take their place.
    """
    index_rank = _index_rank(places)
    other_axes = list(range(index_rank, index_rank + rank - len(places.axes)))
    at = places.axes[0] if places.adjacent else 0
    return [*other_axes[:at], *range(index_rank), *other_axes[at:]]


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(c: Call, x: Value, indices: Sequence[Value | None]) -> Value:
    """Convert indexing by tensors, None and masks."""
    places = _places(c, x, indices)
    if not places.axes:
        return _by_scalar_masks(c, x, indices)
    if len(places.axes) == 1:
        return c.step(Gather(places.axes[0]), x, places.indices[0])
    indexed_axes_first = c.transpose(x, _front(x.known.rank, places.axes))
    rows = c.step(GatherNd(), indexed_axes_first, _tuples(c, places.indices))
    return c.transpose(rows, _result_order(places, x.known.rank))


def _by_scalar_masks(c: Call, x: Value, indices: Sequence[Value | None]) -> Value:
    """Return x indexed by masks of rank 0: with a new first axis, of size 1 if all of them are True."""
    masks = [index for index in indices if index is not None]
    if not masks:
        return x
    truth = c.cast(masks[0], DataType.BOOL)
    for mask in masks[1:]:
        truth = c.both(truth, c.cast(mask, DataType.BOOL))
    row = c.gather(c.step(NonZero(), c.reshape(truth, [1])), 0, 0)
    return c.step(Gather(0), c.unsqueezed(x, 0), row)


@aten("masked_select")
def masked_select(c: Call, x: Value, mask: Value) -> Value:
    """Convert masked_select: the elements where a mask is True, as a vector."""
    shape = list(np.broadcast_shapes(c.shape(x), c.shape(mask)))
    flat_x = c.reshape(c.broadcast(x, shape), [math.prod(shape)])
    truth = c.reshape(c.broadcast(mask, shape), [math.prod(shape)])
    return c.step(Gather(0), flat_x, _true_places(c, truth)[0])


@aten("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(
    c: Call, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False, *_: Any
) -> Value:
    """Convert index_put: assign to, or add to, indexed elements."""
    mask = _only_mask(x, indices)
    if mask is not None and values.known.num_elements == 1:
        return _put_by_mask(c, x, mask, values, accumulate)
    places = _places(c, x, indices)
    if not places.axes:
        return _put_by_scalar_masks(c, x, indices, values, accumulate)
    order = _front(x.known.rank, places.axes)
    tuples = _tuples(c, places.indices)
    updates = _updates(c, x, places, tuples, values)
    written = _scattered(c, c.transpose(x, order), tuples, updates, accumulate)
    return c.transpose(written, list(np.argsort(order)))


def _only_mask(x: Value, indices: Sequence[Value | None]) -> Value | None:
    """Return the mask if it is the only index, and indexes the first axes; else None."""
    masks = [
        index for index in indices if index is not None and index.known.dtype is DataType.BOOL and index.known.rank
    ]
    num_others = sum(index is not None for index in indices) - len(masks)
    return masks[0] if len(masks) == 1 and not num_others and indices[0] is masks[0] else None


def _put_by_mask(c: Call, x: Value, mask: Value, values: Value, accumulate: bool) -> Value:
    expanded_mask = c.reshape(mask, list(mask.known.shape) + [1] * (x.known.rank - mask.known.rank))
    number = c.reshape(c.cast(values, x.known.dtype), [])
    return c.where(expanded_mask, c.plus(x, number) if accumulate else number, x)


def _put_by_scalar_masks(c: Call, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool) -> Value:
    masks = [c.cast(index, DataType.BOOL) for index in indices if index is not None]
    if not masks:
        c.unsupported("it has no indices")
    values = c.cast(values, x.known.dtype)
    if values.known.rank > x.known.rank:
        values = c.reshape(values, list(values.known.shape)[1:])
    truth = masks[0]
    for mask in masks[1:]:
        truth = c.both(truth, mask)
    return c.where(truth, c.plus(x, values) if accumulate else values, x)


def _updates(c: Call, x: Value, places: _Places, tuples: Value, values: Value) -> Value:
    """Return the values in the shape (indices, other axes); they broadcast to the shape of an indexed result."""
    values = c.cast(values, x.known.dtype)
    order = _result_order(places, x.known.rank)
    other_sizes = [x.known.shape[axis] for axis in range(x.known.rank) if axis not in places.axes]
    inverse = list(np.argsort(order))
    expanded_values = (
        c.reshape(values, [1] * (len(order) - values.known.rank) + list(values.known.shape))
        if (values.known.rank < len(order))
        else values
    )
    transposed_values = c.transpose(expanded_values, inverse)
    if tuples.known.shape.is_concrete and x.known.shape.is_concrete:
        return c.broadcast(transposed_values, [*tuples.known.shape[:-1], *other_sizes])
    sizes = c.step(Shape(DataType.INT64), tuples)
    leading_sizes = c.cut(sizes, 0, 0, tuples.known.rank - 1)
    target_shape = c.joined([leading_sizes, c.size_vector(other_sizes)], 0) if other_sizes else leading_sizes
    return c.step(DynamicBroadcastTo(), transposed_values, target_shape)


def _scattered(c: Call, x: Value, tuples: Value, updates: Value, accumulate: bool) -> Value:
    function = ScatterFunction.ADD if accumulate else ScatterFunction.UPDATE
    if x.known.dtype is DataType.BOOL and accumulate:
        scattered = c.step(
            ScatterNd(ScatterFunction.MAX),
            *(c.cast(v, DataType.UINT8) if v is not tuples else v for v in (x, tuples, updates)),
        )
        return c.cast(scattered, DataType.BOOL)
    return c.step(ScatterNd(function), x, tuples, updates)


@aten("masked_scatter")
def masked_scatter(c: Call, x: Value, mask: Value, source: Value) -> Value:
    """Convert masked_scatter: the True elements of a mask get the elements of a source, in order."""
    shape = list(np.broadcast_shapes(c.shape(x), c.shape(mask)))
    size = math.prod(shape)
    flat_mask = c.reshape(c.broadcast(mask, shape), [size])
    if not size or not math.prod(c.shape(source)):
        return c.broadcast(x, shape)
    places = c.minus(c.step(CumSum(0), c.cast(flat_mask, DataType.INT64)), 1)
    places = c.binary(MAXIMUM, places, 0)
    places = c.binary(MINIMUM, places, math.prod(c.shape(source)) - 1)
    values = c.step(Gather(0), c.reshape(source, [math.prod(c.shape(source))]), places)
    return c.where(c.reshape(flat_mask, shape), c.reshape(values, shape), c.broadcast(x, shape))


# --- scatter ----------------------------------------------------------------------------------------------------------

_FUNCTIONS: Final = {
    "sum": ScatterFunction.ADD,
    "add": ScatterFunction.ADD,
    "prod": ScatterFunction.MUL,
    "multiply": ScatterFunction.MUL,
    "amax": ScatterFunction.MAX,
    "amin": ScatterFunction.MIN,
}


@aten("scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce")
def scatter(c: Call, x: Value, dim: int, index: Value, source: Operand, reduce: str | None = None) -> Value:
    """Convert scatter: write elements to indices along an axis, or combine them with those that are there."""
    function = ScatterFunction.UPDATE if reduce is None else _FUNCTIONS[reduce]
    return _elements(c, x, dim, index, source, function)


@aten("scatter_add")
def scatter_add(c: Call, x: Value, dim: int, index: Value, source: Value) -> Value:
    """Convert scatter_add."""
    return _elements(c, x, dim, index, source, ScatterFunction.ADD)


def _elements(c: Call, x: Value, dim: int, index: Value, source: Operand, function: ScatterFunction) -> Value:
    """Add a layer that writes elements along an axis; the source may be larger than the index, which counts."""
    if x.known.rank == 0:
        flat_operands = [
            c.reshape(operand, [1]) if isinstance(operand, Value) and not operand.known.rank else operand
            for operand in (x, index, source)
        ]
        return c.reshape(_elements(c, flat_operands[0], 0, flat_operands[1], flat_operands[2], function), [])  # type: ignore[arg-type]
    if x.known.dtype is DataType.BOOL and function is not ScatterFunction.UPDATE:
        function_for_bool = {ScatterFunction.ADD: ScatterFunction.MAX, ScatterFunction.MUL: ScatterFunction.MIN}
        uint8_operands = [c.cast(operand, DataType.UINT8) for operand in (x, source)]
        return c.cast(
            _elements(c, uint8_operands[0], dim, index, uint8_operands[1], function_for_bool.get(function, function)),
            DataType.BOOL,
        )
    shape = c.shape(index)
    source = c.cast(source, x.known.dtype)
    if not source.known.rank:
        source = c.broadcast(source, list(shape)) if shape else c.reshape(source, [1])
    for axis, size in enumerate(shape):
        if source.known.shape[axis] != size:
            source = c.cut(source, axis, 0, size)
    if not shape:
        index, source = c.reshape(index, [1]), c.reshape(source, [1])
    if 0 in shape:
        return x
    return c.step(ScatterElements(c.axis(dim, x.known.rank), function), x, _integers(c, index), source)


@aten("scatter_reduce.two")
def scatter_reduce(
    c: Call, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """Convert scatter_reduce, with or without the elements that are there already."""
    if x.known.rank == 0:
        x1, i1, s1 = (c.reshape(operand, [1]) if not operand.known.rank else operand for operand in (x, index, source))
        return c.reshape(scatter_reduce(c, x1, 0, i1, s1, reduce, include_self=include_self), [])
    if index.known.num_elements == 0:
        return x
    initial = x if include_self else _neutral(c, x, dim, index, reduce)
    if reduce != "mean":
        return _elements(c, initial, dim, index, source, _FUNCTIONS[reduce])
    sums = _elements(c, initial, dim, index, source, ScatterFunction.ADD)
    start = c.broadcast(c.scalar(1 if include_self else 0, x.known.dtype), list(c.shape(x)))
    counts = _elements(c, start, dim, index, 1, ScatterFunction.ADD)
    counts = c.binary(MAXIMUM, counts, 1)
    if x.known.dtype.is_float:
        return c.over(sums, counts)
    return c.binary(FLOOR_DIV, sums, counts)


def _neutral(c: Call, x: Value, dim: int, index: Value, reduce: str) -> Value:
    """Return x with the neutral element of a reduction at all places that an index names."""
    dtype = x.known.dtype
    if dtype.is_float:
        low, high = -math.inf, math.inf
    elif dtype is DataType.BOOL:
        low, high = 0, 1
    else:
        limits = np.iinfo(dtype.numpy)
        low, high = int(limits.min), int(limits.max)
    numbers: dict[str, Number] = {"sum": 0, "mean": 0, "prod": 1, "amax": low, "amin": high}
    return _elements(c, x, dim, index, numbers[reduce], ScatterFunction.UPDATE)


@aten("index_reduce")
def index_reduce(
    c: Call, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """Convert index_reduce: combine slices at indices along an axis with those that are there."""
    if not x.known.rank:
        reduced_vector = index_reduce(
            c, c.reshape(x, [1]), 0, index, c.reshape(source, [1]), reduce, include_self=include_self
        )
        return c.reshape(reduced_vector, [])
    axis = c.axis(dim, x.known.rank)
    line = (
        c.reshape(index, [-1 if i == axis else 1 for i in range(x.known.rank)]) if index.known.num_elements else index
    )
    places = c.broadcast(line, list(c.shape(source))) if index.known.num_elements else index
    return scatter_reduce(c, x, dim, places, source, reduce, include_self=include_self)


@aten("put")
def put(c: Call, x: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """Convert put: assign to, or add to, elements of the flattened tensor."""
    count = int(index.known.num_elements)
    if not count:
        return x
    flat_x = c.reshape(x, [math.prod(c.shape(x))])
    index_rows = c.reshape(_integers(c, index), [count, 1])
    return c.reshape(_scattered(c, flat_x, index_rows, c.reshape(source, [count]), accumulate), list(c.shape(x)))


@aten("_unique2", "unique_dim")
def unique(c: Call, x: Value, *args: Any) -> list[Value]:
    """Convert unique: the sorted values, the place of each element among them, and their counts."""
    axis = c.axis(args[0], x.known.rank) if "unique_dim" in str(c.node.target) else None
    if not x.known.rank:
        x = c.reshape(x, [1])
    values, _, inverse, counts = c.steps(Unique(axis), x)
    return [values, _requested(c, 1, inverse), _requested(c, 2, counts)]


def _requested(c: Call, index: int, value: Value) -> Value:
    """Return a result of unique in the recorded shape: it is empty if the caller has not requested it."""
    sizes = [size for size in c.val[index].shape if isinstance(size, int)]
    if len(sizes) != c.val[index].dim():
        return value
    return c.constant(np.zeros(sizes, np.int64)) if 0 in sizes else c.reshape(value, sizes)


@aten("unique_consecutive")
def unique_consecutive(
    c: Call, x: Value, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> list[Value]:
    """Convert unique_consecutive: the first of each run of equal elements or slices, and the lengths of runs."""
    flat_x = c.reshape(x, [math.prod(c.shape(x))]) if dim is None else x
    axis = 0 if dim is None else c.axis(dim, x.known.rank)
    count = c.size(flat_x, axis)
    if not count:
        c.unsupported("unique_consecutive of an empty tensor is not supported")
    differs = c.binary(NOT_EQUAL, c.cut(flat_x, axis, 1, count - 1), c.cut(flat_x, axis, 0, count - 1))
    other_axes = tuple(i for i in range(flat_x.known.rank) if i != axis)
    changes = c.step(Reduce(other_axes, False, ReduceOperation.ANY), differs) if other_axes else differs
    begins = c.joined([c.constant(np.ones(1, np.bool_)), changes], 0)
    starts = c.cast(_true_places(c, begins)[0], DataType.INT64)
    inverse = c.minus(c.step(CumSum(0), c.cast(begins, DataType.INT64)), 1)
    ends = c.joined([c.cut(starts, 0, 1, -1), c.constant(np.array([count]))], 0)
    results = [inverse if return_inverse else None, c.minus(ends, starts) if return_counts else None]
    empty = c.constant(np.zeros(0, np.int64))
    inverse, counts = (empty if found is None else found for found in results)
    shaped = c.reshape(inverse, list(c.shape(x))) if return_inverse and dim is None else inverse
    return [c.step(Gather(axis), flat_x, starts), shaped, counts]


@aten("index_add")
def index_add(c: Call, x: Value, dim: int, index: Value, source: Value, *, alpha: Number = 1) -> Value:
    """Convert index_add: add slices at indices along an axis."""
    source = c.cast(source, x.known.dtype)
    source = source if alpha == 1 else c.times(source, alpha)
    return _along(c, x, dim, index, source, ScatterFunction.ADD)


@aten("index_copy")
def index_copy(c: Call, x: Value, dim: int, index: Value, source: Value) -> Value:
    """Convert index_copy: replace slices at indices along an axis."""
    return _along(c, x, dim, index, c.cast(source, x.known.dtype), ScatterFunction.UPDATE)


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(c: Call, x: Value, dim: int, index: Value, value: Operand) -> Value:
    """Convert index_fill: replace slices at indices along an axis by a number."""
    axis = c.axis(dim, x.known.rank)
    count = index.known.num_elements
    shape = [count if i == axis else size for i, size in enumerate(c.shape(x))]
    source = c.broadcast(c.cast(value, x.known.dtype), shape or [1])
    return _along(c, x, dim, index, source, ScatterFunction.UPDATE)


def _along(c: Call, x: Value, dim: int, index: Value, source: Value, function: ScatterFunction) -> Value:
    if x.known.dtype is DataType.BOOL and function is ScatterFunction.ADD:
        uint8_result = _along(
            c, c.cast(x, DataType.UINT8), dim, index, c.cast(source, DataType.UINT8), ScatterFunction.MAX
        )
        return c.cast(uint8_result, DataType.BOOL)
    if not x.known.rank:
        vector_result = _along(c, c.reshape(x, [1]), 0, index, c.reshape(source, [1]), function)
        return c.reshape(vector_result, [])
    axis = c.axis(dim, x.known.rank)
    count = int(index.known.num_elements)
    if not count:
        return x
    order = _front(x.known.rank, [axis])
    source = c.reshape(source, [1]) if not source.known.rank else source
    tuples = c.reshape(_integers(c, index), [count, 1])
    scattered = c.step(ScatterNd(function), c.transpose(x, order), tuples, c.transpose(source, order))
    return c.transpose(scattered, list(np.argsort(order)))


@aten("one_hot")
def one_hot(c: Call, x: Value, classes: int = -1) -> Value:
    """Convert one_hot; the number of classes must be given."""
    if classes < 0:
        c.unsupported("the number of classes is computed from data; give num_classes")
    return c.step(OneHot(classes, -1, 1.0, 0.0, DataType.INT64), x)

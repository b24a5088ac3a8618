"""TFLite converters for StableHLO's gather and scatter, with any roles of their dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from interposer.core.types import DataType
from interposer.frontends.elementwise import GREATER_OR_EQUAL, LESS, LOGICAL_AND
from interposer.frontends.tflite.interior import concrete, padded, sliced
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.stablehlo_products import transposed
from interposer.frontends.tflite.stablehlo_regions import single_operator
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Maximum, Minimum, Where
from interposer.ops.gather import GatherNd
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat, Transpose
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.reshape import BroadcastTo, Reshape
from interposer.ops.scatter import ScatterFunction, ScatterNd

__all__: list[str] = []

_FUNCTIONS: Final = {
    "": ScatterFunction.UPDATE,
    "ADD": ScatterFunction.ADD,
    "MULTIPLY": ScatterFunction.MUL,
    "MUL": ScatterFunction.MUL,
    "MAXIMUM": ScatterFunction.MAX,
    "MINIMUM": ScatterFunction.MIN,
}


class _Places(NamedTuple):
    """How the elements of windows are found in an operand.

    Windows vary along the axes `indexed` of the operand, of which `inserted` have no axis in the window; they cover
    the axes `whole` completely. `starts` has, for each column of the indices, the axis of the operand that it is for.
    """

    shape: tuple[int, ...]
    indexed: tuple[int, ...]
    whole: tuple[int, ...]
    inserted: frozenset[int]
    starts: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(
        cls, node: Node, shape: tuple[int, ...], sizes: Sequence[int], inserted: Sequence[int], starts: Sequence[int]
    ) -> _Places:
        axes = range(len(shape))
        if not {*inserted, *starts} <= {*axes} or len({*starts}) < len(starts) or len(sizes) != len(shape):
            node.fail(f"its dimension numbers do not fit an operand of shape {list(shape)}")
        if any(not 0 <= size <= dim for size, dim in zip(sizes, shape, strict=True)):
            node.fail(f"windows of shape {list(sizes)} do not fit into shape {list(shape)}")
        if any(sizes[axis] > 1 for axis in inserted):
            node.fail(f"windows of shape {list(sizes)} cannot lose the dimensions {list(inserted)}")
        whole_axes = tuple(axis for axis in axes if sizes[axis] == shape[axis] and axis not in inserted)
        indexed_axes = tuple(axis for axis in axes if axis not in whole_axes) or axes[:1]
        whole_axes = tuple(axis for axis in axes if axis not in indexed_axes)
        return cls(shape, tuple(indexed_axes), whole_axes, frozenset(inserted), tuple(starts), tuple(sizes))

    @property
    def window(self) -> tuple[int, ...]:
        """The axes of the operand that are indexed and remain in the window."""
        return tuple(axis for axis in self.indexed if axis not in self.inserted)

    def positions(self, node: Node, indices: Value, batch: tuple[int, ...], *, clamp: bool) -> Value:
        """Return the index tuple of each element of the windows, with shape (batch, window, indexed axes).

        `indices` has the shape (batch, columns). With `clamp`, windows are moved into the operand.
        """
        columns = [self._along(node, indices, batch, axis, clamp) for axis in self.indexed]
        return columns[0] if len(columns) == 1 else node.step(Concat(-1), *columns)

    def _along(self, node: Node, indices: Value, batch: tuple[int, ...], axis: int, clamp: bool) -> Value:
        rank, dtype = len(self.window), indices.known.dtype.numpy
        shape = [1] * (len(batch) + rank + 1)
        if axis in self.window:
            shape[len(batch) + self.window.index(axis)] = self.sizes[axis]
        steps = node.constant(np.arange(math.prod(shape), dtype=dtype).reshape(shape))
        full_shape = (*batch, *(self.sizes[axis_of_window] for axis_of_window in self.window), 1)
        if axis not in self.starts:
            return node.step(BroadcastTo(full_shape), steps)
        start = sliced(node, indices, len(batch), self.starts.index(axis), 1)
        if clamp:
            zero, last_start = (np.array(number, dtype) for number in (0, self.shape[axis] - self.sizes[axis]))
            start = node.step(Minimum(), node.step(Maximum(), start, node.constant(zero)), node.constant(last_start))
        start = node.step(Reshape((*batch, *[1] * rank, 1)), start)
        return node.step(BroadcastTo(full_shape), node.step(Addition(), start, steps))


def _as_rows(node: Node, indices: Value, axis: int) -> tuple[Value, tuple[int, ...]]:
    """Return the indices with their columns along the last axis, and their batch dimensions."""
    shape = concrete(node, indices.known.shape, "the indices")
    if not 0 <= axis <= len(shape):
        node.fail(f"the index vectors are along dimension {axis} of shape {list(shape)}")
    if indices.known.dtype not in {DataType.INT32, DataType.INT64}:
        indices = node.step(Cast(DataType.INT64), indices)
    if axis == len(shape):
        return node.step(Reshape((*shape, 1)), indices), shape
    batch = (*shape[:axis], *shape[axis + 1 :])
    return transposed(node, indices, [*(i for i in range(len(shape)) if i != axis), axis]), batch


def _option(node: Node, name: str) -> tuple[int, ...]:
    return tuple(node.options[name] or ())


@operator("STABLEHLO_GATHER", options=True)
def gather(node: Node) -> Value:
    """Convert STABLEHLO_GATHER to GatherNd on the elements of all windows."""
    x = node.value(0)
    shape = concrete(node, x.known.shape, "the operand")
    indices, batch = _as_rows(node, node.value(1), node.options["index_vector_dim"])
    collapsed_axes, sizes = _option(node, "collapsed_slice_dims"), _option(node, "slice_sizes")
    places = _Places.of(node, shape, sizes, collapsed_axes, _option(node, "start_index_map"))
    if not shape or len(places.starts) != indices.known.shape[-1]:
        node.fail(f"its start index map {places.starts} does not fit indices of shape {indices.known.shape}")
    positions = places.positions(node, indices, batch, clamp=True)
    rows = node.step(GatherNd(), transposed(node, x, (*places.indexed, *places.whole)), positions)
    return node.result(_placed(node, places, len(batch)), rows)


def _placed(node: Node, places: _Places, batch: int) -> Transpose:
    """Return the operator that moves window dimensions to their places in the result."""
    offsets = _option(node, "offset_dims")
    axes = [*places.window, *places.whole]
    rank = batch + len(axes)
    if len(offsets) != len(axes) or not {*offsets} <= {*range(rank)} or len({*offsets}) < len(offsets):
        node.fail(f"the offset dimensions are {offsets}; expected {len(axes)} of {rank}")
    of_window = {place: batch + axes.index(axis) for place, axis in zip(sorted(offsets), sorted(axes), strict=True)}
    batch_axes = iter(range(batch))
    return Transpose(tuple(of_window[place] if place in of_window else next(batch_axes) for place in range(rank)))


@operator("STABLEHLO_SCATTER", options=True)
def scatter(node: Node) -> Value:
    """Convert STABLEHLO_SCATTER to ScatterNd on the elements of all windows; elements out of range are dropped.

    They are written to an extra row, which is sliced off.
    """
    if node.num_inputs != 3:
        node.fail(f"it has {node.num_inputs} inputs; only one operand, its indices and its updates are supported")
    x, updates = node.value(0), node.value(2)
    function = _FUNCTIONS.get(single_operator(node, node.options["update_computation_subgraph_index"]))
    if function is None:
        node.fail("its update computation is not one of: replace, add, multiply, maximum, minimum")
    indices, batch = _as_rows(node, node.value(1), node.options["index_vector_dim"])
    places, update_order = _scattered(node, x, updates, len(batch))
    if len(places.starts) != indices.known.shape[-1]:
        node.fail(f"its dimensions {places.starts} do not fit indices of shape {indices.known.shape}")
    positions = places.positions(node, indices, batch, clamp=False)
    rows = transposed(node, x, (*places.indexed, *places.whole))
    written = _written(node, function, rows, positions, transposed(node, updates, update_order), len(places.indexed))
    inverse_order = np.argsort([*places.indexed, *places.whole])
    return node.result(Transpose(tuple(int(axis) for axis in inverse_order)), written)


def _scattered(node: Node, x: Value, updates: Value, batch: int) -> tuple[_Places, list[int]]:
    """Return the places of the updates in the operand, and the order (batch, indexed, whole) of the updates' axes."""
    shape, of_updates = (concrete(node, operand.known.shape, "an operand") for operand in (x, updates))
    inserted_axes, window_axes = _option(node, "inserted_window_dims"), sorted(_option(node, "update_window_dims"))
    remaining_axes = [axis for axis in range(len(shape)) if axis not in inserted_axes]
    is_valid = len(remaining_axes) == len(window_axes) and {*window_axes} <= {*range(len(of_updates))}
    if not shape or not is_valid or len(of_updates) != batch + len(window_axes):
        node.fail(f"updates of shape {updates.known.shape} do not fit an operand of shape {x.known.shape}")
    sizes = [1] * len(shape)
    for axis, place in zip(remaining_axes, window_axes, strict=True):
        sizes[axis] = of_updates[place]
    places = _Places.of(node, shape, sizes, inserted_axes, _option(node, "scatter_dims_to_operand_dims"))
    place_of = dict(zip(remaining_axes, window_axes, strict=True))
    batch_axes = [axis for axis in range(len(of_updates)) if axis not in window_axes]
    return places, [*batch_axes, *(place_of[axis] for axis in (*places.window, *places.whole))]


def _written(node: Node, function: ScatterFunction, rows: Value, positions: Value, updates: Value, depth: int) -> Value:
    """Return the rows after the updates; positions that are not in the rows are dropped."""
    size, dtype = rows.known.shape[0], positions.known.dtype.numpy
    limits = np.array(rows.known.shape[:depth], dtype)
    extra_rows = np.array([size, *[0] * (depth - 1)], dtype)
    at_least = node.step(GREATER_OR_EQUAL, positions, node.constant(np.zeros_like(limits)))
    is_below = node.step(LESS, positions, node.constant(limits))
    is_in_range = node.step(LOGICAL_AND, at_least, is_below)
    is_inside = node.step(Reduce((-1,), True, ReduceOperation.ALL), is_in_range)
    positions = node.step(Where(), is_inside, positions, node.constant(extra_rows))
    zero = node.constant(np.zeros((), rows.known.dtype.numpy))
    longer_rows = padded(node, rows, [0] * rows.known.rank, [1, *[0] * (rows.known.rank - 1)], zero)
    return sliced(node, node.step(ScatterNd(function), longer_rows, positions, updates), 0, 0, size)

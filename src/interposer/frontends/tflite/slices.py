"""Slices whose bounds are computed at run time, as in the body of a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import Array, Dim
from interposer.frontends.elementwise import ADD, EQUAL, LESS
from interposer.frontends.reshaping import python_ends
from interposer.frontends.tflite.node import Node
from interposer.ir.graph import Value
from interposer.ops.dynamic import DynamicSlice
from interposer.ops.elementwise import Where
from interposer.ops.gather import Gather
from interposer.ops.rearrange import StridedSlice

__all__ = ["computed_slice", "computed_strided_slice"]

_FARTHEST: Final = (1 << 31) - 1


def computed_slice(node: Node) -> tuple[Op, Value, Value, Value]:
    """Return the operator and the operands for SLICE with computed bounds, of which a size of -1 means the rest."""
    x, begin, size = (node.value(index) for index in range(3))
    ends = node.step(ADD, begin, size)
    is_rest = node.step(LESS, size, _like(node, size, 0))
    ends = node.step(Where(), is_rest, _like(node, begin, _FARTHEST), ends)
    return DynamicSlice(tuple(range(x.known.rank))), x, begin, ends


def computed_strided_slice(node: Node) -> Value:
    """Convert STRIDED_SLICE with computed bounds and known strides.

    The slices are taken first. Axes are then removed and inserted by a `StridedSlice` of whole axes.
    """
    options, x = node.options, node.value(0)
    begin, end, strides = node.value(1), node.value(2), np.array(node.integers_of(3, "strides"))
    count = strides.size
    if begin.known.shape != (count,) or end.known.shape != (count,):
        node.fail(f"begin is {begin.known} and end {end.known}; expected {count} elements, one for each stride")
    if options["offset"]:
        end = node.step(ADD, begin, end)
    places = _axes(node, count, options["ellipsis_mask"], options["new_axis_mask"])
    item_numbers, axes = [number for number, _ in places], [axis for _, axis in places]
    is_shrunk = _bits(options["shrink_axis_mask"], item_numbers)
    strides = np.where(is_shrunk, 1, strides[item_numbers])
    forward = np.where(strides > 0, _FARTHEST, -_FARTHEST)
    begin = _replaced(
        node, _picked(node, begin, item_numbers), _bits(options["begin_mask"], item_numbers) & ~is_shrunk, -forward
    )
    end = _replaced(node, _picked(node, end, item_numbers), _bits(options["end_mask"], item_numbers), forward)
    end = _replaced(node, end, is_shrunk, _next(node, begin))
    end = python_ends(node, x, begin, end, axes, strides.tolist())
    operands = x, begin, end, node.constant(strides.astype(begin.known.dtype.numpy))
    structure = {name: options[name] for name in ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")}
    if not any(structure.values()):
        return node.result(DynamicSlice(tuple(axes)), *operands)
    return node.result(_view(count, structure), node.step(DynamicSlice(tuple(axes)), *operands))


def _view(count: int, structure: Mapping[str, int]) -> StridedSlice:
    """Return a slice of `count` whole axes that removes and inserts axes as the masks of `structure` say."""
    zeros, ones, all_axes_mask = (0,) * count, (1,) * count, (1 << count) - 1
    return StridedSlice(zeros, ones, ones, begin_mask=all_axes_mask, end_mask=all_axes_mask, **structure)


def _axes(node: Node, count: int, ellipsis_mask: int, new_axis_mask: int) -> list[tuple[int, int]]:
    """Return pairs of a position in `begin`, which has `count` elements, and the axis of the input that it slices."""
    rank = node.info(0).rank
    inserted = sum(bool(new_axis_mask >> number & 1) for number in range(count))
    num_ellipsis_axes, axis, positions_and_axes = (
        rank - (count - inserted - bool(ellipsis_mask)),
        0,
        list[tuple[int, int]](),
    )
    for number in range(count):
        if ellipsis_mask >> number & 1:
            axis += num_ellipsis_axes
        elif not new_axis_mask >> number & 1:
            positions_and_axes.append((number, axis))
            axis += 1
    if axis > rank or num_ellipsis_axes < 0:
        node.fail(f"begin has {count} elements, which are too many for {node.info(0)}")
    return positions_and_axes


def _bits(mask: int, numbers: Sequence[int]) -> Array:
    return np.array([bool(mask >> number & 1) for number in numbers], np.bool_)


def _picked(node: Node, vector: Value, numbers: Sequence[int]) -> Value:
    """Return the elements of a vector at these positions."""
    if vector.known.shape == (len(numbers),):
        return vector
    return node.step(Gather(0), vector, node.constant(np.array(numbers, np.int32)))


def _replaced(node: Node, vector: Value, mask: Array, substitutes: Array | Value) -> Value:
    """Return a vector with those elements of `substitutes` that the mask selects."""
    if not mask.any():
        return vector
    substitute = (
        substitutes if isinstance(substitutes, Value) else node.constant(substitutes.astype(vector.known.dtype.numpy))
    )
    return node.step(Where(), node.constant(mask), substitute, vector)


def _next(node: Node, begin: Value) -> Value:
    """Return the ends of slices of one element: the index plus 1, but the end of the axis for the last index, -1."""
    next_begin = node.step(ADD, begin, _like(node, begin, 1))
    is_last = node.step(EQUAL, begin, _like(node, begin, -1))
    return node.step(Where(), is_last, _like(node, begin, _FARTHEST), next_begin)


def _like(node: Node, vector: Value, number: int) -> Value:
    """Return a constant with the type and length of a vector, in which every element is `number`."""
    count = vector.known.shape[0] if vector.known.rank == 1 else node.fail(f"{vector.known} is not a vector")
    size = 1 if isinstance(count, Dim) else count
    return node.constant(np.full(size, number, vector.known.dtype.numpy))

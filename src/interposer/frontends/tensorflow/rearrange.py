"""TensorFlow converters for operators that rearrange elements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import MAX_RANK, Dim
from interposer.frontends.axes import checked_axes, checked_axis
from interposer.frontends.pieces import equal_pieces, has_unknown_size, pieces_of, rolled
from interposer.frontends.reshaping import inserted_axes, python_ends, removed_axes
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.dynamic import DynamicPad, DynamicSlice
from interposer.ops.elementwise import Addition, Where
from interposer.ops.gather import Gather
from interposer.ops.rearrange import (
    Concat,
    Pad,
    PaddingMode,
    ReverseV2,
    Slice,
    Splitter,
    Stack,
    StridedSlice,
    Tile,
    Transpose,
)

__all__: list[str] = []

_MODES: Final = {"REFLECT": PaddingMode.REFLECT, "SYMMETRIC": PaddingMode.SYMMETRIC}
_FARTHEST: Final = 2**31 - 1


@operator("Transpose")
def transpose(node: Node) -> Value:
    """Convert Transpose; the permutation is an operand."""
    permutation = checked_axes(node.integers_of(1, "permutation"), node.info(0).rank)
    return node.result(Transpose(permutation), node.value(0))


@operator("Concat")
def concat_with_axis_first(node: Node) -> Value:
    """Convert Concat, whose first operand is the axis."""
    return _concat(node, node.integer_of(0, "axis"), node.values(1))


@operator("ConcatV2")
def concat(node: Node) -> Value:
    """Convert ConcatV2, whose last operand is the axis."""
    return _concat(node, node.integer_of(node.num_inputs - 1, "axis"), node.values()[:-1])


def _concat(node: Node, axis: int, values: Sequence[Value]) -> Value:
    if not values:
        raise ParseError("it has no tensors")
    return values[0] if len(values) == 1 else node.result(Concat(checked_axis(axis, values[0].known.rank)), *values)


@operator("Pack")
def pack(node: Node) -> Value:
    """Convert Pack: stack tensors along a new axis."""
    values = node.values()
    return node.result(Stack(checked_axis(node.integer("axis", 0), values[0].known.rank + 1, "the result")), *values)


@operator("Unpack")
def unpack(node: Node) -> list[Value]:
    """Convert Unpack: cut a tensor into slices along an axis, which is removed."""
    x = node.value(0)
    axis, count = checked_axis(node.integer("axis", 0), x.known.rank), node.integer("num")
    return unstacked(node, x, axis, count)


def unstacked(node: Node, x: Value, axis: int, count: int) -> list[Value]:
    """Return `count` slices of a tensor along an axis, without the axis."""
    if not 0 <= count < 1 << 16:
        raise ParseError(f"it has {count} outputs")
    if not count:
        return []
    pieces = node.steps(Splitter(axis, (1,) * count), x)
    return [removed_axes(node, piece, [axis]) for piece in pieces]


@operator("Split")
def split(node: Node) -> list[Value]:
    """Convert Split into equal pieces; the axis is the first operand."""
    x, count = node.value(1), node.integer("num_split")
    axis = checked_axis(node.integer_of(0, "axis"), x.known.rank)
    size, is_unknown = x.known.shape[axis], has_unknown_size(x, axis)
    if not 0 < count < 1 << 16 or not (is_unknown or size % count == 0):
        raise ParseError(f"an axis of size {size} cannot be cut into {count} equal pieces")
    if count == 1:
        return [x]
    if is_unknown:
        return equal_pieces(node, x, axis, count)
    return node.results(Splitter(axis, (size // count,) * count), x)


@operator("SplitV")
def split_sizes(node: Node) -> list[Value]:
    """Convert SplitV; the sizes are an operand, and one may be -1 for the remainder."""
    axis = checked_axis(node.integer_of(2, "axis"), node.info(0).rank)
    return pieces_of(node, node.value(0), axis, node.integers_of(1, "sizes"))


@operator("Slice")
def slice_(node: Node) -> Value:
    """Convert Slice; a size of -1 means all elements up to the end of the axis."""
    x = node.value(0)
    if node.is_computed(1, 2):
        return _computed_slice(node)
    begin, size = node.dimensions_of(1, "begin"), node.dimensions_of(2, "size")
    if any(isinstance(start, Dim) for start in begin):
        node.integers_of(1, "begin")
    if len(begin) != x.known.rank or len(size) != x.known.rank:
        raise ParseError(f"it has {len(begin)} starts and {len(size)} sizes for the shape {x.known.shape}")
    pairs = zip(size, begin, x.known.shape, strict=True)
    is_whole_axis = [isinstance(count, Dim) and count is dim and first == 0 for count, first, dim in pairs]
    if any(isinstance(count, Dim) and not is_whole for count, is_whole in zip(size, is_whole_axis, strict=True)):
        node.integers_of(2, "size")
    return node.result(
        Slice(begin, tuple(-1 if is_whole else n for n, is_whole in zip(size, is_whole_axis, strict=True))), x
    )


def _computed_slice(node: Node) -> Value:
    """Convert a slice whose start or size is data; a size that is data is not negative."""
    x, begin, size = node.value(0), node.value(1), node.value(2)
    end = node.step(Addition(), begin, size)
    if size.constant is not None and (size.constant < 0).any():
        farthest = node.constant(np.array(_FARTHEST, size.known.dtype.numpy))
        end = node.step(Where(), node.constant(size.constant < 0), farthest, end)
    return node.result(DynamicSlice(tuple(range(x.known.rank))), x, begin, end)


@operator("StridedSlice")
def strided_slice(node: Node) -> Value:
    """Convert StridedSlice with all of its masks."""
    masks = {
        name: node.integer(name, 0)
        for name in ("begin_mask", "end_mask", "shrink_axis_mask", "ellipsis_mask", "new_axis_mask")
    }
    if any(not 0 <= mask < 1 << 32 for mask in masks.values()):
        raise ParseError(f"its masks are {masks}")
    strides = node.integers_of(3, "strides")
    if node.is_computed(1, 2):
        return _computed_strided_slice(node, masks, strides)
    begin, end = node.dimensions_of(1, "begin"), node.dimensions_of(2, "end")
    if not len(begin) == len(end) == len(strides):
        raise ParseError(f"it has {len(begin)} starts, {len(end)} ends and {len(strides)} strides")
    if any(isinstance(bound, Dim) for bound in (*begin, *end)):
        begin, end = _settled(node, masks, begin, end)
    op = StridedSlice(tuple(map(_near, begin)), tuple(map(_near, end)), tuple(map(_near, strides)), **masks)
    return node.result(op, node.value(0))


def _settled(
    node: Node, masks: dict[str, int], begin: Sequence[int], end: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return begin and end without unknown dimensions; an end that is the whole dimension becomes a mask."""
    settled_begin, settled_end = list(begin), list(end)
    shape = node.info(0).shape
    has_plain_axes = not masks["ellipsis_mask"] and not masks["new_axis_mask"]
    for i, (first, last) in enumerate(zip(begin, end, strict=True)):
        if isinstance(first, Dim):
            if not masks["begin_mask"] >> i & 1:
                node.integers_of(1, "begin")
            settled_begin[i] = 0
        if isinstance(last, Dim):
            is_whole = has_plain_axes and i < len(shape) and last is shape[i]
            if not is_whole and not masks["end_mask"] >> i & 1 and not masks["shrink_axis_mask"] >> i & 1:
                node.integers_of(2, "end")
            settled_end[i] = 0
            masks["end_mask"] |= 1 << i
    return tuple(settled_begin), tuple(settled_end)


def _computed_strided_slice(node: Node, masks: dict[str, int], strides: Sequence[int]) -> Value:
    """Convert a slice whose bounds are data: slices along axes, then axes that are dropped, then new ones."""
    x = node.value(0)
    index_of_axis = _indices(node, masks, len(strides))
    index_of_sliced_axis = {
        axis: i
        for axis, i in index_of_axis.items()
        if not masks["shrink_axis_mask"] >> i & 1 and not masks["begin_mask"] >> i & masks["end_mask"] >> i & 1
    }
    if index_of_sliced_axis:
        steps = node.constant(np.array([strides[i] for i in index_of_sliced_axis.values()], node.info(1).dtype.numpy))
        starts = _bounds(
            node,
            1,
            index_of_sliced_axis.values(),
            masks["begin_mask"],
            [0 if strides[i] > 0 else -1 for i in index_of_sliced_axis.values()],
        )
        farthest_ends = [_FARTHEST if strides[i] > 0 else -_FARTHEST for i in index_of_sliced_axis.values()]
        ends = _bounds(node, 2, index_of_sliced_axis.values(), masks["end_mask"], farthest_ends)
        ends = python_ends(
            node, x, starts, ends, tuple(index_of_sliced_axis), [strides[i] for i in index_of_sliced_axis.values()]
        )
        x = node.step(DynamicSlice(tuple(index_of_sliced_axis)), x, starts, ends, steps)
    for axis, i in sorted(index_of_axis.items(), reverse=True):
        if masks["shrink_axis_mask"] >> i & 1:
            x = node.step(Gather(axis), x, node.step(Gather(0), node.value(1), node.constant(np.array(i))))
    return _with_new_axes(node, x, masks, len(strides))


def _indices(node: Node, masks: dict[str, int], count: int) -> dict[int, int]:
    """Return which element of begin and end belongs to which axis of the input."""
    rank = node.info(0).rank
    is_new = [bool(masks["new_axis_mask"] >> i & 1) for i in range(count)]
    ellipsis_index = next((i for i in range(count) if masks["ellipsis_mask"] >> i & 1), count)
    items_before = [i for i in range(ellipsis_index) if not is_new[i]]
    items_after = [i for i in range(ellipsis_index + 1, count) if not is_new[i]]
    if len(items_before) + len(items_after) > rank or count > 2 * MAX_RANK:
        raise ParseError(f"it has {count} items for the shape {node.info(0).shape}")
    return dict(enumerate(items_before)) | {rank - len(items_after) + k: i for k, i in enumerate(items_after)}


def _bounds(node: Node, operand: int, indices: Iterable[int], mask: int, defaults: Sequence[int]) -> Value:
    """Return the chosen elements of begin or end as a vector; masked ones are constants."""
    all_bounds, dtype = node.value(operand), node.info(operand).dtype.numpy
    axis_bounds = []
    for i, number in zip(indices, defaults, strict=True):
        if mask >> i & 1:
            axis_bounds.append(node.constant(np.array([number], dtype)))
        else:
            axis_bounds.append(node.step(Gather(0), all_bounds, node.constant(np.array([i]))))
    return axis_bounds[0] if len(axis_bounds) == 1 else node.step(Concat(0), *axis_bounds)


def _with_new_axes(node: Node, x: Value, masks: dict[str, int], count: int) -> Value:
    """Return the sliced value with an axis of size 1 for each element of begin that inserts one."""
    axes, rank, axes_left = list[int](), 0, x.known.rank
    num_listed = sum(not (masks["new_axis_mask"] | masks["shrink_axis_mask"]) >> i & 1 for i in range(count))
    for i in range(count):
        if masks["ellipsis_mask"] >> i & 1:
            num_spanned = max(0, axes_left - (num_listed - 1 - sum(not _drops(masks, k) for k in range(i))))
            rank, axes_left = rank + num_spanned, axes_left - num_spanned
        elif masks["new_axis_mask"] >> i & 1:
            axes.append(rank)
            rank += 1
        elif not masks["shrink_axis_mask"] >> i & 1:
            rank, axes_left = rank + 1, axes_left - 1
    return inserted_axes(node, x, axes) if masks["new_axis_mask"] else x


def _drops(masks: dict[str, int], position: int) -> bool:
    return bool((masks["new_axis_mask"] | masks["shrink_axis_mask"]) >> position & 1)


def _near(number: int) -> int:
    return max(-_FARTHEST, min(number, _FARTHEST))


@operator("Tile")
def tile(node: Node) -> Value:
    """Convert Tile; the multiples are an operand."""
    return node.result(Tile(node.integers_of(1, "multiples")), node.value(0))


@operator("Pad")
def pad(node: Node) -> Value:
    """Convert Pad, which pads with zeros."""
    return _padded(node, 0.0, PaddingMode.CONSTANT)


@operator("PadV2")
def pad_with(node: Node) -> Value:
    """Convert PadV2, whose third operand is the value."""
    return _padded(node, float(node.number_of(2, "value")), PaddingMode.CONSTANT)


@operator("MirrorPad")
def mirror_pad(node: Node) -> Value:
    """Convert MirrorPad, with or without repeating the border elements."""
    mode = node.text("mode")
    if mode not in _MODES:
        raise ParseError(f"its mode is {mode!r}; expected REFLECT or SYMMETRIC")
    return _padded(node, 0.0, _MODES[mode])


def _padded(node: Node, value: float, mode: PaddingMode) -> Value:
    if node.is_unknown(node.value(1)):
        return node.result(DynamicPad(value, mode), node.value(0), node.value(1))
    return node.result(Pad(node.pairs_of(1, "paddings"), value, mode), node.value(0))


@operator("ReverseV2")
def reverse(node: Node) -> Value:
    """Convert ReverseV2, which reverses the order of elements along constant axes."""
    return node.result(ReverseV2(checked_axes(node.integers_of(1, "axes"), node.info(0).rank)), node.value(0))


@operator("Roll")
def roll(node: Node) -> Value:
    """Convert Roll: shift elements along axes; elements that leave at the end enter at the start."""
    x, shifts, axes = node.value(0), node.integers_of(1, "shift"), node.integers_of(2, "axis")
    for shift, axis in zip(shifts, checked_axes_repeated(axes, x.known.rank), strict=True):
        if has_unknown_size(x, axis):
            x = rolled(node, x, axis, shift)
            continue
        size = x.known.shape[axis]
        start = -shift % size if size else 0
        if start:
            begin = tuple(start if i == axis else 0 for i in range(x.known.rank))
            tail = node.step(Slice(begin, (-1,) * x.known.rank), x)
            count = tuple(start if i == axis else -1 for i in range(x.known.rank))
            head = node.step(Slice((0,) * x.known.rank, count), x)
            x = node.step(Concat(axis), tail, head)
    return x


def checked_axes_repeated(axes: Sequence[int], rank: int) -> list[int]:
    """Return axes counted from the front, which may occur several times; `ParseError` if one is not in range."""
    if rank > MAX_RANK:
        raise ParseError(f"its input has rank {rank}")
    return [checked_axis(axis, rank) for axis in axes]

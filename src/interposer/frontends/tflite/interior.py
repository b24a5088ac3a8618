"""Layers that insert elements between the elements of a tensor, or reduce windows of it; several operators use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from interposer.core.types import Dim
from interposer.frontends.tflite.node import Node
from interposer.ir.graph import Value
from interposer.ops.rearrange import Concat, Slice, StridedSlice
from interposer.ops.reshape import BroadcastTo, Reshape

__all__ = ["Combine", "Values", "concrete", "dilated", "padded", "sliced", "strided", "windowed"]

Values: TypeAlias = list[Value]
Combine: TypeAlias = Callable[[Values, Values], Values]
"""A function that combines tensors element by element, such as a sum; each list has the same number of tensors."""


def concrete(node: Node, shape: Sequence[int], title: str) -> tuple[int, ...]:
    """Return the shape if all of its dimensions are known; refuse the node if not."""
    if any(isinstance(size, Dim) for size in shape):
        node.open_shape(f"the shape of {title} is not known")
    return tuple(shape)


def dilated(node: Node, x: Value, factors: Sequence[int], filler: Value) -> Value:
    """Return `x` with ``factor - 1`` copies of the scalar `filler` between each two elements along each axis."""
    for axis, factor in enumerate(factors):
        size = concrete(node, x.known.shape, "the input")[axis]
        if factor > 1 and size > 1:
            x = _dilated_along(node, x, axis, factor, filler)
    return x


def _dilated_along(node: Node, x: Value, axis: int, factor: int, filler: Value) -> Value:
    shape = tuple(x.known.shape)
    leading_sizes, size, trailing_sizes = shape[:axis], shape[axis], shape[axis + 1 :]
    rows = node.step(Reshape((*leading_sizes, size, 1, *trailing_sizes)), x)
    gaps = node.step(BroadcastTo((*leading_sizes, size, factor - 1, *trailing_sizes)), filler)
    dilated_rows = node.step(
        Reshape((*leading_sizes, size * factor, *trailing_sizes)), node.step(Concat(axis + 1), rows, gaps)
    )
    remaining_shape = (*leading_sizes, (size - 1) * factor + 1, *trailing_sizes)
    return node.step(Slice((0,) * len(shape), remaining_shape), dilated_rows)


def padded(node: Node, x: Value, low: Sequence[int], high: Sequence[int], filler: Value) -> Value:
    """Return `x` with copies of the scalar `filler` before and after each axis; negative numbers remove elements."""
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        shape = list(concrete(node, x.known.shape, "the input"))
        border_before, border_after = (_border(node, shape, axis, count, filler) for count in (before, after))
        pieces = [piece for piece in (border_before, x, border_after) if piece is not None]
        x = node.step(Concat(axis), *pieces) if len(pieces) > 1 else x
        x = _cropped(node, x, axis, max(0, -before), max(0, -after))
    return x


def _border(node: Node, shape: list[int], axis: int, count: int, filler: Value) -> Value | None:
    return node.step(BroadcastTo((*shape[:axis], count, *shape[axis + 1 :])), filler) if count > 0 else None


def _cropped(node: Node, x: Value, axis: int, before: int, after: int) -> Value:
    if not before and not after:
        return x
    size = x.known.shape[axis] - before - after
    if size < 0:
        node.fail(f"the padding removes {before + after} of {x.known.shape[axis]} elements along axis {axis}")
    return sliced(node, x, axis, before, size)


def sliced(node: Node, x: Value, axis: int, begin: int, size: int) -> Value:
    """Return `size` elements of `x` from `begin` on along one axis."""
    rank = x.known.rank
    starts, sizes = [0] * rank, [-1] * rank
    starts[axis], sizes[axis] = begin, size
    return node.step(Slice(tuple(starts), tuple(sizes)), x)


def strided(node: Node, x: Value, axis: int, begin: int, stride: int) -> Value:
    """Return every element number ``begin + i * stride`` of `x` along one axis."""
    rank = x.known.rank
    masks = (1 << rank) - 1
    begins, strides = [0] * rank, [1] * rank
    begins[axis], strides[axis] = begin, stride
    op = StridedSlice(tuple(begins), (0,) * rank, tuple(strides), begin_mask=masks & ~(1 << axis), end_mask=masks)
    return node.step(op, x)


def windowed(node: Node, values: Values, axis: int, window: tuple[int, int, int], combine: Combine) -> Values:
    """Return the combination of the elements in each position of a window along one axis.

    `window` has the window's size, stride and dilation. Windows of any size are combined from shorter ones, so that the
    number of layers grows with the logarithm of the size.
    """
    size, stride, dilation = window
    length = concrete(node, values[0].known.shape, "the input")[axis]
    places = length - (size - 1) * dilation
    if places < 1:
        return [sliced(node, tensor, axis, 0, 0) for tensor in values]
    combined = _runs(node, values, axis, size, dilation, combine)
    return [strided(node, tensor, axis, 0, stride) if stride > 1 else tensor for tensor in combined]


def _runs(node: Node, values: Values, axis: int, count: int, dilation: int, combine: Combine) -> Values:
    """Return the combination of `count` elements, `dilation` apart, that begin at each element."""
    if count == 1:
        return values
    half = count // 2
    halves = _runs(node, values, axis, half, dilation, combine)
    doubled = _joined(node, halves, halves, axis, half * dilation, combine)
    return _joined(node, doubled, values, axis, (count - 1) * dilation, combine) if count % 2 else doubled


def _joined(node: Node, first: Values, second: Values, axis: int, distance: int, combine: Combine) -> Values:
    """Return the combination of each element of `first` with the one of `second` that is `distance` further."""
    size = min(first[0].known.shape[axis], second[0].known.shape[axis] - distance)
    near = [sliced(node, tensor, axis, 0, size) for tensor in first]
    far = [sliced(node, tensor, axis, distance, size) for tensor in second]
    return combine(near, far)

"""Pieces of a tensor along an axis whose size may be unknown until the network runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.types import DataType, Dim
from interposer.frontends.elementwise import ADD, FLOOR_DIV, MAXIMUM, MINIMUM, MOD, MUL, SUB
from interposer.frontends.node import Node
from interposer.ir.graph import Value
from interposer.ops.dynamic import DynamicSlice, DynamicSplitter
from interposer.ops.gather import Gather
from interposer.ops.rearrange import Concat, Splitter
from interposer.ops.reshape import Shape

__all__ = ["equal_pieces", "has_unknown_size", "pieces_of", "rolled"]

_INT64: Final = DataType.INT64


def has_unknown_size(x: Value, axis: int) -> bool:
    """Return whether the size of `x` along `axis` is unknown until the network runs."""
    return isinstance(x.known.shape[axis], Dim)


def equal_pieces(node: Node, x: Value, axis: int, count: int, *, last_is_smaller: bool = False) -> list[Value]:
    """Return `count` pieces of equal size along an axis of unknown size.

    If the size of the axis is not a multiple of `count`, the run raises an error. With `last_is_smaller`, the last
    pieces are smaller or empty instead, as those of ONNX Split-18.
    """
    size = _size(node, x, axis)
    if not last_is_smaller:
        sizes = node.step(FLOOR_DIV, size, _integers(node, [count] * count))
        return node.results(DynamicSplitter(axis, count), x, sizes)
    piece_size = node.step(FLOOR_DIV, node.step(ADD, size, _integers(node, [count - 1])), _integers(node, [count]))
    starts = node.step(MUL, piece_size, _integers(node, range(count)))
    remaining_size = node.step(MAXIMUM, node.step(SUB, size, starts), _integers(node, [0]))
    return node.results(DynamicSplitter(axis, count), x, node.step(MINIMUM, remaining_size, piece_size))


def pieces_of(node: Node, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    """Return pieces of these sizes along an axis; one of size -1 has the remainder. Fail if several are -1."""
    if sizes.count(-1) > 1:
        node.fail(f"the sizes are {list(sizes)}; only one of them may be -1, which stands for the remainder")
    if -1 not in sizes:
        return node.results(Splitter(axis, tuple(sizes)), x)
    if has_unknown_size(x, axis):
        return _pieces_with_remainder(node, x, axis, sizes)
    remainder = x.known.shape[axis] - sum(size for size in sizes if size != -1)
    return node.results(Splitter(axis, tuple(remainder if size == -1 else size for size in sizes)), x)


def _pieces_with_remainder(node: Node, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    remainder = node.step(SUB, _size(node, x, axis), _integers(node, [sum(size for size in sizes if size != -1)]))
    is_remainder = [int(size == -1) for size in sizes]
    other_sizes = _integers(node, [max(size, 0) for size in sizes])
    all_sizes = node.step(ADD, other_sizes, node.step(MUL, remainder, _integers(node, is_remainder)))
    return node.results(DynamicSplitter(axis, len(sizes)), x, all_sizes)


def rolled(node: Node, x: Value, axis: int, shift: int) -> Value:
    """Return `x` with its elements moved by `shift` along an axis of unknown size, from the end to the start."""
    size = node.step(MAXIMUM, _size(node, x, axis), _integers(node, [1]))
    start = node.step(SUB, size, node.step(MOD, _integers(node, [shift]), size))
    tail = node.step(DynamicSlice((axis,)), x, start, size)
    head = node.step(DynamicSlice((axis,)), x, _integers(node, [0]), start)
    return node.step(Concat(axis), tail, head)


def _size(node: Node, x: Value, axis: int) -> Value:
    """Return the size of `x` along an axis as a vector of one int64."""
    return node.step(Gather(0), node.step(Shape(_INT64), x), _integers(node, [axis]))


def _integers(node: Node, numbers: Sequence[int]) -> Value:
    return node.constant(np.array(numbers, _INT64.numpy))

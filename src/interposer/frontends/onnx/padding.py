"""ONNX converters for Pad, whose pads may be computed, and may crop instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataType, Dim
from interposer.frontends.axes import checked_axes
from interposer.frontends.elementwise import ADD, GREATER, LESS, MAXIMUM, MINIMUM, MOD, NEG
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.reshaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.dynamic import DynamicBroadcastTo, DynamicPad, DynamicSlice
from interposer.ops.elementwise import Where
from interposer.ops.gather import Gather
from interposer.ops.rearrange import Concat, Pad, PaddingMode, Slice, Splitter, Stack
from interposer.ops.reshape import Shape
from interposer.ops.sequence import Range

__all__: list[str] = []

_MODES: Final = {
    "constant": PaddingMode.CONSTANT,
    "reflect": PaddingMode.REFLECT,
    "edge": PaddingMode.EDGE,
    "wrap": PaddingMode.WRAP,
}
_FARTHEST: Final = 2**31 - 1
_Add: TypeAlias = "Callable[..., Value]"
"""`Node.result` for the layer that gives the output of the node, or `Node.step` for an intermediate value."""


@operator("Pad")
def pad_by_attributes(node: Node) -> Value:
    """Convert Pad with pads and value as attributes."""
    pads = node.integers("paddings" if node.version < 2 else "pads")
    return _padded(node, pads, range(node.info(0).rank), node.number("value", 0.0))


@operator("Pad", since=11)
def pad_by_operands(node: Node) -> Value:
    """Convert Pad with pads, value and axes as operands."""
    rank = node.info(0).rank
    axes = checked_axes(node.integers_of(3, "axes") if node.has(3) else range(rank), rank)
    return _padded(node, _pads(node), axes, _filler(node))


@operator("Pad", domain=MICROSOFT)
def contrib_pad(node: Node) -> Value:
    """Convert Pad of ONNX Runtime's domain, whose pads have rank 1 or 2."""
    axes = range(node.info(0).rank)
    info = node.info(1)
    if not info.dtype.is_integer or info.rank not in (1, 2) or (info.rank == 2 and info.shape[0] != 1):
        raise ParseError(f"its pads are {info.dtype}{list(info.shape)}; expected a list of integers")
    node.replace(1, reshaped(node, node.value(1), [2 * len(axes)]) if info.rank == 2 else node.value(1))
    return _padded(node, _pads(node), axes, _filler(node))


def _pads(node: Node) -> Sequence[int] | Value:
    """Return the pads of a node that has them as an operand, or their value if they are computed."""
    return node.value(1) if node.is_computed(1) else node.integers_of(1, "pads")


def _filler(node: Node) -> Value | float:
    """Return the number that fills the border in mode constant, or its value if it is computed or is no float."""
    value = node.optional(2)
    if value is None or 0 in value.known.shape:
        return 0.0
    if value.constant is None:
        return value
    number = node.number_of(2, "constant_value")
    is_exact = not isinstance(number, int) or (abs(number) < _FARTHEST or int(float(number)) == number)
    return float(number) if is_exact else value


def _padded(node: Node, pads: Sequence[int] | Value, axes: Sequence[int], filler: Value | float) -> Value:
    """Return the input of the node padded along `axes`: `pads` has the pads at all starts, then those at all ends."""
    mode, x = _padding_mode(node, axes, pads), node.value(0)
    if mode is not PaddingMode.CONSTANT or not isinstance(filler, Value):
        number = 0.0 if isinstance(filler, Value) else filler
        return _with_border(node, x, pads, axes, mode, number, node.result)
    is_inside = _with_border(node, _trues(node, x), pads, axes, mode, 0.0, node.step)
    x = _with_border(node, x, pads, axes, mode, 0.0, node.step)
    return node.result(Where(), is_inside, x, reshaped(node, filler, []))


def _trues(node: Node, like: Value) -> Value:
    """Return a tensor of truth values of the shape of `like`, all of them true."""
    if like.known.shape.is_concrete:
        return node.constant(np.ones(tuple(like.known.shape), np.bool_))
    return node.step(DynamicBroadcastTo(), node.constant(np.array(True)), node.step(Shape(DataType.INT64), like))


def _padding_mode(node: Node, axes: Sequence[int], pads: Sequence[int] | Value) -> PaddingMode:
    """Return the mode of a Pad; raise `ParseError` if it is unknown, or if the axes do not have two pads each."""
    mode = node.text("mode", "constant")
    if mode not in _MODES:
        raise ParseError(f"its mode is {mode!r}; expected one of {', '.join(_MODES)}")
    num_pads = pads.known.num_elements if isinstance(pads, Value) else len(pads)
    if num_pads != 2 * len(axes):
        raise ParseError(f"it has {num_pads} pads for {len(axes)} axes; expected two for each")
    return _MODES[mode]


def _with_border(
    node: Node,
    x: Value,
    pads: Sequence[int] | Value,
    axes: Sequence[int],
    mode: PaddingMode,
    number: float,
    add: _Add,
) -> Value:
    """Return `x` cropped by the negative pads, and then padded by the others.

    A crop may be larger than the tensor if a pad at the other side makes up for it, as in ONNX Runtime.
    """
    if isinstance(pads, Value):
        return _padded_at_run_time(node, x, pads, axes, mode, number, add)
    pairs = [(0, 0)] * x.known.rank
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        pairs[axis] = (before, after)
    if min(pads, default=0) < 0:
        x, pairs = _cropped(node, x, pairs)
    if mode is PaddingMode.WRAP and not all(map(_wraps_once, pairs, x.known.shape)):
        vectors = [node.constant(np.array(pad, np.int64)) for pad in zip(*pairs, strict=True)]
        return _wrapped(node, x, range(len(pairs)), *vectors)
    return add(Pad(tuple(pairs), number, mode), x)


def _wraps_once(pair: tuple[int, int], size: int) -> bool:
    return pair == (0, 0) or (not isinstance(size, Dim) and max(pair) <= size)


def _cropped(node: Node, x: Value, pairs: Sequence[tuple[int, int]]) -> tuple[Value, list[tuple[int, int]]]:
    """Return `x` cropped by negative pads, and the widths of the border that remain; raise `ParseError` if none can."""
    shape = node.concrete(x.known.shape, "input")
    begin = tuple(min(max(0, -before), size) for (before, _), size in zip(pairs, shape, strict=True))
    ends = (size - max(0, -after) for (_, after), size in zip(pairs, shape, strict=True))
    sizes = tuple(max(0, end - start) for start, end in zip(begin, ends, strict=True))
    borders = [
        _border(before, after, min(0, size + min(0, before) + min(0, after)))
        for (before, after), size in zip(pairs, shape, strict=True)
    ]
    if min(map(min, borders)) < 0:
        raise ParseError(f"its pads {list(pairs)} leave nothing of the shape {list(shape)}")
    return node.step(Slice(begin, sizes), x), borders


def _border(before: int, after: int, lacking: int) -> tuple[int, int]:
    """Return the widths of the border; `lacking` elements, a negative number, are cropped beyond the other end."""
    return max(0, before) + (0 if after > 0 else lacking), max(0, after) + (lacking if after > 0 else 0)


# --- computed pads ----------------------------------------------------------------------------------------------------


def _padded_at_run_time(
    node: Node, x: Value, pads: Value, axes: Sequence[int], mode: PaddingMode, number: float, add: _Add
) -> Value:
    """Return `_with_border` for pads that are computed."""
    dtype = pads.known.dtype
    zero, end = (node.constant(np.full(1, number, dtype.numpy)) for number in (0, _FARTHEST))
    before, after = node.steps(Splitter(0, (len(axes),) * 2), pads)
    sizes = node.step(Gather(0), node.step(Shape(dtype), x), node.constant(np.array(axes, np.int64)))
    kept_sizes = node.step(ADD, sizes, node.step(MINIMUM, before, zero))
    lacking = node.step(MINIMUM, node.step(ADD, kept_sizes, node.step(MINIMUM, after, zero)), zero)
    cropped_end = node.step(Where(), node.step(LESS, after, zero), after, end)
    cropped_start = node.step(MAXIMUM, node.step(NEG, before), zero)
    x = node.step(DynamicSlice(tuple(axes)), x, cropped_start, cropped_end)
    is_after = node.step(GREATER, after, zero)
    first = node.step(ADD, node.step(MAXIMUM, before, zero), node.step(Where(), is_after, zero, lacking))
    last = node.step(ADD, node.step(MAXIMUM, after, zero), node.step(Where(), is_after, lacking, zero))
    if mode is PaddingMode.WRAP:
        return _wrapped(node, x, axes, first, last)
    rows = node.step(Concat(0), node.step(Stack(1), first, last), node.constant(np.zeros((1, 2), dtype.numpy)))
    row_of_axis = [axes.index(axis) if axis in axes else len(axes) for axis in range(x.known.rank)]
    pads_of_axes = node.step(Gather(0), rows, node.constant(np.array(row_of_axis, np.int64)))
    return add(DynamicPad(number, mode), x, pads_of_axes)


def _wrapped(node: Node, x: Value, axes: Sequence[int], first: Value, last: Value) -> Value:
    """Return `x` repeated periodically along `axes`, by `first` elements before it and `last` elements after it."""
    dtype = first.known.dtype
    one = node.constant(np.array(1, dtype.numpy))
    for position, axis in enumerate(axes):
        index = node.constant(np.array(position, np.int64))
        before, after = node.step(Gather(0), first, index), node.step(Gather(0), last, index)
        size = node.step(Gather(0), node.step(Shape(dtype), x), node.constant(np.array(axis, np.int64)))
        places = node.step(Range(), node.step(NEG, before), node.step(ADD, size, after), one)
        x = node.step(Gather(axis), x, node.step(MOD, places, size))
    return x

"""ONNX converters for operators that rearrange, scatter, reverse and accumulate elements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataLayout, Dim
from interposer.frontends.axes import checked_axes, checked_axis
from interposer.frontends.elementwise import EQUAL, LESS, LOGICAL_AND, LOGICAL_OR
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import Converter, operator
from interposer.frontends.pieces import equal_pieces, has_unknown_size
from interposer.ir.graph import Value
from interposer.ops.blocks import DepthToSpace, DepthToSpaceMode, SpaceToDepth
from interposer.ops.dynamic import DynamicSlice, DynamicSplitter
from interposer.ops.elementwise import Where
from interposer.ops.gather import Gather, GatherElements, GatherNd
from interposer.ops.rearrange import Concat, Pad, Slice, Splitter, StridedSlice, Transpose
from interposer.ops.scatter import ScatterElements, ScatterFunction, ScatterNd, TensorScatter
from interposer.ops.sequence import CumProd, CumSum, ReverseSequence

__all__: list[str] = []

_FARTHEST: Final = 2**31 - 1
_TO_THE_START: Final = (2**31 - 1, 2**63 - 1)
"""The ends with which a backward slice includes the first element, as in ONNX Runtime."""


@operator("Transpose")
def transpose(node: Node) -> Value:
    """Convert Transpose; without a permutation the axes are reversed."""
    rank = node.info(0).rank
    return node.result(Transpose(node.integers("perm", range(rank)[::-1])), node.value(0))


@operator("Concat")
def concat(node: Node) -> Value:
    """Convert Concat; before opset 4 the default axis is 1."""
    values = node.values()
    if len({value.known.quantization for value in values}) > 1:
        values = [node.plain(value) for value in values]
    axis = node.integer("axis", 1 if node.version < 4 else None)
    return values[0] if len(values) == 1 else node.result(Concat(axis), *values)


@operator("Split")
def split(node: Node) -> Sequence[Value]:
    """Convert Split; sizes are an attribute or an operand (opset 1 and since 13), or else equal."""
    axis = checked_axis(node.integer("axis", 0), node.info(0).rank)
    if node.is_computed(1):
        _check_one_size_per_output(node, node.info(1).num_elements)
        return node.results(DynamicSplitter(axis, node.num_outputs), node.value(0), node.value(1))
    if has_unknown_size(node.value(0), axis) and not (node.has(1) or node.has_attribute("split")):
        return equal_pieces(node, node.value(0), axis, _count_of_pieces(node), last_is_smaller=node.version >= 18)
    return node.results(Splitter(axis, _sizes(node, axis)), node.value(0))


def _sizes(node: Node, axis: int) -> tuple[int, ...]:
    if node.has(1):
        return _one_size_per_output(node, node.integers_of(1, "split"))
    if node.has_attribute("split"):
        return _one_size_per_output(node, node.integers("split"))
    dimension: int = node.info(0).shape[axis]
    num_parts = _count_of_pieces(node)
    if node.version < 18 and dimension % num_parts:
        raise ParseError(f"an axis of size {dimension} cannot be cut into {num_parts} equal pieces before opset 18")
    size = -(-dimension // num_parts)
    sizes = [min(size, max(0, dimension - i * size)) for i in range(num_parts)]
    return tuple(sizes)


def _count_of_pieces(node: Node) -> int:
    num_parts = node.integer("num_outputs", node.num_outputs)
    if num_parts != node.num_outputs or num_parts < 1:
        raise ParseError(f"it has {node.num_outputs} outputs, but num_outputs is {num_parts}")
    return num_parts


def _one_size_per_output(node: Node, sizes: tuple[int, ...]) -> tuple[int, ...]:
    _check_one_size_per_output(node, len(sizes))
    return sizes


def _check_one_size_per_output(node: Node, count: int) -> None:
    if count != node.num_outputs:
        raise ParseError(f"it has {node.num_outputs} outputs, but {count} sizes")


@operator("Slice")
def slice_by_attributes(node: Node) -> Value:
    """Convert Slice with starts, ends and axes as attributes, without steps."""
    starts, ends = node.integers("starts"), node.integers("ends")
    return _sliced(node, starts, ends, node.integers("axes", range(len(starts))), [1] * len(starts))


@operator("Slice", since=10)
def slice_by_operands(node: Node) -> Value:
    """Convert Slice with starts, ends, axes and steps as operands."""
    if any(node.has(index) and node.is_from_data(node.value(index)) for index in (1, 2, 4)):
        return _sliced_at_run_time(node)
    starts, ends = node.integers_of(1, "starts"), node.integers_of(2, "ends")
    axes = node.integers_of(3, "axes") if node.has(3) else range(len(starts))
    steps = node.integers_of(4, "steps") if node.has(4) else [1] * len(starts)
    return _sliced(node, starts, ends, axes, steps)


def _sliced_at_run_time(node: Node) -> Value:
    """Return slices whose bounds are computed; where even their number is, all other axes are taken whole."""
    axes = node.integers_of(3, "axes") if node.has(3) else range(_count_of_bounds(node))
    bounds = (node.value(1), 0), (node.value(2), _FARTHEST), (node.optional(4), 1)
    starts, ends, steps = (value and _extended(node, value, len(axes), filler) for value, filler in bounds)
    ends = ends if ends is None or steps is None else _backward_to_the_start(node, ends, steps)
    return node.result(DynamicSlice(tuple(axes)), node.value(0), starts, ends, steps)


def _backward_to_the_start(node: Node, ends: Value, steps: Value) -> Value:
    """Return the ends of slices, the smallest integer where a step is negative and the end is in `_TO_THE_START`."""
    if steps.constant is not None and (steps.constant > 0).all():
        return ends
    dtype = ends.known.dtype.numpy
    largest = [node.constant(np.array(number, dtype)) for number in _TO_THE_START if number <= np.iinfo(dtype).max]
    is_largest = reduce(partial(node.step, LOGICAL_OR), [node.step(EQUAL, ends, number) for number in largest])
    is_backward = node.step(LESS, steps, node.constant(np.zeros((), steps.known.dtype.numpy)))
    smallest = node.constant(np.array(np.iinfo(dtype).min, dtype))
    return node.step(Where(), node.step(LOGICAL_AND, is_largest, is_backward), smallest, ends)


def _count_of_bounds(node: Node) -> int:
    infos = [node.value(index).known for index in (1, 2, 4) if node.has(index)]
    return next((info.num_elements for info in infos if info.is_ranked and info.is_concrete), node.info(0).rank)


def _extended(node: Node, vector: Value, size: int, filler: int) -> Value:
    """Return a vector of a known size, to which elements are added if the given one may be shorter."""
    if vector.known.is_ranked and vector.known.is_concrete:
        return vector
    fillers = node.constant(np.full(size, filler, vector.known.dtype.numpy))
    return node.step(Gather(0), node.step(Concat(0), vector, fillers), node.constant(np.arange(size)))


def _sliced(node: Node, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]) -> Value:
    shape = node.info(0).shape
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ParseError("its starts, ends, axes and steps are not equally many")
    if 0 in steps:
        node.out_of_range("one of its steps is 0", 0)
    ends = [-_FARTHEST if step < 0 and end in _TO_THE_START else end for end, step in zip(ends, steps, strict=True)]
    indices = [slice(None, None, 1)] * len(shape)
    for axis, *index in zip(checked_axes(axes, len(shape)), starts, ends, steps, strict=True):
        indices[axis] = slice(*index)
    if any(_is_before_first(*index_and_size) is None for index_and_size in zip(indices, shape, strict=True)):
        operands = [node.constant(np.array(numbers, np.int64)) for numbers in (starts, ends, steps)]
        return node.result(DynamicSlice(tuple(axes)), node.value(0), *operands)
    indices = [
        slice(-dim, index.stop, index.step) if _is_before_first(index, dim) else index
        for index, dim in zip(indices, shape, strict=True)
    ]
    if shape.is_concrete and all(step == 1 for step in steps):
        bounds = [index.indices(dim) for index, dim in zip(indices, shape, strict=True)]
        begin, size = tuple(b for b, _, _ in bounds), tuple(max(0, e - b) for b, e, _ in bounds)
        return node.result(Slice(begin, size), node.value(0))
    return node.result(_strided(indices), node.value(0))


def _is_before_first(index: slice, dim: int) -> bool | None:
    """Return True if a backward slice starts before the first element; None if that depends on the unknown size `dim`.

    ONNX then starts at the first element, while `StridedSlice` and NumPy select nothing.
    """
    if index.step > 0 or index.start is None or index.start >= -1:
        return False
    return None if isinstance(dim, Dim) else index.start < -dim


def _strided(indices: Sequence[slice]) -> StridedSlice:
    """Return the operator for a slice along each axis, in which None as start means the whole axis.

    Starts and ends beyond the integer range are clamped, which selects the same elements.
    """
    is_whole = [index.start is None for index in indices]
    to_end = [w or (index.step > 0 and index.stop >= _FARTHEST) for w, index in zip(is_whole, indices, strict=True)]
    return StridedSlice(
        begin=tuple(0 if w else _within_int32(index.start) for w, index in zip(is_whole, indices, strict=True)),
        end=tuple(0 if e else _within_int32(index.stop) for e, index in zip(to_end, indices, strict=True)),
        stride=tuple(_within_int32(index.step) for index in indices),
        begin_mask=_mask(is_whole),
        end_mask=_mask(to_end),
    )


def _within_int32(number: int) -> int:
    return max(-_FARTHEST, min(number, _FARTHEST))


def _mask(flags: Sequence[bool]) -> int:
    return sum(1 << i for i, bit in enumerate(flags) if bit)


@operator("Gather")
def gather(node: Node) -> Value:
    """Convert Gather: slices along an axis."""
    return node.result(Gather(node.integer("axis", 0)), node.value(0), node.value(1))


@operator("GatherElements", since=11)
def gather_elements(node: Node) -> Value:
    """Convert GatherElements: single elements along an axis."""
    return node.result(GatherElements(node.integer("axis", 0)), node.value(0), node.value(1))


@operator("GatherND", since=11)
def gather_nd(node: Node) -> Value:
    """Convert GatherND; batch axes exist since opset 12."""
    return node.result(GatherNd(node.integer("batch_dims", 0)), node.value(0), node.value(1))


@operator("DepthToSpace")
def depth_to_space(node: Node) -> Value:
    """Convert DepthToSpace; the attribute mode exists since opset 11."""
    mode = node.text("mode", "DCR")
    if mode not in DepthToSpaceMode.__members__:
        raise ParseError(f"its mode is {mode!r}; expected DCR or CRD")
    op = DepthToSpace(node.integer("blocksize"), DataLayout.NCHW, DepthToSpaceMode[mode])
    return node.result(op, node.value(0))


@operator("SpaceToDepth")
def space_to_depth(node: Node) -> Value:
    """Convert SpaceToDepth.

    In mode CRD (since opset 28), output channels are ordered by input channel first, then by position in the block. In
    mode DCR, the position comes first.
    """
    mode, block = node.text("mode", "DCR"), node.integer("blocksize")
    op = SpaceToDepth(block, DataLayout.NCHW)
    if mode == "DCR":
        return node.result(op, node.value(0))
    if mode != "CRD":
        raise ParseError(f"its mode is {mode!r}; expected DCR or CRD")
    channels = node.known(node.info(0).shape[1], "input's number of channels")
    order = np.arange(block**2 * channels).reshape(block**2, channels).T.ravel()
    return node.result(Gather(1), node.step(op, node.value(0)), node.constant(order))


@operator("CenterCropPad", since=18)
def center_crop_pad(node: Node) -> Value:
    """Convert CenterCropPad: crop or zero-pad each axis around its middle; an odd element is at the end."""
    shape, target_sizes = node.info(0).shape, node.integers_of(1, "shape")
    axes = checked_axes(node.integers("axes", range(len(shape))), len(shape))
    expected = f"expected a dimension of 0 or more for each of {len(axes)} axes"
    if min(target_sizes, default=0) < 0:
        node.out_of_range(f"its shape is {list(target_sizes)}; {expected}", min(target_sizes), (0, None))
    if len(axes) != len(target_sizes):
        raise ParseError(f"its shape is {list(target_sizes)}; {expected}")
    begin, size, pads = [0] * len(shape), [-1] * len(shape), [(0, 0)] * len(shape)
    for axis, dimension in zip(axes, target_sizes, strict=True):
        growth = dimension - node.known(shape[axis], f"input's dimension along axis {axis}")
        if growth < 0:
            begin[axis], size[axis] = -growth // 2, dimension
        else:
            pads[axis] = (growth // 2, growth - growth // 2)
    cropped = node.step(Slice(tuple(begin), tuple(size)), node.value(0))
    return node.result(Pad(tuple(pads)), cropped)


# --- scatter ----------------------------------------------------------------------------------------------------------


_FUNCTIONS: Final = {
    "none": ScatterFunction.UPDATE,
    "add": ScatterFunction.ADD,
    "mul": ScatterFunction.MUL,
    "max": ScatterFunction.MAX,
    "min": ScatterFunction.MIN,
}


def _function(node: Node) -> ScatterFunction:
    reduction = node.text("reduction", "none")
    if reduction not in _FUNCTIONS:
        raise ParseError(f"its reduction is {reduction!r}; expected {', '.join(_FUNCTIONS)}")
    return _FUNCTIONS[reduction]


@operator("Scatter", since=9)
@operator("ScatterElements", since=11)
def scatter_elements(node: Node) -> Value:
    """Convert ScatterElements; since opset 16, updates may be combined with the elements."""
    op = ScatterElements(node.integer("axis", 0), _function(node))
    return node.result(op, node.value(0), node.value(1), node.value(2))


@operator("ScatterND", since=11)
def scatter_nd(node: Node) -> Value:
    """Convert ScatterND; since opset 16, updates may be combined with the elements."""
    return node.result(ScatterNd(_function(node)), node.value(0), node.value(1), node.value(2))


@operator("TensorScatter", since=24)
def tensor_scatter(node: Node) -> Value:
    """Convert TensorScatter; in circular mode, writing wraps around the end of the cache."""
    mode = node.text("mode", "linear")
    if mode not in {"linear", "circular"}:
        raise ParseError(f"its mode is {mode!r}; expected linear or circular")
    op = TensorScatter(node.integer("axis", -2), mode == "circular")
    return node.result(op, node.value(0), node.value(1), node.optional(2))


# --- sequence ---------------------------------------------------------------------------------------------------------


def _accumulation(op_class: type[CumSum | CumProd]) -> Converter:
    """Return the converter of CumSum or CumProd, which adds an `op_class` layer; the axis is a constant operand."""

    def convert(node: Node) -> Value:
        axis, info = int(node.number_of(1, "axis")), node.info(0)
        if info.is_ranked:
            checked_axis(axis, info.rank)
        return node.result(op_class(axis, node.flag("exclusive"), node.flag("reverse")), node.value(0))

    return convert


operator("CumSum", since=11)(_accumulation(CumSum))
operator("CumProd", since=26)(_accumulation(CumProd))


@operator("ReverseSequence", since=10)
def reverse_sequence(node: Node) -> Value:
    """Convert ReverseSequence; by default the time axis is the first one."""
    op = ReverseSequence(node.integer("time_axis", 0), node.integer("batch_axis", 1))
    return node.result(op, node.value(0), node.value(1))

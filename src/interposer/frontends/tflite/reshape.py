"""TFLite converters for operators that change shapes, or create tensors from shapes."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from interposer.core.types import Dim
from interposer.frontends.elementwise import EQUAL
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.axes import normal_axis
from interposer.ops.dynamic import DynamicBroadcastTo, DynamicReshape
from interposer.ops.elementwise import Where
from interposer.ops.rearrange import Pad, StridedSlice
from interposer.ops.reshape import BroadcastTo, Fill, Rank, Reshape, Shape
from interposer.ops.sequence import Range

__all__ = ["broadcast_by", "expanded_shape", "reshape_to", "squeezed_shape"]

MOST_NUMBERS: Final = 1 << 20
"""The largest number of elements that a few numbers of a file may expand to."""


@operator("RESHAPE")
def reshape(node: Node) -> Value:
    """Convert RESHAPE; the shape is an input or, in old files, an option, in which [0] means a scalar."""
    if node.optional(1) is not None and node.info(1).rank == 1:
        if node.is_computed(1):
            return node.result(DynamicReshape(), node.value(0), node.value(1))
        return node.result(Reshape(node.integers_of(1, "the shape")), node.value(0))
    shape = node.operator.attributes_as("ReshapeOptions")["new_shape"]
    if shape is None:
        node.fail("it has no shape, neither as an input nor as an option")
    return node.result(Reshape(() if shape == (0,) else shape), node.value(0))


@operator("SQUEEZE", options=True)
def squeeze(node: Node) -> Value:
    """Convert SQUEEZE: remove the given axes of size 1, or all of them."""
    shape = node.info(0).shape
    axes, remaining_shape = _squeezed_axes(node, shape), squeezed_shape(node, shape)
    return node.result(
        Reshape(_sizes(remaining_shape)) if _is_almost_known(remaining_shape) else _without(axes, len(shape)),
        node.value(0),
    )


def squeezed_shape(node: Node, shape: Sequence[int]) -> list[int]:
    """Return the shape that SQUEEZE, with the axes in its options, makes of `shape`."""
    axes = _squeezed_axes(node, shape)
    return [dim for axis, dim in enumerate(shape) if axis not in axes]


def _squeezed_axes(node: Node, shape: Sequence[int]) -> set[int]:
    axes = {normal_axis(axis, len(shape)) for axis in node.options["squeeze_dims"] or ()}
    for axis in axes:
        if not 0 <= axis < len(shape) or shape[axis] > 1:
            node.fail(f"axis {axis} of shape {shape} cannot be dropped")
    return axes or {axis for axis, dim in enumerate(shape) if dim == 1}


def _without(axes: Collection[int], rank: int) -> StridedSlice:
    """Return the operator that removes axes of size 1 from a tensor of this rank, whose dimensions are unknown."""
    all_bits = (1 << rank) - 1
    zeros, ones, shrink_mask = (0,) * rank, (1,) * rank, sum(1 << axis for axis in axes)
    return StridedSlice(zeros, ones, ones, begin_mask=all_bits, end_mask=all_bits, shrink_axis_mask=shrink_mask)


@operator("EXPAND_DIMS")
def expand_dims(node: Node) -> Value:
    """Convert EXPAND_DIMS: insert an axis of size 1."""
    shape = expanded_shape(node, node.info(0).shape)
    axis = normal_axis(node.integer_of(1, "the axis"), len(shape))
    return node.result(
        Reshape(_sizes(shape)) if _is_almost_known(shape) else _inserted(axis, len(shape)), node.value(0)
    )


def expanded_shape(node: Node, shape: Sequence[int]) -> list[int]:
    """Return the shape that EXPAND_DIMS, whose axis is input 1, makes of `shape`."""
    axis = node.integer_of(1, "the axis")
    if not -len(shape) - 1 <= axis <= len(shape):
        node.fail(f"an axis cannot be inserted at {axis} into shape {shape}")
    axis = normal_axis(axis, len(shape) + 1)
    return [*shape[:axis], 1, *shape[axis:]]


def _inserted(axis: int, rank: int) -> StridedSlice:
    """Return the operator that inserts an axis; the result has this rank, and dimensions that are unknown."""
    all_bits = (1 << rank) - 1
    zeros, ones = (0,) * rank, (1,) * rank
    return StridedSlice(zeros, ones, ones, begin_mask=all_bits, end_mask=all_bits, new_axis_mask=1 << axis)


def _is_almost_known(shape: Sequence[int]) -> bool:
    """Return True if at most one dimension is unknown, so that a reshape can infer it."""
    return sum(isinstance(dim, Dim) for dim in shape) <= 1


def reshape_to(node: Node, shape: Sequence[int]) -> Reshape:
    """Return the operator that reshapes the input to `shape`; refuse the node if several dimensions are unknown."""
    if not _is_almost_known(shape):
        node.open_shape("more than one dimension is not known")
    return Reshape(_sizes(shape))


def _sizes(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(-1 if isinstance(dim, Dim) else dim for dim in shape)


@operator("SHAPE")
def shape_of(node: Node) -> Value:
    """Convert SHAPE; the dimensions have the type (int32 or int64) that the file declares for the output."""
    return node.result(Shape(node.output_info.dtype), node.value(0))


@operator("RANK")
def rank_of(node: Node) -> Value:
    """Convert RANK to a constant scalar."""
    return node.result(Rank(), node.value(0))


@operator("BROADCAST_TO")
def broadcast_to(node: Node) -> Value:
    """Convert BROADCAST_TO; the shape is an input."""
    if node.is_computed(1):
        return node.result(DynamicBroadcastTo(), node.value(0), node.value(1))
    return node.result(BroadcastTo(node.integers_of(1, "the shape")), node.value(0))


def broadcast_by(node: Node, index: int, value: Value) -> Value:
    """Return `value`, broadcast to the shape that is input `index` of the node, whether it is known or computed."""
    if node.info(index).constant is None:
        return node.step(DynamicBroadcastTo(), value, node.value(index))
    return node.step(BroadcastTo(node.integers_of(index, "the shape")), value)


@operator("BROADCAST_ARGS")
def broadcast_args(node: Node) -> Value:
    """Convert BROADCAST_ARGS: the common shape of two shapes, the shorter of which is extended by ones at its start."""
    a, b = node.value(0, rank=1), node.value(1, rank=1)
    longest = max(a.known.shape[0], b.known.shape[0])
    if isinstance(longest, Dim) or any(isinstance(shape.known.shape[0], Dim) for shape in (a, b)):
        node.open_shape("the number of dimensions is not known")
    a, b = (node.step(Pad(((longest - shape.known.shape[0], 0),), 1.0), shape) for shape in (a, b))
    is_one = node.step(EQUAL, a, node.constant(np.ones(1, a.known.dtype.numpy)))
    return node.result(Where(), is_one, b, a)


@operator("FILL")
def fill(node: Node) -> Value:
    """Convert FILL: broadcast one element to a shape, which is an input."""
    if node.is_computed(0):
        return node.result(DynamicBroadcastTo(), node.value(1), node.value(0))
    return node.result(BroadcastTo(node.integers_of(0, "the shape")), node.value(1))


@operator("ZEROS_LIKE")
def zeros_like(node: Node) -> Value:
    """Convert ZEROS_LIKE: broadcast zeros to the input's shape."""
    info = node.info(0)
    if not info.is_concrete:
        return node.result(Fill(0.0, info.dtype), node.step(Shape(), node.value(0)))
    zero = node.constant(np.full((), info.zero_point, info.dtype.numpy), info.quantization)
    return node.result(BroadcastTo(info.shape), zero)


@operator("RANGE")
def range_(node: Node) -> Value:
    """Convert RANGE; of known numbers, each is its predecessor plus the step, rounded like in TFLite."""
    if node.is_computed(0, 1, 2):
        return node.result(Range(), *node.values())
    start, limit, step = (node.array(i, title) for i, title in enumerate(("the start", "the limit", "the step")))
    if not start.size == limit.size == step.size == 1 or not step.any():
        node.fail("expected three numbers, and a step that is not 0")
    count = max(0, math.ceil((limit.item() - start.item()) / step.item()))
    if count > MOST_NUMBERS:
        node.fail(f"it gives {count} numbers; at most {MOST_NUMBERS} are supported")
    steps = np.full(count, step.item(), start.dtype)
    steps[:1] = start.item()
    return node.constant(np.add.accumulate(steps, dtype=start.dtype))


@operator("ONE_HOT", options=True)
def one_hot(node: Node) -> Value:
    """Convert ONE_HOT: one value where the position along a new axis equals the index, else another value."""
    indices, depth = node.value(0), node.integer_of(1, "the depth")
    rank, axis = indices.known.rank, node.options["axis"]
    if not -1 <= axis <= rank:
        node.fail(f"a new axis cannot be at {axis} of {rank + 1}")
    if not 0 <= depth <= MOST_NUMBERS:
        node.fail(f"the depth is {depth}; expected 0 to {MOST_NUMBERS}")
    axis = axis % (rank + 1)
    shape = [*indices.known.shape[:axis], 1, *indices.known.shape[axis:]]
    places = np.arange(depth, dtype=indices.known.dtype.numpy).reshape([-1] + [1] * (rank - axis))
    is_index = node.step(EQUAL, node.step(reshape_to(node, shape), indices), node.constant(places))
    return node.result(Where(), is_index, node.value(2), node.value(3))

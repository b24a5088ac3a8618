"""Reshapes to shapes of which some dimensions are unknown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.types import DataType, Dim, TensorShape
from interposer.frontends.elementwise import LESS, LOGICAL_AND, MUL
from interposer.frontends.node import Layers
from interposer.ir.graph import Value
from interposer.ops.dynamic import DynamicReshape
from interposer.ops.elementwise import Where
from interposer.ops.gather import Gather
from interposer.ops.rearrange import Stack
from interposer.ops.reshape import Reshape, Shape

__all__ = [
    "final_reshape",
    "final_reshape_by",
    "final_reshape_like",
    "inferred_sizes",
    "inserted_axes",
    "python_ends",
    "removed_axes",
    "reshape_to",
    "reshaped",
    "squeezed",
]

_FARTHEST: Final = (1 << 31) - 2
"""An index beyond any element; the next larger one means the first element backwards for some engines."""


def reshape_to(shape: TensorShape, sizes: Sequence[int], leading: int = 0) -> Reshape | None:
    """Return the operator that reshapes a tensor of shape `shape` to `sizes`, of which some may be unknown (`Dim`).

    An unknown size is copied from the input if it is along one of the first `leading` axes, or if it has a name and the
    input has the same name at the same axis. At most one other unknown size is inferred. The result is None if more of
    them are unknown: all dimensions without a name are the same `Dim`, even if their sizes will differ.
    """
    copied_axes = [i for i, dim in enumerate(sizes) if isinstance(dim, Dim) and _is_copied(shape, dim, i, leading)]
    target_shape = [0 if i in copied_axes else -1 if isinstance(dim, Dim) else dim for i, dim in enumerate(sizes)]
    if len(copied_axes) == 1 and -1 not in target_shape:
        return Reshape(tuple(-1 if i in copied_axes else dim for i, dim in enumerate(sizes)))
    zeros = any(dim == 0 and i not in copied_axes for i, dim in enumerate(target_shape))
    if target_shape.count(-1) > 1 or (copied_axes and zeros):
        return None
    return Reshape(tuple(target_shape), copy_zeros=bool(copied_axes))


def inferred_sizes(shape: TensorShape, sizes: Sequence[int]) -> list[int]:
    """Return the sizes of a reshape with the number that -1 stands for, if the known sizes determine it."""
    inferred_axes = [i for i, dim in enumerate(sizes) if not isinstance(dim, Dim) and dim == -1]
    if len(inferred_axes) != 1 or not shape.is_concrete:
        return list(sizes)
    known_shape = TensorShape(dim for i, dim in enumerate(sizes) if i not in inferred_axes)
    if not known_shape.is_concrete or 0 in known_shape:
        return list(sizes)
    return [math.prod(shape) // math.prod(known_shape) if i in inferred_axes else dim for i, dim in enumerate(sizes)]


def squeezed(node: Layers, value: Value, axes: Sequence[int] | None) -> Value:
    """Return the value without `axes`, all of size 1, as the node's own result; None stands for all such axes."""
    shape = value.known.shape
    if axes is None:
        axes = [axis for axis, dim in enumerate(node.concrete(shape, "input")) if dim == 1]
    for axis in axes:
        if shape[axis] != 1 and not isinstance(shape[axis], Dim):
            node.fail(f"axis {axis} of its input of shape {shape} does not have size 1")
    return removed_axes(node, value, axes)


def final_reshape(node: Layers, value: Value, sizes: Sequence[int], leading: int = 0) -> Value:
    """Return the value reshaped to `sizes`, as the node's own result; one size may be -1 and some an unknown `Dim`.

    The first `leading` sizes are the value's own dimensions.
    """
    return node.result(_reshape(node, value.known.shape, sizes, leading), value)


def reshaped(node: Layers, value: Value, sizes: Sequence[int], leading: int = 0) -> Value:
    """Return the value reshaped to `sizes`, like `final_reshape`, as an intermediate result of the node."""
    return node.step(_reshape(node, value.known.shape, sizes, leading), value)


def final_reshape_like(node: Layers, value: Value, like: Value) -> Value:
    """Return the value reshaped to the shape of `like`, which may be unknown until the network runs."""
    sizes = like.known.shape
    op = reshape_to(value.known.shape, sizes)
    if op is not None:
        return node.result(op, value)
    return final_reshape_by(node, value, node.step(Shape(DataType.INT64), like), sizes)


def final_reshape_by(
    node: Layers, value: Value, shape: Value, sizes: Sequence[int], *, copy_zeros: bool = False
) -> Value:
    """Return the value reshaped to the elements of the tensor `shape`; `sizes` says what is known of them."""
    known_sizes = _known_sizes(sizes)
    if known_sizes is None:
        return node.result(DynamicReshape(copy_zeros), value, shape)
    return node.result(known_sizes, node.step(DynamicReshape(copy_zeros), value, shape))


def removed_axes(node: Layers, value: Value, axes: Sequence[int]) -> Value:
    """Return the value without `axes`, which must have size 1, as the node's own result."""
    shape = value.known.shape
    unknown_axes = [axis for axis in axes if isinstance(shape[axis], Dim)]
    ones = [1 if axis in axes else dim for axis, dim in enumerate(shape)]
    checked = reshaped(node, value, ones, len(ones)) if unknown_axes else value
    op = reshape_to(TensorShape(ones), [dim for axis, dim in enumerate(ones) if axis not in axes], min(axes, default=0))
    if op is not None:
        return node.result(op, checked)
    for axis in sorted(axes, reverse=True):
        checked = node.step(Gather(axis), checked, node.constant(np.array(0)))
    return checked


def inserted_axes(node: Layers, value: Value, axes: Sequence[int]) -> Value:
    """Return the value with new axes of size 1, counted in the result, as the node's own result."""
    dims = iter(value.known.shape)
    sizes = [1 if axis in axes else next(dims) for axis in range(value.known.rank + len(axes))]
    op = reshape_to(value.known.shape, sizes, min(axes, default=len(sizes)))
    if op is not None:
        return node.result(op, value)
    for axis in sorted(axes):
        value = node.step(Stack(axis), value)
    return value


def python_ends(
    node: Layers, value: Value, starts: Value, ends: Value, axes: Sequence[int], steps: Sequence[int]
) -> Value:
    """Return the ends with which a `DynamicSlice` selects the elements that Python's slices select.

    A slice that starts before the first element and goes backwards selects nothing in Python, and so in TensorFlow.
    `DynamicSlice` starts at the first element; with the last index as the end it selects nothing either.
    """
    if all(step > 0 for step in steps):
        return ends
    dtype = ends.known.dtype
    sizes = node.step(Gather(0), node.step(Shape(dtype), value), node.constant(np.array(axes)))
    signs = node.constant(np.array([-1 if step < 0 else 0 for step in steps], dtype.numpy))
    first = node.step(MUL, sizes, signs)  # 0 for an axis that goes forwards
    is_before = node.step(LESS, starts, first)
    backwards = node.constant(np.array([step < 0 for step in steps]))
    is_empty = node.step(LOGICAL_AND, is_before, backwards)
    return node.step(Where(), is_empty, node.constant(np.full(len(axes), _FARTHEST, dtype.numpy)), ends)


def _reshape(node: Layers, shape: TensorShape, sizes: Sequence[int], num_leading: int) -> Reshape:
    op = reshape_to(shape, sizes, num_leading)
    if op is None:
        node.open_shape("the dimensions of its result depend on several unknown ones")
    return op


def _known_sizes(sizes: Sequence[int]) -> Reshape | None:
    """Return the operator that states the known ones of a tensor's sizes, and leaves the unknown ones as they are.

    The result is None if there is nothing to state, or if a size is 0, which means a copy.
    """
    known_sizes = [dim for dim in sizes if not isinstance(dim, Dim) and dim != -1]
    if not known_sizes or 0 in known_sizes:
        return None
    return Reshape(tuple(dim if not isinstance(dim, Dim) and dim > 0 else 0 for dim in sizes), copy_zeros=True)


def _is_copied(shape: TensorShape, dim: Dim, axis: int, num_leading: int) -> bool:
    """Return True if the unknown size `dim` along `axis` is the input's dimension at the same axis."""
    return axis < len(shape) and shape[axis] is dim and (dim.name is not None or axis < num_leading)

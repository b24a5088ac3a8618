"""Rewrites that remove or merge transposes and reshapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interposer.core.traits import Trait
from interposer.core.types import DataLayout, Dim, TensorShape
from interposer.ir.graph import Layer, Value
from interposer.ops import (
    BatchToSpaceNd,
    DepthToSpace,
    Permute,
    Reshape,
    Transpose,
)
from interposer.rewriting.pattern import New, Replacement, above, above_with, keeps_codes, rewrite

__all__ = ["RESHAPES", "TRANSPOSES", "join_transposes", "reshape_to", "transpose_as_reshape"]

_FAR: Final = 16
"""The number of layers within which another transpose is searched."""


@rewrite(Transpose, Permute)
def join_transposes(op: Transpose | Permute, layer: Layer) -> Replacement:
    """Merge two consecutive transposes into one, or remove both if they undo each other."""
    inner = above(layer.inputs[0], Transpose, Permute)
    if inner is None or not keeps_codes(inner.layer) or not keeps_codes(layer):
        return None
    source = inner.layer.inputs[0]
    axes = tuple(inner.op.permutation[axis] for axis in op.permutation)
    return source if axes == tuple(range(len(axes))) else New(Transpose(axes), [source])


@rewrite(Transpose, Permute)
def move_transpose_up(op: Transpose | Permute, layer: Layer) -> Replacement:
    """Move a Transpose from the output of an elementwise layer to its inputs, if it then meets another Transpose.

    Both can be merged. Constant inputs are transposed immediately. At most one input gets a new Transpose that cannot
    be merged.
    """
    pointwise = above_with(layer.inputs[0], Trait.POINTWISE)
    if pointwise is None or len(pointwise.layer.output.uses) > 1 or not keeps_codes(layer):
        return None
    if not _leads_to_transpose(pointwise.layer.output, _FAR):
        return None
    moved_inputs = [_transposed(value, op.permutation, layer.name) for value in pointwise.layer.values]
    if None in moved_inputs or len(moved_inputs) < len(pointwise.layer.inputs):
        return None
    return New(pointwise.op, moved_inputs, like=pointwise.layer)


def _leads_to_transpose(value: Value, far: int) -> bool:
    """Return True if a Transpose of `value` can move to earlier layers until it meets another Transpose to merge with.

    It must meet one at all inputs of an elementwise layer but one, or at the only input. At most `far` elementwise
    layers are examined on a path.
    """
    if above(value, Transpose, Permute):
        return True
    inner = above_with(value, Trait.POINTWISE)
    if inner is None or len(value.uses) > 1 or not far:
        return False
    inputs = [value for value in inner.layer.values if not value.is_constant and value.known.num_elements != 1]
    meets_transpose = [_leads_to_transpose(source, far - 1) for source in inputs]
    return any(meets_transpose) and meets_transpose.count(False) <= 1


def _transposed(value: Value, axes: Sequence[int], name_below: str) -> Value | New | None:
    """Return an elementwise operand transposed by `axes`, or None if its shape or quantization does not allow that.

    An operand of lower rank first gets axes of size 1 in front, as broadcasting does; a single element needs nothing.
    `name_below` is the name of the Transpose that moves, from which the new layer gets its name.
    """
    info, num_missing = value.known, len(axes) - value.known.rank
    name = f"moved_up-{name_below.removeprefix('moved_up-')}"
    if info.num_elements == 1:
        return value
    if not num_missing:
        return New(Transpose(tuple(axes)), [value], name=name)
    if not info.is_concrete or (info.quantization is not None and info.quantization.per_axis):
        return None
    widened = New(Reshape((1,) * num_missing + tuple(info.shape)), [value])
    return New(Transpose(tuple(axes)), [widened], name=name)


@rewrite(BatchToSpaceNd)
def join_transpose_and_batch_to_space(op: BatchToSpaceNd, layer: Layer) -> Replacement:
    """Replace Transpose(3, 1, 2, 0) and BatchToSpaceNd to one image of one channel by a DepthToSpace (NHWC)."""
    transpose = above(layer.inputs[0], Transpose, Permute)
    if transpose is None or transpose.op.permutation != (3, 1, 2, 0) or not keeps_codes(transpose.layer):
        return None
    size = op.block_shape[0]
    square = op.block_shape == (size, size) and not any(map(any, op.crops))
    shape = layer.output.known.shape
    if not square or op.data_layout is not DataLayout.NHWC or (shape[0], shape[3]) != (1, 1):
        return None
    return New(DepthToSpace(size), [transpose.layer.inputs[0]]) if keeps_codes(layer) else None


@rewrite(Transpose, Permute)
def transpose_as_reshape(op: Transpose | Permute, layer: Layer) -> Replacement:
    """Replace a Transpose that moves only axes of size 1 by a Reshape."""
    input_shape = layer.values[0].known.shape
    kept_axes = [axis for axis in op.permutation if input_shape[axis] != 1]
    target = reshape_to(layer.output.known.shape)
    if kept_axes != sorted(kept_axes) or target is None or not keeps_codes(layer):
        return None
    return New(target, layer.inputs)


@rewrite(Reshape)
def join_reshapes(op: Reshape, layer: Layer) -> Replacement:
    """Replace two Reshapes, one after the other, by one from the first input to the last shape."""
    inner = above(layer.inputs[0], Reshape)
    target = reshape_to(layer.output.known.shape) or (None if op.copy_zeros else op)
    if inner is None or target is None or not keeps_codes(inner.layer) or not keeps_codes(layer):
        return None
    return New(target, inner.layer.inputs)


def reshape_to(shape: TensorShape) -> Reshape | None:
    """Return a Reshape to this shape, which stays right for every value of an unknown dimension.

    None if the shape has two unknown dimensions, or one and also a dimension of 0.
    """
    num_unknown = sum(isinstance(dim, Dim) for dim in shape)
    if num_unknown > 1 or (num_unknown and 0 in shape):
        return None
    return Reshape(tuple(-1 if isinstance(dim, Dim) else dim for dim in shape))


TRANSPOSES: Final = (join_transposes, move_transpose_up, join_transpose_and_batch_to_space)
RESHAPES: Final = (join_reshapes,)

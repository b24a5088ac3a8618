"""Helpers for several families: reshapes with unknown dimensions, axes, and layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataLayout, DataType, Dim, TensorShape
from interposer.frontends.reshaping import known_sizes, reshape_to
from interposer.frontends.tensorflow.node import Node
from interposer.ir.graph import Value
from interposer.ops.axes import axes_problems, normal_axis
from interposer.ops.dynamic import DynamicReshape
from interposer.ops.gather import Gather
from interposer.ops.rearrange import Stack
from interposer.ops.reshape import Reshape, Shape

__all__ = [
    "checked_axes",
    "checked_axis",
    "final_reshape",
    "final_reshape_by",
    "final_reshape_like",
    "inserted_axes",
    "layout_of",
    "removed_axes",
    "reshaped",
]

_LAYOUTS: Final = {
    "NHWC": DataLayout.NHWC,
    "NCHW": DataLayout.NCHW,
    "NDHWC": DataLayout.NDHWC,
    "NCDHW": DataLayout.NCDHW,
}


def final_reshape(node: Node, value: Value, sizes: Sequence[int], leading: int = 0) -> Value:
    """Return the value reshaped to `sizes`, as the node's own result; one size may be -1 and some an unknown `Dim`.

    The first `leading` sizes are the value's own dimensions.
    """
    return node.add(_reshape(node, value.known.shape, sizes, leading), value)


def reshaped(node: Node, value: Value, sizes: Sequence[int], leading: int = 0) -> Value:
    """Return the value reshaped to `sizes`, like `final_reshape`, as an intermediate result of the node."""
    return node.step(_reshape(node, value.known.shape, sizes, leading), value)


def final_reshape_like(node: Node, value: Value, like: Value) -> Value:
    """Return the value reshaped to the shape of `like`, which may be unknown until the network runs."""
    sizes = like.known.shape
    op = reshape_to(value.known.shape, sizes)
    if op is not None:
        return node.add(op, value)
    return final_reshape_by(node, value, node.step(Shape(DataType.INT64), like), sizes)


def final_reshape_by(
    node: Node, value: Value, shape: Value, sizes: Sequence[int], *, copy_zeros: bool = False
) -> Value:
    """Return the value reshaped to the elements of the tensor `shape`; `sizes` says what is known of them."""
    known = known_sizes(sizes)
    if known is None:
        return node.add(DynamicReshape(copy_zeros), value, shape)
    return node.add(known, node.step(DynamicReshape(copy_zeros), value, shape))


def removed_axes(node: Node, value: Value, axes: Sequence[int]) -> Value:
    """Return the value without `axes`, which must have size 1, as the node's own result."""
    shape = value.known.shape
    unknown = [axis for axis in axes if isinstance(shape[axis], Dim)]
    ones = [1 if axis in axes else dim for axis, dim in enumerate(shape)]
    checked = reshaped(node, value, ones, len(ones)) if unknown else value
    op = reshape_to(TensorShape(ones), [dim for axis, dim in enumerate(ones) if axis not in axes], min(axes, default=0))
    if op is not None:
        return node.add(op, checked)
    for axis in sorted(axes, reverse=True):
        checked = node.step(Gather(axis), checked, node.constant(np.array(0)))
    return checked


def inserted_axes(node: Node, value: Value, axes: Sequence[int]) -> Value:
    """Return the value with new axes of size 1, counted in the result, as the node's own result."""
    dims = iter(value.known.shape)
    sizes = [1 if axis in axes else next(dims) for axis in range(value.known.rank + len(axes))]
    op = reshape_to(value.known.shape, sizes, min(axes, default=len(sizes)))
    if op is not None:
        return node.add(op, value)
    for axis in sorted(axes):
        value = node.step(Stack(axis), value)
    return value


def _reshape(node: Node, shape: TensorShape, sizes: Sequence[int], leading: int) -> Reshape:
    op = reshape_to(shape, sizes, leading)
    if op is None:
        node.open_shape("the dimensions of its result depend on several unknown ones")
    return op


def checked_axis(axis: int, rank: int) -> int:
    """Return the axis counted from the front; raise `ParseError` if it is not in range for this rank."""
    return checked_axes((axis,), rank)[0]


def checked_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return the axes counted from the front, in the given order; `ParseError` if one is not in range or repeated."""
    for error in axes_problems(axes, rank, "axes"):
        raise ParseError(error)
    return tuple(normal_axis(axis, rank) for axis in axes)


def layout_of(node: Node, axes: int = 2) -> DataLayout:
    """Return the layout that the attribute data_format names, for images or volumes with this number of axes."""
    default = "NHWC" if axes == 2 else "NDHWC"
    name = node.text("data_format", default) or default
    if len(name) != axes + 2 or name not in _LAYOUTS:
        node.unsupported(f"its data_format is {name!r}")
    return _LAYOUTS[name]

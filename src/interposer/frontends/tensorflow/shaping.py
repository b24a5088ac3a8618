"""Helpers for several families: reshapes with unknown dimensions, axes, and layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interposer.core.errors import ParseError
from interposer.core.types import DataLayout, TensorShape
from interposer.frontends.reshaping import reshape_to
from interposer.frontends.tensorflow.node import Node
from interposer.ir.graph import Value
from interposer.ops.axes import axes_problems, normal_axis
from interposer.ops.reshape import Reshape

__all__ = ["checked_axes", "checked_axis", "final_reshape", "layout_of", "reshaped"]

_LAYOUTS: Final = {
    "NHWC": DataLayout.NHWC,
    "NCHW": DataLayout.NCHW,
    "NDHWC": DataLayout.NDHWC,
    "NCDHW": DataLayout.NCDHW,
}


def final_reshape(node: Node, value: Value, sizes: Sequence[int]) -> Value:
    """Return the value reshaped to `sizes`, as the node's own result; one size may be -1 and some an unknown `Dim`."""
    return node.add(_reshape(node, value.known.shape, sizes), value)


def reshaped(node: Node, value: Value, sizes: Sequence[int]) -> Value:
    """Return the value reshaped to `sizes`, like `final_reshape`, as an intermediate result of the node."""
    return node.step(_reshape(node, value.known.shape, sizes), value)


def _reshape(node: Node, shape: TensorShape, sizes: Sequence[int]) -> Reshape:
    op = reshape_to(shape, sizes)
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

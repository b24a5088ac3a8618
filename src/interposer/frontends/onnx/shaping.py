"""Helpers for several families: reshapes with unknown dimensions, and axes as attributes or operands."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.core.errors import ParseError
from interposer.core.types import TensorShape
from interposer.frontends.onnx.node import Node
from interposer.frontends.reshaping import reshape_to
from interposer.ir.graph import Value
from interposer.ops.axes import axes_problems, normal_axis
from interposer.ops.reshape import Reshape

__all__ = ["axes_of", "checked_axes", "checked_axis", "final_reshape", "reshaped"]


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


def axes_of(node: Node, since: int, index: int = 1) -> tuple[int, ...] | None:
    """Return the axes of a node, or None if they are absent.

    They are operand `index` since opset `since`, and the attribute axes before.
    """
    if node.version < since:
        return node.integers("axes") if node.has_attribute("axes") else None
    return node.array_integers(index, "axes") if node.has(index) else None

"""Helpers for several families: reshapes with unknown dimensions, and axes as attributes or operands."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.core.errors import ParseError
from interposer.core.types import Dim, TensorShape
from interposer.frontends.onnx.node import Node
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
    """Return the operator that reshapes a tensor of shape `shape` to `sizes`.

    An unknown size is copied if the input has it at the same axis; at most one other unknown size is inferred. The node
    is refused if more of them are unknown.
    """
    copied = [i for i, dim in enumerate(sizes) if _is_copied(shape, sizes, i)]
    target = [0 if i in copied else -1 if isinstance(dim, Dim) else dim for i, dim in enumerate(sizes)]
    if len(copied) == 1 and -1 not in target:
        return Reshape(tuple(-1 if i in copied else dim for i, dim in enumerate(sizes)))
    zeros = any(dim == 0 and i not in copied for i, dim in enumerate(target))
    if target.count(-1) > 1 or (copied and zeros):
        node.open_shape("the dimensions of its result depend on several unknown ones")
    return Reshape(tuple(target), copy_zeros=bool(copied))


def _is_copied(shape: TensorShape, sizes: Sequence[int], axis: int) -> bool:
    """Return True if the requested size along `axis` is the input's unknown dimension, so that it is copied.

    `shape` is the input's shape and `sizes` the requested one. A dimension without a name only counts if the axes
    before it are the same too.
    """
    dim = sizes[axis]
    if not isinstance(dim, Dim) or axis >= len(shape) or shape[axis] is not dim:
        return False
    return dim.name is not None or all(a is b or a == b for a, b in zip(shape[:axis], sizes[:axis], strict=True))


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

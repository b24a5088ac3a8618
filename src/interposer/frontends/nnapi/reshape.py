"""NNAPI converters for operators that change shapes, or create tensors from shapes."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.core.types import Dim, TensorShape
from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value
from interposer.ops.axes import normal_axis
from interposer.ops.dynamic import DynamicBroadcastTo
from interposer.ops.reshape import BroadcastTo, Fill, Rank, Reshape

__all__: list[str] = []


@operator("RESHAPE", inputs=2)
def reshape(node: Node) -> list[Value]:
    """Convert RESHAPE; for a shape that is computed at run time, the document's output shape is used."""
    reported = node.reported_shape() if node.is_computed(1) else None
    return node.result(Reshape(reported or node.integers(1, "the shape")), node.input(0))


@operator("SQUEEZE", inputs=(1, 2))
def squeeze(node: Node) -> list[Value]:
    """Convert SQUEEZE: remove the given axes of size 1, or all of them."""
    shape = node.info(0).shape
    ones = [axis for axis, dim in enumerate(shape) if dim == 1]
    dropped = ones if node.operand(1) is None else _dropped(node, shape)
    left = [dim for axis, dim in enumerate(shape) if axis not in dropped]
    return node.result(_reshape_to(node, left or [1]), node.input(0))


def _dropped(node: Node, shape: TensorShape) -> list[int]:
    axes = node.integers(1, "the axes")
    for axis in axes:
        if not -len(shape) <= axis < len(shape) or shape[axis] > 1:
            node.fail(f"axis {axis} of shape {shape} cannot be dropped")
    return [normal_axis(axis, len(shape)) for axis in axes]


@operator("EXPAND_DIMS", inputs=2)
def expand_dims(node: Node) -> list[Value]:
    """Convert EXPAND_DIMS: insert an axis of size 1."""
    shape = list(node.info(0).shape)
    shape.insert(node.axis(1, len(shape) + 1), 1)
    return node.result(_reshape_to(node, shape), node.input(0))


def _reshape_to(node: Node, shape: Sequence[int]) -> Reshape:
    """Return the operator that reshapes the input to `shape`; fail if more than one dimension is unknown."""
    if sum(isinstance(dim, Dim) for dim in shape) > 1:
        node.fail("more than one dimension is not known; give build(..., shapes={...})")
    return Reshape(tuple(-1 if isinstance(dim, Dim) else dim for dim in shape))


@operator("RANK", inputs=1)
def rank_of(node: Node) -> list[Value]:
    """Convert RANK to a scalar."""
    return node.result(Rank(), node.input(0))


@operator("FILL", inputs=2)
def fill(node: Node) -> list[Value]:
    """Convert FILL with an integer or a float, which determines the type and may be computed at run time."""
    if node.is_computed(1):
        return _filled_with(node, node.scalar(1))
    whole = node.is_of(1, "INT32")
    value = node.integer(1, "the value") if whole else node.real(1, "the value")
    return node.result(Fill(float(value), node.results[0].dtype), node.input(0, rank=1))


def _filled_with(node: Node, value: Value) -> list[Value]:
    if node.is_computed(0):
        return node.result(DynamicBroadcastTo(), value, node.input(0, rank=1))
    return node.result(BroadcastTo(node.integers(0, "the dims")), value)

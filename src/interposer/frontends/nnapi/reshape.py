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
    declared = node.declared_shape() if node.is_computed(1) else None
    return node.results(Reshape(declared or node.integers_of(1, "the shape")), node.value(0))


@operator("SQUEEZE", inputs=(1, 2))
def squeeze(node: Node) -> list[Value]:
    """Convert SQUEEZE: remove the given axes of size 1, or all of them."""
    shape = node.info(0).shape
    ones = [axis for axis, dim in enumerate(shape) if dim == 1]
    dropped = ones if node.operand(1) is None else _dropped(node, shape)
    left = [dim for axis, dim in enumerate(shape) if axis not in dropped]
    return node.results(_reshape_to(node, left or [1]), node.value(0))


def _dropped(node: Node, shape: TensorShape) -> list[int]:
    axes = node.integers_of(1, "the axes")
    for axis in axes:
        if not -len(shape) <= axis < len(shape) or shape[axis] > 1:
            node.fail(f"axis {axis} of shape {shape} cannot be dropped")
    return [normal_axis(axis, len(shape)) for axis in axes]


@operator("EXPAND_DIMS", inputs=2)
def expand_dims(node: Node) -> list[Value]:
    """Convert EXPAND_DIMS: insert an axis of size 1."""
    shape = list(node.info(0).shape)
    shape.insert(node.axis(1, len(shape) + 1), 1)
    return node.results(_reshape_to(node, shape), node.value(0))


def _reshape_to(node: Node, shape: Sequence[int]) -> Reshape:
    """Return the operator that reshapes the input to `shape`; fail if more than one dimension is unknown."""
    if sum(isinstance(dim, Dim) for dim in shape) > 1:
        node.fail("more than one dimension is not known; give build(..., shapes={...})")
    return Reshape(tuple(-1 if isinstance(dim, Dim) else dim for dim in shape))


@operator("RANK", inputs=1)
def rank_of(node: Node) -> list[Value]:
    """Convert RANK to a scalar."""
    return node.results(Rank(), node.value(0))


@operator("FILL", inputs=2)
def fill(node: Node) -> list[Value]:
    """Convert FILL with an integer or a float, which determines the type and may be computed at run time."""
    if node.is_computed(1):
        return _filled_with(node, node.scalar(1))
    is_integer = node.is_of(1, "INT32")
    fill_value = node.integer_of(1, "the value") if is_integer else node.number_of(1, "the value")
    return node.results(Fill(float(fill_value), node.outputs[0].dtype), node.value(0, rank=1))


def _filled_with(node: Node, value: Value) -> list[Value]:
    if node.is_computed(0):
        return node.results(DynamicBroadcastTo(), value, node.value(0, rank=1))
    return node.results(BroadcastTo(node.integers_of(0, "the dims")), value)

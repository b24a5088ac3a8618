"""TensorFlow converters for operators that change or return shapes, and for those that create tensors from shapes."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import MAX_RANK, DataType, Dim, TensorShape
from interposer.frontends.axes import checked_axes, checked_axis
from interposer.frontends.reshaping import final_reshape_by, inferred_sizes, inserted_axes, reshape_to, squeezed
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.axes import broadcast_shapes
from interposer.ops.dynamic import DynamicBroadcastTo, DynamicReshape
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.reshape import BroadcastTo, Fill, Rank, Shape
from interposer.ops.sequence import Range

__all__: list[str] = []

_INDICES: Final = {DataType.INT32, DataType.INT64}
_LARGEST_RANGE: Final = 1 << 24


@operator("Reshape")
def reshape(node: Node) -> Value:
    """Convert Reshape; the shape may contain dimensions of the input that are known by name only."""
    x = node.value(0)
    if node.is_computed(1):
        return node.result(DynamicReshape(), x, node.value(1))
    sizes = list(node.dimensions_of(1, "shape"))
    if len(sizes) > MAX_RANK:
        raise ParseError(f"its shape has rank {len(sizes)}; ranks 0 to {MAX_RANK} are supported")
    sizes = inferred_sizes(x.known.shape, sizes)
    op = reshape_to(x.known.shape, sizes)
    return node.result(op, x) if op is not None else final_reshape_by(node, x, node.value(1), sizes)


@operator("Squeeze")
def squeeze(node: Node) -> Value:
    """Convert Squeeze; without axes, all axes of size 1 are removed."""
    axes = node.integers("squeeze_dims", ()) or node.integers("axis", ())
    return squeezed(node, node.value(0), checked_axes(axes, node.info(0).rank) or None)


@operator("ExpandDims")
def expand_dims(node: Node) -> Value:
    """Convert ExpandDims: insert an axis of size 1."""
    x = node.value(0)
    return inserted_axes(node, x, [checked_axis(node.integer_of(1, "axis"), x.known.rank + 1, "the result")])


@operator("Shape")
def shape_of(node: Node) -> Value:
    """Convert Shape."""
    return node.result(Shape(_index_type(node)), node.value(0))


@operator("ShapeN")
def shapes_of(node: Node) -> list[Value]:
    """Convert ShapeN: the shapes of all inputs."""
    dtype = _index_type(node)
    return [node.result(Shape(dtype), value) for value in node.values()]


def _index_type(node: Node) -> DataType:
    dtype = node.dtype("out_type", DataType.INT32)
    if dtype not in _INDICES:
        raise ParseError(f"its out_type is {dtype}; expected int32 or int64")
    return dtype


@operator("Size")
def size_of(node: Node) -> Value:
    """Convert Size: the product of the dimensions."""
    shape = node.step(Shape(_index_type(node)), node.value(0))
    return node.result(Reduce(operation=ReduceOperation.PROD), shape)


@operator("Rank")
def rank_of(node: Node) -> Value:
    """Convert Rank to a constant."""
    return node.result(Rank(), node.value(0))


@operator("Fill")
def fill(node: Node) -> Value:
    """Convert Fill: a tensor of the shape in the first operand, with the value in the second."""
    fill_value = node.value(1)
    shape = node.dimensions_of(0, "dims") if not node.is_computed(0) else None
    if shape is not None and TensorShape(shape).is_concrete:
        return node.result(BroadcastTo(tuple(shape)), fill_value)
    if fill_value.constant is not None and fill_value.constant.size == 1 and fill_value.constant.dtype.kind != "O":
        return node.result(Fill(float(fill_value.constant.reshape(-1)[0]), fill_value.known.dtype), node.value(0))
    return node.result(DynamicBroadcastTo(), fill_value, node.value(0))


@operator("ZerosLike", "OnesLike")
def filled_like(node: Node) -> Value:
    """Convert ZerosLike and OnesLike: zeros or ones in the shape of the input."""
    x, number = node.value(0), float(node.kind == "OnesLike")
    if x.known.is_concrete:
        return node.result(BroadcastTo(tuple(x.known.shape)), node.scalar_like(number, x))
    return node.result(Fill(number, x.known.dtype), node.step(Shape(), x))


@operator("BroadcastTo")
def broadcast_to(node: Node) -> Value:
    """Convert BroadcastTo; unknown dimensions of the input stay unknown."""
    x = node.value(0)
    if node.is_computed(1):
        return node.result(DynamicBroadcastTo(), x, node.value(1))
    target_shape = node.dimensions_of(1, "shape")
    common_shape = broadcast_shapes(x.known.shape, TensorShape(target_shape))
    if common_shape is None:
        raise ParseError(f"its input of shape {x.known.shape} cannot be broadcast to {TensorShape(target_shape)}")
    if len(common_shape) == x.known.rank and all(map(_is_same, common_shape, x.known.shape)):
        return x
    if not common_shape.is_concrete:
        return node.result(DynamicBroadcastTo(), x, node.value(1))
    return node.result(BroadcastTo(tuple(common_shape)), x)


def _is_same(a: int, b: int) -> bool:
    """Return True if two sizes are certainly equal: unknown ones need the same name."""
    return a is b and a.name is not None if isinstance(a, Dim) else not isinstance(b, Dim) and a == b


@operator("BroadcastArgs")
def common_shape(node: Node) -> Value:
    """Convert BroadcastArgs: the shape to which two constant shapes broadcast."""
    a, b = (TensorShape(node.integers_of(index, "shape")) for index in range(2))
    common_sizes = broadcast_shapes(a, b)
    if common_sizes is None:
        raise ParseError(f"the shapes {a} and {b} do not broadcast")
    return node.constant(np.array(list(common_sizes), node.info(0).dtype.numpy))


@operator("Range")
def number_range(node: Node) -> Value:
    """Convert Range; constant operands make a constant, other operands a result whose length is known at run time."""
    operands = [node.value(i) for i in range(3)]
    if any(operand.constant is None for operand in operands):
        return node.result(Range(), *operands)
    start, limit, delta = (node.array(i, title).reshape(-1) for i, title in enumerate(("start", "limit", "delta")))
    if not start.size == limit.size == delta.size == 1 or start.dtype.kind == "O" or not delta[0]:
        raise ParseError("its start, limit and delta are not one number each, or delta is 0")
    first, last, step = (number[0].item() for number in (start, limit, delta))
    length = (last - first) / step
    if not length <= _LARGEST_RANGE:
        node.unsupported(f"it counts {length:g} numbers; {_LARGEST_RANGE} are the most")
    return node.named_constant((first + np.arange(max(0, math.ceil(length))) * step).astype(start.dtype))


@operator("LinSpace")
def evenly_spaced(node: Node) -> Value:
    """Convert LinSpace of constants."""
    start, stop, count = node.number_of(0, "start"), node.number_of(1, "stop"), node.integer_of(2, "num")
    if not 0 < count <= _LARGEST_RANGE:
        raise ParseError(f"it counts {count} numbers")
    return node.named_constant(np.linspace(start, stop, count).astype(node.info(0).dtype.numpy))


@operator("InvertPermutation")
def inverted(node: Node) -> Value:
    """Convert InvertPermutation of a constant."""
    permutation = node.array(0, "permutation")
    if sorted(permutation.tolist()) != list(range(permutation.size)):
        raise ParseError(f"{permutation.tolist()[:16]} is no permutation")
    return node.named_constant(np.argsort(permutation).astype(permutation.dtype))

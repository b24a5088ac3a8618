"""ONNX converters for operators that change or return shapes, and for those that create tensors from shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import MAX_RANK, Array, DataType, Dim, TensorShape
from interposer.frontends.axes import checked_axes
from interposer.frontends.onnx.contrib_heads import pieces
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.shaping import axes_of, product
from interposer.frontends.reshaping import final_reshape_by, inferred_sizes, inserted_axes, reshape_to, squeezed
from interposer.ir.graph import Value
from interposer.ops.axes import broadcast_shapes
from interposer.ops.dynamic import DynamicBroadcastTo, DynamicReshape, DynamicTile
from interposer.ops.rearrange import Concat, Slice, Tile
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.reshape import BroadcastTo, Fill, Reshape, Shape
from interposer.ops.sequence import Range

_LARGEST_RANGE = 1 << 24


@operator("Reshape")
def reshape_by_attribute(node: Node) -> Value:
    """Convert Reshape with the shape as an attribute (before opset 5)."""
    return _reshaped(node, node.integers("shape"))


@operator("Reshape", since=5)
def reshape(node: Node) -> Value:
    """Convert Reshape; the shape may contain dimensions of the input that are known by name only."""
    allow_zero = node.version >= 14 and node.flag("allowzero")
    if node.importer.dimensions_of(node.value(1)) is None and node.is_computed(1):
        return node.result(DynamicReshape(copy_zeros=not allow_zero), node.value(0), node.value(1))
    return _reshaped(node, node.dimensions_of(1, "shape"), allow_zero)


def _reshaped(node: Node, target: Sequence[int], allow_zero: bool = False) -> Value:
    shape = node.info(0).shape
    if len(target) > MAX_RANK:
        raise ParseError(f"its shape has rank {len(target)}; ranks 0 to {MAX_RANK} are supported")
    if not allow_zero and 0 in target[len(shape) :]:
        raise ParseError(f"its shape {list(target)} copies a dimension that the input of shape {shape} lacks")
    copied_axes = [i for i, dim in enumerate(target) if not isinstance(dim, Dim) and dim == 0 and not allow_zero]
    sizes = [shape[i] if i in copied_axes else dim for i, dim in enumerate(target)]
    sizes = inferred_sizes(shape, sizes)
    op = reshape_to(shape, sizes, next((i for i in range(len(sizes)) if i not in copied_axes), len(sizes)))
    if op is not None:
        return node.result(op, node.value(0))
    if not any(isinstance(dim, Dim) for dim in target):
        return node.result(Reshape(tuple(target), copy_zeros=bool(copied_axes)), node.value(0))
    return final_reshape_by(node, node.value(0), node.value(1), sizes, copy_zeros=bool(copied_axes))


@operator("Flatten")
def flatten(node: Node) -> Value:
    """Convert Flatten: the axes before `axis`, and those from it on, become one axis each."""
    shape = node.info(0).shape
    axis = node.integer("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise ParseError(f"axis is {axis}, but the input has rank {len(shape)}")
    axis += len(shape) if axis < 0 else 0
    op = reshape_to(shape, [product(shape[:axis]), product(shape[axis:])], int(axis == 1))
    if op is not None:
        return node.result(op, node.value(0))
    dims = node.step(Shape(DataType.INT64), node.value(0))
    halves = pieces(node, dims, (axis, len(shape) - axis), 0)
    products = [node.step(Reduce((0,), keep_dims=True, operation=ReduceOperation.PROD), half) for half in halves]
    return node.result(DynamicReshape(), node.value(0), node.step(Concat(0), *products))


@operator("Squeeze")
def squeeze(node: Node) -> Value:
    """Convert Squeeze; without axes, all axes of size 1 are removed."""
    axes = axes_of(node, 13)
    rank = node.info(0).rank
    if axes is not None and rank == 0 and set(axes) <= {0, -1}:
        axes = ()  # a scalar counts as a tensor of one element
    return squeezed(node, node.value(0), None if axes is None else checked_axes(axes, rank))


@operator("Unsqueeze")
def unsqueeze(node: Node) -> Value:
    """Convert Unsqueeze; the axes are counted in the result."""
    shape, axes = node.info(0).shape, axes_of(node, 13)
    if axes is None:
        raise ParseError("it has no axes")
    if len(shape) + len(axes) > MAX_RANK:
        raise ParseError(f"its result has rank {len(shape) + len(axes)}; ranks 0 to {MAX_RANK} are supported")
    return inserted_axes(node, node.value(0), checked_axes(axes, len(shape) + len(axes), "the result"))


@operator("Shape")
def shape_of(node: Node) -> Value:
    """Convert Shape; since opset 15, the attributes start and end select a part."""
    if not node.has_attribute("start") and not node.has_attribute("end"):
        return node.result(Shape(DataType.INT64), node.value(0))
    rank = node.info(0).rank
    start, end = node.integer("start", 0), node.integer("end", rank)
    begin, stop, _ = slice(start, end).indices(rank)
    if (begin, stop) == (0, rank):
        return node.result(Shape(DataType.INT64), node.value(0))
    full_shape = node.step(Shape(DataType.INT64), node.value(0))
    return node.result(Slice((begin,), (max(0, stop - begin),)), full_shape)


@operator("Size")
def size_of(node: Node) -> Value:
    """Convert Size: the product of the dimensions."""
    shape = node.step(Shape(DataType.INT64), node.value(0))
    return node.result(Reduce(operation=ReduceOperation.PROD), shape)


@operator("Identity")
def identity(node: Node) -> Value:
    """Convert Identity: return the input itself."""
    return node.value(0)


@operator("Expand", since=8)
def expand(node: Node) -> Value:
    """Convert Expand.

    Unknown dimensions of the input are assumed to be greater than 1, unless the shape has the same dimension.
    """
    if node.is_computed(1):
        return node.result(DynamicBroadcastTo(), node.value(0), node.value(1))
    shape, target_shape = node.info(0).shape, node.dimensions_of(1, "shape")
    for dim in target_shape:
        if dim < 0:
            node.out_of_range(f"its shape is {list(target_shape)}; expected dimensions of 0 or more", dim, (0, None))
    if len(target_shape) > MAX_RANK:
        raise ParseError(f"its shape is {list(target_shape)}; expected up to {MAX_RANK} dimensions of 0 or more")
    common_shape = broadcast_shapes(shape, TensorShape(target_shape))
    if common_shape is None:
        raise ParseError(f"its input of shape {shape} cannot be broadcast to {TensorShape(target_shape)}")
    if common_shape == shape:
        return node.value(0)
    return node.result(BroadcastTo(node.concrete(common_shape, "result")), node.value(0))


@operator("Tile", since=6)
def tile(node: Node) -> Value:
    """Convert Tile; the operand says how often to repeat along each axis."""
    if node.is_computed(1):
        return node.result(DynamicTile(), node.value(0), node.value(1))
    return node.result(Tile(node.integers_of(1, "repeats")), node.value(0))


@operator("Constant")
def constant(node: Node) -> Value:
    """Convert Constant; exactly one of several attributes has the value."""
    return node.constant(_constant(node))


def _constant(node: Node) -> Array:
    if node.has_attribute("value"):
        return node.tensor_array("value")
    if node.has_attribute("value_float"):
        return np.array(node.number("value_float"), np.float32)
    if node.has_attribute("value_floats"):
        return np.array(node.numbers("value_floats"), np.float32)
    if node.has_attribute("value_int"):
        return np.array(node.integer("value_int"), np.int64)
    if node.has_attribute("value_ints"):
        return np.array(node.integers("value_ints"), np.int64)
    if node.has_attribute("value_string"):
        return np.array(node.text("value_string"), object)
    if node.has_attribute("value_strings"):
        return np.array(node.texts("value_strings"), object)
    return node.importer.dense_array(node.sparse_tensor("sparse_value"))


@operator("ConstantOfShape", since=9)
def constant_of_shape(node: Node) -> Value:
    """Convert ConstantOfShape: one repeated element; a shape that is data is filled at run time."""
    fill_value = node.tensor_array("value") if node.has_attribute("value") else np.zeros(1, np.float32)
    if fill_value.size != 1:
        raise ParseError(f"its value has shape {list(fill_value.shape)}; expected one element")
    shape = node.value(0)
    if shape.constant is not None:
        return node.result(BroadcastTo(node.integers_of(0, "shape")), node.constant(fill_value.reshape(())))
    if fill_value.dtype.kind == "O":
        node.unsupported("it fills a shape that is computed from data with a text")
    return node.result(Fill(float(fill_value.item()), DataType.of(fill_value.dtype)), shape)


@operator("Range", since=11)
def number_range(node: Node) -> Value:
    """Convert Range; constant operands make a constant, other operands a result whose length is known at run time."""
    operands = [node.value(i) for i in range(3)]
    if any(operand.constant is None for operand in operands):
        return node.result(Range(), *operands)
    start, limit, delta = (node.array(i, title).reshape(-1) for i, title in enumerate(("start", "limit", "delta")))
    if not start.size == limit.size == delta.size == 1 or start.dtype.kind == "O" or not delta[0]:
        raise ParseError("its start, limit and delta are not one number each, or delta is 0")
    first, last, step = (
        number[0].item() if number.dtype.kind in "iu" else float(number[0]) for number in (start, limit, delta)
    )
    length = (last - first) / step
    if not length <= _LARGEST_RANGE:
        node.unsupported(f"it counts {length:g} numbers; {_LARGEST_RANGE} are the most")
    return node.constant((first + np.arange(max(0, math.ceil(length))) * step).astype(start.dtype))

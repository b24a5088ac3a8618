"""ONNX converters for ONNX Runtime's own operators that select, move or compare elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from interposer.core.errors import ParseError
from interposer.frontends.axes import checked_axis
from interposer.frontends.elementwise import SQ_DIFF, SQRT
from interposer.frontends.onnx.images import sampled
from interposer.frontends.onnx.matmul import trilu
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.onnx.rearrange import gather_nd
from interposer.frontends.onnx.reshape import number_range
from interposer.frontends.reshaping import inserted_axes, reshaped
from interposer.ir.graph import Value
from interposer.ops.activation import Softmax
from interposer.ops.elementwise import Addition
from interposer.ops.gather import Gather
from interposer.ops.rearrange import Transpose
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.selection import Unique

__all__: list[str] = []

operator("Trilu", domain=MICROSOFT)(trilu)
operator("GatherND", domain=MICROSOFT)(gather_nd)


@operator("GridSample", domain=MICROSOFT)
def grid_sample(node: Node) -> Value:
    """Convert GridSample of images, whose modes are bilinear, nearest and bicubic."""
    return sampled(node, "bilinear")


@operator("ExpandDims", domain=MICROSOFT)
def expand_dims(node: Node) -> Value:
    """Convert ExpandDims: insert a dimension of 1; the axis must be constant."""
    shape, axis = list(node.info(0).shape), int(node.number_of(1, "axis"))
    position = checked_axis(axis, len(shape) + 1, "the result")
    return inserted_axes(node, node.value(0), [position])


@operator("UnfoldTensor", domain=MICROSOFT)
def unfold(node: Node) -> Value:
    """Convert UnfoldTensor: all slices of a size along an axis, whose elements become the last axis."""
    x, size, step = node.value(0), node.integer("size"), node.integer("step", 1)
    axis = checked_axis(node.integer("dim", -1), x.known.rank)
    length = node.known(x.known.shape[axis], "dimension along the slices")
    if not 0 < size <= length or step < 1:
        raise ParseError(f"size is {size} and step {step}, for a dimension of {length}")
    starts = np.arange((length - size) // step + 1) * step
    indices = node.constant(starts[:, np.newaxis] + np.arange(size))
    slices = node.step(Gather(axis), x, indices)
    rank = slices.known.rank
    other_axes = [i for i in range(rank) if i != axis + 1]
    return node.result(Transpose((*other_axes, axis + 1)), slices)


@operator("Unique", domain=MICROSOFT)
def unique(node: Node) -> Sequence[Value]:
    """Convert Unique of a vector: the values in the order of their first occurrence, their places and their counts."""
    values, _, inverse, counts = node.results(Unique(None, sorted=False), node.value(0))
    return [values, inverse, counts]


@operator("Range", domain=MICROSOFT)
def range_of_numbers(node: Node) -> Value | Sequence[Value | None]:
    """Convert Range, whose operands have one element each; the step is 1 by default."""
    scalar_node, start = node.rewritten(range(3), {}), node.value(0)
    delta = node.optional(2)
    for index, operand in enumerate((start, node.value(1), node.scalar_like(1, start) if delta is None else delta)):
        scalar_node.replace(index, operand if operand.constant is not None else reshaped(node, operand, []))
    return number_range(scalar_node)


@operator("CDist", domain=MICROSOFT)
def distances(node: Node) -> Value:
    """Convert CDist: the Euclidean distance, or its square, of each row of a matrix to each row of another one."""
    metric, a, b = node.text("metric", "sqeuclidean"), node.value(0), node.value(1)
    if metric not in ("euclidean", "sqeuclidean"):
        node.unsupported(f"its metric is {metric!r}; euclidean and sqeuclidean are supported")
    if a.known.rank != 2 or b.known.rank != 2:
        raise ParseError(f"a has shape {a.known.shape} and b {b.known.shape}; expected matrices")
    a_rows, b_rows = reshaped(node, a, [a.known.shape[0], 1, a.known.shape[1]]), b
    squares = node.step(SQ_DIFF, a_rows, b_rows)
    squared_distances = node.step(Reduce((2,), keep_dims=False, operation=ReduceOperation.SUM), squares)
    return squared_distances if metric == "sqeuclidean" else node.step(SQRT, squared_distances)


@operator("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(node: Node) -> Value:
    """Convert BiasSoftmax along the last axis: the softmax of the sum of the scores and a bias."""
    x, bias, axis = node.value(0), node.value(1), checked_axis(node.integer("axis", 1), node.info(0).rank)
    if axis != x.known.rank - 1 or not node.flag("is_inner_broadcast") or bias.known.rank != x.known.rank:
        node.unsupported("it takes several axes for one, or repeats the bias for blocks of rows")
    return node.result(Softmax(axis=-1), node.step(Addition(), x, bias))


@operator("SampleOp", domain=MICROSOFT)
def sample(node: Node) -> Value:
    """Convert SampleOp, which returns its input."""
    return node.value(0)

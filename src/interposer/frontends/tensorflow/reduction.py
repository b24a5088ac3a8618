"""TensorFlow converters for reductions."""

from __future__ import annotations

from typing import Final

from interposer.core.errors import ParseError
from interposer.core.schema import Op
from interposer.core.types import DataType
from interposer.frontends.axes import checked_axis
from interposer.frontends.elementwise import ABS, DIV
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.reduction import ArgMinMax, ArgMinMaxFunction, Mean, Reduce, ReduceOperation

__all__: list[str] = []

_OPERATIONS: Final = {
    "All": ReduceOperation.ALL,
    "Any": ReduceOperation.ANY,
    "EuclideanNorm": ReduceOperation.L2,
    "Max": ReduceOperation.MAX,
    "Mean": ReduceOperation.MEAN,
    "Min": ReduceOperation.MIN,
    "Prod": ReduceOperation.PROD,
    "Sum": ReduceOperation.SUM,
}


@operator(*_OPERATIONS)
def reduction(node: Node) -> Value:
    """Convert reductions; the axes are an operand, and an empty list of them reduces nothing."""
    x, axes = node.value(0), node.integers_of(1, "axes")
    rank, keeps_dims = x.known.rank, node.flag("keep_dims", False)
    if not axes:
        return node.result(ABS, x) if node.kind == "EuclideanNorm" else x
    for axis in axes:
        checked_axis(axis, rank)
    op: Op = Reduce(axes, keeps_dims, _OPERATIONS[node.kind])
    if node.kind == "Mean" and x.known.dtype.is_float:
        op = Mean(axes, keeps_dims)
    return node.result(op, x)


@operator("ArgMax", "ArgMin")
def index_of_extreme(node: Node) -> Value:
    """Convert ArgMax and ArgMin; the axis is an operand, and the first of equal elements counts."""
    axis = checked_axis(node.integer_of(1, "axis"), node.info(0).rank)
    dtype = node.dtype("output_type", DataType.INT64)
    if dtype not in {DataType.INT32, DataType.INT64}:
        raise ParseError(f"its output_type is {dtype}; expected int32 or int64")
    function = ArgMinMaxFunction.MAX if node.kind == "ArgMax" else ArgMinMaxFunction.MIN
    return node.result(ArgMinMax(function, axis, dtype=dtype), node.value(0))


@operator("L2Loss")
def half_sum_of_squares(node: Node) -> Value:
    """Convert L2Loss: half the sum of the squares."""
    x = node.value(0)
    total = node.step(Reduce(operation=ReduceOperation.SUM_SQUARE), x)
    return node.result(DIV, total, node.scalar_like(2, total))

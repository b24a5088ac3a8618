"""TFLite converters for reductions."""

from __future__ import annotations

from typing import Final

from interposer.core.schema import Op
from interposer.core.types import DataType
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.axes import normal_axis
from interposer.ops.rearrange import Stack
from interposer.ops.reduction import ArgMinMax, ArgMinMaxFunction, Mean, Reduce, ReduceOperation

__all__: list[str] = []

_REDUCE: Final = {
    "SUM": ReduceOperation.SUM,
    "REDUCE_MAX": ReduceOperation.MAX,
    "REDUCE_MIN": ReduceOperation.MIN,
    "REDUCE_PROD": ReduceOperation.PROD,
    "REDUCE_ANY": ReduceOperation.ANY,
    "REDUCE_ALL": ReduceOperation.ALL,
}
_OF_BOOLS: Final = {"SUM": ReduceOperation.ANY, "REDUCE_PROD": ReduceOperation.ALL}


@operator("MEAN", *_REDUCE, options=True)
def reduction(node: Node) -> Value:
    """Convert MEAN, SUM, REDUCE_MAX and other reductions, whose axes are an input.

    Without axes, the elements stay as they are, in the quantization of the output. Repeated axes count once. Sums of
    bool are OR, products are AND.
    """
    x = node.value(0)
    axes = tuple(dict.fromkeys(normal_axis(axis, x.known.rank) for axis in node.integers_of(1, "the axes")))
    keep: bool = node.options["keep_dims"]
    operation = _REDUCE.get(node.kind)
    if x.known.dtype is DataType.BOOL:
        operation = _OF_BOOLS.get(node.kind, operation)
    if not axes:
        if x.known.quantization == node.output_info.quantization:
            return x
        x, axes, keep = node.step(Stack(x.known.rank), x), (x.known.rank,), False
    op: Op = Mean(axes, keep) if operation is None else Reduce(axes, keep, operation)
    return node.result(op, x)


@operator("ARG_MAX", "ARG_MIN")
def arg_min_max(node: Node) -> Value:
    """Convert ARG_MAX and ARG_MIN along one axis; the indices have the type that the file declares for the output."""
    function = ArgMinMaxFunction.MAX if node.kind == "ARG_MAX" else ArgMinMaxFunction.MIN
    op = ArgMinMax(function, node.integer_of(1, "the axis"), dtype=node.output_info.dtype)
    return node.result(op, node.value(0))

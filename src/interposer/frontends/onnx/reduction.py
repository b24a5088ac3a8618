"""ONNX converters for reductions along axes."""

from __future__ import annotations

from typing import Final

from interposer.core.types import DataType
from interposer.frontends.axes import checked_axes
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import Converter, operator
from interposer.frontends.onnx.shaping import axes_of
from interposer.ir.graph import Value
from interposer.ops.reduction import ArgMinMax, ArgMinMaxFunction, Mean, Reduce, ReduceOperation

__all__: list[str] = []

_OPERATIONS: Final = {
    "ReduceL1": ReduceOperation.L1,
    "ReduceL2": ReduceOperation.L2,
    "ReduceLogSum": ReduceOperation.LOG_SUM,
    "ReduceLogSumExp": ReduceOperation.LOG_SUM_EXP,
    "ReduceMax": ReduceOperation.MAX,
    "ReduceMean": ReduceOperation.MEAN,
    "ReduceMin": ReduceOperation.MIN,
    "ReduceProd": ReduceOperation.PROD,
    "ReduceSum": ReduceOperation.SUM,
    "ReduceSumSquare": ReduceOperation.SUM_SQUARE,
}


def _reduction(operation: ReduceOperation) -> Converter:
    """Return the converter of the node for a reduction such as ReduceMax.

    The axes are an operand since opset 18 (since 13 for ReduceSum), and an attribute before.
    """
    since = 13 if operation is ReduceOperation.SUM else 18

    def convert(node: Node) -> Value:
        axes, keep_dims = axes_of(node, since), node.flag("keepdims", True)
        if not axes and node.flag("noop_with_empty_axes"):
            return node.value(0)
        axes = checked_axes(axes or (), node.info(0).rank)
        if operation is ReduceOperation.MEAN:
            return node.result(Mean(axes, keep_dims), node.value(0))
        return node.result(Reduce(axes, keep_dims, operation), node.value(0))

    return convert


for _name, _operation in _OPERATIONS.items():
    operator(_name)(_reduction(_operation))


def _arg(function: ArgMinMaxFunction) -> Converter:
    def convert(node: Node) -> Value:
        op = ArgMinMax(
            function,
            node.integer("axis", 0),
            node.flag("keepdims", True),
            DataType.INT64,
            node.flag("select_last_index"),
        )
        return node.result(op, node.value(0))

    return convert


operator("ArgMax")(_arg(ArgMinMaxFunction.MAX))
operator("ArgMin")(_arg(ArgMinMaxFunction.MIN))

"""ONNX converters for reductions along axes."""

from __future__ import annotations

from typing import Final

from interposer.core.schema import Op
from interposer.core.types import DataType
from interposer.frontends.axes import checked_axes
from interposer.frontends.elementwise import ABS, LOG, SQUARE
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import Converter, operator
from interposer.frontends.onnx.shaping import axes_of
from interposer.ir.graph import Value
from interposer.ops.quantization import Cast
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
_FUNCTIONS: Final = {
    ReduceOperation.L1: ABS,
    ReduceOperation.L2: ABS,
    ReduceOperation.LOG_SUM: LOG,
    ReduceOperation.SUM_SQUARE: SQUARE,
}
"""The function of single elements that is a part of a reduction; other reductions have none."""
_OF_FLOATS: Final = (ReduceOperation.L2, ReduceOperation.LOG_SUM, ReduceOperation.LOG_SUM_EXP)
"""Reductions whose results are no integers: those of integers are truncated."""


def _reduction(operation: ReduceOperation) -> Converter:
    """Return the converter of the node for a reduction such as ReduceMax.

    The axes are an operand since opset 18 (since 13 for ReduceSum), and an attribute before.
    """
    since = 13 if operation is ReduceOperation.SUM else 18

    def convert(node: Node) -> Value:
        axes, keep_dims = axes_of(node, since), node.flag("keepdims", True)
        if not axes and node.flag("noop_with_empty_axes"):
            return _of_single_elements(node, operation)
        axes = checked_axes(axes or (), node.info(0).rank)
        if operation is ReduceOperation.MEAN:
            return node.result(Mean(axes, keep_dims), node.value(0))
        op, x = Reduce(axes, keep_dims, operation), node.value(0)
        if operation in _OF_FLOATS and x.known.dtype.is_integer:
            return _of_integers(node, op)
        return node.result(op, x)

    return convert


def _of_integers(node: Node, op: Op) -> Value:
    """Return what an operator on floats makes of the integers of the first input, truncated to their type."""
    x = node.value(0)
    return node.result(Cast(x.known.dtype), node.step(op, node.cast(x, DataType.FLOAT64)))


def _of_single_elements(node: Node, operation: ReduceOperation) -> Value:
    """Return a reduction along no axes: the absolute values for ReduceL1, the input for ReduceSum."""
    function, x = _FUNCTIONS.get(operation), node.value(0)
    if function is LOG and x.known.dtype.is_integer:
        return _of_integers(node, LOG)
    return x if function is None else node.result(function, x)


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

"""ONNX writers for reductions along axes."""

from __future__ import annotations

from typing import Final

from interposer.core.types import DataType
from interposer.ops.reduction import ArgMinMax, ArgMinMaxFunction, Mean, Reduce, ReduceOperation, reduced_axes
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor

__all__ = ["reduction"]

_KINDS: Final = {
    ReduceOperation.SUM: "ReduceSum",
    ReduceOperation.MAX: "ReduceMax",
    ReduceOperation.MEAN: "ReduceMean",
    ReduceOperation.MIN: "ReduceMin",
    ReduceOperation.PROD: "ReduceProd",
    ReduceOperation.L1: "ReduceL1",
    ReduceOperation.L2: "ReduceL2",
    ReduceOperation.LOG_SUM: "ReduceLogSum",
    ReduceOperation.LOG_SUM_EXP: "ReduceLogSumExp",
    ReduceOperation.SUM_SQUARE: "ReduceSumSquare",
    ReduceOperation.ALL: "ReduceMin",
    ReduceOperation.ANY: "ReduceMax",
}


@writer(Mean, Reduce)
def reduction(draft: Draft, op: Mean | Reduce) -> Tensor:
    """Write Mean and Reduce as ReduceMean, ReduceSum and so on.

    ALL and ANY, which ONNX lacks, become the minimum and the maximum of truth values.
    """
    operation = op.operation if isinstance(op, Reduce) else ReduceOperation.MEAN
    x, axes = draft.operand(0), reduced_axes(op.axis, draft.rank)
    if not axes:
        return (
            draft.node("Abs", x)
            if operation in (ReduceOperation.L1, ReduceOperation.L2)
            else _of_scalar(draft, x, operation)
        )
    return draft.reduce(_KINDS[operation], x, axes, keep=op.keep_dims)


def _of_scalar(draft: Draft, x: Tensor, operation: ReduceOperation) -> Tensor:
    if operation is ReduceOperation.SUM_SQUARE:
        return draft.node("Mul", x, x)
    return draft.node("Log", x) if operation is ReduceOperation.LOG_SUM else x


@writer(ArgMinMax, also_quantized=True)
def arg_min_max(draft: Draft, op: ArgMinMax) -> Tensor:
    """Write ArgMinMax; the int64 indices are cast to int32 if the layer's are."""
    x = draft.operand(0)
    kind = "ArgMax" if op.function is ArgMinMaxFunction.MAX else "ArgMin"
    if op.select_last_index and x.dtype is DataType.BOOL:
        x = draft.cast(x, DataType.UINT8)
    select_last = 1 if op.select_last_index else None
    return draft.cast(
        draft.node(kind, x, axis=op.axis, keepdims=int(op.keep_dims), select_last_index=select_last), op.dtype
    )

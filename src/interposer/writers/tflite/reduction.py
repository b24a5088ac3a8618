"""TFLite writers for reductions."""

from __future__ import annotations

from typing import Final

from interposer.core.types import TensorInfo
from interposer.ops.axes import normal_axis
from interposer.ops.reduction import ArgMinMax, ArgMinMaxFunction, Mean, Reduce, ReduceOperation, reduced_axes
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []

R = ReduceOperation
_KINDS: Final = {
    R.SUM: "SUM",
    R.MAX: "REDUCE_MAX",
    R.MIN: "REDUCE_MIN",
    R.PROD: "REDUCE_PROD",
    R.ALL: "REDUCE_ALL",
    R.ANY: "REDUCE_ANY",
}


_COMPARED: Final = ("REDUCE_MAX", "REDUCE_MIN")


@writer(Mean, also_quantized=True)
def mean(draft: Draft, op: Mean) -> Tensor:
    """Write Mean; the axes are an operand."""
    return reduced(draft, "MEAN", draft.operand(0), op)


def reduced(draft: Draft, kind: str, x: Tensor, op: Mean | Reduce, info: TensorInfo | None = None) -> Tensor:
    """Return `x` reduced over the axes of `op` by the TFLite operator `kind`; scalars, which have no axes, are refused.

    `info` is that of the result, by default that of the layer's result.
    """
    axes = reduced_axes(op.axis, draft.rank)
    if not axes:
        refuse("its input is a scalar, which has no axes to reduce")
    return draft.node(kind, x, draft.ints(axes, "axes"), giving=info or draft.result, keep_dims=op.keep_dims)


@writer(Reduce, also_quantized=True)
def reduce(draft: Draft, op: Reduce) -> Tensor:
    """Write Reduce as one operator if TFLite has it, else as several operators."""
    x, kind = draft.operand(0), _KINDS.get(op.operation)
    if kind in _COMPARED and draft.info(0).quantization != draft.result.quantization:
        refuse("the scales of input and result differ")
    if kind is not None:
        return reduced(draft, kind, x, op)
    if draft.is_quantized or not x.dtype.is_float:
        refuse(f"TFLite has no operator for {op.operation.name}")
    return _composed(draft, op, x)


def _composed(draft: Draft, op: Reduce, x: Tensor) -> Tensor:
    if op.operation is R.MEAN:
        return reduced(draft, "MEAN", x, op)
    if op.operation is R.L1:
        return reduced(draft, "SUM", draft.node("ABS", x, giving=x.info), op)
    if op.operation in (R.L2, R.SUM_SQUARE):
        sum_of_squares = reduced(draft, "SUM", draft.node("SQUARE", x, giving=x.info), op)
        return draft.final("SQRT", sum_of_squares) if op.operation is R.L2 else sum_of_squares
    if op.operation is R.LOG_SUM_EXP:
        return _log_sum_exp(draft, op, x)
    if op.operation is R.LOG_SUM:
        return draft.final("LOG", reduced(draft, "SUM", x, op))
    return refuse(f"TFLite has no operator for {op.operation.name}")


def _log_sum_exp(draft: Draft, op: Reduce, x: Tensor) -> Tensor:
    """Return log(sum(exp(x))) over the axes of `op`, with the maximum subtracted first so that it does not overflow."""
    removed_axes = reduced_axes(op.axis, draft.rank)
    axes = draft.ints(removed_axes, "axes")
    keeping_info = TensorInfo([1 if axis in removed_axes else size for axis, size in enumerate(x.shape)], x.dtype)
    greatest = draft.node("REDUCE_MAX", x, axes, giving=keeping_info, keep_dims=True)
    exponentials = draft.node("EXP", draft.node("SUB", x, greatest, giving=x.info), giving=x.info)
    logs = draft.node("LOG", reduced(draft, "SUM", exponentials, op), giving=draft.result)
    return draft.final("ADD", logs, greatest if op.keep_dims else draft.reshape_to(greatest, draft.result))


@writer(ArgMinMax)
def arg_min_max(draft: Draft, op: ArgMinMax) -> Tensor:
    """Write ArgMinMax; the axis is an operand."""
    if op.select_last_index:
        refuse("of equal elements it takes the last, and TFLite the first")
    kind = "ARG_MAX" if op.function is ArgMinMaxFunction.MAX else "ARG_MIN"
    axis = normal_axis(op.axis, draft.rank)
    keeps_rank = draft.result.rank == draft.rank
    shape = [size for number, size in enumerate(draft.info(0).shape) if number != axis]
    info = TensorInfo(shape, op.dtype) if keeps_rank else draft.result
    indices = draft.node(kind, draft.operand(0), draft.ints(axis, "axis"), giving=info, output_type=op.dtype)
    return draft.reshape_to(indices, draft.result) if keeps_rank else indices

"""Arm NN writers for reductions."""

from __future__ import annotations

from typing import Final

from interposer.core.types import DataType, TensorInfo
from interposer.formats.armnn.schema import ACTIVATIONS, REDUCTIONS
from interposer.ops.axes import normal_axis
from interposer.ops.reduction import ArgMinMax, Mean, Reduce, ReduceOperation, reduced_axes
from interposer.writers.armnn.armnn_layer_writers import writer
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor
from interposer.writers.armnn.types import dimensions
from interposer.writers.refusals import refuse

__all__: list[str] = []

R: Final = ReduceOperation
_PRODUCT_SINCE: Final = "21.11"


@writer(Mean)
def mean(draft: Draft, op: Mean) -> Tensor:
    """Write Mean."""
    return _mean(draft, op.axis, op.keep_dims)


def _mean(draft: Draft, axes: tuple[int, ...], keep_dims: bool) -> Tensor:
    if draft.result.dtype is DataType.INT32:
        refuse("Arm NN has no Mean of int32")
    x = draft.operand(0)
    fields = {"axis": reduced_axes(axes, len(dimensions(x.info))), "keepDims": keep_dims}
    return draft.final("Mean", x, descriptor=fields)


@writer(Reduce)
def reduce(draft: Draft, op: Reduce) -> Tensor:
    """Write Reduce; a mean is a layer that all releases read, and sums of squares and magnitudes are composed."""
    if op.operation is R.MEAN:
        return _mean(draft, op.axis, op.keep_dims)
    if op.operation in (R.L1, R.L2, R.SUM_SQUARE) and draft.result.dtype is DataType.FLOAT32:
        return _composed(draft, op)
    if op.operation.name not in REDUCTIONS:
        refuse(f"Arm NN has no reduction {op.operation.name}")
    if op.operation is R.PROD:
        draft.need(_PRODUCT_SINCE, "the reduction PROD")
    return draft.final("Reduce", draft.operand(0), descriptor=_fields(draft, op, op.operation))


def _fields(draft: Draft, op: Reduce, operation: ReduceOperation) -> dict[str, object]:
    axes = reduced_axes(op.axis, len(dimensions(draft.operand(0).info)))
    return {"keepDims": op.keep_dims, "axis": axes, "reduceOperation": REDUCTIONS.index(operation.name)}


def _composed(draft: Draft, op: Reduce) -> Tensor:
    x = draft.operand(0)
    function = ACTIVATIONS.index("ABS" if op.operation is R.L1 else "SQUARE")
    terms = draft.activation(function, x, giving=x.info)
    if op.operation is not R.L2:
        return draft.final("Reduce", terms, descriptor=_fields(draft, op, R.SUM))
    total = draft.node("Reduce", terms, giving=draft.result, descriptor=_fields(draft, op, R.SUM))
    return draft.activation(ACTIVATIONS.index("SQRT"), total)


@writer(ArgMinMax)
def arg_min_max(draft: Draft, op: ArgMinMax) -> Tensor:
    """Write ArgMinMax; an axis that remains with size 1 is added by a Reshape."""
    if op.select_last_index:
        refuse("it takes the last of several equal elements; Arm NN takes the first")
    x = draft.operand(0)
    shape = dimensions(x.info)
    axis = normal_axis(op.axis, len(shape))
    fields = {"argMinMaxFunction": ("MIN", "MAX").index(op.function.name), "axis": axis}
    if not op.keep_dims:
        return draft.final("ArgMinMax", x, descriptor=fields)
    info = TensorInfo([*shape[:axis], *shape[axis + 1 :]], draft.result.dtype)
    return draft.reshape(draft.node("ArgMinMax", x, giving=info, descriptor=fields), (), final=True)

"""TFLite writers for operators that change shapes, or create tensors from shapes."""

from __future__ import annotations

from interposer.ops.reshape import BroadcastTo, Fill, Rank, Reshape, Shape
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []


@writer(Reshape, moves=True)
def reshape(draft: Draft, op: Reshape) -> Tensor:
    """Write Reshape; the shape is an operand."""
    return draft.reshape_to(draft.operand(0), draft.result)


@writer(BroadcastTo, moves=True)
def broadcast_to(draft: Draft, op: BroadcastTo) -> Tensor:
    """Write BroadcastTo; the shape is an operand."""
    if not op.shape:
        return draft.reshape_to(draft.operand(0), draft.result)
    return draft.final("BROADCAST_TO", draft.operand(0), draft.ints(op.shape, "shape"))


@writer(Shape, also_quantized=True, typed=True)
def shape_of(draft: Draft, op: Shape) -> Tensor:
    """Write Shape, as a constant if the shape is known."""
    if draft.result.constant is not None:
        return draft.constant(draft.result.constant, op.dtype, "shape")
    return draft.final("SHAPE", draft.operand(0), out_type=op.dtype)


@writer(Rank, also_quantized=True, typed=True)
def rank_of(draft: Draft, op: Rank) -> Tensor:
    """Write Rank as a constant."""
    return draft.constant(draft.rank, draft.result.dtype, "rank")


@writer(Fill, typed=True)
def fill(draft: Draft, op: Fill) -> Tensor:
    """Write Fill; the value is an operand."""
    if draft.result.dtype.is_integer and op.value != int(op.value):
        refuse(f"it fills a tensor of {draft.result.dtype} with {op.value:g}")
    return draft.final("FILL", draft.operand(0), draft.constant(op.value, draft.result.dtype, "value"))

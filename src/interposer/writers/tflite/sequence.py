"""TFLite writers for operators along sequences."""

from __future__ import annotations

from interposer.ops.axes import normal_axis
from interposer.ops.sequence import CumSum, ReverseSequence
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []


@writer(CumSum)
def running_sum(draft: Draft, op: CumSum) -> Tensor:
    """Write CumSum; the axis is an operand."""
    if not draft.rank:
        refuse("its input is a scalar, which has no axis")
    axis = draft.ints(normal_axis(op.axis, draft.rank), "axis")
    return draft.final("CUMSUM", draft.operand(0), axis, exclusive=op.exclusive, reverse=op.reverse)


@writer(ReverseSequence, moves=True)
def reverse_sequence(draft: Draft, op: ReverseSequence) -> Tensor:
    """Write ReverseSequence; time and batch axes are options."""
    time, batch = (normal_axis(axis, draft.rank) for axis in (op.time_axis, op.batch_axis))
    return draft.final("REVERSE_SEQUENCE", *draft.tensors(), seq_dim=time, batch_dim=batch)

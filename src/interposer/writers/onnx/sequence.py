"""ONNX writers for operators along axes: cumulative sums and products, reversal, ranges, and Einsum."""

from __future__ import annotations

from typing import Any

from interposer.core.types import DataType
from interposer.ops.axes import normal_axis
from interposer.ops.einsum import Einsum
from interposer.ops.sequence import CumProd, CumSum, Range, ReverseSequence
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []


@writer(CumSum, CumProd)
def accumulated(draft: Draft, op: CumSum | CumProd) -> Tensor:
    """Write CumSum and CumProd; the axis is an operand."""
    flags: dict[str, Any] = {"exclusive": 1 if op.exclusive else None, "reverse": 1 if op.reverse else None}
    return draft.node(op.op_name(), draft.operand(0), draft.ints(op.axis, "axis"), **flags)


@writer(ReverseSequence, moves=True)
def reverse_sequence(draft: Draft, op: ReverseSequence) -> Tensor:
    """Write ReverseSequence; time and batch are the first two axes."""
    time, batch = normal_axis(op.time_axis, draft.rank), normal_axis(op.batch_axis, draft.rank)
    lengths = draft.cast(draft.operand(1), DataType.INT64)
    return draft.node("ReverseSequence", draft.operand(0), lengths, time_axis=time, batch_axis=batch)


@writer(Range)
def number_range(draft: Draft, op: Range) -> Tensor:
    """Write Range; its operands are scalars."""
    scalars = [draft.reshape(tensor, []) for tensor in draft.tensors()]
    return draft.node("Range", *scalars)


@writer(Einsum)
def einsum(draft: Draft, op: Einsum) -> Tensor:
    """Write Einsum; the equation has the same meaning, except that ONNX does not broadcast axes of size 1."""
    subscripts, _ = op.words()
    if (
        len(
            {
                info.rank - len(subscript)
                for subscript, info in zip(subscripts, draft.infos, strict=True)
                if info and "..." in subscript
            }
        )
        > 1
    ):
        refuse(f"its equation {op.equation!r} broadcasts the axes of an ellipsis")
    sizes: dict[str, set[int]] = {}
    for subscript, info in zip(subscripts, draft.infos, strict=True):
        leading_letters, _, trailing_letters = subscript.partition("...")
        dims = (
            [*info.shape[: len(leading_letters)], *info.shape[len(info.shape) - len(trailing_letters) :]]
            if info
            else []
        )
        for letter, dim in zip(leading_letters + trailing_letters, dims, strict=True):
            sizes.setdefault(letter, set()).add(dim)
    if any(len(letter_sizes) > 1 for letter_sizes in sizes.values()):
        refuse(f"its equation {op.equation!r} repeats an axis of size 1")
    return draft.node("Einsum", *draft.tensors(), equation=op.equation.replace(" ", ""))

"""TFLite writers for operators that select elements; some result sizes depend on the data."""

from __future__ import annotations

from interposer.core.types import DataType, TensorInfo
from interposer.ops.choice import TopK
from interposer.ops.selection import NonZero, Unique
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []


@writer(NonZero)
def non_zero(draft: Draft, op: NonZero) -> Tensor:
    """Write NonZero as WHERE, transposed: the layer has a column for every element, TFLite a row."""
    if not draft.rank:
        refuse("its input is a scalar, which has no places")
    rows = TensorInfo([draft.result.shape[1], draft.result.shape[0]], DataType.INT64)
    return draft.transpose(draft.node("WHERE", draft.operand(0), giving=rows), (1, 0))


@writer(Unique)
def unique(draft: Draft, op: Unique) -> list[Tensor]:
    """Write Unique in the order of first occurrence; TFLite returns neither first indices nor counts."""
    if op.sorted or op.axis is not None or draft.rank != 1:
        refuse("UNIQUE keeps the order of the elements, which it takes from a vector")
    if any(draft.layer.outputs[index].uses for index in (1, 3)):
        refuse("UNIQUE gives neither first places nor counts")
    infos = [draft.results[0], draft.results[2]]
    values, inverse = draft.nodes("UNIQUE", draft.operand(0), giving=infos, idx_out_type=op.index_dtype)
    return [values, inverse, inverse, inverse]


@writer(TopK, moves=True)
def top_k(draft: Draft, op: TopK) -> list[Tensor]:
    """Write TopK along the last axis, best first; indices are int32."""
    if not op.largest:
        refuse("TOPK_V2 finds the largest")
    infos = [draft.results[0], TensorInfo(draft.results[1].shape, DataType.INT32)]
    best, places = draft.nodes("TOPK_V2", draft.operand(0), draft.ints(op.k, "k"), giving=infos)
    return [best, draft.cast(places, op.index_dtype)]

"""TFLite writers for operators whose shapes or counts are only known at run time."""

from __future__ import annotations

from interposer.core.types import DataType, TensorInfo
from interposer.ops.axes import normal_axis
from interposer.ops.dynamic import DynamicPad, DynamicReshape, DynamicTile, DynamicTopK
from interposer.ops.rearrange import PaddingMode
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []


def _narrow(draft: Draft, index: int) -> Tensor:
    return draft.cast(draft.operand(index), DataType.INT32)


@writer(DynamicReshape, moves=True)
def dynamic_reshape(draft: Draft, op: DynamicReshape) -> Tensor:
    """Write DynamicReshape as RESHAPE; the shape is an operand."""
    if op.copy_zeros:
        refuse("it copies dimensions where its shape has zeros, which RESHAPE does not")
    return draft.final("RESHAPE", draft.operand(0), _narrow(draft, 1))


@writer(DynamicTile, moves=True)
def dynamic_tile(draft: Draft, op: DynamicTile) -> Tensor:
    """Write DynamicTile as TILE; the multiples are an operand."""
    return draft.final("TILE", draft.operand(0), _narrow(draft, 1))


@writer(DynamicPad, moves=True)
def dynamic_pad(draft: Draft, op: DynamicPad) -> Tensor:
    """Write DynamicPad as PAD; the pads are an operand."""
    if op.padding_mode is not PaddingMode.CONSTANT or op.pad_value:
        refuse("it pads with something else than zeros, by pads that are not known")
    return draft.final("PAD", draft.operand(0), _narrow(draft, 1))


@writer(DynamicTopK, moves=True)
def dynamic_top_k(draft: Draft, op: DynamicTopK) -> list[Tensor]:
    """Write DynamicTopK as TOPK_V2; k is an operand."""
    if not op.largest or normal_axis(op.axis, draft.rank) != draft.rank - 1:
        refuse("TOPK_V2 finds the largest along the last axis, where their number is not known")
    values, places = draft.results
    narrow = TensorInfo(places.shape, DataType.INT32)
    count = draft.reshape(_narrow(draft, 1), [])
    outputs = draft.nodes("TOPK_V2", draft.operand(0), count, giving=[values, narrow])
    return [outputs[0], draft.cast(outputs[1], op.index_dtype)]

"""TFLite writers for operators that move blocks between space and channels or batch."""

from __future__ import annotations

from interposer.ops.axes import normal_axis
from interposer.ops.blocks import (
    BatchToSpaceNd,
    ChannelShuffle,
    DepthToSpace,
    DepthToSpaceMode,
    SpaceToBatchNd,
    SpaceToDepth,
)
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []


@writer(DepthToSpace, moves=True)
def depth_to_space(draft: Draft, op: DepthToSpace) -> Tensor:
    """Write DepthToSpace in the order DCR; for CRD the channels are permuted first."""
    last, block = op.data_layout.channels_last, op.block_size
    x, info = draft.channels_last(draft.operand(0), last), draft.channels_last_info(draft.result, last)
    if op.mode is DepthToSpaceMode.CRD:
        n, h, w, c = draft.concrete(x)
        parts = draft.reshape(x, (n, h * w, c // block**2, block**2))
        x = draft.reshape(draft.transpose(parts, (0, 1, 3, 2)), (n, h, w, c))
    return draft.channels_back(draft.node("DEPTH_TO_SPACE", x, giving=info, block_size=block), last)


@writer(SpaceToDepth, moves=True)
def space_to_depth(draft: Draft, op: SpaceToDepth) -> Tensor:
    """Write SpaceToDepth with square blocks."""
    last = op.data_layout.channels_last
    x, info = draft.channels_last(draft.operand(0), last), draft.channels_last_info(draft.result, last)
    return draft.channels_back(draft.node("SPACE_TO_DEPTH", x, giving=info, block_size=op.block_size), last)


@writer(SpaceToBatchNd, BatchToSpaceNd, moves=True)
def batch_and_space(draft: Draft, op: SpaceToBatchNd | BatchToSpaceNd) -> Tensor:
    """Write SpaceToBatchNd and BatchToSpaceNd; block shape and pads or crops are operands."""
    last, to_batch = op.data_layout.channels_last, isinstance(op, SpaceToBatchNd)
    if draft.rank not in (3, 4):
        refuse(f"its input has rank {draft.rank}; TFLite takes images of rank 3 and 4")
    x, info = draft.channels_last(draft.operand(0), last), draft.channels_last_info(draft.result, last)
    pairs = op.pad_list if isinstance(op, SpaceToBatchNd) else op.crops
    operands = draft.ints(op.block_shape, "block"), draft.ints(pairs, "pads" if to_batch else "crops")
    kind = "SPACE_TO_BATCH_ND" if to_batch else "BATCH_TO_SPACE_ND"
    return draft.channels_back(draft.node(kind, x, *operands, giving=info), last)


@writer(ChannelShuffle, moves=True)
def channel_shuffle(draft: Draft, op: ChannelShuffle) -> Tensor:
    """Write ChannelShuffle: reshape the channels to a matrix and transpose it."""
    x, axis = draft.operand(0), normal_axis(op.axis, draft.rank)
    shape = draft.concrete(x)
    parts = (op.num_groups, shape[axis] // op.num_groups)
    split = draft.reshape(x, (*shape[:axis], *parts, *shape[axis + 1 :]))
    order = [*range(axis), axis + 1, axis, *range(axis + 2, draft.rank + 1)]
    return draft.reshape_to(draft.transpose(split, order), draft.result)

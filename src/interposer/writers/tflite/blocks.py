"""TFLite writers for operators that move blocks between space and channels or batch."""

from __future__ import annotations

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
    x, block = draft.operand(0), op.block_size
    if op.mode is DepthToSpaceMode.CRD:
        n, h, w, c = draft.concrete(x)
        parts = draft.reshape(x, (n, h * w, c // block**2, block**2))
        x = draft.reshape(draft.transpose(parts, (0, 1, 3, 2)), (n, h, w, c))
    return draft.final("DEPTH_TO_SPACE", x, block_size=block)


@writer(SpaceToDepth, moves=True)
def space_to_depth(draft: Draft, op: SpaceToDepth) -> Tensor:
    """Write SpaceToDepth with square blocks."""
    return draft.final("SPACE_TO_DEPTH", draft.operand(0), block_size=op.block_size)


@writer(SpaceToBatchNd, BatchToSpaceNd, moves=True)
def batch_and_space(draft: Draft, op: SpaceToBatchNd | BatchToSpaceNd) -> Tensor:
    """Write SpaceToBatchNd and BatchToSpaceNd; block shape and pads or crops are operands."""
    to_batch = isinstance(op, SpaceToBatchNd)
    if draft.rank not in (3, 4):
        refuse(f"its input has rank {draft.rank}; TFLite takes images of rank 3 and 4")
    pads_or_crops = op.pad_list if isinstance(op, SpaceToBatchNd) else op.crops
    operands = draft.ints(op.block_shape, "block"), draft.ints(pads_or_crops, "pads" if to_batch else "crops")
    kind = "SPACE_TO_BATCH_ND" if to_batch else "BATCH_TO_SPACE_ND"
    return draft.final(kind, draft.operand(0), *operands)


@writer(ChannelShuffle, moves=True)
def channel_shuffle(draft: Draft, op: ChannelShuffle) -> Tensor:
    """Refuse ChannelShuffle, which is only rewritten to other operators if its shape is known."""
    refuse(f"its input has the shape {draft.operand(0).shape}; its dimensions must be known")

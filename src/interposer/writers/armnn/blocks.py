"""Arm NN writers for blocks of images that move into the batch or the channels, and back."""

from __future__ import annotations

from itertools import chain

from interposer.core.types import DataLayout, TensorInfo
from interposer.formats.armnn.schema import LAYOUTS
from interposer.ops.axes import normal_axis
from interposer.ops.blocks import (
    BatchToSpaceNd,
    ChannelShuffle,
    DepthToSpace,
    DepthToSpaceMode,
    SpaceToBatchNd,
    SpaceToDepth,
)
from interposer.writers.armnn.armnn_layer_writers import writer
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor
from interposer.writers.armnn.types import dimensions
from interposer.writers.refusals import refuse

__all__: list[str] = []


@writer(SpaceToBatchNd, BatchToSpaceNd, moves=True)
def space_and_batch(draft: Draft, op: SpaceToBatchNd | BatchToSpaceNd) -> Tensor:
    """Write SpaceToBatchNd or BatchToSpaceNd; a tensor with one axis for blocks becomes an image of width 1."""
    field, pairs = ("padList", op.pad_list) if isinstance(op, SpaceToBatchNd) else ("crops", op.crops)
    x, kind, layout = draft.operand(0), type(op).__name__, LAYOUTS.index(op.data_layout.name)
    shape, result_shape = dimensions(x.info), dimensions(draft.result)
    if len(op.block_shape) == 2 and len(shape) == 4:
        descriptor = {"blockShape": op.block_shape, field: tuple(chain(*pairs)), "dataLayout": layout}
        return draft.final(kind, x, descriptor=descriptor)
    if len(op.block_shape) != 1 or len(shape) != 3:
        refuse(f"it moves blocks of {len(op.block_shape)} axes of a tensor with {len(shape)} axes; Arm NN needs images")
    width_axis = 2 if op.data_layout.channels_last else 3
    image = draft.reshape(x, (*shape[:width_axis], 1, *shape[width_axis:]))
    descriptor = {"blockShape": (*op.block_shape, 1), field: (*chain(*pairs), 0, 0), "dataLayout": layout}
    info = TensorInfo(
        (*result_shape[:width_axis], 1, *result_shape[width_axis:]), draft.result.dtype, draft.result.quantization
    )
    return draft.reshape(draft.node(kind, image, giving=info, descriptor=descriptor), (), final=True)


@writer(SpaceToDepth, moves=True)
def space_to_depth(draft: Draft, op: SpaceToDepth) -> Tensor:
    """Write SpaceToDepth."""
    descriptor = {"blockSize": op.block_size, "dataLayout": LAYOUTS.index(op.data_layout.name)}
    return draft.final("SpaceToDepth", draft.operand(0), descriptor=descriptor)


@writer(DepthToSpace, moves=True)
def depth_to_space(draft: Draft, op: DepthToSpace) -> Tensor:
    """Write DepthToSpace; the channels of the mode CRD are brought into the order of the mode DCR first."""
    x, b = draft.operand(0), op.block_size
    if op.mode is DepthToSpaceMode.CRD:
        n, c, h, w = (int(size) for size in (x.shape if op.data_layout is DataLayout.NCHW else _to_nchw(x)))
        if op.data_layout is DataLayout.NCHW:
            groups = draft.transpose(draft.reshape(x, (n, c // b**2, b**2, h * w)), (0, 2, 1, 3))
        else:
            groups = draft.transpose(draft.reshape(x, (n, h * w, c // b**2, b**2)), (0, 1, 3, 2))
        x = draft.reshape(groups, dimensions(x.info))
    descriptor = {"blockSize": b, "dataLayout": LAYOUTS.index(op.data_layout.name)}
    return draft.final("DepthToSpace", x, descriptor=descriptor)


def _to_nchw(x: Tensor) -> tuple[int, ...]:
    n, h, w, c = dimensions(x.info)
    return n, c, h, w


@writer(ChannelShuffle, moves=True)
def channel_shuffle(draft: Draft, op: ChannelShuffle) -> Tensor:
    """Write ChannelShuffle, for old releases as Reshape, Transpose and Reshape."""
    x = draft.operand(0)
    shape = dimensions(x.info)
    axis = normal_axis(op.axis, len(shape))
    if draft.release.prefers("21.11"):
        return draft.final("ChannelShuffle", x, descriptor={"axis": axis, "numGroups": op.num_groups})
    outer_size, inner_size = _size(shape[:axis]), _size(shape[axis + 1 :])
    groups = draft.reshape(x, (outer_size, op.num_groups, shape[axis] // op.num_groups, inner_size))
    return draft.reshape(draft.transpose(groups, (0, 2, 1, 3)), (), final=True)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for dimension in shape:
        size *= dimension
    return size

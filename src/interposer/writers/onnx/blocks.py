"""ONNX writers for operators that move blocks between space and channels or batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from interposer.core.types import DataType
from interposer.ops.axes import normal_axis
from interposer.ops.blocks import BatchToSpaceNd, ChannelShuffle, DepthToSpace, SpaceToBatchNd, SpaceToDepth
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []


@writer(DepthToSpace, moves=True)
def depth_to_space(draft: Draft, op: DepthToSpace) -> Tensor:
    """Write DepthToSpace as the operator of this name."""
    return draft.node("DepthToSpace", draft.operand(0), blocksize=op.block_size, mode=op.mode.name)


@writer(SpaceToDepth, moves=True)
def space_to_depth(draft: Draft, op: SpaceToDepth) -> Tensor:
    """Write SpaceToDepth as the operator of this name."""
    return draft.node("SpaceToDepth", draft.operand(0), blocksize=op.block_size)


@writer(SpaceToBatchNd, moves=True)
def space_to_batch(draft: Draft, op: SpaceToBatchNd) -> Tensor:
    """Write SpaceToBatchNd: each spatial axis is split in two, and the inner part is moved into the batch."""
    x, shape = _padded(draft, op), list(draft.shape(0))
    for axis, pair in zip(op.axes, op.pad_list, strict=True):
        shape[axis] += sum(pair)
    divided_shape, inner_axes, outer_axes = _divided(shape, op.axes, op.block_shape)
    permutation = [*inner_axes, *(i for i in range(len(divided_shape)) if i not in inner_axes)]
    transposed = draft.transpose(draft.reshape(x, divided_shape), permutation)
    result_shape = [n // op.block_shape[op.axes.index(i)] if i in op.axes else n for i, n in enumerate(shape)]
    result_shape[0] *= math.prod(op.block_shape)
    return draft.reshape(transposed, result_shape)


def _divided(shape: Sequence[int], axes: Sequence[int], block: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Return a shape with each of `axes` split in two, and the positions of the new axes.

    The outer new axis has the number of blocks, the inner one the size from `block`. The results are the shape, the
    positions of the inner axes, and those of the outer axes.
    """
    divided_shape: list[int] = []
    inner_axes, outer_axes = [], []
    for axis, dimension in enumerate(shape):
        if axis in axes:
            size = block[list(axes).index(axis)]
            outer_axes.append(len(divided_shape))
            inner_axes.append(len(divided_shape) + 1)
            divided_shape += [dimension // size, size]
        else:
            divided_shape.append(dimension)
    return divided_shape, inner_axes, outer_axes


def _padded(draft: Draft, op: SpaceToBatchNd) -> Tensor:
    x = draft.operand(0)
    if not any(any(pair) for pair in op.pad_list):
        return x
    if x.dtype is DataType.STRING:
        refuse("it pads texts")
    pads_by_axis = dict(zip(op.axes, op.pad_list, strict=True))
    pads = [pads_by_axis.get(axis, (0, 0))[end] for end in (0, 1) for axis in range(draft.rank)]
    zero = np.array(draft.info(0).zero_point)
    return draft.node("Pad", x, draft.ints(pads, "pads"), draft.constant(zero, x.dtype, "zero"))


@writer(BatchToSpaceNd, moves=True)
def batch_to_space(draft: Draft, op: BatchToSpaceNd) -> Tensor:
    """Write BatchToSpaceNd: the batch is split, its parts are merged into the spatial axes, and these are cropped."""
    shape, block_shape = list(draft.shape(0)), op.block_shape
    num_blocks = len(block_shape)
    split_shape = [*block_shape, shape[0] // math.prod(block_shape), *shape[1:]]
    permutation = [num_blocks]
    for axis in range(1, len(shape)):
        permutation.append(num_blocks + axis)
        permutation += [op.axes.index(axis)] if axis in op.axes else []
    uncropped_shape = [n * block_shape[op.axes.index(i)] if i in op.axes else n for i, n in enumerate(shape)]
    uncropped_shape[0] = shape[0] // math.prod(block_shape)
    merged_image = draft.reshape(
        draft.transpose(draft.reshape(draft.operand(0), split_shape), permutation), uncropped_shape
    )
    cropped_axes = [(axis, pair) for axis, pair in zip(op.axes, op.crops, strict=True) if any(pair)]
    ends = [uncropped_shape[axis] - cropped for axis, (_, cropped) in cropped_axes]
    return draft.slice(
        merged_image, [start for _, (start, _) in cropped_axes], ends, [axis for axis, _ in cropped_axes]
    )


@writer(ChannelShuffle, moves=True)
def channel_shuffle(draft: Draft, op: ChannelShuffle) -> Tensor:
    """Refuse ChannelShuffle, which is only rewritten to other operators if most of its shape is known."""
    axis, shape = normal_axis(op.axis, draft.rank), list(draft.info(0).shape)
    members = draft.known(shape[axis], f"dimension of axis {axis}") // op.num_groups
    return draft.reshape(draft.operand(0), [*shape[:axis], op.num_groups, members, *shape[axis + 1 :]])

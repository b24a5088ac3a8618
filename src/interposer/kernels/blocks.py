"""Kernels of the operators that move blocks of an image into its channels or its batch, and back."""

from __future__ import annotations

import math

import numpy as np

from interposer.core.types import Array
from interposer.kernels.encoding import encoded
from interposer.kernels.layout import from_nhwc, to_nhwc
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.axes import normal_axis
from interposer.ops.blocks import (
    BatchToSpaceNd,
    ChannelShuffle,
    DepthToSpace,
    DepthToSpaceMode,
    SpaceToBatchNd,
    SpaceToDepth,
)

__all__: list[str] = []


@kernel(DepthToSpace)
def depth_to_space(op: DepthToSpace, x: Array) -> Array:
    """Compute `DepthToSpace`: view the channels as (b, b, C') or (C', b, b), and move each b beside its image axis.

    b is the block size, and C' the number of channels of the result.
    """
    b = op.block_size
    x = to_nhwc(x, op.data_layout)
    n, h, w, c = x.shape
    output_channels = c // b**2
    if op.mode is DepthToSpaceMode.DCR:
        split_shape, permutation = (n, h, w, b, b, output_channels), (0, 1, 3, 2, 4, 5)
    else:
        split_shape, permutation = (n, h, w, output_channels, b, b), (0, 1, 4, 2, 5, 3)
    blocks = x.reshape(split_shape).transpose(permutation)
    return from_nhwc(blocks.reshape(n, h * b, w * b, output_channels), op.data_layout)


@kernel(SpaceToDepth)
def space_to_depth(op: SpaceToDepth, x: Array) -> Array:
    """Compute `SpaceToDepth`: view each image axis as (blocks, b), and move both b before the channels.

    b is the block size.
    """
    b = op.block_size
    x = to_nhwc(x, op.data_layout)
    n, h, w, c = x.shape
    blocks = x.reshape(n, h // b, b, w // b, b, c).transpose(0, 1, 3, 2, 4, 5)
    return from_nhwc(blocks.reshape(n, h // b, w // b, c * b**2), op.data_layout)


@kernel(SpaceToBatchNd)
def space_to_batch(op: SpaceToBatchNd, x: Array, *, info: KernelInfo) -> Array:
    """Compute `SpaceToBatchNd`: pad, view each image axis as (blocks, b), and move all b before the batch.

    b is the size of the block along the axis.
    """
    x = _bordered(x, op, encoded(0.0, info.input))
    split_shape = list(x.shape)
    for axis, block in reversed(tuple(zip(op.axes, op.block_shape, strict=True))):
        split_shape[axis : axis + 1] = [x.shape[axis] // block, block]
    block_axes = [axis + 1 + i for i, axis in enumerate(op.axes)]
    other_axes = [axis for axis in range(len(split_shape)) if axis not in block_axes]
    return x.reshape(split_shape).transpose([*block_axes, *other_axes]).reshape(tuple(info.output.shape))


def _bordered(x: Array, op: SpaceToBatchNd, zero: Array) -> Array:
    paddings = [(0, 0)] * x.ndim
    for axis, padding in zip(op.axes, op.pad_list, strict=True):
        paddings[axis] = padding
    padded = np.full([size + sum(padding) for size, padding in zip(x.shape, paddings, strict=True)], zero, x.dtype)
    padded[
        tuple(slice(pad_before, pad_before + size) for (pad_before, _), size in zip(paddings, x.shape, strict=True))
    ] = x
    return padded


@kernel(BatchToSpaceNd)
def batch_to_space(op: BatchToSpaceNd, x: Array) -> Array:
    """Compute `BatchToSpaceNd`: view the batch as (*block_shape, N'), and move each block size after its image axis.

    N' is the batch size of the result. The axes are then merged and cropped.
    """
    block_rank, batch = len(op.block_shape), x.shape[0] // math.prod(op.block_shape)
    blocks = x.reshape(*op.block_shape, batch, *x.shape[1:])
    permutation, merged_shape = [block_rank], [batch, *x.shape[1:]]
    for axis in range(1, x.ndim):
        permutation += [block_rank + axis, axis - op.axes.start] if axis in op.axes else [block_rank + axis]
    crop_slices = [slice(None)] * x.ndim
    for axis, block, (before, after) in zip(op.axes, op.block_shape, op.crops, strict=True):
        merged_shape[axis] *= block
        crop_slices[axis] = slice(before, merged_shape[axis] - after)
    return blocks.transpose(permutation).reshape(merged_shape)[tuple(crop_slices)]


@kernel(ChannelShuffle)
def channel_shuffle(op: ChannelShuffle, x: Array) -> Array:
    """Compute `ChannelShuffle`: view the axis as (groups, members), swap the two, and flatten them again."""
    axis, groups = normal_axis(op.axis, x.ndim), op.num_groups
    split = x.reshape(*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :])
    return split.swapaxes(axis, axis + 1).reshape(x.shape)

"""Operators that move blocks of an image into its channels or its batch, and back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import Enum

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Trait
from interposer.core.types import MAX_RANK, DataLayout, TensorInfo
from interposer.ops.axes import axes_problems, normal_axis, quantized_axis_problems

__all__ = [
    "BatchToSpaceNd",
    "ChannelShuffle",
    "DepthToSpace",
    "DepthToSpaceMode",
    "SpaceToBatchNd",
    "SpaceToDepth",
]

_IMAGES = (DataLayout.NHWC, DataLayout.NCHW)


class DepthToSpaceMode(Enum):
    """The order in which `DepthToSpace` reads the channels."""

    DCR = 0
    """Depth-column-row order: (block row, block column, output channel)."""
    CRD = 1
    """Column-row-depth order: (output channel, block row, block column)."""


def _image_problems(info: TensorInfo, block_shape: tuple[int, ...], layout: DataLayout) -> Iterator[str]:
    if info.rank < len(block_shape) + 1 + (not layout.channels_last):
        axes = len(block_shape)
        yield f"the input has rank {info.rank}, which is too small for the {axes} axes of the block {block_shape}"
    yield from quantized_axis_problems(info, range(MAX_RANK), "fold")


def _block_axes(block_shape: tuple[int, ...], layout: DataLayout) -> range:
    first_axis = 1 if layout.channels_last else 2
    return range(first_axis, first_axis + len(block_shape))


@op(traits=Trait.MOVES | Trait.FILLS)
class SpaceToBatchNd(Op):
    """Pad the spatial axes with zeros and move blocks of them into the batch.

    Shapes:
        input: (N, H, W, C) in NHWC; with one block dimension (N, H, C), with three (N, D, H, W, C)
        output: (N * bh * bw, (H + pads) / bh, (W + pads) / bw, C)

    Example:
        >>> op = SpaceToBatchNd(block_shape=(2,), pad_list=((1, 1),), data_layout=DataLayout.NHWC)
        >>> compute(op, [[[1], [2], [3], [4]]]).squeeze(-1).tolist()
        [[0, 2, 4], [1, 3, 0]]

    Source:
        TFLite SPACE_TO_BATCH_ND; NNAPI SPACE_TO_BATCH_ND; Arm NN SpaceToBatchNdDescriptor.
    """

    input = operand(rank=(2, MAX_RANK))
    output = result(dtype_of="input")

    block_shape: tuple[int, ...] = attribute(default=(1, 1), ge=1, doc="The size of a block along each spatial axis.")
    pad_list: tuple[tuple[int, int], ...] = attribute(
        default=((0, 0), (0, 0)), doc="Number of zeros added before and after, for each spatial axis."
    )
    data_layout: DataLayout = attribute(
        default=DataLayout.NCHW, choices=_IMAGES, doc="The layout, which determines the spatial axes."
    )

    @property
    def axes(self) -> range:
        """The spatial axes, one for each block dimension."""
        return _block_axes(self.block_shape, self.data_layout)

    def check(self, input: TensorInfo) -> Iterator[str]:
        errors = list(_image_problems(input, self.block_shape, self.data_layout))
        if len(self.pad_list) != len(self.block_shape) or min(map(min, self.pad_list), default=0) < 0:
            errors.append(f"pad_list is {self.pad_list}; expected {len(self.block_shape)} pairs of 0 or more")
        yield from errors
        for axis, block, padding in () if errors else zip(self.axes, self.block_shape, self.pad_list, strict=True):
            padded_size = input.shape[axis] + sum(padding)
            if padded_size % block:
                yield f"axis {axis} has size {padded_size} after padding; expected a multiple of the block size {block}"

    def infer(self, input: TensorInfo) -> TensorInfo:
        shape = list(input.shape)
        shape[0] *= math.prod(self.block_shape)
        for axis, block, padding in zip(self.axes, self.block_shape, self.pad_list, strict=True):
            shape[axis] = (shape[axis] + sum(padding)) // block
        return input.with_shape(shape)


@op(traits=Trait.MOVES)
class BatchToSpaceNd(Op):
    """Move blocks out of the batch back into the spatial axes and crop these: the inverse of `SpaceToBatchNd`.

    Shapes:
        input: (N, H, W, C) in NHWC; with one block dimension (N, H, C), with three (N, D, H, W, C)
        output: (N / (bh * bw), H * bh - crops, W * bw - crops, C)

    Example:
        >>> op = BatchToSpaceNd(block_shape=(2,), crops=((1, 1),), data_layout=DataLayout.NHWC)
        >>> compute(op, [[[0], [2], [4]], [[1], [3], [0]]]).squeeze(-1).tolist()
        [[1, 2, 3, 4]]

    Source:
        TFLite BATCH_TO_SPACE_ND; NNAPI BATCH_TO_SPACE_ND; Arm NN BatchToSpaceNdDescriptor.
    """

    input = operand(rank=(2, MAX_RANK))
    output = result(dtype_of="input")

    block_shape: tuple[int, ...] = attribute(default=(1, 1), ge=1, doc="The size of a block along each spatial axis.")
    crops: tuple[tuple[int, int], ...] = attribute(
        default=((0, 0), (0, 0)), doc="Number of elements cropped before and after, for each spatial axis."
    )
    data_layout: DataLayout = attribute(
        default=DataLayout.NCHW, choices=_IMAGES, doc="The layout, which determines the spatial axes."
    )

    @property
    def axes(self) -> range:
        """The spatial axes, one for each block dimension."""
        return _block_axes(self.block_shape, self.data_layout)

    def check(self, input: TensorInfo) -> Iterator[str]:
        errors = list(_image_problems(input, self.block_shape, self.data_layout))
        if len(self.crops) != len(self.block_shape) or min(map(min, self.crops), default=0) < 0:
            errors.append(f"crops is {self.crops}; expected {len(self.block_shape)} pairs of 0 or more")
        blocks = math.prod(self.block_shape)
        if input.shape[0] % blocks:
            errors.append(f"the batch is {input.shape[0]}; expected a multiple of the block's {blocks} elements")
        yield from errors
        for axis, block, crop in () if errors else zip(self.axes, self.block_shape, self.crops, strict=True):
            if sum(crop) > input.shape[axis] * block:
                yield f"the crops {crop} remove all elements of axis {axis}, which has size {input.shape[axis] * block}"

    def infer(self, input: TensorInfo) -> TensorInfo:
        shape = list(input.shape)
        shape[0] //= math.prod(self.block_shape)
        for axis, block, crop in zip(self.axes, self.block_shape, self.crops, strict=True):
            shape[axis] = shape[axis] * block - sum(crop)
        return input.with_shape(shape)


@op(traits=Trait.MOVES)
class SpaceToDepth(Op):
    """Move blocks of the height and width of an image into its channels.

    Shapes (NHWC):
        input: (N, H, W, C)
        output: (N, H / b, W / b, C * b**2), where b is ``block_size``; channels count block row, block column, C

    Example:
        >>> image = [[[[1], [2], [3], [4]], [[5], [6], [7], [8]]]]
        >>> compute(SpaceToDepth(block_size=2), image).tolist()
        [[[[1, 2, 5, 6], [3, 4, 7, 8]]]]

    Source:
        ONNX SpaceToDepth-13; TFLite SPACE_TO_DEPTH; NNAPI SPACE_TO_DEPTH; Arm NN SpaceToDepthDescriptor.
    """

    input = operand(rank=4)
    output = result(rank=4, dtype_of="input")

    block_size: int = attribute(ge=1, doc="Height and width of a block.")
    data_layout: DataLayout = attribute(default=DataLayout.NHWC, choices=_IMAGES, doc="The order of the axes.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        h, w, _ = self.data_layout.axes()
        for axis_name, axis in (("height", h), ("width", w)):
            if input.shape[axis] % self.block_size:
                yield f"the {axis_name} is {input.shape[axis]}; expected a multiple of block_size = {self.block_size}"
        yield from quantized_axis_problems(input, range(MAX_RANK), "fold")

    def infer(self, input: TensorInfo) -> TensorInfo:
        h, w, c = self.data_layout.axes()
        shape = list(input.shape)
        shape[h] //= self.block_size
        shape[w] //= self.block_size
        shape[c] *= self.block_size**2
        return input.with_shape(shape)


@op(traits=Trait.MOVES)
class DepthToSpace(Op):
    """Move blocks of channels into the height and width of an image.

    Shapes (NHWC):
        input: (N, H, W, C)
        output: (N, H * b, W * b, C / b**2), where b is ``block_size``

    Example:
        >>> image = [[[[0, 1, 2, 3, 4, 5, 6, 7]]]]
        >>> compute(DepthToSpace(block_size=2), image).tolist()
        [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]]
        >>> compute(DepthToSpace(block_size=2, mode=DepthToSpaceMode.CRD), image).tolist()
        [[[[0, 4], [1, 5]], [[2, 6], [3, 7]]]]

    Source:
        ONNX DepthToSpace-13; TFLite DEPTH_TO_SPACE; NNAPI DEPTH_TO_SPACE; Arm NN DepthToSpaceDescriptor.
    """

    input = operand(rank=4)
    output = result(rank=4, dtype_of="input")

    block_size: int = attribute(ge=1, doc="Height and width of a block.")
    data_layout: DataLayout = attribute(default=DataLayout.NHWC, choices=_IMAGES, doc="The order of the axes.")
    mode: DepthToSpaceMode = attribute(default=DepthToSpaceMode.DCR, doc="The order in which the channels are read.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        _, _, c = self.data_layout.axes()
        square = self.block_size**2
        if input.shape[c] % square:
            yield f"input has {input.shape[c]} channels; expected a multiple of block_size**2 = {square}"
        yield from quantized_axis_problems(input, range(MAX_RANK), "fold")

    def infer(self, input: TensorInfo) -> TensorInfo:
        h, w, c = self.data_layout.axes()
        shape = list(input.shape)
        shape[h] *= self.block_size
        shape[w] *= self.block_size
        shape[c] //= self.block_size**2
        return input.with_shape(shape)


@op(traits=Trait.MOVES)
class ChannelShuffle(Op):
    """Shuffle an axis: reshape it to (groups, members), swap these two, and flatten them again.

    Shapes:
        input, output: any of rank 1 or more, the same

    Example:
        >>> compute(ChannelShuffle(num_groups=2), [1, 2, 3, 4, 5, 6]).tolist()
        [1, 4, 2, 5, 3, 6]

    Source:
        NNAPI CHANNEL_SHUFFLE; Arm NN ChannelShuffleDescriptor.
    """

    input = operand(rank=(1, MAX_RANK - 1))
    output = result(like="input")

    num_groups: int = attribute(ge=1, doc="Number of groups that the axis is divided into.")
    axis: int = attribute(default=0, doc="The axis that is shuffled; negative ones count from the end.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        errors = list(axes_problems((self.axis,), input.rank))
        if errors:
            yield from errors
            return
        axis = normal_axis(self.axis, input.rank)
        if input.shape[axis] % self.num_groups:
            yield f"axis {axis} has size {input.shape[axis]}, which num_groups = {self.num_groups} does not divide"
        yield from quantized_axis_problems(input, (axis,), "shuffle")

"""Caffe converters for layers that move elements, or only give blobs other names."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from interposer.core.types import DataLayout, DataType
from interposer.frontends.caffe.caffe_converters import layer
from interposer.frontends.caffe.node import Node
from interposer.frontends.caffe.pooling import first_of_planes
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.blocks import ChannelShuffle
from interposer.ops.elementwise import BinaryOperation
from interposer.ops.gather import Gather
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat, Slice, Splitter, Tile, Transpose
from interposer.ops.resize import Resize, ResizeMethod
from interposer.ops.windowed import MaxUnpooling

__all__: list[str] = []


@layer("Split")
def split(node: Node) -> list[Value]:
    """Convert Split: every top is the bottom."""
    return [node.only_value] * len(node.layer.tops)


@layer("Dropout")
def dropout(node: Node) -> Value:
    """Convert Dropout: nothing is dropped when a network runs; without ``scale_train`` elements are scaled then."""
    parameters = node.parameters("dropout_param")
    if parameters.scale_train:
        return node.only_value
    return node.result(Activation(ActivationFunction.LINEAR, a=1 - parameters.dropout_ratio), node.only_value)


@layer("Concat")
def concat(node: Node) -> Value:
    """Convert Concat along an axis, the channels by default."""
    parameters = node.parameters("concat_param")
    axis = parameters.concat_dim if parameters.HasField("concat_dim") else parameters.axis
    if not node.num_inputs:
        node.fail("it has no bottoms")
    if node.num_inputs == 1:
        return node.value(0)
    return node.result(Concat(axis=node.axis(axis, node.value(0))), *node.values())


@layer("Slice")
def slice_layer(node: Node) -> Sequence[Value]:
    """Convert Slice: pieces of the bottom along an axis, between given points or of one size."""
    parameters, count = node.parameters("slice_param"), len(node.layer.tops)
    axis = node.axis(parameters.slice_dim if parameters.HasField("slice_dim") else parameters.axis)
    size, points = node.shape()[axis], list(parameters.slice_point)
    if not points and size % max(1, count):
        node.fail(f"size {size} cannot be divided into {count} pieces of one size")
    points = points or [size // count * i for i in range(1, count)]
    sizes = tuple(int(n) for n in np.diff([0, *points, size]))
    if len(sizes) != count or min(sizes) < 1:
        node.fail(f"slice_point is {points} for {count} tops and size {size}")
    return [node.only_value] if count == 1 else node.results(Splitter(axis=axis, sizes=sizes), node.only_value)


@layer("Flatten")
def flatten(node: Node) -> Value:
    """Convert Flatten: several axes become one."""
    parameters, shape = node.parameters("flatten_param"), node.shape()
    first_axis, last_axis = node.axis(parameters.axis), node.axis(parameters.end_axis)
    if first_axis > last_axis:
        node.fail(f"axis is {parameters.axis} and end_axis {parameters.end_axis}, for the shape {list(shape)}")
    return node.reshaped(
        node.only_value, (*shape[:first_axis], math.prod(shape[first_axis : last_axis + 1]), *shape[last_axis + 1 :])
    )


@layer("Reshape")
def reshape(node: Node) -> Value:
    """Convert Reshape of some axes; size 0 keeps the size of the bottom, and -1 follows from the others."""
    parameters, shape = node.parameters("reshape_param"), node.shape()
    first_axis = node.axis(parameters.axis, after=True)
    end_axis = len(shape) if parameters.num_axes == -1 else first_axis + parameters.num_axes
    dimensions = list(parameters.shape.dim)
    if not first_axis <= end_axis <= len(shape) or any(
        not n and first_axis + i >= len(shape) for i, n in enumerate(dimensions)
    ):
        node.fail(f"axis is {parameters.axis} and num_axes {parameters.num_axes}, for the shape {list(shape)}")
    if dimensions.count(-1) > 1 or min(dimensions, default=1) < -1:
        node.fail(f"the new shape is {dimensions}; expected sizes, and -1 once at most")
    sizes = [n or shape[first_axis + i] for i, n in enumerate(dimensions)]
    return node.reshaped(node.only_value, _completed(node, [*shape[:first_axis], *sizes, *shape[end_axis:]]))


def _completed(node: Node, requested_sizes: Sequence[int]) -> list[int]:
    """Return a new shape of the bottom in which -1 is replaced by the size that follows from the others."""
    product, num_elements = math.prod(n for n in requested_sizes if n != -1), math.prod(node.shape())
    fits = bool(product) and num_elements % product == 0 if -1 in requested_sizes else product == num_elements
    if not fits:
        node.fail(f"{list(node.shape())} cannot have the shape {list(requested_sizes)}")
    return [num_elements // product if n == -1 else n for n in requested_sizes]


@layer("Permute")
def permute(node: Node) -> Value:
    """Convert Permute of SSD; axes that are not named follow in their order."""
    order, rank = list(node.parameters("permute_param").order), node.only_value.known.rank
    remaining_axes = [axis for axis in range(rank) if axis not in order]
    return node.result(Transpose(tuple(order + remaining_axes)), node.only_value)


@layer("Crop")
def crop(node: Node) -> Value:
    """Convert Crop: cut the first bottom to the size of the second, from ``axis`` on, at offsets."""
    if node.num_inputs != 2:
        node.fail(f"it has {node.num_inputs} bottoms; expected 2")
    parameters = node.parameters("crop_param")
    shape, target_shape = node.shape(node.value(0)), node.shape(node.value(1))
    axis, offsets = node.axis(parameters.axis, node.value(0)), list(parameters.offset)
    if len(offsets) not in (0, 1, len(shape) - axis) or len(target_shape) != len(shape):
        node.fail(f"it has {len(offsets)} offsets; its bottoms have the shapes {list(shape)} and {list(target_shape)}")
    offsets = offsets * (len(shape) - axis) if len(offsets) == 1 else offsets or [0] * (len(shape) - axis)
    op = Slice(begin=(*[0] * axis, *offsets), size=(*shape[:axis], *target_shape[axis:]))
    return node.result(op, node.value(0))


@layer("BatchReindex")
def batch_reindex(node: Node) -> Value:
    """Convert BatchReindex: the images of the first bottom whose numbers are in the second."""
    if node.num_inputs != 2:
        node.fail(f"it has {node.num_inputs} bottoms; expected 2")
    numbers = node.reshaped(node.value(1), (math.prod(node.shape(node.value(1))),))
    return node.result(Gather(axis=0), node.value(0), node.step(Cast(DataType.INT32), numbers))


@layer("Tile")
def tile(node: Node) -> Value:
    """Convert Tile: repeat the bottom along an axis."""
    parameters = node.parameters("tile_param")
    multiples = [1] * node.only_value.known.rank
    multiples[node.axis(parameters.axis)] = parameters.tiles
    return node.result(Tile(tuple(multiples)), node.only_value)


@layer("ShuffleChannel")
def shuffle_channel(node: Node) -> Value:
    """Convert ShuffleChannel of ShuffleNet."""
    return node.result(ChannelShuffle(num_groups=node.parameters("shuffle_channel_param").group, axis=1), node.image())


@layer("Interp")
def interpolate(node: Node) -> Value:
    """Convert Interp of PSPNet: bilinear resizing in which the centers of the corners stay in place."""
    parameters, x = node.parameters("interp_param"), node.image()
    if parameters.pad_beg or parameters.pad_end:
        node.fail(f"pad_beg is {parameters.pad_beg} and pad_end {parameters.pad_end}; only 0 is supported")
    sizes = [_interpolated(node, size, i) for i, size in enumerate(node.shape(x)[2:])]
    op = Resize(sizes[1], sizes[0], ResizeMethod.BILINEAR, data_layout=DataLayout.NCHW, align_corners=True)
    return node.result(op, x)


def _interpolated(node: Node, size: int, axis: int) -> int:
    """Return the size along an axis after shrinking and zooming, or the one that the layer gives."""
    parameters = node.parameters("interp_param")
    output_size = (parameters.height, parameters.width)[axis]
    if parameters.HasField("height") or parameters.HasField("width"):
        return int(output_size)
    shrink, zoom = parameters.shrink_factor, parameters.zoom_factor
    if shrink < 1 or zoom < 1:
        node.fail(f"shrink_factor is {shrink} and zoom_factor {zoom}; expected 1 or more")
    size = (size - 1) // shrink + 1
    return int(size + (size - 1) * (zoom - 1))


@layer("Upsample")
def upsample(node: Node) -> Value:
    """Convert Upsample: repeat pixels, or with a second bottom write each to the place that max pooling has found."""
    parameters, x = node.parameters("upsample_param"), node.value(0)
    scales = [parameters.scale_h or parameters.scale, parameters.scale_w or parameters.scale]
    crops = (parameters.pad_out_h, parameters.pad_out_w)
    sizes = [n * scale - crop for n, scale, crop in zip(node.shape(x)[2:], scales, crops, strict=True)]
    sizes = [parameters.upsample_h or sizes[0], parameters.upsample_w or sizes[1]]
    if node.num_inputs == 1:
        return node.result(Resize(target_height=sizes[0], target_width=sizes[1], data_layout=DataLayout.NCHW), x)
    plane_starts = node.constant(first_of_planes(node.shape(x)[:2], math.prod(sizes)))
    places = node.step(Cast(DataType.INT64), node.value(1))
    places = node.binary(BinaryOperation.ADD, places, plane_starts)
    return node.result(MaxUnpooling(extents=tuple(sizes)), x, places)

"""TensorFlow converters for convolutions, and for the biases that follow them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from interposer.core.errors import ParseError
from interposer.core.traits import Role
from interposer.core.types import DataLayout, Dim, differ
from interposer.frontends.reshaping import reshaped
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.frontends.tensorflow.tensorflow_windows import (
    attributes,
    layout_of,
    sliding,
    spatial_axes,
    spatial_sizes,
)
from interposer.frontends.windows import Windows
from interposer.ir.graph import Value
from interposer.ops.convolution import Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d
from interposer.ops.convolution3d import Convolution3d
from interposer.ops.elementwise import Addition
from interposer.ops.matmul import BatchMatMul
from interposer.ops.rearrange import Transpose
from interposer.ops.windowed import Col2Im

__all__ = ["biased"]


@operator("Conv2D")
def convolution(node: Node) -> Value:
    """Convert Conv2D; fewer input channels in the weights mean groups."""
    layout, x, weights = layout_of(node), node.value(0), _weights(node, 4)
    windows = sliding(node, spatial_sizes(node, x, layout), weights.known.shape[:2], layout)
    order = (3, 0, 1, 2) if layout.channels_last else (3, 2, 0, 1)
    op = Convolution2d(**attributes(windows, layout), groups=_groups(x, weights, layout))
    return node.result(op, x, node.step(Transpose(order), weights))


@operator("Conv3D")
def convolution_3d(node: Node) -> Value:
    """Convert Conv3D."""
    layout, x, weights = layout_of(node, 3), node.value(0), _weights(node, 5)
    windows = sliding(node, spatial_sizes(node, x, layout), weights.known.shape[:3], layout)
    op = Convolution3d(**attributes(windows, layout), groups=_groups(x, weights, layout))
    return node.result(op, x, weights)


@operator("DepthwiseConv2dNative")
def depthwise_convolution(node: Node) -> Value:
    """Convert DepthwiseConv2dNative; the weights are [height, width, channels, multiplier]."""
    layout, x, weights = layout_of(node), node.value(0), _weights(node, 4)
    height, width, channels, multiplier = node.concrete(weights.known.shape, "weights")
    windows = sliding(node, spatial_sizes(node, x, layout), (height, width), layout)
    flat_weights = reshaped(node, weights, (1, height, width, channels * multiplier))
    return node.result(DepthwiseConvolution2d(**attributes(windows, layout)), x, flat_weights)


@operator("Conv2DBackpropInput")
def transpose_convolution(node: Node) -> Value:
    """Convert Conv2DBackpropInput, the transposed convolution; its first operand is the shape of the result."""
    layout, weights, x = layout_of(node), _weights(node, 4), node.value(2)
    spatial_sizes(node, x, layout)
    sizes = _sizes(node, layout)
    windows = sliding(node, sizes, weights.known.shape[:2], layout)
    order = (2, 0, 1, 3) if layout.channels_last else (2, 3, 0, 1)
    op = _transposed(node, windows, layout, sizes, x)
    return node.result(op, x, node.step(Transpose(order), weights))


@operator("Conv3DBackpropInput", "Conv3DBackpropInputV2")
def transpose_convolution_3d(node: Node) -> Value:
    """Convert Conv3DBackpropInput, the transposed convolution of a volume, to a matrix product followed by Col2Im.

    Each product of a weight and an input element is added at the position of the weight in the element's window.
    """
    layout, weights, x = layout_of(node, 3), _weights(node, 5), node.value(2)
    target_shape = [node.known(size, "result's size") for size in node.dimensions_of(0, "input_sizes")]
    if len(target_shape) != 5 or x.known.rank != 5:
        raise ParseError(
            f"its input_sizes are {target_shape} and its input has the shape {x.known.shape}; expected rank 5"
        )
    volume = tuple(target_shape[axis] for axis in spatial_axes(layout))
    windows = sliding(node, volume, weights.known.shape[:3], layout)
    batch, *input_sizes = node.concrete(x.known.shape, "input")
    channels = input_sizes.pop(-1 if layout.channels_last else 0)
    kernels = reshaped(node, node.step(Transpose((3, 0, 1, 2, 4)), weights), [-1, channels])
    shape = (
        (batch, math.prod(input_sizes), channels) if layout.channels_last else (batch, channels, math.prod(input_sizes))
    )
    rows = reshaped(node, x, shape)
    columns = node.step(BatchMatMul(transpose_y=layout.channels_last), kernels, rows)
    image = node.result(Col2Im(**windows.lists(), image_shape=volume), columns)
    return node.result(Transpose((0, 2, 3, 4, 1)), image) if layout.channels_last else image


def _weights(node: Node, rank: int) -> Value:
    weights = node.value(1)
    if weights.known.rank != rank:
        raise ParseError(f"its weights have the shape {weights.known.shape}; expected rank {rank}")
    return weights


def _groups(x: Value, weights: Value, layout: DataLayout) -> int:
    channels, group_channels = x.known.shape[-1 if layout.channels_last else 1], weights.known.shape[-2]
    if isinstance(channels, Dim) or isinstance(group_channels, Dim) or group_channels < 1 or channels % group_channels:
        return 1
    return max(1, channels // group_channels)


def _sizes(node: Node, layout: DataLayout) -> tuple[int, ...]:
    """Return the spatial sizes of a transposed convolution's result; refuse the node if they are not known."""
    target_shape = node.dimensions_of(0, "input_sizes")
    if len(target_shape) == 2:
        return tuple(node.known(size, "result's size") for size in target_shape)
    if len(target_shape) != 4:
        raise ParseError(f"its input_sizes are {list(target_shape)}; expected four dimensions")
    return tuple(node.known(target_shape[axis], "result's size") for axis in spatial_axes(layout))


def _transposed(
    node: Node, windows: Windows, layout: DataLayout, sizes: Sequence[int], x: Value
) -> TransposeConvolution2d:
    """Return the operator whose result has these spatial sizes.

    Cells at the end that no window covers are part of the result.
    """
    image = spatial_sizes(node, x, layout)
    pads_after, is_uncovered = [], False
    for size, dimension, window in zip(sizes, image, windows.along(), strict=True):
        num_windows = window.places(size)
        if differ(dimension, num_windows):
            raise ParseError(
                f"a convolution of its result has {num_windows} windows, but its input the size {dimension}"
            )
        pads_after.append(window.covered(num_windows) - window.pad_before - size)
        is_uncovered |= pads_after[-1] < 0
    windows = windows._replace(after=tuple(max(0, pad) for pad in pads_after))
    shape = None
    if is_uncovered:
        batch = node.known(x.known.shape[0], "batch size")
        channels = node.known(node.info(1).shape[2], "number of channels")
        shape = (batch, *sizes, channels) if layout.channels_last else (batch, channels, *sizes)
    return TransposeConvolution2d(**attributes(windows, layout), output_shape=shape)


@operator("BiasAdd", "BiasAddV1")
def bias_add(node: Node) -> Value:
    """Convert BiasAdd: the bias of the convolution or product before it, or an addition to the channels."""
    x, bias = node.value(0), node.value(1)
    is_channels_last = node.text("data_format", "NHWC") != "NCHW"
    biased_x = biased(node, x, bias) if is_channels_last or _is_channels_first(x) else None
    if biased_x is not None:
        return biased_x
    if not is_channels_last and x.known.rank > 2:
        bias = reshaped(node, bias, [bias.known.shape[0], *[1] * (x.known.rank - 2)])
    return node.result(Addition(), x, bias)


def _is_channels_first(x: Value) -> bool:
    layout = getattr(x.producer.op, "data_layout", None)
    return layout is not None and not layout.channels_last


def biased(node: Node, x: Value, bias: Value) -> Value | None:
    """Return the result of the layer that computes `x`, with a bias; None if the layer cannot have this bias.

    It needs to be a convolution or product that only this node reads, and the bias a constant with one number for every
    channel.
    """
    layer = x.producer
    if layer.op.inputs_of(Role.BIAS, 3) != (2,) or len(layer.values) != 2 or not node.is_only_reader(x):
        return None
    if bias.constant is None or bias.known.rank != 1 or bias.known.dtype is not x.known.dtype:
        return None
    layout = getattr(layer.op, "data_layout", DataLayout.NHWC)
    channels = x.known.shape[-1 if layout.channels_last else 1]
    if isinstance(channels, Dim) or bias.known.shape[0] != channels:
        return None
    return node.result(layer.op, *layer.values, bias)

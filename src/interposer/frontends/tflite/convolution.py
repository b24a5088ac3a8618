"""TFLite converters for convolutions."""

from __future__ import annotations

from interposer.core.types import Dim
from interposer.frontends.tflite.hybrid import float_weights
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.frontends.tflite.tflite_windows import sliding
from interposer.ir.graph import Value
from interposer.ops.convolution import Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d
from interposer.ops.convolution3d import Convolution3d

__all__: list[str] = []


@operator("CONV_2D", options=True)
def convolution(node: Node) -> list[Value]:
    """Convert CONV_2D; the number of groups follows from the channels of input and weights."""
    x = node.input(0, rank=4)
    weights = float_weights(node, 1, x, rank=4)
    window = sliding(node, x.known.shape[1:3], weights.known.shape[1:3])
    op = Convolution2d(**window, groups=_groups(x.known.shape[3], weights.known.shape[3]))
    return node.result(op, x, weights, node.optional(2), activation=node.options["fused_activation_function"])


@operator("CONV_3D", options=True)
def convolution_3d(node: Node) -> list[Value]:
    """Convert CONV_3D; the last axis of the weights is that of the output channels."""
    x = node.input(0, rank=5)
    weights = node.like(1, x, rank=5)
    window = sliding(node, x.known.shape[1:4], weights.known.shape[:3])
    op = Convolution3d(**window, groups=_groups(x.known.shape[4], weights.known.shape[3]))
    return node.result(op, x, weights, node.optional(2), activation=node.options["fused_activation_function"])


def _groups(channels: int, channels_each: int) -> int:
    return 1 if isinstance(channels, Dim) or not channels_each else max(1, channels // channels_each)


@operator("DEPTHWISE_CONV_2D", options=True)
def depthwise_convolution(node: Node) -> list[Value]:
    """Convert DEPTHWISE_CONV_2D; the channel multiplier follows from the channels, and the option is ignored."""
    x = node.input(0, rank=4)
    weights = node.like(1, x, rank=4)
    op = DepthwiseConvolution2d(**sliding(node, x.known.shape[1:3], weights.known.shape[1:3]))
    return node.result(op, x, weights, node.optional(2), activation=node.options["fused_activation_function"])


@operator("TRANSPOSE_CONV", options=True)
def transpose_convolution(node: Node) -> list[Value]:
    """Convert TRANSPOSE_CONV; the padding is that of the equivalent forward convolution."""
    shape = node.ints(0, "the output's shape")
    x = node.input(2, rank=4)
    weights = node.like(1, x, rank=4)
    if len(shape) != 4:
        node.fail(f"the output's shape is {shape}; expected four dimensions")
    op = TransposeConvolution2d(**sliding(node, shape[1:3], weights.known.shape[1:3]), output_shape=shape)
    return node.result(op, x, weights, node.optional(3), activation=node.options["fused_activation_function"])

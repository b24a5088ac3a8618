"""Convolutions."""

from __future__ import annotations

from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.registry import operator
from interposer.frontends.tflite.windows import sliding
from interposer.ir.graph import Value
from interposer.ops.convolution import Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d
from interposer.types import Dim

__all__: list[str] = []


@operator("CONV_2D", options="Conv2DOptions")
def convolution(node: Node) -> list[Value]:
    """The number of groups follows from the channels."""
    x = node.input(0, rank=4)
    weights, dilation = node.like(1, x, rank=4), _dilation(node)
    window = sliding(node, x.known.shape[1:3], weights.known.shape[1:3], dilation)
    channels, per_group = x.known.shape[3], weights.known.shape[3]
    groups = 1 if isinstance(channels, Dim) or not per_group else max(1, channels // per_group)
    op = Convolution2d(**window, dilation_y=dilation[0], dilation_x=dilation[1], groups=groups)
    return node.result(op, x, weights, node.optional(2), activation=node.options["fused_activation_function"])


@operator("DEPTHWISE_CONV_2D", options="DepthwiseConv2DOptions")
def depthwise_convolution(node: Node) -> list[Value]:
    """The channel multiplier follows from the channels; that of the options is not looked at."""
    x = node.input(0, rank=4)
    weights, dilation = node.like(1, x, rank=4), _dilation(node)
    window = sliding(node, x.known.shape[1:3], weights.known.shape[1:3], dilation)
    op = DepthwiseConvolution2d(**window, dilation_y=dilation[0], dilation_x=dilation[1])
    return node.result(op, x, weights, node.optional(2), activation=node.options["fused_activation_function"])


@operator("TRANSPOSE_CONV", options="TransposeConvOptions")
def transpose_convolution(node: Node) -> list[Value]:
    """Padding is that of the convolution which makes the input out of the output."""
    shape = node.ints(0, "the output's shape")
    x = node.input(2, rank=4)
    weights = node.like(1, x, rank=4)
    if len(shape) != 4:
        node.fail(f"the output's shape is {shape}; expected four extents")
    window = sliding(node, shape[1:3], weights.known.shape[1:3])
    op = TransposeConvolution2d(**window, output_shape=shape)
    return node.result(op, x, weights, node.optional(3), activation=node.options["fused_activation_function"])


def _dilation(node: Node) -> tuple[int, int]:
    return node.options["dilation_h_factor"], node.options["dilation_w_factor"]

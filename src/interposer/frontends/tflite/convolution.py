"""TFLite converters for convolutions."""

from __future__ import annotations

import math
from typing import Final

from interposer.core.types import Dim
from interposer.frontends.tflite.hybrid import float_weights, is_hybrid, rounded
from interposer.frontends.tflite.interior import concrete
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.frontends.tflite.tflite_windows import sliding
from interposer.ir.graph import Value
from interposer.ops.convolution import Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d
from interposer.ops.convolution3d import Convolution3d
from interposer.ops.elementwise import Addition
from interposer.ops.matmul import BatchMatMul
from interposer.ops.rearrange import Transpose
from interposer.ops.reshape import Reshape
from interposer.ops.windowed import Col2Im

__all__: list[str] = []

_BORDERS: Final = (("front", "back"), ("top", "bottom"), ("left", "right"))


@operator("CONV_2D", options=True)
def convolution(node: Node) -> Value:
    """Convert CONV_2D; the number of groups follows from the channels of input and weights."""
    x = _image(node)
    weights = float_weights(node, 1, x, rank=4)
    window = sliding(node, x.known.shape[1:3], weights.known.shape[1:3])
    op = Convolution2d(**window, groups=_groups(x.known.shape[3], weights.known.shape[3]))
    return node.result(op, x, weights, node.optional(2), activation=node.options["fused_activation_function"])


def _image(node: Node, *, asymmetric: bool = False) -> Value:
    """Return the images of a convolution, each rounded to 8 bits if the weights are quantized.

    Images are quantized asymmetrically if `asymmetric`, or if channels of the weights have different scales.
    """
    x, weights = node.value(0, rank=4), node.value(1, rank=4)
    if not is_hybrid(x, weights):
        return x
    q = weights.known.quantization
    return rounded(node, x, (1, 2, 3), asymmetric=asymmetric or len(set(q.scales if q else ())) > 1)


@operator("CONV_3D", options=True)
def convolution_3d(node: Node) -> Value:
    """Convert CONV_3D; the last axis of the weights is that of the output channels."""
    x = node.value(0, rank=5)
    weights = node.like(1, x, rank=5)
    window = sliding(node, x.known.shape[1:4], weights.known.shape[:3])
    op = Convolution3d(**window, groups=_groups(x.known.shape[4], weights.known.shape[3]))
    return node.result(op, x, weights, node.optional(2), activation=node.options["fused_activation_function"])


def _groups(channels: int, channels_each: int) -> int:
    return 1 if isinstance(channels, Dim) or not channels_each else max(1, channels // channels_each)


@operator("DEPTHWISE_CONV_2D", options=True)
def depthwise_convolution(node: Node) -> Value:
    """Convert DEPTHWISE_CONV_2D; the channel multiplier follows from the channels, and the option is ignored."""
    x = _image(node, asymmetric=True)
    weights = node.like(1, x, rank=4)
    op = DepthwiseConvolution2d(**sliding(node, x.known.shape[1:3], weights.known.shape[1:3]))
    return node.result(op, x, weights, node.optional(2), activation=node.options["fused_activation_function"])


@operator("TRANSPOSE_CONV", options=True)
def transpose_convolution(node: Node) -> Value:
    """Convert TRANSPOSE_CONV; the padding is that of the equivalent forward convolution."""
    shape = node.integers_of(0, "the output's shape")
    x = node.value(2, rank=4)
    if is_hybrid(x, node.value(1)):
        x = rounded(node, x, (1, 2, 3), asymmetric=True)
    weights = node.like(1, x, rank=4)
    if len(shape) != 4:
        node.fail(f"the output's shape is {shape}; expected four dimensions")
    op = TransposeConvolution2d(**sliding(node, shape[1:3], weights.known.shape[1:3]), output_shape=shape)
    return node.result(op, x, weights, node.optional(3), activation=node.options["fused_activation_function"])


@operator("CONV_3D_TRANSPOSE", options=True)
def transpose_convolution_3d(node: Node) -> Value:
    """Convert CONV_3D_TRANSPOSE to a matrix product followed by Col2Im.

    Each product of a weight and an input element is added at the position of the weight in the element's window. The
    padding is that of the equivalent forward convolution.
    """
    shape, x = node.integers_of(0, "the output's shape"), node.value(2, rank=5)
    weights = node.like(1, x, rank=5)
    if len(shape) != 5:
        node.fail(f"the output's shape is {shape}; expected five dimensions")
    batch, *volume, channels = concrete(node, x.known.shape, "the input")
    *sizes, results, depth = concrete(node, weights.known.shape, "the weights")
    if depth != channels:
        node.fail(f"input has {channels} channels, but weights have {depth}")
    window = sliding(node, shape[1:4], sizes)
    kernels = node.step(Reshape((-1, channels)), node.step(Transpose((3, 0, 1, 2, 4)), weights))
    rows = node.step(Reshape((batch, math.prod(volume), channels)), x)
    columns = node.step(BatchMatMul(transpose_y=True), kernels, rows)
    op = Col2Im(
        window_shape=tuple(sizes),
        strides=tuple(window[f"stride_{axis}"] for axis in "zyx"),
        dilations=tuple(window[f"dilation_{axis}"] for axis in "zyx"),
        pad_list=tuple((window[f"pad_{before}"], window[f"pad_{after}"]) for before, after in _BORDERS),
        image_shape=shape[1:4],
    )
    image = node.step(op, columns)
    return _with_bias(node, image, node.optional(3), results)


def _with_bias(node: Node, image: Value, bias: Value | None, channels: int) -> Value:
    """Return the NCDHW volume as NDHWC, with the bias added and the fused activation applied."""
    order, activation = Transpose((0, 2, 3, 4, 1)), node.options["fused_activation_function"]
    if bias is None:
        return node.result(order, image, activation=activation)
    if bias.known.shape[-1] != channels:
        node.fail(f"bias has {bias.known.shape[-1]} elements; expected {channels}, one for each output channel")
    return node.result(Addition(), node.step(order, image), bias, activation=activation)

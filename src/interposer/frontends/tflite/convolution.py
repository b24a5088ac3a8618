"""TFLite converters for convolutions, pooling and products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from interposer.core.types import DataLayout, DataType, Dim, differ
from interposer.frontends.tflite.blockwise import is_blockwise
from interposer.frontends.tflite.hybrid import float_weights, is_hybrid, rounded
from interposer.frontends.tflite.interior import concrete
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.convolution import Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d
from interposer.ops.convolution3d import Convolution3d
from interposer.ops.elementwise import Addition
from interposer.ops.matmul import BatchMatMul, FullyConnected, IntegerMatMul
from interposer.ops.pooling import Pooling2d, PoolingAlgorithm
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Transpose
from interposer.ops.reshape import Reshape
from interposer.ops.window import Window
from interposer.ops.windowed import Col2Im

__all__ = ["sliding"]

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
    quantization = weights.known.quantization
    return rounded(
        node, x, (1, 2, 3), asymmetric=asymmetric or len(set(quantization.scales if quantization else ())) > 1
    )


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
    *sizes, output_channels, depth = concrete(node, weights.known.shape, "the weights")
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
    return _with_bias(node, image, node.optional(3), output_channels)


def _with_bias(node: Node, image: Value, bias: Value | None, channels: int) -> Value:
    """Return the NCDHW volume as NDHWC, with the bias added and the fused activation applied."""
    to_channels_last, activation = Transpose((0, 2, 3, 4, 1)), node.options["fused_activation_function"]
    if bias is None:
        return node.result(to_channels_last, image, activation=activation)
    if bias.known.shape[-1] != channels:
        node.fail(f"bias has {bias.known.shape[-1]} elements; expected {channels}, one for each output channel")
    return node.result(Addition(), node.step(to_channels_last, image), bias, activation=activation)


# --- windows ----------------------------------------------------------------------------------------------------------


SAME, VALID = 0, 1
_ALONG: Final = (
    ("depth", "d", "z", "front", "back"),
    ("height", "h", "y", "top", "bottom"),
    ("width", "w", "x", "left", "right"),
)


def sliding(node: Node, image: Sequence[int], window: Sequence[int]) -> dict[str, Any]:
    """Return the attributes of a layer whose `window` slides over an `image`: layout, strides, dilations and pads.

    `image` and `window` are sizes as (height, width) or (depth, height, width). The attributes are from the node's
    options.
    """
    attributes: dict[str, Any] = {"data_layout": DataLayout.NHWC if len(image) == 2 else DataLayout.NDHWC}
    axes = _ALONG[-len(image) :]
    for (axis, short, letter, before, after), dimension, size in zip(axes, image, window, strict=True):
        stride, dilation = node.options[f"stride_{short}"], node.options.get(f"dilation_{short}_factor", 1)
        if stride < 1 or dilation < 1:
            node.fail(f"stride {stride} and dilation {dilation} along the {axis}; expected at least 1")
        pads = _padding(node, dimension, Window(size, stride, dilation, 0, 0), axis)
        attributes |= {f"stride_{letter}": stride, f"dilation_{letter}": dilation}
        attributes |= {f"pad_{before}": pads[0], f"pad_{after}": pads[1]}
    return attributes


def _padding(node: Node, size: int, window: Window, axis: str) -> tuple[int, int]:
    """Return the pads before and after an axis for the padding scheme of the node, SAME or VALID.

    `size` is the size of the image along the axis, and `axis` the name of the axis in messages.
    """
    padding = node.options["padding"]
    if padding not in {SAME, VALID}:
        node.fail(f"padding {padding} is not known; expected {SAME} (SAME) or {VALID} (VALID)")
    if padding == VALID:
        return 0, 0
    pads = window.same_pads(size)
    if pads is None:
        node.open_shape(f"the padding depends on the {axis}, which is not known")
    return pads


# --- pooling ----------------------------------------------------------------------------------------------------------


_TYPES: Final = {
    "AVERAGE_POOL_2D": PoolingAlgorithm.AVERAGE,
    "MAX_POOL_2D": PoolingAlgorithm.MAX,
    "L2_POOL_2D": PoolingAlgorithm.L2,
}


@operator(*_TYPES, options=True)
def pooling(node: Node) -> Value:
    """Convert AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D; padding is excluded from averages."""
    x = node.value(0, rank=4)
    height, width = node.options["filter_height"], node.options["filter_width"]
    if height < 1 or width < 1:
        node.fail(f"a window of height {height} and width {width}; expected at least 1")
    window = sliding(node, x.known.shape[1:3], (height, width))
    op = Pooling2d(pool_type=_TYPES[node.kind], pool_height=height, pool_width=width, **window)
    return node.result(op, x, activation=node.options["fused_activation_function"])


# --- matrix products --------------------------------------------------------------------------------------------------


@operator("FULLY_CONNECTED", options=True)
def fully_connected(node: Node) -> Value:
    """Convert FULLY_CONNECTED; each row of the weights belongs to one output."""
    if node.options["weights_format"]:
        node.fail(f"weights in format {node.options['weights_format']} are not supported; only the plain format is")
    x, bias = _rows(node), node.optional(2)
    if bias is not None and bias.known.rank != 1:
        bias = node.step(Reshape((-1,)), bias)
    op = FullyConnected(transpose_weight_matrix=True, keep_dims=node.options["keep_num_dims"])
    weights = float_weights(node, 1, x, rank=2, fold=False)
    return node.result(op, x, weights, bias, activation=node.options["fused_activation_function"])


def _rows(node: Node) -> Value:
    """Return the activations of FULLY_CONNECTED, each row rounded to 8 bits if the weights are quantized.

    A row has as many elements as a row of the weights. With weights that have a scale for every block, LiteRT always
    quantizes rows asymmetrically.
    """
    x, weights = node.value(0), node.value(1, rank=2)
    if not is_hybrid(x, weights):
        return x
    if not node.options["keep_num_dims"] and (not x.known.rank or differ(x.known.shape[-1], weights.known.shape[1])):
        x = node.step(Reshape((-1, weights.known.shape[1])), x)
    is_asymmetric = node.options["asymmetric_quantize_inputs"] or is_blockwise(weights)
    return rounded(node, x, (-1,), asymmetric=is_asymmetric)


@operator("BATCH_MATMUL", options=True)
def batch_matmul(node: Node) -> Value:
    """Convert BATCH_MATMUL; the adjoint options mean transposition, as there are no complex numbers.

    Products of int8 with a result of int32 ignore scales and zero points, as in LiteRT.
    """
    a, b = node.value(0), node.value(1)
    if node.output_info.dtype is DataType.INT32 and a.known.dtype is DataType.INT8:
        return node.result(
            IntegerMatMul(), *(_matrix(node, matrix, option) for matrix, option in ((a, "adj_x"), (b, "adj_y")))
        )
    if is_hybrid(a, b):
        axis = -2 if node.options["adj_x"] else -1
        a = rounded(node, a, (axis,), asymmetric=node.options["asymmetric_quantize_inputs"])
    return node.result(BatchMatMul(node.options["adj_x"], node.options["adj_y"]), a, node.like(1, a, fold=False))


def _matrix(node: Node, matrix: Value, option: str) -> Value:
    """Return an operand of BATCH_MATMUL without its scale, and with its last two axes swapped if the option is set."""
    if matrix.known.is_quantized:
        matrix = node.step(Cast(matrix.known.dtype), matrix)
    if not node.options[option]:
        return matrix
    rank = matrix.known.rank
    if rank < 2:
        node.fail(f"an operand has shape {matrix.known.shape}; expected at least rank 2")
    return node.step(Transpose((*range(rank - 2), rank - 1, rank - 2)), matrix)

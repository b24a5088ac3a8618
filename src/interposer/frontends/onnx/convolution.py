"""ONNX converters for convolutions; a convolution with one spatial axis becomes one over images of height 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache

from interposer.core.errors import ParseError
from interposer.core.schema import Op
from interposer.core.types import DataLayout, Quantization, TensorShape
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.onnx_windows import Windows, as_image, windows
from interposer.frontends.onnx.quantization import along, centered, quantization, real, requantized, with_quantization
from interposer.frontends.reshaping import final_reshape, reshaped
from interposer.ir.graph import Value
from interposer.ops.convolution import (
    Convolution2d,
    DepthwiseConvolution2d,
    IntegerConvolution2d,
    TransposeConvolution2d,
)
from interposer.ops.convolution3d import Convolution3d
from interposer.ops.deformable import DeformableConvolution2d
from interposer.ops.elementwise import Addition
from interposer.ops.matmul import BatchMatMul
from interposer.ops.quantization import Requantization
from interposer.ops.rearrange import Transpose
from interposer.ops.windowed import Col2Im

__all__ = ["convolved", "quantized_convolution_of", "transposed"]


@operator("Conv")
def convolution(node: Node) -> Value:
    """Convert Conv; input and weights are usually floats, but may have any type that both share."""
    return convolved(node, node.value(0), node.value(1), node.optional(2))


@operator("ConvInteger", since=10)
def integer_convolution(node: Node) -> Value:
    """Convert ConvInteger: zero points are subtracted from input and weights, and products are added in int32.

    Images become an integer convolution layer. For volumes, the zero points are subtracted by layers before a
    convolution.
    """
    x, weights, zero_point = node.value(0), node.value(1), node.optional(2)
    if x.known.rank > 4:
        weights = centered(node, weights, node.optional(3), axis=0)
        return convolved(node, centered(node, x, zero_point), weights, None)
    node_windows = windows(node, _kernel(node, x, weights), x.known.shape[2:])
    images, filters = as_image(node, x), as_image(node, weights)
    weight_zero_points = along(node, node.optional(3), filters, axis=0)
    op = IntegerConvolution2d(**node_windows.pads(), **node_windows.steps(), groups=node.integer("group", 1))
    return _finished(node, op, x.known.rank, (images, filters, zero_point, weight_zero_points))


@operator("QLinearConv", since=10)
def quantized_convolution(node: Node) -> Value:
    """Convert QLinearConv."""
    return quantized_convolution_of(node, node.value(0))


def quantized_convolution_of(node: Node, x: Value) -> Value:
    """Return the result of a QLinearConv node for the images `x`, which have channels first.

    The convolution is quantized if the tensors have the scales of the node, else it is computed in float.
    """
    weights, bias = node.value(3), node.optional(8)
    qx, qw, qy = (quantization(node, i, axes, 0) for i, axes in ((1, x.known.rank), (4, weights.known.rank), (6, 1)))
    q_bias = Quantization([qx.scale * scale for scale in qw.scales], 0, 0 if qw.per_axis else None)
    dtype = node.info(7).dtype
    is_constant = weights.constant is not None and (bias is None or bias.constant is not None)
    if is_constant and len(set(qw.zero_points)) == 1 and x.known.quantization == qx and x.known.dtype is dtype:
        weights, bias = with_quantization(node, weights, qw), bias and with_quantization(node, bias, q_bias)
        return convolved(node, x, weights, bias, qy)
    real_bias = bias and real(node, bias, q_bias)
    return requantized(node, convolved(node, real(node, x, qx), real(node, weights, qw), real_bias), dtype, qy)


def convolved(
    node: Node, x: Value, weights: Value, bias: Value | None, quantization: Quantization | None = None
) -> Value:
    """Add the layer for a convolution node, and return its output; `quantization` is that of the output, if any.

    The layer is a depthwise convolution if there are as many groups as channels, and a 3-D convolution for a volume.
    The weights are transposed to the layer's order.
    """
    node_windows = windows(node, _kernel(node, x, weights), x.known.shape[2:])
    groups, rank = node.integer("group", 1), x.known.rank
    x, weights = as_image(node, x), as_image(node, weights)
    op: Op
    if rank == 5:
        op = Convolution3d(**node_windows.pads(), **node_windows.steps(), groups=groups, data_layout=DataLayout.NCDHW)
        weights = node.step(_transpose((2, 3, 4, 1, 0)), weights)
    elif groups > 1 and x.known.shape[1] == groups and weights.known.shape[1] == 1:
        op = _depthwise_convolution(node_windows)
        weights = node.step(_transpose((1, 2, 3, 0)), weights)
    else:
        op = _convolution(node_windows, groups)
    if quantization is not None:
        op = op.replace(requantization=Requantization.HALF_TO_EVEN)
    return _finished(node, op, rank, (x, weights, bias), quantization)


@lru_cache
def _convolution(node_windows: Windows, groups: int) -> Convolution2d:
    """Return the operator for these windows; equal ones are created once, as most layers of a network share few."""
    return Convolution2d(**node_windows.pads(), **node_windows.steps(), groups=groups)


@lru_cache
def _depthwise_convolution(node_windows: Windows) -> DepthwiseConvolution2d:
    return DepthwiseConvolution2d(**node_windows.pads(), **node_windows.steps())


@cache
def _transpose(permutation: tuple[int, ...]) -> Transpose:
    return Transpose(permutation)


def _finished(
    node: Node,
    op: Op,
    rank: int,
    operands: tuple[Value | None, ...],
    quantization: Quantization | None = None,
) -> Value:
    if rank != 3:
        return node.result(op, *operands, quantization=quantization)
    image = node.step(op, *operands, quantization=quantization)
    batch, channels, _, width = image.known.shape
    return final_reshape(node, image, (batch, channels, width), 2)


def _kernel(node: Node, x: Value, weights: Value) -> tuple[int, ...]:
    """Return the spatial dimensions of the weights: the attribute kernel_shape, by default those of their shape.

    `ParseError` is raised if both contradict each other, or if the ranks of `x` and the weights differ.
    """
    shape = weights.known.shape
    if x.known.rank < 3 or len(shape) != x.known.rank:
        raise ParseError(f"its input has shape {x.known.shape} and its weights {shape}; expected one rank, 3 or more")
    kernel = tuple(shape[2:])
    kernel_shape = node.integers("kernel_shape", kernel)
    if TensorShape(kernel).is_concrete and kernel_shape != kernel:
        raise ParseError(f"kernel_shape is {list(kernel_shape)}, but its weights have shape {shape}")
    return kernel_shape


@operator("DeformConv", since=19)
def deformable_convolution(node: Node) -> Value:
    """Convert DeformConv on images: offsets along two axes move the positions that the weights sample."""
    x, weights = node.value(0), node.value(1)
    if x.known.rank != 4:
        node.unsupported(f"its input has shape {x.known.shape}; images with two spatial axes are supported")
    node_windows = windows(node, _kernel(node, x, weights), x.known.shape[2:])
    groups = {"groups": node.integer("group", 1), "offset_groups": node.integer("offset_group", 1)}
    op = DeformableConvolution2d(**node_windows.pads(), **node_windows.steps(), **groups)
    return node.result(op, x, weights, node.value(2), node.optional(3), node.optional(4))


@operator("ConvTranspose")
def transpose_convolution(node: Node) -> Value:
    """Convert ConvTranspose."""
    return transposed(node)


def transposed(node: Node) -> Value:
    """Return the result of a ConvTranspose node.

    output_padding, or a larger output_shape, extends the result at its end by reducing the pads there.
    """
    image = node.info(0).shape[2:]
    node_windows = _output_padded(node, windows(node, _kernel(node, node.value(0), node.value(1)), image), image)
    if node_windows.axes == 3:
        return _transposed_volume(node, node_windows)
    x, weights = as_image(node, node.value(0)), as_image(node, node.value(1))
    weights = node.step(Transpose((1, 0, 2, 3)), weights)
    pads = {name: max(0, pad) for name, pad in node_windows.pads().items()}
    groups = node.integer("group", 1)
    shape = (
        None
        if min(node_windows.before + node_windows.after) >= 0
        else _extended_shape(node, node_windows, weights.known.shape[0] * groups)
    )
    op = TransposeConvolution2d(**pads, **node_windows.steps(), groups=groups, output_shape=shape)
    return _finished(node, op, node.info(0).rank, (x, weights, node.optional(2)))


def _transposed_volume(node: Node, node_windows: Windows) -> Value:
    """Return a transposed convolution with any number of spatial axes, as a matrix product followed by Col2Im.

    Each product of a weight and an input element is added at the position of the weight in the element's window.
    `node_windows` are the windows of the node.
    """
    x, weights, bias = node.value(0), node.value(1), node.optional(2)
    sizes, groups = _sizes(node, node_windows), node.integer("group", 1)
    batch, channels, *volume = node.concrete(x.known.shape, "input")
    if groups < 1 or channels % groups:
        raise ParseError(f"its {channels} channels cannot be divided into {groups} groups")
    grouped_x = reshaped(node, x, [batch, groups, channels // groups, math.prod(volume)])
    kernels = reshaped(node, weights, [groups, channels // groups, -1])
    products = node.step(BatchMatMul(transpose_x=True), kernels, grouped_x)
    columns = reshaped(node, products, [batch, -1, math.prod(volume)])
    covered_windows = node_windows._replace(
        before=_non_negative(node_windows.before), after=_non_negative(node_windows.after)
    )
    op = Col2Im(**covered_windows.lists(), image_shape=sizes)
    if bias is None:
        return node.result(op, columns)
    return node.result(Addition(), node.step(op, columns), reshaped(node, bias, [-1, 1, 1, 1]))


def _non_negative(pads: Sequence[int]) -> tuple[int, ...]:
    return tuple(max(0, pad) for pad in pads)


def _output_padded(node: Node, node_windows: Windows, image: Sequence[int]) -> Windows:
    axes = len(image)
    output_padding = node.integers("output_padding", [0] * axes)
    output_shape = node.integers("output_shape", ())
    is_valid = len(output_padding) == axes and len(output_shape) in (0, axes, axes + 2)
    if not is_valid or not all(0 <= n < 2**31 for n in output_padding + output_shape):
        numbers = f"output_padding is {list(output_padding)} and output_shape {list(output_shape)}"
        raise ParseError(f"{numbers}; it has {axes} spatial axes")
    ones = (1,) * (2 - axes)
    image, output_padding = (*ones, *image), (0,) * (2 - axes) + output_padding
    if output_shape:
        node_windows = _pads_for(node, node_windows, (*ones, *output_shape[-axes:]), image, output_padding)
    elif node.text("auto_pad", "NOTSET") in {"SAME_UPPER", "SAME_LOWER"}:
        sizes = tuple(size * stride for size, stride in zip(image, node_windows.strides, strict=True))
        node_windows = _pads_for(node, node_windows, sizes, image, output_padding)
    ends = zip(node_windows.after, output_padding, strict=True)
    return node_windows._replace(after=tuple(pad - added for pad, added in ends))


def _pads_for(
    node: Node, node_windows: Windows, sizes: Sequence[int], image: Sequence[int], output_padding: Sequence[int]
) -> Windows:
    """Return the windows of a transposed convolution with pads such that the result has these `sizes`.

    `image` are the sizes of the input, and `output_padding` has a number for each axis. If the total of the two pads of
    an axis is odd, the smaller one is at the start for auto_pad SAME_UPPER, and at the end otherwise.
    """
    is_upper = node.text("auto_pad", "NOTSET") == "SAME_UPPER"
    pads_before, pads_after = [], []
    for i, (window, dimension) in enumerate(zip(node_windows.along(), image, strict=True)):
        total_padding = window.covered(node.known(dimension, "input's size")) + output_padding[i] - sizes[i]
        pads_before.append(max(0, total_padding // 2 if is_upper else total_padding - total_padding // 2))
        pads_after.append(total_padding - pads_before[-1])
    return node_windows._replace(before=tuple(pads_before), after=tuple(pads_after))


def _extended_shape(node: Node, node_windows: Windows, channels: int) -> tuple[int, ...]:
    """Return the shape (batch, `channels`, sizes) of a transposed convolution's result.

    The sizes include cells that no window covers.
    """
    return (node.concrete(node.info(0).shape, "input")[0], channels, *_sizes(node, node_windows))


def _sizes(node: Node, node_windows: Windows) -> tuple[int, ...]:
    """Return the spatial sizes of a transposed convolution's result: what the windows cover, less their pads."""
    shape = node.concrete(node.info(0).shape, "input")
    image = (1, *shape[2:]) if len(shape) == 3 else shape[2:]
    axes = zip(image, node_windows.along(), strict=True)
    return tuple(window.covered(size) - window.pad_before - window.pad_after for size, window in axes)

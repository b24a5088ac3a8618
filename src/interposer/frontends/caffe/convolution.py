"""Caffe converters for convolutions and products; a convolution with one spatial axis becomes one over images."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from interposer.core.schema import Op
from interposer.core.types import Array, DataLayout, DataType
from interposer.frontends.caffe.caffe_converters import layer
from interposer.frontends.caffe.node import Node
from interposer.frontends.caffe.proto import Message
from interposer.frontends.windows import Windows
from interposer.ir.graph import Value
from interposer.ops.convolution import Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d
from interposer.ops.convolution3d import Convolution3d
from interposer.ops.elementwise import BinaryOperation
from interposer.ops.gather import Gather
from interposer.ops.matmul import BatchMatMul, FullyConnected
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Pad, Stack, StridedSlice
from interposer.ops.windowed import Col2Im

__all__ = ["windows"]

_MOST_CELLS: Final = 4096
"""The largest number of elements of a window, each of which becomes a layer."""


@layer("Convolution", "ConvolutionDepthwise", "DepthwiseConvolution")
def convolution(node: Node) -> list[Value]:
    """Convert Convolution over one to three spatial axes, in groups or depthwise; every bottom has its own top.

    The types ConvolutionDepthwise and DepthwiseConvolution of forks have as many groups as channels.
    """
    return [_convolved(node, x) for x in node.values()]


class _Geometry(NamedTuple):
    """The input of a convolution as an image or a volume, its window, and its numbers of groups and channels."""

    x: Value
    window: Windows
    groups: int
    channels: int
    output_channels: int


def _geometry(node: Node, x: Value) -> _Geometry:
    parameters = node.parameters("convolution_param")
    groups = _groups(node, parameters, x)
    x, window = _as_image(node, x, windows(node, parameters, _axes(node, parameters, x)))
    channels, output_channels = node.shape(x)[1], parameters.num_output
    if not groups or channels % groups or output_channels % groups:
        node.fail(f"its {channels} channels and {output_channels} outputs cannot be divided into {groups} groups")
    return _Geometry(x, window, groups, channels, output_channels)


def _convolved(node: Node, x: Value) -> Value:
    x, window, groups, channels, output_channels = _geometry(node, x)
    weights = node.weights(0, (output_channels, channels // groups, *window.kernel), "weights")
    return _finished(node, *_operator(window, groups, channels, weights), x, output_channels)


def _operator(window: Windows, groups: int, channels: int, weights: Array) -> tuple[Op, Array]:
    """Return the operator of a convolution, and the weights in its layout."""
    attributes = window.pads() | window.steps()
    if weights.ndim == 5:
        op = Convolution3d(**attributes, groups=groups, data_layout=DataLayout.NCDHW)
        return op, weights.transpose(2, 3, 4, 1, 0)
    if groups > 1 and groups == channels:
        return DepthwiseConvolution2d(**attributes), weights.transpose(1, 2, 3, 0)
    return Convolution2d(**attributes, groups=groups), weights


@layer("Deconvolution")
def deconvolution(node: Node) -> list[Value]:
    """Convert Deconvolution over one to three spatial axes, in groups; every bottom has its own top."""
    return [_deconvolved(node, x) for x in node.values()]


def _deconvolved(node: Node, x: Value) -> Value:
    x, window, groups, channels, output_channels = _geometry(node, x)
    if window.axes > 2:
        return _deconvolved_volume(node, _Geometry(x, window, groups, channels, output_channels))
    weights = node.weights(0, (channels, output_channels // groups, *window.kernel), "weights")
    op = TransposeConvolution2d(**window.pads(), **window.steps(), groups=groups)
    return _finished(node, op, weights.transpose(1, 0, 2, 3), x, output_channels)


def _deconvolved_volume(node: Node, geometry: _Geometry) -> Value:
    """Return the product of all weights and elements, added up where the windows of the elements are."""
    x, window, groups, channels, output_channels = geometry
    if groups != 1:
        node.fail(f"a deconvolution of volumes in {groups} groups is not supported; one without groups is")
    batch, _, *volume = node.shape(x)
    weights = node.weights(0, (channels, output_channels, *window.kernel), "weights").reshape(channels, -1).T
    columns = node.step(BatchMatMul(), node.constant(weights), node.reshaped(x, (batch, channels, math.prod(volume))))
    image = tuple(
        (size - 1) * axis_window.stride
        + (axis_window.size - 1) * axis_window.dilation
        + 1
        - axis_window.pad_before
        - axis_window.pad_after
        for size, axis_window in zip(volume, window.along(), strict=True)
    )
    if min(image) < 1:
        node.fail(f"its pads remove all of its result of {list(image)}")
    output = node.step(Col2Im(**window.lists(), image_shape=image), columns)
    if node.parameters("convolution_param").bias_term:
        bias = node.weights(1, (output_channels,), "bias").reshape(-1, 1, 1, 1)
        output = node.binary(BinaryOperation.ADD, output, node.constant(bias))
    return output


@layer("Im2col")
def columns(node: Node) -> Value:
    """Convert Im2col: the elements of each window of a channel become channels of their own."""
    parameters, x = node.parameters("convolution_param"), node.image()
    batch, channels, height, width = node.shape(x)
    window = windows(node, parameters, 2)
    cells = window.kernel[0] * window.kernel[1]
    if cells > _MOST_CELLS:
        node.fail(f"its window has {cells:,} elements; at most {_MOST_CELLS:,} are supported")
    window_counts = [
        axis_window.places(size) for axis_window, size in zip(window.along(), (height, width), strict=True)
    ]
    if min(window_counts) < 1:
        node.fail(f"its window of {list(window.kernel)} does not fit into its bottom of {[height, width]}")
    pads = ((0, 0), (0, 0), *zip(window.before, window.after, strict=True))
    padded_x = node.step(Pad(pads), x) if any(map(any, pads)) else x
    spans = [(place - 1) * stride + 1 for place, stride in zip(window_counts, window.strides, strict=True)]
    column_pieces = []
    for row, column in itertools.product(*map(range, window.kernel)):
        begin = (0, 0, row * window.dilations[0], column * window.dilations[1])
        end = (0, 0, begin[2] + spans[0], begin[3] + spans[1])
        op = StridedSlice(begin, end, (1, 1, *window.strides), begin_mask=0b11, end_mask=0b11)
        column_pieces.append(node.step(op, padded_x))
    return node.reshaped(node.step(Stack(2), *column_pieces), (batch, channels * cells, *window_counts))


def _finished(node: Node, op: Op, weights: Array, x: Value, output_channels: int) -> Value:
    """Add a convolution with the layer's bias, and return its result without the height that `_as_image` added."""
    bias = None
    if node.parameters("convolution_param").bias_term:
        bias = node.constant(node.weights(1, (output_channels,), "bias"))
    convolved = node.step(op, x, node.constant(weights), bias)
    if node.value(0).known.rank == 3:
        batch, channels, _, width = node.shape(convolved)
        return node.reshaped(convolved, (batch, channels, width))
    return convolved


def _axes(node: Node, parameters: Message, x: Value) -> int:
    axes = x.known.rank - 2
    if node.axis(parameters.axis, x) != 1 or not 1 <= axes <= 3:
        node.fail(
            f"its bottom has the shape {x.known.shape} and axis is {parameters.axis}; expected channels on axis 1"
        )
    return axes


def _groups(node: Node, parameters: Message, x: Value) -> int:
    is_depthwise = node.layer.type in {"ConvolutionDepthwise", "DepthwiseConvolution"}
    return node.shape(x)[1] if is_depthwise else int(parameters.group)


def _as_image(node: Node, x: Value, window: Windows) -> tuple[Value, Windows]:
    """Return the input and the window with a height of 1 if they have one spatial axis, else unchanged."""
    if len(window.kernel) > 1:
        return x, window
    batch, channels, width = node.shape(x)
    image = node.reshaped(x, (batch, channels, 1, width))
    return image, Windows(*((first, *sizes) for first, sizes in zip((1, 1, 1, 0, 0), window, strict=True)))


# --- windows ----------------------------------------------------------------------------------------------------------


_LARGEST: Final = 2**31 - 1


def windows(node: Node, parameters: Message, axes: int) -> Windows:
    """Return the window of a layer over `axes` spatial axes.

    A size is given for all axes at once, for each axis, or for images in fields such as ``kernel_h``. Both ends of an
    axis have the same pad.
    """
    kernel = _sizes(node, parameters, "kernel_size", ("kernel_h", "kernel_w"), axes, None)
    strides = _sizes(node, parameters, "stride", ("stride_h", "stride_w"), axes, 1)
    pads = _sizes(node, parameters, "pad", ("pad_h", "pad_w"), axes, 0)
    dilations = _sizes(node, parameters, *_dilation(parameters), axes, 1)
    if (
        min(kernel) < 1
        or min(strides) < 1
        or min(dilations) < 1
        or max(*kernel, *strides, *pads, *dilations) > _LARGEST
    ):
        node.fail(f"it has the window {list(kernel)}, strides {list(strides)} and dilations {list(dilations)}")
    return Windows(kernel, strides, dilations, pads, pads)


def _dilation(parameters: Message) -> tuple[str, tuple[str, ...]]:
    """Return the fields with the dilations: ``hole`` in DeepLab's version of Caffe, else ``dilation``."""
    holes = ("hole_h", "hole_w")
    names = {field.name for field, _ in parameters.ListFields()}
    return ("hole", holes if names.intersection(holes) else ()) if names & {"hole", *holes} else ("dilation", ())


def _sizes(
    node: Node, parameters: Message, name: str, axis_fields: Sequence[str], axes: int, default: int | None
) -> tuple[int, ...]:
    """Return a size for each spatial axis: the fields `axis_fields` if set, else the field `name`, else `default`."""
    if any(parameters.HasField(field) for field in axis_fields):
        if axes != 2:
            node.fail(f"{axis_fields[0]} and {axis_fields[1]} are for images, but it has {axes} spatial axes")
        return tuple(
            getattr(parameters, field) if parameters.HasField(field) else default or 0 for field in axis_fields
        )
    values = list(getattr(parameters, name, ()))
    if not values and default is None:
        node.fail(f"it has no {name}")
    if len(values) not in (0, 1, axes):
        node.fail(f"{name} has {len(values)} numbers; it has {axes} spatial axes")
    return tuple(values * (axes if len(values) == 1 else 1) or [default or 0] * axes)


# --- matrix products --------------------------------------------------------------------------------------------------


@layer("InnerProduct")
def inner_product(node: Node) -> Value:
    """Convert InnerProduct: the axes from ``axis`` on are flattened and multiplied with the weights."""
    parameters, shape = node.parameters("inner_product_param"), node.shape()
    axis = node.axis(parameters.axis)
    depth, outputs = math.prod(shape[axis:]), parameters.num_output
    size = (depth, outputs) if parameters.transpose else (outputs, depth)
    weights = node.constant(node.weights(0, size, "weights"))
    bias = None
    if parameters.bias_term:
        bias = node.constant(node.weights(1, (outputs,), "bias"))
    rows = node.reshaped(node.only_value, (math.prod(shape[:axis]), depth))
    product = node.step(FullyConnected(transpose_weight_matrix=not parameters.transpose), rows, weights, bias)
    return node.reshaped(product, (*shape[:axis], outputs))


@layer("Embed")
def embedding(node: Node) -> Value:
    """Convert Embed: the row of the weights that each number of the bottom selects, and the bias."""
    parameters = node.parameters("embed_param")
    outputs = parameters.num_output
    weights = node.constant(node.weights(0, (parameters.input_dim, outputs), "weights"))
    embedded = node.step(Gather(axis=0), weights, node.step(Cast(DataType.INT32), node.only_value))
    if not parameters.bias_term:
        return embedded
    bias = node.constant(node.weights(1, (outputs,), "bias"))
    return node.binary(BinaryOperation.ADD, embedded, bias)

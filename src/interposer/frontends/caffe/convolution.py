"""Caffe converters for convolutions; a convolution with one spatial axis becomes one over images of height 1."""

from __future__ import annotations

from typing import NamedTuple

from interposer.core.schema import Op
from interposer.core.types import Array, DataLayout
from interposer.frontends.caffe.caffe_converters import layer
from interposer.frontends.caffe.node import Node
from interposer.frontends.caffe.proto import Message
from interposer.frontends.caffe.windows import windows
from interposer.frontends.windows import Windows
from interposer.ir.graph import Value
from interposer.ops.convolution import Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d
from interposer.ops.convolution3d import Convolution3d

__all__: list[str] = []


@layer("Convolution", "ConvolutionDepthwise", "DepthwiseConvolution")
def convolution(node: Node) -> list[Value]:
    """Convert Convolution over one to three spatial axes, in groups or depthwise; every bottom has its own top.

    The types ConvolutionDepthwise and DepthwiseConvolution of forks have as many groups as channels.
    """
    return [_convolved(node, x) for x in node.inputs]


class _Geometry(NamedTuple):
    """The input of a convolution as an image or a volume, its window, and its numbers of groups and channels."""

    x: Value
    window: Windows
    groups: int
    channels: int
    outputs: int


def _geometry(node: Node, x: Value) -> _Geometry:
    parameters = node.parameters("convolution_param")
    groups = _groups(node, parameters, x)
    x, window = _as_image(node, x, windows(node, parameters, _axes(node, parameters, x)))
    channels, outputs = node.shape(x)[1], parameters.num_output
    if not groups or channels % groups or outputs % groups:
        node.fail(f"its {channels} channels and {outputs} outputs cannot be divided into {groups} groups")
    return _Geometry(x, window, groups, channels, outputs)


def _convolved(node: Node, x: Value) -> Value:
    x, window, groups, channels, outputs = _geometry(node, x)
    weights = node.weights(0, (outputs, channels // groups, *window.kernel), "weights")
    return _finished(node, *_operator(window, groups, channels, weights), x, outputs)


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
    """Convert Deconvolution over one or two spatial axes, in groups; every bottom has its own top."""
    return [_deconvolved(node, x) for x in node.inputs]


def _deconvolved(node: Node, x: Value) -> Value:
    if _axes(node, node.parameters("convolution_param"), x) > 2:
        node.fail("a deconvolution of volumes is not supported; one over one or two spatial axes is")
    x, window, groups, channels, outputs = _geometry(node, x)
    weights = node.weights(0, (channels, outputs // groups, *window.kernel), "weights")
    op = TransposeConvolution2d(**window.pads(), **window.steps(), groups=groups)
    return _finished(node, op, weights.transpose(1, 0, 2, 3), x, outputs)


def _finished(node: Node, op: Op, weights: Array, x: Value, outputs: int) -> Value:
    """Add a convolution with the layer's bias, and return its result without the height that `_as_image` added."""
    bias = None
    if node.parameters("convolution_param").bias_term:
        bias = node.constant(node.weights(1, (outputs,), "bias"))
    result = node.add(op, x, node.constant(weights), bias)
    if node.inputs[0].known.rank == 3:
        batch, channels, _, width = node.shape(result)
        return node.reshaped(result, (batch, channels, width))
    return result


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

"""Converters of convolutions. Weights and biases are constants of the layer, or inputs since release 22.05."""

from __future__ import annotations

from interposer.core.types import Quantization
from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.frontends.armnn.windows import window
from interposer.ir.graph import Value
from interposer.ops.convolution import Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d
from interposer.ops.convolution3d import Convolution3d
from interposer.ops.rearrange import Transpose
from interposer.ops.reshape import Reshape

__all__ = ["bias_of", "weights_of"]


def weights_of(node: Node) -> Value:
    """Return the weights of a layer: a constant of the layer, or input slot 1."""
    weights = node.stored("weights")
    return weights if weights is not None else node.input(1)


def bias_of(node: Node) -> Value | None:
    """Return the bias of a layer if its descriptor enables it: a constant of the layer, or input slot 2."""
    if not node.descriptor["biasEnabled"]:
        return None
    bias = node.stored("biases", scaled=True)
    return bias if bias is not None else node.input(2)


@layer("Convolution2d")
def convolution(node: Node) -> list[Value]:
    """Convert Convolution2d, whose weights have the layout of the images."""
    op = Convolution2d(**window(node), data_layout=node.layout())
    return node.result(op, node.input(), weights_of(node), bias_of(node))


@layer("DepthwiseConvolution2d")
def depthwise_convolution(node: Node) -> list[Value]:
    """Convert DepthwiseConvolution2d; the layout of its weights depends on the version of the file."""
    weights = weights_of(node)
    if not node.importer.weights_layout:
        weights = _from_multipliers_first(node, weights)
    op = DepthwiseConvolution2d(**window(node), data_layout=node.layout())
    return node.result(op, node.input(), _of_channels(node, weights), bias_of(node))


def _from_multipliers_first(node: Node, weights: Value) -> Value:
    """Return weights of the layout [M, I, H, W] as [1, H, W, I * M]."""
    if weights.known.rank != 4:
        node.fail(f"the weights have the shape {weights.known.shape}; expected [M, I, H, W]")
    multiplier, inputs, height, width = node.shape(weights)
    q, shape = weights.known.quantization, (1, height, width, inputs * multiplier)
    if weights.constant is not None:
        return node.constant(weights.constant.transpose(2, 3, 1, 0).reshape(shape), q and _plain_or_last(q))
    return node.add(Reshape(shape), node.add(Transpose((2, 3, 1, 0)), weights))


def _plain_or_last(q: Quantization) -> Quantization:
    return Quantization(q.scales, q.zero_points, 3) if q.per_axis else q


def _of_channels(node: Node, weights: Value) -> Value:
    """Return weights whose scales for channels, if they have several, belong to the last axis."""
    q = weights.known.quantization
    if q is None or not q.per_axis or q.axis == 3 or weights.constant is None:
        return weights
    return node.constant(weights.constant, _plain_or_last(q))


@layer("TransposeConvolution2d")
def transpose_convolution(node: Node) -> list[Value]:
    """Convert TransposeConvolution2d; files do not store the shape of the output, which its output slot has."""
    info = node.infos[0] if node.infos else node.fail("it has no output slot")
    shape = tuple(info.shape) if info.is_concrete else ()
    op = TransposeConvolution2d(**window(node), data_layout=node.layout(), output_shape=shape)
    return node.result(op, node.input(), weights_of(node), bias_of(node))


@layer("Convolution3d")
def convolution_3d(node: Node) -> list[Value]:
    """Convert Convolution3d, whose weights are always an input."""
    op = Convolution3d(**window(node), data_layout=node.layout(of=("NDHWC", "NCDHW")))
    bias = node.input(2) if node.descriptor["biasEnabled"] else None
    return node.result(op, node.input(), node.input(1), bias)

"""Converters of convolutions. Weights and biases are constants of the layer, or inputs since release 22.05."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.core.types import Quantization, TensorInfo
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
    return weights if weights is not None else node.value(1)


def bias_of(node: Node) -> Value | None:
    """Return the bias of a layer if its descriptor enables it: a constant of the layer, or input slot 2."""
    if not node.descriptor["biasEnabled"]:
        return None
    bias = node.stored("biases", scaled=True)
    return bias if bias is not None else node.value(2)


@layer("Convolution2d")
def convolution(node: Node) -> list[Value]:
    """Convert Convolution2d, whose weights have the layout of the images."""
    op = Convolution2d(**window(node), data_layout=node.layout())
    return node.results(op, node.value(0), weights_of(node), bias_of(node))


@layer("DepthwiseConvolution2d")
def depthwise_convolution(node: Node) -> list[Value]:
    """Convert DepthwiseConvolution2d; the layout of its weights depends on the version of the file."""
    op = DepthwiseConvolution2d(**window(node), data_layout=node.layout())
    return node.results(op, node.value(0), _depthwise_weights(node), bias_of(node))


def _depthwise_weights(node: Node) -> Value:
    """Return weights of the shape [1, H, W, I * M], whose scales belong to the last axis."""
    stored = node.raw("weights")
    if stored is None:
        weights = node.value(1)
        return weights if node.importer.weights_layout else _from_multipliers_first(node, weights)
    array, q = stored
    if not node.importer.weights_layout:
        array = array.transpose(2, 3, 1, 0).reshape(_merged(node, array.shape))
    q = Quantization(q.scales, q.zero_points, 3) if q is not None and q.per_axis else q
    return node.constant(array, q)


def _merged(node: Node, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape [1, H, W, I * M] for weights of the shape [M, I, H, W]."""
    if len(shape) != 4:
        node.fail(f"the weights have the shape {list(shape)}; expected [M, I, H, W]")
    multiplier, inputs, height, width = shape
    return (1, height, width, inputs * multiplier)


def _from_multipliers_first(node: Node, weights: Value) -> Value:
    """Return weights of the layout [M, I, H, W], which are an input, as [1, H, W, I * M]."""
    shape = _merged(node, node.shape(weights))
    return node.step(Reshape(shape), node.step(Transpose((2, 3, 1, 0)), weights))


@layer("TransposeConvolution2d")
def transpose_convolution(node: Node) -> list[Value]:
    """Convert TransposeConvolution2d.

    Files do not store the shape of the output, which its output slot has, unless the padding determines it.
    """
    info = node.infos[0] if node.infos else node.fail("it has no output slot")
    shape = tuple(info.shape) if info.is_concrete and 0 not in info.shape else None
    x, weights, bias = node.value(0), weights_of(node), bias_of(node)
    op = TransposeConvolution2d(**window(node), data_layout=node.layout())
    [inferred] = _inferred(op, x, weights, bias)
    if shape is not None and (inferred is None or tuple(inferred.shape) != shape):
        op = op.replace(output_shape=shape)
    return node.results(op, x, weights, bias)


def _inferred(op: TransposeConvolution2d, *values: Value | None) -> Sequence[TensorInfo | None]:
    """Return the infos of an operator's results, or None if it does not accept its operands."""
    infos = [None if value is None else value.known for value in values]
    return [None] if op.violations(*infos) else op.infer_infos(*infos)


@layer("Convolution3d")
def convolution_3d(node: Node) -> list[Value]:
    """Convert Convolution3d, whose weights are always an input."""
    op = Convolution3d(**window(node), data_layout=node.layout(of=("NDHWC", "NCDHW")))
    bias = node.value(2) if node.descriptor["biasEnabled"] else None
    return node.results(op, node.value(0), node.value(1), bias)

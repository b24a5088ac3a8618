"""Caffe converters for normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from interposer.core.types import Array
from interposer.frontends.caffe.caffe_converters import layer
from interposer.frontends.caffe.node import Node
from interposer.frontends.caffe.proto import Message
from interposer.frontends.caffe.schema import ENUMS
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.elementwise import BinaryOperation
from interposer.ops.normalization import BatchNormalization, MeanVarianceNormalization, Normalization
from interposer.ops.pooling import PaddingMethod, Pooling2d, PoolingAlgorithm
from interposer.ops.reduction import Mean, Reduce, ReduceOperation

__all__: list[str] = []


@layer("BatchNorm")
def batch_normalization(node: Node) -> Value:
    """Convert BatchNorm with the means and variances that were recorded in training, or with those of the batch.

    The blobs are sums of means and variances, and the number by which both are divided. NVIDIA's Caffe adds factors
    and a bias for every channel.
    """
    parameters, x = node.parameters("batch_norm_param"), node.only_value
    if parameters.HasField("use_global_stats") and not parameters.use_global_stats:
        return _normalized_by_batch(node, parameters.eps)
    channels = _channels(node, x)
    mean, variance, factor = (node.blob(i, "recorded mean, variance and factor").ravel() for i in range(3))
    factors, shift = _factors_and_shift(node, channels)
    sizes = [blob.size for blob in (mean, variance, factor, factors, shift)]
    if sizes != [channels, channels, 1, channels, channels] or len(node.layer.blobs) not in (3, 5):
        shapes = [list(blob.shape) for blob in node.layer.blobs]
        node.fail(
            f"its blobs have the shapes {shapes}; expected a mean and variance of {channels} channels and a factor"
        )
    scale = np.float32(1 / factor[0] if factor[0] else 0)
    weights = [node.constant(array) for array in (mean * scale, variance * scale, shift, factors)]
    return node.result(BatchNormalization(eps=parameters.eps), x, *weights)


def _channels(node: Node, x: Value) -> int:
    return node.shape(x)[1] if x.known.rank > 1 else 1


def _factors_and_shift(node: Node, channels: int) -> tuple[Array, Array]:
    """Return the fourth and fifth blob of a layer as vectors, or ones and zeros."""
    if len(node.layer.blobs) == 5:
        return node.layer.blobs[3].ravel(), node.layer.blobs[4].ravel()
    return np.ones(channels, np.float32), np.zeros(channels, np.float32)


def _normalized_by_batch(node: Node, eps: float) -> Value:
    """Return the input, normalized by the mean and variance of each channel over the whole batch."""
    if len(node.layer.blobs) > 3:
        node.fail("use_global_stats is false: a layer with factors and a bias needs recorded statistics")
    x = node.only_value
    axes = (0, *range(2, x.known.rank))
    difference = node.binary(BinaryOperation.SUB, x, node.step(Mean(axis=axes, keep_dims=True), x))
    squares = node.binary(BinaryOperation.MUL, difference, difference)
    variance = node.step(Mean(axis=axes, keep_dims=True), squares)
    deviation = node.step(Activation(ActivationFunction.SQRT), node.binary(BinaryOperation.ADD, variance, eps))
    return node.binary(BinaryOperation.DIV, difference, deviation)


@layer("BN")
def bn(node: Node) -> Value:
    """Convert BN of SegNet, whose blobs are factors and a bias, and of PSPNet, where mean and variance follow them."""
    parameters, x = node.parameters("bn_param"), node.only_value
    channels, count = _channels(node, x), len(node.layer.blobs)
    factors, shift = (node.weights(i, (channels,), "factors and bias") for i in range(2))
    if count == 4:
        mean, variance = (node.weights(i, (channels,), "mean and variance") for i in (2, 3))
        weights = [node.constant(array) for array in (mean, variance, shift, factors)]
        return node.result(BatchNormalization(eps=parameters.eps), x, *weights)
    if count != 2 or parameters.bn_mode != ENUMS["BnMode"]["INFERENCE"]:
        node.fail(f"it has {count} blobs; expected 2 with the bn_mode INFERENCE, or 4 with mean and variance")
    return _scaled(node, x, factors, shift)


def _scaled(node: Node, x: Value, factors: Array, shift: Array) -> Value:
    """Multiply each channel by a factor and add a number, in a form that the optimizer merges into a convolution."""
    zeros, ones = np.zeros(len(factors), np.float32), np.ones(len(factors), np.float32)
    parameters = [node.constant(array) for array in (zeros, ones, shift, factors)]
    return node.result(BatchNormalization(eps=0.0), x, *parameters)


@layer("Scale")
def scale(node: Node) -> Value:
    """Convert Scale: multiply by weights, or by the second bottom, along some axes, and add a bias if there is one."""
    parameters = node.parameters("scale_param")
    x = node.value(0)
    if node.num_inputs == 1 and node.axis(parameters.axis) == parameters.num_axes == 1:
        channels = _channels(node, x)
        factors = node.weights(0, (channels,), "scales")
        shift = node.weights(1, (channels,), "bias") if parameters.bias_term else np.zeros(channels, np.float32)
        return _scaled(node, x, factors, shift)
    scaled = node.binary(BinaryOperation.MUL, x, _factor(node, parameters, 0, "scale"))
    if parameters.bias_term:
        array = node.blob(len(node.layer.blobs) - 1 if node.num_inputs == 2 else 1, "bias")
        shape = _placed(node, parameters, array, node.shape(node.value(1)) if node.num_inputs == 2 else None)
        scaled = node.binary(BinaryOperation.ADD, scaled, node.constant(array.reshape(shape)))
    return scaled


@layer("Bias")
def bias(node: Node) -> Value:
    """Convert Bias: add weights, or the second bottom, along some axes."""
    addend = _factor(node, node.parameters("bias_param"), 0, "bias")
    return node.binary(BinaryOperation.ADD, node.value(0), addend)


def _factor(node: Node, parameters: Message, index: int, title: str) -> Value:
    """Return the second operand of a layer, with axes of size 1 so that it is broadcast to the first bottom."""
    if node.num_inputs == 2:
        factor = node.value(1)
        shape = node.shape(factor)
        axis = node.axis(parameters.axis, node.value(0)) if shape else 0
        return node.reshaped(factor, _padded(node, shape, axis))
    if node.num_inputs != 1:
        node.fail(f"it has {node.num_inputs} bottoms; expected 1 or 2")
    array = node.blob(index, title)
    return node.constant(array.reshape(_placed(node, parameters, array, None)))


def _placed(node: Node, parameters: Message, array: Array, like: Sequence[int] | None) -> tuple[int, ...]:
    """Return the shape in which weights are broadcast to the first bottom: sizes along the layer's axes, then ones.

    `like` is the shape of the second bottom, if there is one.
    """
    sizes = node.shape(node.value(0))
    axis = node.axis(parameters.axis, node.value(0))
    if like is None:
        count = len(sizes) - axis if parameters.num_axes == -1 else parameters.num_axes
        like = sizes[axis : axis + count]
        if count < 0 or len(like) != count:
            node.fail(f"axis is {parameters.axis} and num_axes {parameters.num_axes}, but its bottom has {list(sizes)}")
    if array.size != int(np.prod(like)):
        node.fail(f"its weights have the shape {list(array.shape)}; expected {list(like)}")
    return _padded(node, like, axis)


def _padded(node: Node, shape: Sequence[int], axis: int) -> tuple[int, ...]:
    rank = len(node.shape(node.value(0)))
    if axis + len(shape) > rank:
        node.fail(f"{len(shape)} axes from axis {axis} on exceed its bottom, which has {rank}")
    return (*shape, *[1] * (rank - axis - len(shape)))


@layer("LRN")
def local_response_normalization(node: Node) -> Value:
    """Convert LRN across channels, or within each channel, where Caffe divides by the mean of a padded window."""
    parameters, x = node.parameters("lrn_param"), node.image()
    size = parameters.local_size
    if size % 2 == 0:
        node.fail(f"local_size is {size}; expected an odd number")
    if parameters.norm_region == ENUMS["NormRegion"]["ACROSS_CHANNELS"]:
        op = Normalization(norm_size=size, alpha=parameters.alpha / size, beta=parameters.beta, k=parameters.k)
        return node.result(op, x)
    mean = node.step(_window_mean(size), node.binary(BinaryOperation.MUL, x, x))
    base = node.step(Activation(ActivationFunction.LINEAR, a=parameters.alpha, b=1.0), mean)
    return node.binary(BinaryOperation.MUL, x, node.binary(BinaryOperation.POWER, base, -parameters.beta))


def _window_mean(size: int) -> Pooling2d:
    pads: dict[str, Any] = dict.fromkeys(("pad_left", "pad_right", "pad_top", "pad_bottom"), size // 2)
    window: dict[str, Any] = {"pool_width": size, "pool_height": size, "stride_x": 1, "stride_y": 1}
    return Pooling2d(pool_type=PoolingAlgorithm.AVERAGE, **window, **pads, padding_method=PaddingMethod.IGNORE_VALUE)


@layer("MVN")
def mean_variance_normalization(node: Node) -> Value:
    """Convert MVN: subtract the mean of each channel or image, and divide by the standard deviation plus epsilon."""
    parameters, x = node.parameters("mvn_param"), node.only_value
    axes = tuple(range(1 if parameters.across_channels else 2, x.known.rank))
    if parameters.normalize_variance:
        return node.result(MeanVarianceNormalization(axis=axes, eps=parameters.eps), x)
    return node.binary(BinaryOperation.SUB, x, node.step(Mean(axis=axes, keep_dims=True), x))


@layer("Normalize")
def normalize(node: Node) -> Value:
    """Convert Normalize of SSD: divide by the L2 norm of each image or each pixel, and multiply by scales."""
    parameters, x = node.parameters("norm_param"), node.image()
    axes = (1, 2, 3) if parameters.across_spatial else (1,)
    squares = node.step(
        Reduce(axis=axes, keep_dims=True, operation=ReduceOperation.SUM), node.binary(BinaryOperation.MUL, x, x)
    )
    norm = node.step(Activation(ActivationFunction.SQRT), node.binary(BinaryOperation.ADD, squares, parameters.eps))
    scales = node.blob(0, "scales").ravel()
    if len(scales) not in (1, node.shape(x)[1]):
        node.fail(f"it has {len(scales)} scales for {node.shape(x)[1]} channels")
    quotient = node.binary(BinaryOperation.DIV, x, norm)
    return node.binary(BinaryOperation.MUL, quotient, node.constant(scales.reshape(-1, 1, 1)))

"""TensorFlow converters for normalization."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.types import DataLayout, DataType
from interposer.frontends.elementwise import SQ_DIFF
from interposer.frontends.reshaping import reshaped
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Division, Maximum, Multiplication, Subtraction
from interposer.ops.normalization import BatchNormalization, Normalization
from interposer.ops.reduction import Mean, Reduce, ReduceOperation
from interposer.ops.reshape import Shape

__all__: list[str] = []

_OUTPUTS: Final = ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2", "reserve_space_3")
_LAYOUTS: Final = {
    "NHWC": DataLayout.NHWC,
    "NCHW": DataLayout.NCHW,
    "NDHWC": DataLayout.NDHWC,
    "NCDHW": DataLayout.NCDHW,
}


@operator("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", outputs=_OUTPUTS)
def batch_norm(node: Node) -> list[Value]:
    """Convert FusedBatchNorm; with is_training, mean and variance are those of the batch.

    The results for mean and variance are the running ones then: TensorFlow mixes those of the batch, of which the
    variance is the unbiased one, with the operands.
    """
    x, gamma, beta = node.value(0), node.value(1), node.value(2)
    name = node.text("data_format", "NHWC")
    if name not in _LAYOUTS:
        node.unsupported(f"its data_format is {name!r}")
    layout = _LAYOUTS[name]
    is_training = node.flag("is_training", True)
    mean, variance = _moments(node, x, layout) if is_training else (node.value(3), node.value(4))
    op = BatchNormalization(node.number("epsilon", float(np.float32(1e-4))), layout)
    x = node.cast(x, gamma.known.dtype)
    normalized = node.result(op, x, mean, variance, beta, gamma)
    moments = (mean, variance)
    if is_training:
        moments = _running(node, 3, mean), _running(node, 4, _unbiased(node, node.value(0), variance))
    return [node.cast(normalized, node.info(0).dtype), *moments, mean, variance, mean]


def _running(node: Node, operand: int, moment: Value) -> Value:
    """Return the new running mean or variance: (1 - factor) times the old one plus factor times that of the batch.

    `operand` is the index of the old one. Without the attribute `exponential_avg_factor`, the factor is 1, and the
    result is `moment`, that of the batch.
    """
    factor = node.number("exponential_avg_factor", 1.0)
    if factor == 1:
        return moment
    old_part = node.step(Multiplication(), node.value(operand), node.scalar_like(1 - factor, moment))
    return node.step(Addition(), old_part, node.step(Multiplication(), moment, node.scalar_like(factor, moment)))


def _unbiased(node: Node, x: Value, variance: Value) -> Value:
    """Return the variance of a batch divided by one less than the number of elements of a channel."""
    sizes = node.cast(node.step(Shape(DataType.INT64), x), variance.known.dtype)
    elements = node.step(Reduce((0,), operation=ReduceOperation.PROD), sizes)
    channels = node.cast(node.step(Shape(DataType.INT64), variance), variance.known.dtype)
    count = node.step(Division(), elements, channels)
    one = node.scalar_like(1, variance)
    count_less_one = node.step(Maximum(), node.step(Subtraction(), count, one), one)
    return node.step(Multiplication(), variance, node.step(Division(), count, count_less_one))


def _moments(node: Node, x: Value, layout: DataLayout) -> tuple[Value, Value]:
    channel = x.known.rank - 1 if layout.channels_last else 1
    axes = tuple(axis for axis in range(x.known.rank) if axis != channel)
    mean = node.step(Mean(axes, keep_dims=True), x)
    squares = node.step(SQ_DIFF, x, mean)
    return reshaped(node, mean, [-1]), node.step(Mean(axes), squares)


@operator("BatchNormWithGlobalNormalization")
def batch_norm_of_old_graphs(node: Node) -> Value:
    """Convert BatchNormWithGlobalNormalization, whose operands are input, mean, variance, beta and gamma."""
    x, mean, variance, beta, gamma = (node.value(index) for index in range(5))
    if not node.flag("scale_after_normalization"):
        gamma = node.constant(np.ones(beta.known.shape, beta.known.dtype.numpy))
    op = BatchNormalization(node.number("variance_epsilon"), DataLayout.NHWC)
    return node.result(op, x, mean, variance, beta, gamma)


@operator("LRN")
def local_response_normalization(node: Node) -> Value:
    """Convert LRN: the window spans depth_radius channels before and after each channel."""
    op = Normalization(
        norm_size=2 * node.integer("depth_radius", 5) + 1,
        alpha=node.number("alpha", 1.0),
        beta=node.number("beta", 0.5),
        k=node.number("bias", 1.0),
        data_layout=DataLayout.NHWC,
    )
    return node.result(op, node.value(0))

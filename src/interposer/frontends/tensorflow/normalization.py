"""TensorFlow converters for normalization."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.types import DataLayout
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.shaping import reshaped
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.elementwise import BinaryOperation, ElementwiseBinary
from interposer.ops.normalization import BatchNormalization, Normalization
from interposer.ops.reduction import Mean

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
    """Convert FusedBatchNorm; with is_training, mean and variance are those of the batch."""
    x, gamma, beta = node.value(0), node.value(1), node.value(2)
    name = node.text("data_format", "NHWC")
    if name not in _LAYOUTS:
        node.unsupported(f"its data_format is {name!r}")
    layout = _LAYOUTS[name]
    mean, variance = _moments(node, x, layout) if node.flag("is_training", True) else (node.value(3), node.value(4))
    op = BatchNormalization(node.number("epsilon", float(np.float32(1e-4))), layout)
    x = node.cast(x, gamma.known.dtype)
    normal = node.add(op, x, mean, variance, beta, gamma)
    return [node.cast(normal, node.info(0).dtype), mean, variance, mean, variance, mean]


def _moments(node: Node, x: Value, layout: DataLayout) -> tuple[Value, Value]:
    channel = x.known.rank - 1 if layout.channels_last else 1
    axes = tuple(axis for axis in range(x.known.rank) if axis != channel)
    mean = node.step(Mean(axes, keep_dims=True), x)
    squares = node.step(ElementwiseBinary(BinaryOperation.SQ_DIFF), x, mean)
    return reshaped(node, mean, [-1]), node.step(Mean(axes), squares)


@operator("BatchNormWithGlobalNormalization")
def batch_norm_of_old_graphs(node: Node) -> Value:
    """Convert BatchNormWithGlobalNormalization, whose operands are input, mean, variance, beta and gamma."""
    x, mean, variance, beta, gamma = (node.value(index) for index in range(5))
    if not node.flag("scale_after_normalization"):
        gamma = node.constant(np.ones(beta.known.shape, beta.known.dtype.numpy))
    op = BatchNormalization(node.number("variance_epsilon"), DataLayout.NHWC)
    return node.add(op, x, mean, variance, beta, gamma)


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
    return node.add(op, node.value(0))

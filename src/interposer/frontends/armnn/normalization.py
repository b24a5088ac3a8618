"""Converters of normalizations and of softmax."""

from __future__ import annotations

import numpy as np

from interposer.formats.armnn.schema import NORMALIZATION_CHANNELS, NORMALIZATION_METHODS
from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.ir.graph import Value
from interposer.ops.activation import LogSoftmax, Softmax
from interposer.ops.normalization import (
    BatchNormalization,
    InstanceNormalization,
    L2Normalization,
    Normalization,
    NormalizationAlgorithmChannel,
    NormalizationAlgorithmMethod,
)

__all__: list[str] = []


@layer("Softmax")
def softmax(node: Node) -> list[Value]:
    """Convert Softmax; files of 20.08 have no axis, and mean the last one."""
    return node.results(Softmax(float(node.descriptor["beta"]), node.descriptor["axis"]), node.tensor(0))


@layer("LogSoftmax")
def log_softmax(node: Node) -> list[Value]:
    """Convert LogSoftmax."""
    return node.results(LogSoftmax(float(node.descriptor["beta"]), node.descriptor["axis"]), node.tensor(0))


@layer("BatchNormalization")
def batch_normalization(node: Node) -> list[Value]:
    """Convert BatchNormalization, whose statistics are constants of the layer."""
    op = BatchNormalization(eps=float(node.descriptor["eps"]), data_layout=node.layout())
    constants = [node.stored(field) or _missing(node, field) for field in ("mean", "variance", "beta", "gamma")]
    return node.results(op, node.value(0), *constants)


def _missing(node: Node, field: str) -> Value:
    node.fail(f"it has no {field}")


@layer("InstanceNormalization")
def instance_normalization(node: Node) -> list[Value]:
    """Convert InstanceNormalization, whose gamma and beta are numbers of the descriptor."""
    fields, x = node.descriptor, node.value(0)
    dtype = x.known.dtype.numpy if x.known.dtype.is_float else np.dtype(np.float32)
    gamma, beta = (node.constant(np.array([fields[name]]).astype(dtype)) for name in ("gamma", "beta"))
    op = InstanceNormalization(eps=float(fields["eps"]), data_layout=node.layout())
    return node.results(op, x, gamma, beta)


@layer("L2Normalization")
def l2_normalization(node: Node) -> list[Value]:
    """Convert L2Normalization."""
    op = L2Normalization(eps=float(node.descriptor["eps"]), data_layout=node.layout())
    return node.results(op, node.value(0))


@layer("Normalization")
def normalization(node: Node) -> list[Value]:
    """Convert Normalization, a local response normalization; a window of even size has one more element in Arm NN."""
    fields = node.descriptor
    op = Normalization(
        channel_type=node.member("normChannelType", NORMALIZATION_CHANNELS, NormalizationAlgorithmChannel),
        method_type=node.member("normMethodType", NORMALIZATION_METHODS, NormalizationAlgorithmMethod),
        norm_size=fields["normSize"] // 2 * 2 + 1,
        alpha=float(fields["alpha"]),
        beta=float(fields["beta"]),
        k=float(fields["k"]),
        data_layout=node.layout(),
    )
    return node.results(op, node.value(0))

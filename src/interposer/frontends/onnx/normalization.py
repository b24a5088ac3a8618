"""Operators that bring elements to a common scale."""

from __future__ import annotations

from interposer.errors import ParseError
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.registry import operator
from interposer.ir.graph import Value
from interposer.ops.elementwise import Division
from interposer.ops.normalization import (
    BatchNormalization,
    InstanceNormalization,
    L2Normalization,
    LayerNormalization,
    Normalization,
)
from interposer.ops.reduction import Reduce, ReduceOperation

__all__: list[str] = []


@operator("BatchNormalization")
def batch_normalization(node: Node) -> Value:
    """Only the inference form, with one statistic for each channel."""
    if node.flag("training_mode"):
        node.unsupported("it is in training mode")
    if node.version < 9 and not node.flag("spatial", True):
        node.unsupported("it has statistics for each element (spatial = 0)")
    x, gamma, beta, mean, variance = (node.value(i) for i in range(5))
    return node.add(BatchNormalization(node.number("epsilon", 1e-5)), x, mean, variance, beta, gamma)


@operator("InstanceNormalization")
def instance_normalization(node: Node) -> Value:
    """By each sample's own statistics."""
    op = InstanceNormalization(node.number("epsilon", 1e-5))
    return node.add(op, node.value(0), node.value(1), node.value(2))


@operator("LayerNormalization", since=17)
def layer_normalization(node: Node) -> Value:
    """The mean and deviation that it may give as well are not supported."""
    op = LayerNormalization(node.integer("axis", -1), node.number("epsilon", 1e-5))
    return node.add(op, node.value(0), node.value(1), node.optional(2))


@operator("LRN")
def local_response_normalization(node: Node) -> Value:
    """Its alpha is for the mean of the squares, ours for their sum."""
    size = node.integer("size")
    if size < 1:
        raise ParseError(f"its size is {size}; expected 1 or more")
    op = Normalization(
        norm_size=size,
        alpha=node.number("alpha", 1e-4) / size,
        beta=node.number("beta", 0.75),
        k=node.number("bias", 1.0),
    )
    return node.add(op, node.value(0))


@operator("LpNormalization")
def lp_normalization(node: Node) -> Value:
    """Divided by the sum of the absolute values, or by the Euclidean length."""
    axis, p = node.integer("axis", -1), node.integer("p", 2)
    if p == 2:
        return node.add(L2Normalization(1e-30, axis=axis), node.value(0))
    if p != 1:
        raise ParseError(f"p is {p}; expected 1 or 2")
    norm = node.step(Reduce((axis,), keep_dims=True, operation=ReduceOperation.L1), node.value(0))
    return node.add(Division(), node.value(0), norm)

"""ONNX converters for normalization operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.schema import Op
from interposer.core.types import DataType
from interposer.frontends.axes import checked_axis
from interposer.frontends.elementwise import RSQRT, SQ_DIFF
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.tensors import data_type
from interposer.frontends.reshaping import final_reshape_like, reshaped
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Division, Multiplication
from interposer.ops.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    L2Normalization,
    LayerNormalization,
    MeanVarianceNormalization,
    Normalization,
    RmsNormalization,
)
from interposer.ops.quantization import Cast
from interposer.ops.reduction import Mean, Reduce, ReduceOperation

__all__: list[str] = []


@operator("BatchNormalization")
def batch_normalization(node: Node) -> Value | Sequence[Value]:
    """Convert BatchNormalization, with one mean and variance per channel; in training mode, with those of the batch."""
    if node.flag("training_mode"):
        return _normalized_by_batch(node)
    if node.version < 9 and not node.flag("spatial", True):
        node.unsupported("it has statistics for each element (spatial = 0)")
    x, gamma, beta, mean, variance = (node.value(i) for i in range(5))
    return node.result(BatchNormalization(node.number("epsilon", 1e-5)), x, mean, variance, beta, gamma)


def _normalized_by_batch(node: Node) -> Sequence[Value]:
    """Return the three results of training mode: the output, and the updated running mean and variance.

    The input is normalized with the mean and the variance of the batch, which are also mixed into the running ones.
    """
    x, gamma, beta, *running_statistics = (node.value(i) for i in range(5))
    mean_op = Mean((0, *range(2, x.known.rank)))
    mean = node.step(mean_op, x)
    broadcast_mean = reshaped(node, mean, [1, -1, *[1] * (x.known.rank - 2)])
    variance = node.step(mean_op, node.step(SQ_DIFF, x, broadcast_mean))
    normalized = node.result(BatchNormalization(node.number("epsilon", 1e-5)), x, mean, variance, beta, gamma)
    return [
        normalized,
        *(_updated_statistic(node, old, new) for old, new in zip(running_statistics, (mean, variance), strict=True)),
    ]


def _updated_statistic(node: Node, old: Value, new: Value) -> Value:
    momentum, dtype = node.number("momentum", 0.9), old.known.dtype
    new = new if new.known.dtype is dtype else node.step(Cast(dtype), new)
    old_part = node.step(Multiplication(), old, node.scalar_like(momentum, old))
    return node.step(Addition(), old_part, node.step(Multiplication(), new, node.scalar_like(1 - momentum, new)))


@operator("InstanceNormalization")
def instance_normalization(node: Node) -> Value:
    """Convert InstanceNormalization, with the mean and variance of each sample and channel."""
    op = InstanceNormalization(node.number("epsilon", 1e-5))
    return node.result(op, node.value(0), node.value(1), node.value(2))


@operator("LayerNormalization", since=17)
def layer_normalization(node: Node) -> Sequence[Value]:
    """Convert LayerNormalization; the mean and inverse deviation, if used, are separate layers in the stash type."""
    x, axis, epsilon = node.value(0), node.integer("axis", -1), node.number("epsilon", 1e-5)
    normalized = _normalized_in_stash_type(node, LayerNormalization(axis, epsilon), node.value(1), node.optional(2))
    if not (node.wants(1) or node.wants(2)):
        return [normalized]
    stash_type = _stash_type(node)
    stashed = x if x.known.dtype is stash_type else node.step(Cast(stash_type), x)
    mean_op = Mean(tuple(range(checked_axis(axis, x.known.rank), x.known.rank)), keep_dims=True)
    mean = node.step(mean_op, stashed)
    squares = node.step(SQ_DIFF, stashed, mean)
    variance = node.step(Addition(), node.step(mean_op, squares), node.scalar_like(epsilon, stashed))
    return [normalized, mean, node.step(RSQRT, variance)]


def _stash_type(node: Node) -> DataType:
    return data_type(node.integer("stash_type", 1))


def _normalized_in_stash_type(node: Node, op: Op, scale: Value, *bias: Value | None) -> Value:
    """Return a normalization `op` of the input in the stash type, then scaled and shifted in the input's type.

    If the kernels use this precision anyway, one layer computes all of it.
    """
    x, stash_type = node.value(0), _stash_type(node)
    dtype = x.known.dtype
    if stash_type is dtype or (
        stash_type is DataType.FLOAT32 and dtype.bits < 32
    ):  # the kernels use this precision anyway
        return node.result(op, x, scale, *bias)
    neutral_operands = [
        _filled(node, 1, scale, stash_type),
        *(bias_element and _filled(node, 0, bias_element, stash_type) for bias_element in bias),
    ]
    normalized = node.step(Cast(dtype), node.step(op, node.step(Cast(stash_type), x), *neutral_operands))
    scaled = node.step(Multiplication(), normalized, _by_channel(node, op, scale))
    for bias_tensor in filter(None, bias):
        scaled = node.step(Addition(), scaled, _by_channel(node, op, bias_tensor))
    return scaled


def _filled(node: Node, fill_value: float, like: Value, dtype: DataType) -> Value:
    return node.constant(np.full(node.concrete(like.known.shape, "scale"), fill_value, dtype.numpy))


def _by_channel(node: Node, op: Op, scale_or_bias: Value) -> Value:
    """Return a scale or bias with one element per channel, for a group normalization shaped (C, 1, ...) to broadcast.

    For any other `op` the tensor is returned unchanged, as it broadcasts already.
    """
    if not isinstance(op, GroupNormalization):
        return scale_or_bias
    return reshaped(node, scale_or_bias, [-1, *[1] * (node.info(0).rank - 2)])


@operator("RMSNormalization", since=23)
def rms_normalization(node: Node) -> Value:
    """Convert RMSNormalization: divide by the root mean square."""
    op = RmsNormalization(node.integer("axis", -1), node.number("epsilon", 1e-5))
    return _normalized_in_stash_type(node, op, node.value(1))


@operator("GroupNormalization", since=18)
def group_normalization_by_groups(node: Node) -> Value:
    """Convert GroupNormalization of opset 18, which has one scale and bias per group."""
    shape, groups = node.info(0).shape, _groups(node)
    op = InstanceNormalization(node.number("epsilon", 1e-5))
    grouped = reshaped(node, node.value(0), [shape[0], groups, -1], 1)
    return final_reshape_like(node, node.step(op, grouped, node.value(1), node.value(2)), node.value(0))


@operator("GroupNormalization", since=21)
def group_normalization(node: Node) -> Value:
    """Convert GroupNormalization, which since opset 21 has one scale and bias per channel."""
    op = GroupNormalization(_groups(node), node.number("epsilon", 1e-5))
    return _normalized_in_stash_type(node, op, node.value(1), node.value(2))


def _groups(node: Node) -> int:
    shape, groups = node.info(0).shape, node.integer("num_groups")
    if len(shape) < 3 or groups < 1:
        raise ParseError(f"its input has shape {shape}, and num_groups is {groups}; expected rank 3 and 1, or more")
    return groups


@operator("MeanVarianceNormalization", since=9)
def mean_variance_normalization(node: Node) -> Value:
    """Convert MeanVarianceNormalization; the default axes are those of the batch and the image."""
    return node.result(MeanVarianceNormalization(node.integers("axes", (0, 2, 3))), node.value(0))


@operator("LRN")
def local_response_normalization(node: Node) -> Value:
    """Convert LRN.

    ONNX multiplies alpha with the mean of the squares, `Normalization` layers with their sum.
    """
    size = node.integer("size")
    if size < 1:
        raise ParseError(f"its size is {size}; expected 1 or more")
    op = Normalization(
        norm_size=size,
        alpha=node.number("alpha", 1e-4) / size,
        beta=node.number("beta", 0.75),
        k=node.number("bias", 1.0),
    )
    return node.result(op, node.value(0))


@operator("LpNormalization")
def lp_normalization(node: Node) -> Value:
    """Convert LpNormalization: divide by the L1 or L2 norm."""
    axis, p = node.integer("axis", -1), node.integer("p", 2)
    if p == 2:
        return node.result(L2Normalization(1e-30, axis=axis), node.value(0))
    if p != 1:
        raise ParseError(f"p is {p}; expected 1 or 2")
    norm = node.step(Reduce((axis,), keep_dims=True, operation=ReduceOperation.L1), node.value(0))
    return node.result(Division(), node.value(0), norm)

"""TFLite writers for normalization."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from interposer.core.types import TensorInfo
from interposer.ops.axes import normal_axis
from interposer.ops.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    L2Normalization,
    LayerNormalization,
    MeanVarianceNormalization,
    Normalization,
    NormalizationAlgorithmChannel,
    NormalizationAlgorithmMethod,
    RmsNormalization,
    channel_axis,
)
from interposer.writers.refusals import refuse
from interposer.writers.tflite.activation import check_scale
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []

_EPSILON = 1e-12
"""L2_NORMALIZATION divides by the square root of at least this number."""


@writer(L2Normalization, also_quantized=True)
def l2_normalization(draft: Draft, op: L2Normalization) -> Tensor:
    """Write L2Normalization along the last axis."""
    if op.eps != _EPSILON:
        refuse(f"its eps is {op.eps:g}; L2_NORMALIZATION has {_EPSILON:g}")
    check_scale(draft, (2.0**-7, 128, 2.0**-15))
    return draft.final("L2_NORMALIZATION", draft.operand(0))


@writer(Normalization)
def local_response_normalization(draft: Draft, op: Normalization) -> Tensor:
    """Write Normalization across channels, which must be the last of four axes."""
    across = op.channel_type is NormalizationAlgorithmChannel.ACROSS
    if not across or op.method_type is not NormalizationAlgorithmMethod.LOCAL_BRIGHTNESS:
        refuse("TFLite normalizes across channels by brightness only")
    if op.norm_size % 2 == 0:
        refuse(f"its norm_size is {op.norm_size}; LOCAL_RESPONSE_NORMALIZATION has a radius, and so odd ones")
    if draft.rank != 4:
        refuse(f"its input has rank {draft.rank}; LOCAL_RESPONSE_NORMALIZATION takes rank 4")
    fields = {"radius": op.norm_size // 2, "bias": op.k, "alpha": op.alpha, "beta": op.beta}
    return draft.final("LOCAL_RESPONSE_NORMALIZATION", draft.operand(0), **fields)


@writer(BatchNormalization)
def batch_normalization(draft: Draft, op: BatchNormalization) -> Tensor:
    """Write BatchNormalization as a factor and an offset per channel."""
    x, *statistics = draft.tensors()
    arrays = [tensor.array for tensor in statistics]
    if any(array is None for array in arrays) or not x.dtype.is_float:
        refuse("its mean, variance, beta or gamma is not constant")
    mean, variance, beta, gamma = (np.asarray(array, np.float64).reshape(-1) for array in arrays)
    shape = [1] * draft.rank
    shape[channel_axis(op.data_layout, draft.rank)] = -1
    factor = gamma / np.sqrt(variance + op.eps)
    scales, offsets = (
        draft.constant(values.reshape(shape), x.dtype, name)
        for name, values in (("factor", factor), ("offset", beta - mean * factor))
    )
    return draft.final("ADD", draft.node("MUL", x, scales, giving=x.info), offsets)


def _standardized(draft: Draft, x: Tensor, axes: Sequence[int], eps: float) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps), with mean and variance over `axes`."""
    centered = draft.node("SUB", x, _mean(draft, x, axes), giving=x.info)
    variance = _mean(draft, draft.node("MUL", centered, centered, giving=x.info), axes)
    return draft.node("MUL", centered, _inverse_root(draft, variance, eps), giving=x.info)


def _mean(draft: Draft, x: Tensor, axes: Sequence[int]) -> Tensor:
    info = TensorInfo([1 if axis in axes else size for axis, size in enumerate(x.shape)], x.dtype)
    return draft.node("MEAN", x, draft.ints(list(axes), "axes"), giving=info, keep_dims=True)


def _inverse_root(draft: Draft, x: Tensor, eps: float) -> Tensor:
    return draft.node("RSQRT", draft.node("ADD", x, draft.like(eps, x), giving=x.info), giving=x.info)


def _scaled(draft: Draft, x: Tensor, gamma: Tensor | None, beta: Tensor | None) -> Tensor:
    if gamma is not None:
        x = draft.node("MUL", x, draft.cast(gamma, x.dtype), giving=x.info)
    return x if beta is None else draft.node("ADD", x, draft.cast(beta, x.dtype), giving=x.info)


@writer(LayerNormalization)
def layer_normalization(draft: Draft, op: LayerNormalization) -> Tensor:
    """Write LayerNormalization as several operators."""
    axes = range(normal_axis(op.axis, draft.rank), draft.rank)
    return _scaled(draft, _standardized(draft, draft.operand(0), axes, op.eps), draft.optional(1), draft.optional(2))


@writer(RmsNormalization)
def rms_normalization(draft: Draft, op: RmsNormalization) -> Tensor:
    """Write RmsNormalization as several operators."""
    x, axes = draft.operand(0), range(normal_axis(op.axis, draft.rank), draft.rank)
    mean = _mean(draft, draft.node("MUL", x, x, giving=x.info), axes)
    scaled = draft.node("MUL", x, _inverse_root(draft, mean, op.eps), giving=x.info)
    return _scaled(draft, scaled, draft.optional(1), None)


@writer(InstanceNormalization)
def instance_normalization(draft: Draft, op: InstanceNormalization) -> Tensor:
    """Write InstanceNormalization over all axes except batch and channels."""
    channels = channel_axis(op.data_layout, draft.rank)
    axes = [axis for axis in range(1, draft.rank) if axis != channels]
    factors = (_per_channel(draft, index, channels) for index in (1, 2))
    return _scaled(draft, _standardized(draft, draft.operand(0), axes, op.eps), *factors)


def _per_channel(draft: Draft, index: int, channels: int) -> Tensor | None:
    """Return operand `index`, which has one element per channel, shaped to broadcast along the axis `channels`.

    The result is None if the operand is absent.
    """
    factors = draft.optional(index)
    if factors is None:
        return None
    shape = [1] * draft.rank
    shape[channels] = draft.known(draft.info(index).num_elements, "number of factors")
    return draft.reshape(factors, shape)


@writer(GroupNormalization)
def group_normalization(draft: Draft, op: GroupNormalization) -> Tensor:
    """Write GroupNormalization: each group is standardized as a row."""
    x = draft.operand(0)
    shape = draft.concrete(x)
    if 0 in shape:
        refuse("its input has no elements")
    rows = draft.reshape(x, (shape[0], op.num_groups, math.prod(shape) // shape[0] // op.num_groups))
    normalized = draft.reshape(_standardized(draft, rows, [2], op.eps), shape)
    return _scaled(draft, normalized, *(_per_channel(draft, index, 1) for index in (1, 2)))


@writer(MeanVarianceNormalization)
def mean_variance_normalization(draft: Draft, op: MeanVarianceNormalization) -> Tensor:
    """Write MeanVarianceNormalization, with an epsilon added to the deviation."""
    x = draft.operand(0)
    axes = sorted({normal_axis(axis, draft.rank) for axis in op.axis})
    if not axes:
        refuse("it has no axes")
    centered = draft.node("SUB", x, _mean(draft, x, axes), giving=x.info)
    variance = _mean(draft, draft.node("MUL", centered, centered, giving=x.info), axes)
    root = draft.node("SQRT", variance, giving=variance.info)
    return draft.node("DIV", centered, draft.node("ADD", root, draft.like(op.eps, x), giving=root.info), giving=x.info)

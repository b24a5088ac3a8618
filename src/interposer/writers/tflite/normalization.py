"""TFLite writers for normalization."""

from __future__ import annotations

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import Array
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
    """Write BatchNormalization as a factor and an offset per channel.

    If one of them is not finite, the mean is subtracted first, since the offset is NaN where the result is infinite.
    """
    x, *statistics = draft.tensors()
    arrays = [tensor.array for tensor in statistics]
    if any(array is None for array in arrays) or not x.dtype.is_float:
        refuse("its mean, variance, beta or gamma is not constant")
    mean, variance, beta, gamma = (np.asarray(array, np.float64).reshape(-1) for array in arrays)
    shape = [1] * draft.rank
    shape[channel_axis(op.data_layout, draft.rank)] = -1
    with np.errstate(all="ignore"):
        factor = gamma / np.sqrt(variance + op.eps)
        offset = beta - mean * factor
        is_finite = np.isfinite(np.stack([factor, offset]).astype(x.dtype.numpy)).all()

    def constant(values: Array, name: str) -> Tensor:
        return draft.constant(values.reshape(shape), x.dtype, name)

    centered = x
    if not is_finite:
        centered, offset = draft.node("SUB", x, constant(mean, "mean"), giving=x.info), beta
    product = draft.node("MUL", centered, constant(factor, "factor"), giving=x.info)
    return draft.final("ADD", product, constant(offset, "offset"))


@writer(GroupNormalization, InstanceNormalization, LayerNormalization, MeanVarianceNormalization, RmsNormalization)
def normalization_over_axes(draft: Draft, op: Op) -> Tensor:
    """Refuse normalizations over axes: the rewrites of the format have replaced those that can be written."""
    return refuse("it has no axes or no elements, or its shape is not known")

"""Operators that bring elements to a common scale."""

from __future__ import annotations

import numpy as np

from interposer.ops.normalization import (
    BatchNormalization,
    L2Normalization,
    Normalization,
    NormalizationAlgorithmChannel,
    NormalizationAlgorithmMethod,
    channel_axis,
)
from interposer.types import DataType
from interposer.writers.tflite.activation import last_axis
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.registry import refuse, writer
from interposer.writers.tflite.sheet import Tensor

__all__: list[str] = []

_EPSILON = 1e-12
"""What L2_NORMALIZATION never divides by less than, as the root of."""


@writer(L2Normalization, quantized=True)
def l2_normalization(draft: Draft, op: L2Normalization) -> Tensor:
    """Along the last axis."""
    if op.eps != _EPSILON:
        refuse(f"its eps is {op.eps:g}; L2_NORMALIZATION has {_EPSILON:g}")
    return last_axis(draft, "L2_NORMALIZATION", op.normalized_axis(draft.rank))


@writer(Normalization)
def local_response_normalization(draft: Draft, op: Normalization) -> Tensor:
    """Across channels, which are the last axis of four."""
    across = op.channel_type is NormalizationAlgorithmChannel.ACROSS
    if not across or op.method_type is not NormalizationAlgorithmMethod.LOCAL_BRIGHTNESS:
        refuse("TFLite normalizes across channels by brightness only")
    if op.norm_size % 2 == 0:
        refuse(f"its norm_size is {op.norm_size}; LOCAL_RESPONSE_NORMALIZATION has a radius, and so odd ones")
    if draft.rank != 4:
        refuse(f"its input has rank {draft.rank}; LOCAL_RESPONSE_NORMALIZATION takes rank 4")
    own = {"radius": op.norm_size // 2, "bias": op.k, "alpha": op.alpha, "beta": op.beta}
    [axis] = op.window_axes(draft.rank)
    return last_axis(draft, "LOCAL_RESPONSE_NORMALIZATION", axis, **own)


@writer(BatchNormalization)
def batch_normalization(draft: Draft, op: BatchNormalization) -> Tensor:
    """A factor and an offset for each channel."""
    x, *others = draft.tensors()
    arrays = [one.array for one in others]
    if any(array is None for array in arrays) or not x.dtype.is_float:
        refuse("its mean, variance, beta or gamma is not constant")
    mean, variance, beta, gamma = (np.asarray(array, np.float64).reshape(-1) for array in arrays)
    shape = [1] * draft.rank
    shape[channel_axis(op.data_layout, draft.rank)] = -1
    factor = gamma / np.sqrt(variance + op.eps)
    scales, offsets = (
        draft.constant(values.reshape(shape), _wide(x.dtype), name)
        for name, values in (("factor", factor), ("offset", beta - mean * factor))
    )
    scaled = draft.node("MUL", draft.cast(x, _wide(x.dtype)), scales, giving=draft.result.with_dtype(_wide(x.dtype)))
    added = draft.node("ADD", scaled, offsets, giving=scaled.info)
    return draft.cast(added, x.dtype)


def _wide(dtype: DataType) -> DataType:
    return DataType.FLOAT32 if dtype.bits < 32 else dtype

"""Conversion of float attributes to elements of a tensor."""

from __future__ import annotations

import math

import numpy as np

from interposer.core.types import Array, DataType, TensorInfo, integer_range
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.tensor import Tensor

__all__ = ["encoded", "filled"]


def filled(draft: Draft, shape: Tensor, number: float, info: TensorInfo) -> Tensor:
    """Return a tensor whose shape is the tensor `shape`, filled with the element that stands for `number`.

    `info` gives the type and the quantization of the elements.
    """
    element = encoded(number, info).reshape(1)
    shape = draft.cast(shape, DataType.INT64)
    if not draft.gives("ConstantOfShape", info.dtype):
        return draft.node("Expand", draft.constant(element, info.dtype, "value"), shape)
    return draft.node("ConstantOfShape", shape, giving=info.dtype, value=element)


def encoded(number: float, info: TensorInfo) -> Array:
    """Return a float value as a scalar of the type of `info`: cast, or quantized with a per-tensor scale.

    Quantization rounds ties away from zero and saturates.
    """
    if info.quantization is None:
        return np.array(number).astype(info.dtype.numpy)
    steps = number / float(np.float32(info.scale))
    integer = math.copysign(math.floor(abs(steps) + 0.5), steps) + info.zero_point if math.isfinite(steps) else steps
    low, high = integer_range(info.dtype)
    return np.array(int(min(max(integer, low), high))).astype(info.dtype.numpy)

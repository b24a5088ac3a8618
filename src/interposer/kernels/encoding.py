"""Conversion of float attributes of operators to elements of a tensor."""

from __future__ import annotations

import numpy as np

from interposer.core.types import Array, TensorInfo
from interposer.kernels.fixedpoint import along_axis, limits, round_half_away

__all__ = ["encoded"]


def encoded(value: float, info: TensorInfo) -> Array:
    """Return a float value, such as an attribute, quantized or converted to the type of a tensor.

    The array broadcasts with the tensor: it is a scalar, or has a value for each scale of a quantization per axis.
    """
    if info.quantization is None:
        return np.array(value).astype(info.dtype.numpy)
    scale, zero_point = along_axis(info.quantization, info.rank)
    quantized = round_half_away(np.divide(value, scale)) + zero_point
    return np.clip(quantized, *limits(info.dtype)).astype(np.int64).astype(info.dtype.numpy)

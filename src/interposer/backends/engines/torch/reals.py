"""Quantized tensors as float values: inputs of a function are dequantized, and its results are quantized.

The tensors of the network stay quantized. A result halfway between two steps may be rounded either way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from interposer.backends.engines.torch.package import torch
from interposer.backends.engines.torch.table import Function, makes
from interposer.core.types import TensorInfo
from interposer.ir.graph import Layer
from interposer.ops import Dequantize, Quantize

__all__ = ["as_floats", "as_quantized", "rounded"]


@makes(Quantize, Dequantize)
def convert(op: Quantize | Dequantize, layer: Layer) -> Function:
    """Return a cast to the output's float type.

    The caller of the function dequantizes the operand before it, and quantizes the result after it.
    """
    info = layer.output_infos[0]
    kind = torch.float32 if info.is_quantized else getattr(torch, str(info.dtype))
    return lambda x: x.to(kind)


def as_floats(x: Any, info: TensorInfo) -> Any:
    """Return the float values of a quantized tensor: its stored integers minus the zero point, times the scale."""
    scale, zero = _parameters(info)
    return x.to(torch.float32).sub_(zero).mul_(scale)


def as_quantized(x: Any, info: TensorInfo) -> Any:
    """Quantize floats: return the integers that a tensor with this info stores.

    Floats are unchanged if it is not quantized.
    """
    if not info.is_quantized:
        return x
    scale, zero = _parameters(info)
    limits = np.iinfo(info.dtype.numpy)
    quantized = (x / scale).round_().add_(zero).clamp_(int(limits.min), int(limits.max))
    return quantized.to(getattr(torch, str(info.dtype)))


def rounded(x: Any, info: TensorInfo) -> Any:
    """Round floats to the values that a quantized tensor with this info can represent.

    The result is float, and NaN stays NaN.
    """
    if not info.is_quantized:
        return x
    scale, zero = _parameters(info)
    limits = np.iinfo(info.dtype.numpy)
    return (x / scale).round_().clamp_(int(limits.min) - zero, int(limits.max) - zero).mul_(scale)


def _parameters(info: TensorInfo) -> tuple[Any, Any]:
    """Return the scale and the zero point: numbers, or tensors that broadcast with their tensor."""
    quantization = info.quantization
    assert quantization is not None
    if not quantization.per_axis:
        return float(np.float32(quantization.scales[0])), float(quantization.zero_points[0])
    shape = [len(quantization.scales) if axis == quantization.axis else 1 for axis in range(info.rank)]
    scales, zeros = (
        np.asarray(parameter, np.float32).reshape(shape)
        for parameter in (quantization.scales, quantization.zero_points)
    )
    return torch.from_numpy(scales), torch.from_numpy(zeros)

"""Conversion between the stored elements of tensors and float values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from interposer.core.types import FLOATS, Array, TensorInfo
from interposer.kernels.fixedpoint import dequantize, quantize, round_half_away
from interposer.kernels.table import KernelInfo
from interposer.ops.quantization import Requantization

__all__ = ["WIDE_FLOATS", "all_quantized", "precisely", "real", "store"]

WIDE_FLOATS: Final = frozenset(dtype for dtype in FLOATS if dtype.bits >= 16)
"""The floats of 16 bits and more; smaller ones are the types of weights and of products, not of whole algorithms."""
_ROUNDINGS: Final[Mapping[Requantization, Callable[[Array], Array]]] = {
    Requantization.FIXED_POINT: round_half_away,
    Requantization.HALF_TO_EVEN: np.rint,
}
"""How values that are computed in float are rounded to the steps of a quantized result."""


def real(x: Array, info: TensorInfo) -> Array:
    """Return the array to compute with: float32 for quantized tensors and narrower floats, else `x` itself."""
    if info.quantization is not None:
        return dequantize(x, info.quantization).astype(np.float32)
    if info.dtype.is_float and info.dtype.bits < 32:
        return x.astype(np.float32)
    return x


def store(
    values: Array,
    info: TensorInfo,
    out: Array,
    requantization: Requantization = Requantization.FIXED_POINT,
) -> None:
    """Write float values to the array `out` of a tensor with this info, quantized or rounded once to its type."""
    if info.quantization is not None:
        values = quantize(values, info.quantization, info.dtype, _ROUNDINGS[requantization])
    np.copyto(out, values, casting="unsafe")


def precisely(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return a function that computes `function` in float64 and rounds once to the type of its argument."""

    def rounded(x: Array) -> Array:
        return np.asarray(function(np.asarray(x, np.float64))).astype(x.dtype)

    return rounded


def all_quantized(op: object, info: KernelInfo) -> str | None:
    """Return why an operand or the output is refused, or None.

    Either all integer tensors must be quantized, with 8 bits or more, or none.
    """
    tensors = (*zip(info.names, info.inputs, strict=False), ("output", info.output))
    integers = [(name, tensor) for name, tensor in tensors if tensor is not None and tensor.dtype.is_integer]
    for name, tensor in integers:
        if tensor.is_quantized != integers[0][1].is_quantized:
            return f"{name} is {'' if tensor.is_quantized else 'not '}quantized, unlike {integers[0][0]}"
        if tensor.is_quantized and tensor.dtype.bits < 8:
            return f"{name} is {tensor.dtype}; takes quantized tensors of 8 bits or more"
    return None

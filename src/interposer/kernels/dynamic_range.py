"""Dynamic range quantization: float activations are rounded to 8 bits, with scales that follow from their values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import Array
from interposer.kernels.fixedpoint import round_half_away
from interposer.ops.recurrent import ActivationRounding

__all__ = ["quantized_to_8_bits", "rounded_as_onnx", "rounded_rows", "rounded_to_8_bits"]

Floats = NDArray[np.float32]


def rounded_to_8_bits(x: Array, axes: tuple[int, ...], asymmetric: bool) -> Floats:
    """Quantize float32 values to 8 bits and dequantize them, as LiteRT does with activations; see the operator.

    Elements along `axes` share a scale. As in LiteRT, the values are multiplied by the inverse of the scale.
    """
    with np.errstate(all="ignore"):
        low, high = (reduce(x, axis=axes, keepdims=True, initial=0) for reduce in (np.min, np.max))
        scale, inverse, zero = _asymmetric(low, high) if asymmetric else _symmetric(low, high)
        quantized = round_half_away(np.nan_to_num(zero + x * inverse)).astype(np.float32)
        rounded = (np.clip(quantized, -128 if asymmetric else -127, 127) - zero) * scale
        finite_scaled = np.where(np.isfinite(inverse), rounded, 0)  # a scale of 0, or one whose inverse is too large
        return np.where(np.isfinite(low) & np.isfinite(high), finite_scaled, np.nan).astype(np.float32)


def quantized_to_8_bits(x: Array) -> tuple[Array, Array, Array]:
    """Quantize float32 values to uint8, as ONNX's DynamicQuantizeLinear does.

    Return the quantized values, their scale and their zero point. The range of the values, extended to contain zero, is
    divided into 255 steps.
    """
    float_zero = np.float32(0)
    with np.errstate(all="ignore"):
        low, high = np.minimum(x.min(initial=0), float_zero), np.maximum(x.max(initial=0), float_zero)
        scale = np.asarray((high - low) / np.float32(255))
        zero_point = _saturated_uint8(np.rint((float_zero - low) / scale))
        return _saturated_uint8(np.rint(x / scale) + zero_point), scale, zero_point


def _saturated_uint8(values: Array) -> Array:
    """Return float values as saturated uint8; NaN becomes 0."""
    return np.asarray(np.nan_to_num(np.clip(values, 0, 255), nan=0.0)).astype(np.uint8)


def rounded_as_onnx(x: Array) -> Array:
    """Quantize float values to uint8 as ONNX's DynamicQuantizeLinear does, and dequantize them to float64."""
    quantized, scale, zero_point = quantized_to_8_bits(x.astype(np.float32))
    return np.asarray((quantized.astype(np.float64) - zero_point) * scale)


def rounded_rows(rounding: ActivationRounding) -> Callable[[Array], Array]:
    """Return the function that rounds each row of the activations of a recurrent layer, the last axis, to 8 bits."""
    if rounding is ActivationRounding.NONE:
        return lambda x: x
    return lambda x: rounded_to_8_bits(x, (-1,), rounding is ActivationRounding.ASYMMETRIC)


def _symmetric(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Return scale, inverse of the scale, and zero point for values from `low` to `high`."""
    largest = np.maximum(-low, high)
    levels = np.asarray(127, np.float32)
    return np.divide(largest, levels), np.divide(levels, largest), np.zeros_like(low)


def _asymmetric(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Return scale, inverse of the scale, and zero point for values from `low` <= 0 to `high` >= 0."""
    wide_scale = (high.astype(np.float64) - low) / 255
    low_steps, high_steps = low / wide_scale, high / wide_scale
    zero = np.where(128 + np.abs(low_steps) < 127 + np.abs(high_steps), -128 - low_steps, 127 - high_steps)
    scale = wide_scale.astype(np.float32)
    return scale, np.asarray(np.float32(1) / scale), round_half_away(np.clip(zero, -128, 127)).astype(np.float32)

"""Quantized weights and bias of a layer."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from interposer.core.records import dataclass
from interposer.core.types import Array, Quantization
from interposer.quantization.schemes import Scheme, quantization_of, quantized_array

__all__ = ["Stored", "quantized_bias", "quantized_weights"]

Floats = NDArray[np.float64]
_LARGEST_BIAS: Final = {32: 2.0**30, 64: 2.0**38}
"""The largest absolute quantized bias by its bits, which leaves room for the sum of products."""


@dataclass(frozen=True)
class Stored:
    """The quantized values of a constant, and their quantization."""

    array: Array
    quantization: Quantization


def quantized_weights(weights: Array, axis: int, scheme: Scheme, scale: float, bias: Array | None) -> Stored:
    """Return constant weights as integers, with a scale for each channel along `axis` if the scheme says so.

    `scale` is that of the layer's input. The scales of weights are large enough for the bias to fit 32 bits, as
    quantized bias values are multiples of the scale of the input times that of the weights.
    """
    float_weights = weights.astype(np.float64)
    if not scheme.per_channel:
        low, high = float(float_weights.min(initial=0)), float(float_weights.max(initial=0))
        quantization = quantization_of(low, high, scheme.weights, scheme.symmetric_weights)
        quantization = Quantization(
            max(quantization.scale, float(_least(scale, bias, scheme).max(initial=0))), quantization.zero_point
        )
        return Stored(quantized_array(float_weights, quantization, scheme.weights), quantization)
    largest = np.abs(float_weights).max(
        axis=tuple(other_axis for other_axis in range(float_weights.ndim) if other_axis != axis), initial=0
    )
    channel_scales = [quantization_of(-bound, bound, scheme.weights, symmetric=True).scale for bound in largest]
    scales = np.maximum(np.asarray(channel_scales), _least(scale, bias, scheme))
    quantization = Quantization(scales.astype(np.float32).astype(float).tolist(), 0, axis)
    return Stored(quantized_array(float_weights, quantization, scheme.weights), quantization)


def _least(scale: float, bias: Array | None, scheme: Scheme) -> Floats:
    """Return the least scales of weights with which each element of the bias fits its type."""
    if bias is None:
        return np.zeros(1)
    least_scales: Floats = np.abs(bias.astype(np.float64)) / (_LARGEST_BIAS[scheme.bias.bits] * scale)
    return least_scales


def quantized_bias(bias: Array, scheme: Scheme, scale: float, weights: Quantization) -> Stored:
    """Return a constant bias as integers in multiples of the scale of the input times that of the weights."""
    scales = np.float64(np.float32(scale)) * np.asarray(weights.scales, np.float64)
    quantization = Quantization(scales.tolist(), 0, 0 if weights.per_axis else None)
    return Stored(quantized_array(bias, quantization, scheme.bias), quantization)

"""Quantization schemes: the types of activations, weights and bias, and how their scales are chosen."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from interposer.core.errors import InvalidArgumentError, did_you_mean
from interposer.core.records import dataclass
from interposer.core.types import Array, DataType, Quantization, integer_range

__all__ = ["SCHEMES", "STORAGE", "Scheme", "quantization_of", "quantized_array", "scheme_of"]


@dataclass(frozen=True)
class Scheme:
    """The types of a quantized network.

    `activations` is the type of tensors between layers, and `weights` that of constant weights. A symmetric
    quantization has the zero point 0. With `per_channel`, weights have a scale for each output channel. With
    `narrow_bias`, the bias has 32 bits even if activations have 16, as in Arm NN.
    """

    name: str
    activations: DataType
    weights: DataType
    symmetric: bool
    symmetric_weights: bool
    per_channel: bool
    about: str
    narrow_bias: bool = False

    @property
    def bias(self) -> DataType:
        """The type of the bias: int64 beside int16 activations, as in TensorFlow Lite, else int32."""
        return DataType.INT64 if self.activations is DataType.INT16 and not self.narrow_bias else DataType.INT32


def _scheme(name: str, activations: str, weights: str, symmetric: str, per_channel: bool, about: str) -> Scheme:
    """Return a scheme; `symmetric` has the letters "a" and "w" if activations and weights are symmetric."""
    types = DataType.of(activations), DataType.of(weights)
    return Scheme(name, *types, "a" in symmetric, "w" in symmetric, per_channel, about)


SCHEMES: Final = {
    scheme.name: scheme
    for scheme in (
        _scheme("int8", "int8", "int8", "w", True, "int8 activations, int8 weights with a scale per channel"),
        _scheme("uint8", "uint8", "uint8", "", False, "uint8 activations, uint8 weights with one scale"),
        _scheme("int16", "int16", "int8", "aw", True, "symmetric int16 activations, int8 weights (16x8)"),
        _scheme("int8-symmetric", "int8", "int8", "aw", True, "symmetric int8 activations and weights"),
    )
}
"""The schemes that quantize activations and weights, by name."""
STORAGE: Final = {
    "float16": "constants of float16, computed with in float32",
    "bfloat16": "constants of bfloat16, computed with in float32",
    "weights-int8": "weights of int8 with a scale for each channel, computed with in float32",
    "weights-int4": "weights of int4 with a scale for each block, computed with in float32",
    "dynamic": "weights of int8, activations quantized to uint8 in every run",
}
"""The schemes that store constants in fewer bits and need no calibration data, with descriptions."""
_ALIASES: Final = {
    "qasymmu8": "uint8", "qasymms8": "int8", "qsymms8": "int8-symmetric", "qsymms16": "int16", "qsymm16": "int16",
}  # fmt: skip


def scheme_of(name: str | Scheme) -> Scheme:
    """Return the scheme of a name; Arm NN's names (``QAsymmU8`` ...) are accepted as well.

    Raises:
        InvalidArgumentError: there is no scheme of this name.
    """
    if isinstance(name, Scheme):
        return name
    key = str(name).lower()
    scheme = SCHEMES.get(_ALIASES.get(key, key))
    if scheme is None:
        known_names = [*SCHEMES, *STORAGE]
        raise InvalidArgumentError(
            f"unknown scheme {name!r}{did_you_mean(str(name), known_names)} (known: {', '.join(known_names)})"
        )
    return scheme


_NARROW: Final = {DataType.INT8: 127, DataType.INT16: 32767, DataType.INT4: 7}
"""The largest quantized value of a symmetric range; the smallest is its negative."""


def quantization_of(low: float, high: float, dtype: DataType, symmetric: bool) -> Quantization:
    """Return scale and zero point for the range `low` to `high`, which is extended to contain 0.

    A symmetric range reaches from ``-bound`` to ``bound``, which is the larger absolute bound. A range of
    width 0 gets the width 1. The scale is a float32 number, as files store it. `InvalidArgumentError` is raised for
    a bound that is infinite or NaN.

    >>> quantization_of(-1.0, 1.55, DataType.INT8, symmetric=False)
    Quantization(0.009999999776482582, -28)
    >>> quantization_of(-1.0, 2.54, DataType.INT8, symmetric=True)
    Quantization(0.019999999552965164, 0)
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        raise InvalidArgumentError(f"the range that is quantized must be finite, not {low:g} to {high:g}")
    low, high = min(0.0, float(low)), max(0.0, float(high))
    if symmetric:
        bound = max(-low, high) or 1.0
        return Quantization(_single(bound / _NARROW[dtype]))
    high = high if high > low else 1.0
    lowest, highest = integer_range(dtype)
    step = (high - low) / (highest - lowest)
    return Quantization(_single(step), lowest + int(np.clip(math.floor(0.5 - low / step), 0, highest - lowest)))


def _single(scale: float) -> float:
    """Return a scale rounded to float32, but no subnormal number."""
    return float(np.float32(max(scale, float(np.finfo(np.float32).tiny))))


def quantized_array(floats: Array, q: Quantization, dtype: DataType) -> Array:
    """Return float values as integers: divided by the scale, rounded half away from zero, and saturated."""
    shape = [-1 if axis == q.axis else 1 for axis in range(floats.ndim)] if q.per_axis else []
    scales = np.asarray(q.scales, np.float64).reshape(shape)
    zero_points = np.asarray(q.zero_points, np.float64).reshape(shape)
    steps = floats.astype(np.float64) / scales
    integers = np.trunc(steps + np.copysign(0.5, steps)) + zero_points
    low, high = integer_range(dtype)
    array: Array = np.clip(integers, low, high).astype(dtype.numpy)
    return array

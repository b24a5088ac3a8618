"""The ratio of a signal to its error, with which the results of two networks or two backends are compared."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import Array, TensorInfo
from interposer.kernels.fixedpoint import dequantize

__all__ = ["SignalToNoise", "bounds", "decibels", "finite_or_none", "real_values"]


class SignalToNoise:
    """The power of a signal and of the error of another one, over several arrays."""

    def __init__(self) -> None:
        self.signal = self.noise = self.actual_power = self.product = 0.0

    def add(self, array: Array, reference: Array) -> None:
        """Add an array and the array that it should be equal to; values that are not finite are ignored."""
        actual, expected = (np.asarray(elements, np.float64).reshape(-1) for elements in (array, reference))
        finite: NDArray[np.bool_] = np.isfinite(actual) & np.isfinite(expected)
        actual, expected = actual[finite], expected[finite]
        self.signal += float(expected @ expected)
        self.actual_power += float(actual @ actual)
        self.product += float(actual @ expected)
        self.noise += float(((actual - expected) ** 2).sum())

    @property
    def decibels(self) -> float:
        """The signal-to-noise ratio in dB; infinite without an error."""
        if not self.noise:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf

    @property
    def cosine(self) -> float:
        """The cosine of the angle between both signals; 1 if they are equal up to a factor."""
        length = math.sqrt(self.signal * self.actual_power)
        return self.product / length if length else float(self.signal == self.actual_power)


def real_values(array: Array, info: TensorInfo) -> Array:
    """Return the float values of an array, which are other than the array for a quantized tensor."""
    return array if info.quantization is None else dequantize(array, info.quantization)


def bounds(values: Array) -> tuple[float, float]:
    """Return the smallest and the largest finite value; (0, 0) if there are none."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def decibels(ratio: float) -> str:
    """Return a signal-to-noise ratio as text; "exact" without an error."""
    return "exact" if ratio == math.inf else f"{ratio:.1f} dB"


def finite_or_none(number: float | None) -> float | None:
    """Return a number for JSON: None instead of one that is infinite or NaN."""
    return number if number is not None and math.isfinite(number) else None

"""Arrays for the inputs and constants of random networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from interposer.core.types import Array, DataType, TensorInfo, integer_range
from interposer.testing.drawing import Draw
from interposer.testing.sample import rounded

__all__ = ["as_type", "drawn", "spoiled", "stored"]

_SPECIAL: Final = (float("nan"), float("inf"), float("-inf"), -0.0, 1e-40, -1e-40)
"""Values that are treated differently from all others; the last two are denormal in float32."""


def drawn(draw: Draw, info: TensorInfo, reach: float) -> Array:
    """Return a random array for a tensor with this info.

    Floats and integers have magnitudes up to `reach`. Quantized values of 8 or 16 bits cover the whole range of their
    type.
    """
    if info.dtype is DataType.STRING:
        return _texts(draw, info)
    if info.dtype is DataType.BOOL:
        return np.asarray(draw.integers(info.shape, 0, 1).astype(np.bool_))
    if info.dtype.is_float:
        return as_type(draw.weighted(_STYLES, (6, 3, 1))(draw, info, reach), info.dtype)
    return _integers(draw, info, reach)


def as_type(reals: Array, dtype: DataType) -> Array:
    """Convert float64 numbers to a float type through float32, so that every version of NumPy rounds alike."""
    return np.asarray(reals if dtype is DataType.FLOAT64 else reals.astype(np.float32).astype(dtype.numpy))


def _uniform(draw: Draw, info: TensorInfo, reach: float) -> Array:
    return draw.uniform(info.shape, -reach, reach)


def _on_a_grid(draw: Draw, info: TensorInfo, reach: float) -> Array:
    """Return random multiples of ``reach / 8`` up to `reach`, so that equal elements and ties of rounding occur."""
    return draw.integers(info.shape, -8, 8) * (reach / 8)


def _sparse(draw: Draw, info: TensorInfo, reach: float) -> Array:
    return np.where(draw.integers(info.shape, 0, 2) == 0, _uniform(draw, info, reach), 0.0)


_STYLES: Final[tuple[Callable[[Draw, TensorInfo, float], Array], ...]] = (_uniform, _on_a_grid, _sparse)


def _integers(draw: Draw, info: TensorInfo, reach: float) -> Array:
    lowest, highest = integer_range(info.dtype)
    if info.quantization is None or info.dtype.bits > 16:
        bound = max(1, int(reach))
        low, high = max(lowest, -bound), min(highest, bound)
    else:
        low, high = lowest, highest
    if info.quantization is not None and draw.chance(1, 16):
        is_high = draw.integers(info.shape, 0, 1)
        return np.asarray(np.where(is_high, high, low).astype(info.dtype.numpy))
    return np.asarray(draw.integers(info.shape, low, high).astype(info.dtype.numpy))


def _texts(draw: Draw, info: TensorInfo) -> Array:
    numbers = draw.integers(info.shape, 0, 99)
    return np.array([f"text {number}" for number in numbers.ravel().tolist()], object).reshape(numbers.shape)


def stored(float_values: Array, info: TensorInfo) -> Array:
    """Return float values in the type and quantization of `info`."""
    if info.dtype.is_float:
        return as_type(float_values, info.dtype)
    return rounded(float_values, info)


def spoiled(draw: Draw, array: Array) -> Array:
    """Return a copy with a few special values: NaN, infinities, signed zeros and denormals."""
    spoiled_array = array.copy()
    elements = spoiled_array.reshape(-1)
    special_values = [draw.one_of(_SPECIAL) for _ in range(draw.integer(1, 2))]
    for _ in range(draw.integer(1, 4) if elements.size else 0):
        with np.errstate(over="ignore", invalid="ignore"):
            elements[draw.below(elements.size)] = draw.one_of(special_values)
    return spoiled_array

"""The fixed-point arithmetic of quantized layers in nodes on 64-bit integers, bit for bit.

A factor is ``multiplier / 2**31 * 2**shift``. A product with it is rounded twice: to 32 bits, ties towards plus
infinity, and when it is shifted right, ties away from zero. Integer division in ONNX truncates, so numbers that must be
rounded down are made positive first.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from interposer.core.types import Array, DataType, Quantization, TensorInfo, integer_range
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__ = [
    "Factor",
    "factor_of",
    "offset",
    "quantized_bound",
    "rescaled",
    "rounded_away",
    "scale32",
    "single",
    "stored",
    "times",
]

_UNIT: Final = 1 << 31
_LARGEST: Final = 2**31 - 1
_POSITIVE: Final = 1 << 62


class Factor(NamedTuple):
    """A positive rescaling factor as a fixed-point number, ``multiplier / 2**31 * 2**shift``, as TFLite uses it.

    The fields may also be arrays of such numbers that broadcast with a tensor, one for each channel.
    """

    multiplier: Array
    shift: Array


def factor_of(real: ArrayLike) -> Factor:
    """Return the nearest fixed-point number to each positive float in `real`.

    The result is 0 below the range, and the largest fixed-point number above it.
    """
    mantissa, exponent = np.frexp(np.asarray(real, np.float64))
    multiplier = np.floor(mantissa * _UNIT + 0.5).astype(np.int64)
    is_carried = multiplier == _UNIT
    multiplier, shift = np.where(is_carried, _UNIT >> 1, multiplier), np.where(is_carried, exponent + 1, exponent)
    is_tiny, is_huge = shift < -31, shift > 30
    multiplier = np.where(is_tiny, 0, np.where(is_huge, _LARGEST, multiplier))
    return Factor(multiplier, np.where(is_tiny, 0, np.minimum(shift, 30)).astype(np.int64))


def times(draft: Draft, x: Tensor, factor: Factor) -> Tensor:
    """Return the int64 tensor `x` times a factor, rounded to integers in fixed-point arithmetic as TFLite does it.

    The elements of `x` must be in the range of int32. The product of the multiplier is rounded half up, and the
    division by a power of two half away from zero.
    """
    int64 = DataType.INT64
    left_shift, right_shift = np.maximum(factor.shift, 0), np.maximum(-factor.shift, 0)
    if left_shift.any():
        shifted_left = draft.node("Mul", x, draft.constant(np.int64(1) << left_shift, int64, "left"))
        x = draft.cast(draft.cast(shifted_left, DataType.INT32), int64)
    product = draft.node("Mul", x, draft.constant(factor.multiplier, int64, "multiplier"))
    rounded_up = draft.node("Add", product, draft.ints((1 << 30) + _POSITIVE))
    scaled = draft.node("Sub", draft.node("Div", rounded_up, draft.ints(_UNIT)), draft.ints(_POSITIVE // _UNIT))
    return _shifted(draft, scaled, right_shift) if right_shift.any() else scaled


def _shifted(draft: Draft, x: Tensor, right: Array) -> Tensor:
    """Return int64 values divided by ``2**right``, rounded to the nearest integer, ties away from zero."""
    divisor = np.int64(1) << right
    half_divisor = draft.constant(divisor >> 1, DataType.INT64, "half")
    rounded_magnitude = draft.node("Add", draft.node("Abs", x), half_divisor)
    quotient = draft.node("Div", rounded_magnitude, draft.constant(divisor, DataType.INT64, "divisor"))
    return draft.node("Mul", draft.node("Sign", x), quotient)


def single(info: TensorInfo, *dtypes: DataType) -> Quantization:
    """Return the quantization of a tensor if it is per-tensor and the tensor has one of the types `dtypes`.

    Any other layer is refused. The default types are int8, uint8 and int16.
    """
    q = info.quantization
    if q is None or q.per_axis or info.dtype not in (dtypes or (DataType.INT8, DataType.UINT8, DataType.INT16)):
        refuse("ONNX rounds quantized results otherwise")
    return q


def scale32(info: TensorInfo) -> np.float32:
    """Return the per-tensor scale of a tensor rounded to float32, as files store it."""
    return np.float32(info.scale)


def offset(draft: Draft, x: Tensor, info: TensorInfo) -> Tensor:
    """Return the quantized values `x` minus the zero point of `info`, as int64."""
    wide_values = draft.cast(x, DataType.INT64)
    return draft.node("Sub", wide_values, draft.ints(info.zero_point)) if info.zero_point else wide_values


def stored(draft: Draft, steps: Tensor, info: TensorInfo, bounds: tuple[int, int] | None = None) -> Tensor:
    """Return quantized values for `steps`, the integers before the zero point is added.

    `info` gives the zero point and the type, to whose range (or to `bounds`) the values are clamped.
    """
    shifted = draft.node("Add", steps, draft.ints(info.zero_point)) if info.zero_point else steps
    return draft.cast(draft.clip(shifted, *(bounds or integer_range(info.dtype))), info.dtype)


def rescaled(draft: Draft, steps: Tensor, factor: ArrayLike, info: TensorInfo) -> Tensor:
    """Return `steps` (integers without zero point) times `factor` as quantized values of the type of `info`.

    `factor` is the scale of `steps` divided by that of the result.
    """
    return stored(draft, times(draft, steps, factor_of(factor)), info)


def rounded_away(draft: Draft, x: Tensor) -> Tensor:
    """Return the floats `x` rounded to the nearest integer, ties away from zero.

    This is exact, as the fraction is compared with one half.
    """
    integer_part = draft.node("Floor", draft.node("Abs", x))
    fraction = draft.node("Sub", draft.node("Abs", x), integer_part)
    carry = draft.cast(draft.node("GreaterOrEqual", fraction, draft.like(0.5, x)), x.dtype)
    return draft.node("Mul", draft.node("Sign", x), draft.node("Add", integer_part, carry))


def quantized_bound(real: float, info: TensorInfo, unbounded: int) -> int:
    """Return the quantized value of a bound `real`, saturated to the type of `info`; `unbounded` if it is infinite."""
    low, high = integer_range(info.dtype)
    if not np.isfinite(real):
        return unbounded
    steps = float(np.float32(real) / scale32(info))
    return max(low, min(int(np.copysign(np.floor(abs(steps) + 0.5), steps)) + info.zero_point, high))

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
    "code_of",
    "factor_of",
    "offset",
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
    """A fixed-point number, or an array of them that broadcasts with a tensor."""

    multiplier: Array
    shift: Array


def factor_of(real: ArrayLike) -> Factor:
    """Return the nearest fixed-point number to each positive float: 0 below the range, the largest one above it."""
    mantissa, exponent = np.frexp(np.asarray(real, np.float64))
    multiplier = np.floor(mantissa * _UNIT + 0.5).astype(np.int64)
    carried = multiplier == _UNIT
    multiplier, shift = np.where(carried, _UNIT >> 1, multiplier), np.where(carried, exponent + 1, exponent)
    tiny, huge = shift < -31, shift > 30
    multiplier = np.where(tiny, 0, np.where(huge, _LARGEST, multiplier))
    return Factor(multiplier, np.where(tiny, 0, np.minimum(shift, 30)).astype(np.int64))


def times(draft: Draft, x: Tensor, factor: Factor) -> Tensor:
    """Return int64 values, which fit into 32 bits, multiplied by a factor."""
    wide = DataType.INT64
    left, right = np.maximum(factor.shift, 0), np.maximum(-factor.shift, 0)
    if left.any():
        moved = draft.node("Mul", x, draft.constant(np.int64(1) << left, wide, "left"))
        x = draft.cast(draft.cast(moved, DataType.INT32), wide)
    product = draft.node("Mul", x, draft.constant(factor.multiplier, wide, "multiplier"))
    raised = draft.node("Add", product, draft.ints((1 << 30) + _POSITIVE))
    scaled = draft.node("Sub", draft.node("Div", raised, draft.ints(_UNIT)), draft.ints(_POSITIVE // _UNIT))
    return _shifted(draft, scaled, right) if right.any() else scaled


def _shifted(draft: Draft, x: Tensor, right: Array) -> Tensor:
    """Return the values divided by 2**right, ties away from zero."""
    divisor = np.int64(1) << right
    half = draft.constant(divisor >> 1, DataType.INT64, "half")
    size = draft.node("Add", draft.node("Abs", x), half)
    whole = draft.node("Div", size, draft.constant(divisor, DataType.INT64, "divisor"))
    return draft.node("Mul", draft.node("Sign", x), whole)


def single(info: TensorInfo, *dtypes: DataType) -> Quantization:
    """Return the per-tensor quantization of a tensor of one of these types, by default of 8 or 16 bits.

    Any other quantization is refused.
    """
    q = info.quantization
    if q is None or q.per_axis or info.dtype not in (dtypes or (DataType.INT8, DataType.UINT8, DataType.INT16)):
        refuse("ONNX rounds quantized results otherwise")
    return q


def scale32(info: TensorInfo) -> np.float32:
    """Return the scale of a tensor rounded to float32, as files store it."""
    return np.float32(info.scale)


def offset(draft: Draft, x: Tensor, info: TensorInfo) -> Tensor:
    """Return quantized values minus the zero point as int64."""
    wide = draft.cast(x, DataType.INT64)
    return draft.node("Sub", wide, draft.ints(info.zero_point)) if info.zero_point else wide


def stored(draft: Draft, steps: Tensor, info: TensorInfo, bounds: tuple[int, int] | None = None) -> Tensor:
    """Return integers relative to the zero point as quantized values, clamped to the type or to `bounds`."""
    shifted = draft.node("Add", steps, draft.ints(info.zero_point)) if info.zero_point else steps
    return draft.cast(draft.clip(shifted, *(bounds or integer_range(info.dtype))), info.dtype)


def rescaled(draft: Draft, steps: Tensor, factor: ArrayLike, info: TensorInfo) -> Tensor:
    """Return integers of another scale as quantized values."""
    return stored(draft, times(draft, steps, factor_of(factor)), info)


def rounded_away(draft: Draft, x: Tensor) -> Tensor:
    """Return the nearest integers, ties away from zero; exact, as the fraction is compared with one half."""
    cut = draft.node("Floor", draft.node("Abs", x))
    rest = draft.node("Sub", draft.node("Abs", x), cut)
    up = draft.cast(draft.node("GreaterOrEqual", rest, draft.like(0.5, x)), x.dtype)
    return draft.node("Mul", draft.node("Sign", x), draft.node("Add", cut, up))


def code_of(real: float, info: TensorInfo, unbounded: int) -> int:
    """Return the quantized value of a bound, within the limits of the type; `unbounded` if the bound is infinite."""
    low, high = integer_range(info.dtype)
    if not np.isfinite(real):
        return unbounded
    steps = float(np.float32(real) / scale32(info))
    return max(low, min(int(np.copysign(np.floor(abs(steps) + 0.5), steps)) + info.zero_point, high))

"""How near a backend's results must be to the reference's.

==================  ==========================================================================================
float64             1e-9: sums are added in another order
float32             1e-4, and 1e-5 of the largest element: other orders, and exponentials that were made quick
float16             1e-2: ten steps, as devices sum in float16 what the reference sums in float32
bfloat16            4e-2: five steps, likewise
float8, 6 and 4     one step of the type, from 1/8 of the number to the number itself
quantized           one step, as results that lie between two steps are rounded either way
integers and bool   exact, texts as well
==================  ==========================================================================================

Operators that only move elements must give every element bit by bit, whatever its type: see `interposer.testing.exact`.

A number may differ by its relative part, plus an absolute one that is taken of the largest number in the tensor: what
is small beside its neighbours is what they left over when they cancelled out. Infinities, and what is not a number,
must be in the same places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from interposer.core.types import Array, DataType, TensorInfo, integer_range
from interposer.testing.hints import Evidence, hint

__all__ = ["FLOAT_TOLERANCES", "Tolerance", "Tolerances", "bias", "same"]


class Tolerance(NamedTuple):
    """How much a number may differ: a part of itself, and a part of the largest number in its tensor."""

    relative: float
    absolute: float


FLOAT_TOLERANCES: Final[Mapping[DataType, Tolerance]] = {
    DataType.FLOAT64: Tolerance(1e-9, 1e-9),
    DataType.FLOAT32: Tolerance(1e-4, 1e-5),
    DataType.FLOAT16: Tolerance(1e-2, 1e-2),
    DataType.BFLOAT16: Tolerance(4e-2, 4e-2),
    DataType.FLOAT8_E4M3FN: Tolerance(0.126, 0.01),
    DataType.FLOAT8_E4M3FNUZ: Tolerance(0.126, 0.01),
    DataType.FLOAT8_E5M2: Tolerance(0.251, 0.01),
    DataType.FLOAT8_E5M2FNUZ: Tolerance(0.251, 0.01),
    DataType.FLOAT8_E8M0FNU: Tolerance(1.0, 0.0),
    DataType.FLOAT6_E2M3FN: Tolerance(0.126, 0.02),
    DataType.FLOAT6_E3M2FN: Tolerance(0.251, 0.01),
    DataType.FLOAT4_E2M1FN: Tolerance(0.51, 0.1),
}


@dataclass(frozen=True)
class Tolerances:
    """What is allowed for every type.

    Args:
        floats: tolerances that replace those above.
        steps: how many steps a quantized element may be off.
        bits: whether elements must be the same bit by bit, including the sign of zero; any NaN equals any other NaN.
    """

    floats: Mapping[DataType, Tolerance] = field(default_factory=dict)
    steps: int = 1
    bits: bool = False

    def exact(self, *, bits: bool) -> Tolerances:
        """Tolerances that allow no difference; unless `bits` is set, -0.0 equals 0.0."""
        return replace(self, floats=dict.fromkeys(FLOAT_TOLERANCES, Tolerance(0.0, 0.0)), steps=0, bits=bits)

    def of(self, dtype: DataType) -> Tolerance:
        """Return the tolerance of a floating-point type."""
        return self.floats.get(dtype, FLOAT_TOLERANCES[dtype])

    def times(self, count: int) -> Tolerances:
        """Return the tolerances for so many layers one after the other."""
        floats = {dtype: Tolerance(*(count * part for part in self.of(dtype))) for dtype in FLOAT_TOLERANCES}
        return Tolerances(floats, count * self.steps)

    def difference(
        self,
        array: Array,
        expected: Array,
        info: TensorInfo,
        inputs: Sequence[tuple[Array, TensorInfo]] = (),
        earlier: Array | None = None,
    ) -> str | None:
        """Describe how an array differs from the right one, with a hint at the cause; None if it is near enough.

        `inputs` are the arrays that the layer ran on and `earlier` is the result of the run before; both only serve
        the hint.
        """
        if (array.shape, array.dtype) != (expected.shape, expected.dtype):
            return f"{array.dtype}{list(array.shape)} instead of {expected.dtype}{list(expected.shape)}"
        if info.element is not None:
            errors = (self.difference(*pair, info.element) for pair in zip(array, expected, strict=True))
            return next((f"element {at}: {error}" for at, error in enumerate(errors) if error), None)
        with np.errstate(all="ignore"):
            wrong = ~np.asarray(self._near(array, expected, info))
        count = int(np.count_nonzero(wrong))
        if not count:
            return None
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        first = f"the first at {list(place)} is {array[place]} instead of {expected[place]}"
        cause = hint(Evidence(array, expected, wrong, info, self._compared(info), inputs, earlier))
        text = f"{count} of {array.size} elements are wrong by more than {self._stated(info)}; {first}"
        return f"{text}; hint: {cause}" if cause else text

    def is_near(self, array: Array, expected: Array, info: TensorInfo) -> bool:
        """Return True if `difference` would give None; quicker, as no hint is looked for."""
        if (array.shape, array.dtype) != (expected.shape, expected.dtype):
            return False
        if info.element is not None:
            return len(array) == len(expected) and all(map(partial(self.is_near, info=info.element), array, expected))
        with np.errstate(all="ignore"):
            return bool(np.all(self._near(array, expected, info)))

    def _compared(self, info: TensorInfo) -> Callable[[Array, Array], Array]:
        """Compare two arrays of float64 as elements of this info."""
        if info.dtype.is_float:
            return lambda result, expected: _near(result, expected, self.of(info.dtype))
        steps = self.steps if info.is_quantized else 0
        return lambda result, expected: np.asarray(np.abs(result - expected) <= steps)

    def _near(self, array: Array, expected: Array, info: TensorInfo) -> Array:
        if info.dtype.is_float:
            a, b = array.astype(np.float64), expected.astype(np.float64)
            return _same_bits(a, b) if self.bits else _near(a, b, self.of(info.dtype))
        if info.is_quantized:
            return np.asarray(_steps(array, expected) <= self.steps)
        return np.asarray(array == expected)

    def _stated(self, info: TensorInfo) -> str:
        if info.dtype.is_float:
            relative, absolute = self.of(info.dtype)
            if not relative and not absolute:
                return "nothing"
            return f"{relative:.3g} and {absolute:.3g} of the largest"
        return f"{self.steps} of {info.quantization}" if info.is_quantized else "nothing"


def _near(array: Array, expected: Array, tolerance: Tolerance) -> Array:
    finite = np.isfinite(expected)
    largest = np.abs(expected, where=finite, out=np.zeros_like(expected)).max(initial=0.0)
    allowed = tolerance.relative * np.abs(expected) + tolerance.absolute * largest
    close = np.abs(array - expected) <= allowed
    return np.asarray(np.where(finite, close, (array == expected) | (np.isnan(array) & np.isnan(expected))))


def _same_bits(array: Array, expected: Array) -> Array:
    """Return the same numbers with the same signs; any two that are not numbers count as the same."""
    alike = (array == expected) & (np.signbit(array) == np.signbit(expected))
    return np.asarray(alike | (np.isnan(array) & np.isnan(expected)))


def _steps(array: Array, expected: Array) -> Array:
    """Return how many steps two arrays of integers are apart; unsigned ones of 64 bits do not fit into signed ones."""
    low, high = np.minimum(array, expected), np.maximum(array, expected)
    return np.asarray(high.astype(np.uint64) - low.astype(np.uint64))


_MOST_BIAS: Final = 0.25
_FEWEST: Final = 400
_FEWEST_AT_END: Final = 16


def bias(array: Array, expected: Array, info: TensorInfo) -> str | None:
    """Describe a bias of a quantized result whose elements are all within one step; None if there is none.

    Results may be one step off, but not all in one direction. An element that is rounded to the nearest step is as
    often too high as too low, except for numbers halfway between two steps. Rounding down, up or towards zero is half
    a step off on average, and an offset of one step a whole step. The threshold is half of the smaller one: 0.25. The
    mean of 400 errors of at most one step has a standard deviation of at most 1 / sqrt(400) = 0.05, so that a result
    without a bias stays below it by five of them. Fewer elements are not judged. Elements at the ends of the range of
    the type cannot err in one of the directions, and are judged by themselves: most of them must be at the end.
    """
    if info.element is not None or not info.is_quantized or not info.dtype.is_integer:
        return None
    low, high = integer_range(info.dtype)
    a, b = array.astype(np.float64), expected.astype(np.float64)
    for end in (low, high):
        error = _end_missed(a, b, end)
        if error:
            return error
    inside = (b > low) & (b < high)
    count = int(np.count_nonzero(inside))
    if count < _FEWEST:
        return None
    off = np.where(inside, a - b, 0.0)
    mean, away = float(off.sum() / count), float((off * np.sign(b - _zero_points(info))).sum() / count)
    return _stated_bias(mean, away, count) if max(abs(mean), abs(away)) >= _MOST_BIAS else None


def _end_missed(array: Array, expected: Array, end: int) -> str | None:
    """Describe a clamp that misses an end of the range, if most of the results that saturate there do not reach it.

    Only a result that is within half a step of the end may be one step off, and that is one of many.
    """
    saturated = expected == end
    count, missed = int(np.count_nonzero(saturated)), int(np.count_nonzero(saturated & (array != end)))
    if count < _FEWEST_AT_END or missed <= count / 2:
        return None
    value = float(np.median(array[saturated]))
    text = f"{missed} of {count} elements that saturate at {end} are not {end} but mostly {value:g}"
    return f"{text}; hint: clamped to {value:g} instead of {end}?"


def _zero_points(info: TensorInfo) -> Array:
    q = info.quantization
    assert q is not None
    shape = [1] * info.rank
    if q.axis is not None:
        shape[q.axis] = -1
    return np.asarray(np.reshape(np.asarray(q.zero_points, np.float64), shape if q.axis is not None else ()))


def _stated_bias(mean: float, away: float, count: int) -> str:
    if abs(mean) >= abs(away):
        direction = "high" if mean > 0 else "low"
        size, cause = abs(mean), f"rounded {'up' if mean > 0 else 'down (floor)'} instead of to the nearest"
    else:
        direction = "far from zero" if away > 0 else "near to zero"
        size, cause = abs(away), "rounded away from zero" if away > 0 else "truncated instead of rounded"
    cause = "an offset of one step, in the rounding or the zero point" if size > 0.75 else cause
    text = f"{count} elements are on average {size:.2f} steps too {direction}, and may be {_MOST_BIAS}"
    return f"{text}; hint: {cause}?"


def same(array: Array, expected: Array) -> bool:
    """Return True if two arrays hold the same, bit by bit; any two that are not numbers count as the same."""
    if (array.shape, array.dtype) != (expected.shape, expected.dtype):
        return False
    if array.dtype.kind == "O":
        return all(map(_same_item, array.flat, expected.flat))
    if np.array_equal(_bytes(array), _bytes(expected)):
        return True
    if not DataType.of(array.dtype).is_float:
        return False
    with np.errstate(invalid="ignore"):  # as signaling NaNs become quiet ones
        return bool(np.array_equal(array.astype(np.float64), expected.astype(np.float64), equal_nan=True))


def _same_item(value: object, expected: object) -> bool:
    """Return two texts, or two elements of what is no tensor."""
    if isinstance(value, np.ndarray) and isinstance(expected, np.ndarray):
        return same(value, expected)
    return value == expected


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

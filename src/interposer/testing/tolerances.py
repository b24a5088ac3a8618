"""Tolerances: the allowed difference between results of a backend and of the reference.

==================  ==========================================================================================
float64             1e-9: sums are added in another order
float32             1e-4, and 1e-5 of the largest element: other orders of summation, approximated exponentials
float16             1e-2: ten steps, as devices sum in float16 and the reference sums in float32
bfloat16            4e-2: five steps, for the same reason
float8, 6 and 4     one step of the type, from 1/8 of the number to the number itself
quantized           one step, as results that are between two steps may be rounded either way
integers and bool   exact; texts as well
==================  ==========================================================================================

Operators that only move elements must reproduce every element bit by bit for any type: see `interposer.testing.exact`.

The allowed difference is relative to the element, plus a fraction of the largest absolute element of the tensor. The
second term covers small elements that result from cancellation. Infinities and NaN must be at the same positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from interposer.core.records import dataclass
from interposer.core.types import Array, DataType, TensorInfo, integer_range
from interposer.testing.hints import Evidence, hint
from interposer.testing.sample import along_axis

__all__ = ["FLOAT_TOLERANCES", "Tolerance", "Tolerances", "bias", "same"]


class Tolerance(NamedTuple):
    """The allowed difference of a float: a fraction of its own size, and a fraction of its tensor's largest element."""

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
    """How much results of a backend may differ from those of the reference, for all data types.

    Args:
        floats: tolerances by floating-point type that replace the default ones.
        steps: the number of steps by which a quantized element may differ.
        bits: True if elements must be equal bit by bit, including the sign of zero; any NaN equals any other NaN.
    """

    floats: Mapping[DataType, Tolerance] = field(default_factory=dict)
    steps: int = 1
    bits: bool = False

    def exact(self, *, bits: bool) -> Tolerances:
        """Return tolerances that allow no difference.

        With `bits`, elements must be equal bit by bit, otherwise -0.0 equals 0.0.
        """
        return replace(self, floats=dict.fromkeys(FLOAT_TOLERANCES, Tolerance(0.0, 0.0)), steps=0, bits=bits)

    def of(self, dtype: DataType) -> Tolerance:
        """Return the tolerance of a floating-point type."""
        return self.floats.get(dtype, FLOAT_TOLERANCES[dtype])

    def times(self, count: int) -> Tolerances:
        """Return tolerances that are `count` times as large, for results of `count` consecutive layers."""
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
        """Describe how an array differs from the expected one, with a hint at the cause; None if it is near enough.

        `inputs` are the input arrays of the layer and `earlier` is the result of the previous run; both only improve
        the hint.
        """
        if (array.shape, array.dtype) != (expected.shape, expected.dtype):
            return f"{array.dtype}{list(array.shape)} instead of {expected.dtype}{list(expected.shape)}"
        if info.element is not None:
            errors = (self.difference(*pair, info.element) for pair in zip(array, expected, strict=True))
            return next((f"element {position}: {error}" for position, error in enumerate(errors) if error), None)
        with np.errstate(all="ignore"):
            is_wrong = ~np.asarray(self._near(array, expected, info))
        count = int(np.count_nonzero(is_wrong))
        if not count:
            return None
        first_wrong = tuple(int(index) for index in np.argwhere(is_wrong)[0])
        example = f"the first at {list(first_wrong)} is {array[first_wrong]} instead of {expected[first_wrong]}"
        cause = hint(Evidence(array, expected, is_wrong, info, self._compared(info), inputs, earlier))
        message = f"{count} of {array.size} elements are wrong by more than {self._stated(info)}; {example}"
        return f"{message}; hint: {cause}" if cause else message

    def is_near(self, array: Array, expected: Array, info: TensorInfo) -> bool:
        """Return True if `difference` would return None. This method is faster, as it computes no hint."""
        if (array.shape, array.dtype) != (expected.shape, expected.dtype):
            return False
        if info.element is not None:
            return len(array) == len(expected) and all(map(partial(self.is_near, info=info.element), array, expected))
        with np.errstate(all="ignore"):
            return bool(np.all(self._near(array, expected, info)))

    def _compared(self, info: TensorInfo) -> Callable[[Array, Array], Array]:
        """Return a function that returns, for two float64 arrays, a mask of the elements equal within the tolerance."""
        if info.dtype.is_float:
            return lambda actual, expected: _near(actual, expected, self.of(info.dtype))
        steps = self.steps if info.is_quantized else 0
        return lambda actual, expected: np.asarray(np.abs(actual - expected) <= steps)

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
    allowed_differences = tolerance.relative * np.abs(expected) + tolerance.absolute * largest
    close = np.abs(array - expected) <= allowed_differences
    return np.asarray(np.where(finite, close, (array == expected) | (np.isnan(array) & np.isnan(expected))))


def _same_bits(array: Array, expected: Array) -> Array:
    """Return a mask, True for each element that has the same value and sign in both arrays.

    Any NaN equals any other NaN.
    """
    is_same = (array == expected) & (np.signbit(array) == np.signbit(expected))
    return np.asarray(is_same | (np.isnan(array) & np.isnan(expected)))


def _steps(array: Array, expected: Array) -> Array:
    """Return the differences of two integer arrays in steps, computed without overflow of 64-bit unsigned integers."""
    low, high = np.minimum(array, expected), np.maximum(array, expected)
    return np.asarray(high.astype(np.uint64) - low.astype(np.uint64))


_MOST_BIAS: Final = 0.25
_FEWEST: Final = 400
_FEWEST_AT_END: Final = 16


def bias(array: Array, expected: Array, info: TensorInfo) -> str | None:
    """Describe a bias of a quantized result whose elements are all within one step; None if there is none.

    Results may be one step off, but not all in one direction. Rounding to nearest errs in both directions equally
    often, except for values halfway between two steps. Rounding down, up or towards zero shifts the mean by half a
    step, and an offset by a whole step. The threshold is half of the smaller one: 0.25. The mean of 400 errors of at
    most one step has a standard deviation of at most 1 / sqrt(400) = 0.05, so the threshold is five standard deviations
    of an unbiased result. Results with fewer elements are not judged. Elements at the ends of the type's range can err
    in one direction only, and are judged separately: most of them must be at the end.
    """
    quantization = info.quantization
    if info.element is not None or quantization is None or not info.dtype.is_integer:
        return None
    low, high = integer_range(info.dtype)
    actual_values, expected_values = array.astype(np.float64), expected.astype(np.float64)
    for end in (low, high):
        error = _end_missed(actual_values, expected_values, end)
        if error:
            return error
    in_range = (expected_values > low) & (expected_values < high)
    count = int(np.count_nonzero(in_range))
    if count < _FEWEST:
        return None
    errors = np.where(in_range, actual_values - expected_values, 0.0)
    signs = np.sign(expected_values - along_axis(quantization.zero_points, quantization, expected_values.ndim))
    mean, outward = float(errors.sum() / count), float((errors * signs).sum() / count)
    return _stated_bias(mean, outward, count) if max(abs(mean), abs(outward)) >= _MOST_BIAS else None


def _end_missed(array: Array, expected: Array, end: int) -> str | None:
    """Describe a wrong clamp: most results that should saturate at `end`, an end of the type's range, do not reach it.

    None if there is no such error. Single results may be one step off, if they are within half a step of the end, and
    these are few.
    """
    is_saturated = expected == end
    count, num_missed = int(np.count_nonzero(is_saturated)), int(np.count_nonzero(is_saturated & (array != end)))
    if count < _FEWEST_AT_END or num_missed <= count / 2:
        return None
    typical_value = float(np.median(array[is_saturated]))
    message = f"{num_missed} of {count} elements that saturate at {end} are not {end} but mostly {typical_value:g}"
    return f"{message}; hint: clamped to {typical_value:g} instead of {end}?"


def _stated_bias(mean: float, outward: float, count: int) -> str:
    if abs(mean) >= abs(outward):
        direction = "high" if mean > 0 else "low"
        size, rounding_text = abs(mean), f"rounded {'up' if mean > 0 else 'down (floor)'} instead of to the nearest"
    else:
        direction = "far from zero" if outward > 0 else "near to zero"
        size, rounding_text = (
            abs(outward),
            "rounded away from zero" if outward > 0 else "truncated instead of rounded",
        )
    rounding_text = "an offset of one step, in the rounding or the zero point" if size > 0.75 else rounding_text
    message = f"{count} elements are on average {size:.2f} steps too {direction}, and may be {_MOST_BIAS}"
    return f"{message}; hint: {rounding_text}?"


def same(array: Array, expected: Array) -> bool:
    """Return True if two arrays are equal bit by bit; any NaN equals any other NaN."""
    if (array.shape, array.dtype) != (expected.shape, expected.dtype):
        return False
    if array.dtype.kind == "O":
        return all(map(_same_element, array.flat, expected.flat))
    if np.array_equal(_bytes(array), _bytes(expected)):
        return True
    if not DataType.of(array.dtype).is_float:
        return False
    with np.errstate(invalid="ignore"):  # as signaling NaNs become quiet ones
        return bool(np.array_equal(array.astype(np.float64), expected.astype(np.float64), equal_nan=True))


def _same_element(element: object, expected: object) -> bool:
    """Return True if two texts, or two elements of a sequence, are equal."""
    if isinstance(element, np.ndarray) and isinstance(expected, np.ndarray):
        return same(element, expected)
    return element == expected


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

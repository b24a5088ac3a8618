"""The difference of two arrays of the same tensor, and the allowed difference."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.core.records import dataclass
from interposer.core.types import Array, TensorInfo

__all__ = ["Divergence", "Tolerance"]

RELATIVE: Final = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 4e-2}
"""The allowed difference by float type, as a fraction of the largest element."""
SMALLEST: Final = 0.25
"""The allowed difference of floats of eight bits and fewer, as a fraction of the largest element."""


@dataclass(frozen=True)
class Divergence:
    """The largest difference of two arrays.

    `absolute` is in float values, or in steps of integers. `relative` is `absolute` divided by the largest element.
    `steps` is the largest difference in steps of integers, or for floats in units in the last place. `count` of `size`
    elements differ. A text says why the arrays cannot be compared, or where only one of two elements is infinite or
    NaN; the numbers are infinite then.
    """

    dtype: str
    absolute: float = 0.0
    relative: float = 0.0
    steps: float = 0.0
    count: int = 0
    size: int = 0
    fault: str = ""

    @property
    def differs(self) -> bool:
        """True if any element differs."""
        return bool(self.count or self.fault)

    def __str__(self) -> str:
        if self.fault:
            return self.fault
        if not self.differs:
            return "equal"
        share = f"{self.count} of {self.size} elements"
        if self.dtype in RELATIVE or self.dtype.startswith(("float", "bfloat")):
            return f"{self.absolute:.3g} ({self.relative:.2g} of the largest, {self.steps:.3g} ulp), {share}"
        return f"{self.absolute:g} {'step' if self.absolute == 1 else 'steps'}, {share}"

    @classmethod
    def between(cls, actual: Any, expected: Any, info: TensorInfo) -> Divergence:
        """Compare a result with the expected one; the elements of sequences are compared one by one.

        `info` describes the tensor: its data type names the type in the result. Arrays of different shapes or types
        give a divergence with an error, not an exception.
        """
        if isinstance(actual, list) or isinstance(expected, list) or actual is None or expected is None:
            return cls._of_elements(actual, expected, info)
        a, b, dtype = np.asarray(actual), np.asarray(expected), str(info.dtype)
        if a.shape != b.shape or a.dtype != b.dtype:
            return cls._faulty(dtype, f"{a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}")
        if not b.size:
            return cls(dtype)
        if b.dtype.kind == "O":
            count = int(np.count_nonzero(a != b))
            return cls(dtype, float(count > 0), float(count > 0), float(count > 0), count, b.size)
        return cls._of_numbers(a, b, dtype)

    @classmethod
    def _of_elements(cls, actual: Any, expected: Any, info: TensorInfo) -> Divergence:
        are_lists = isinstance(actual, list) and isinstance(expected, list)
        if not are_lists or len(actual) != len(expected):
            dtype = str(info.dtype)
            if actual is None and expected is None:
                return cls(dtype)
            return cls._faulty(dtype, "other elements than there should be")
        element_info = info.element or TensorInfo(..., info.dtype)
        divergences = [cls.between(*pair, element_info) for pair in zip(actual, expected, strict=True)]
        return max(divergences, key=lambda divergence: divergence.relative, default=cls(str(info.dtype)))

    @classmethod
    def _faulty(cls, dtype: str, fault: str) -> Divergence:
        return cls(dtype, math.inf, math.inf, math.inf, fault=fault)

    @classmethod
    def _of_numbers(cls, a: Array, b: Array, dtype: str) -> Divergence:
        with np.errstate(all="ignore"):
            x, y = a.astype(np.float64), b.astype(np.float64)
            is_equal = (a == b) | (np.isnan(x) & np.isnan(y))  # not x == y, which large integers are not exact in
            count = int(b.size - np.count_nonzero(is_equal))
            if not count:
                return cls(dtype, size=b.size)
            is_incomparable = ~is_equal & ~(np.isfinite(x) & np.isfinite(y))
            if is_incomparable.any():
                position = tuple(map(int, np.argwhere(is_incomparable)[0]))
                return cls._faulty(dtype, f"{a[position]} instead of {b[position]} at {list(position)}")
            differences = np.where(is_equal, 0.0, np.abs(x - y))
            largest_difference = float(differences.max())
            largest = float(np.abs(y[np.isfinite(y)]).max())
        return cls(
            dtype,
            largest_difference,
            largest_difference / largest if largest else math.inf,
            _steps(a, b, differences),
            count,
            b.size,
        )


def _steps(a: Array, b: Array, differences: Array) -> float:
    """Return the largest distance between an element of `a` and that of `b`, in representable values of their type.

    For integers this is the largest element of `differences`, which has the absolute differences. For floats it is
    counted in units in the last place, where `differences` is not 0.
    """
    if "float" not in str(a.dtype):
        return float(differences.max())
    size = f"i{a.dtype.itemsize}"
    lowest_integer = np.iinfo(size).min
    bit_patterns = [np.ascontiguousarray(array).view(size).astype(np.float64) for array in (a, b)]
    ordinals = [np.where(pattern < 0, lowest_integer - pattern, pattern) for pattern in bit_patterns]
    return float(np.abs(ordinals[0] - ordinals[1])[differences > 0].max())


@dataclass(frozen=True)
class Tolerance:
    """The allowed difference of two results of a layer.

    Args:
        relative: the allowed difference of floats as a fraction of the largest element; None means 1e-4 for float32,
            1e-2 for float16, 4e-2 for bfloat16, and 1e-9 for float64.
        steps: the allowed difference of quantized tensors in steps. Other integers must be equal.
    """

    relative: float | None = None
    steps: float = 1

    def __post_init__(self) -> None:
        for name, limit in (("relative", self.relative), ("steps", self.steps)):
            if limit is not None and not 0 <= limit < math.inf:
                raise InvalidArgumentError(f"the tolerance {name} must be 0 or more, not {limit!r}")

    def share(self, divergence: Divergence | None) -> float:
        """Return how large a divergence is in relation to the tolerance: above 1 is too large, 0 is equal."""
        if divergence is None or not divergence.differs:
            return 0.0
        if "float" in divergence.dtype:
            relative_limit = RELATIVE.get(divergence.dtype, SMALLEST) if self.relative is None else self.relative
            return _ratio(divergence.relative, relative_limit)
        is_small_integer = divergence.dtype in ("int8", "uint8", "int16", "uint16", "int4", "uint4")
        return _ratio(divergence.steps, self.steps if is_small_integer else 0.0)

    def exceeded(self, divergence: Divergence | None, layers: int = 1) -> bool:
        """Return True if a difference is too large after `layers` layers, each of which may add one tolerance."""
        return self.share(divergence) > layers

    def worst(self, divergences: Iterable[Divergence]) -> Divergence | None:
        """Return the divergence with the largest `share`, even within the tolerance; None if there are none."""
        return max(divergences, key=self.share, default=None)


def _ratio(number: float, limit: float) -> float:
    return number / limit if limit else math.inf

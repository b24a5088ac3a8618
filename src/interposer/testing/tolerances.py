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

A number may differ by its relative part, plus an absolute one that is taken of the largest number in the tensor: what
is small beside its neighbours is what they left over when they cancelled out. Infinities, and what is not a number,
must be in the same places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from interposer.types import Array, DataType, TensorInfo

__all__ = ["FLOAT_TOLERANCES", "Tolerance", "Tolerances", "same"]


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
    """What is allowed for every type; `floats` replaces what stands above, `steps` is for quantized tensors."""

    floats: Mapping[DataType, Tolerance] = field(default_factory=dict)
    steps: int = 1

    def of(self, dtype: DataType) -> Tolerance:
        """The tolerance of a floating-point type."""
        return self.floats.get(dtype, FLOAT_TOLERANCES[dtype])

    def times(self, count: int) -> Tolerances:
        """The tolerances for so many layers one after the other."""
        floats = {dtype: Tolerance(*(count * part for part in self.of(dtype))) for dtype in FLOAT_TOLERANCES}
        return Tolerances(floats, count * self.steps)

    def difference(self, found: Array, wanted: Array, info: TensorInfo) -> str | None:
        """In which way an array is not what was wanted, or None where it is near enough."""
        if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            return f"{found.dtype}{list(found.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
        if info.element is not None:
            faults = (self.difference(*pair, info.element) for pair in zip(found, wanted, strict=True))
            return next((f"element {at}: {fault}" for at, fault in enumerate(faults) if fault), None)
        with np.errstate(all="ignore"):
            wrong = ~self._near(found, wanted, info)
        count = int(np.count_nonzero(wrong))
        if not count:
            return None
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        first = f"the first at {list(place)} is {found[place]} instead of {wanted[place]}"
        return f"{count} of {found.size} elements are wrong by more than {self._stated(info)}; {first}"

    def _near(self, found: Array, wanted: Array, info: TensorInfo) -> Array:
        if info.dtype.is_float:
            return _near(found.astype(np.float64), wanted.astype(np.float64), self.of(info.dtype))
        if info.is_quantized:
            return np.asarray(_steps(found, wanted) <= self.steps)
        return np.asarray(found == wanted)

    def _stated(self, info: TensorInfo) -> str:
        if info.dtype.is_float:
            relative, absolute = self.of(info.dtype)
            return f"{relative:.3g} and {absolute:.3g} of the largest"
        return f"{self.steps} of {info.quantization}" if info.is_quantized else "nothing"


def _near(found: Array, wanted: Array, tolerance: Tolerance) -> Array:
    finite = np.isfinite(wanted)
    largest = np.abs(wanted, where=finite, out=np.zeros_like(wanted)).max(initial=0.0)
    allowed = tolerance.relative * np.abs(wanted) + tolerance.absolute * largest
    close = np.abs(found - wanted) <= allowed
    return np.asarray(np.where(finite, close, (found == wanted) | (np.isnan(found) & np.isnan(wanted))))


def _steps(found: Array, wanted: Array) -> Array:
    """How many steps two arrays of integers are apart; unsigned ones of 64 bits do not fit into signed ones."""
    low, high = np.minimum(found, wanted), np.maximum(found, wanted)
    return np.asarray(high.astype(np.uint64) - low.astype(np.uint64))


def same(found: Array, wanted: Array) -> bool:
    """True where two arrays hold the same, bit by bit; any two that are not numbers count as the same."""
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return False
    if found.dtype.kind == "O":
        return all(map(_same_item, found.flat, wanted.flat))
    if np.array_equal(_bytes(found), _bytes(wanted)):
        return True
    if not DataType.of(found.dtype).is_float:
        return False
    return bool(np.array_equal(found.astype(np.float64), wanted.astype(np.float64), equal_nan=True))


def _same_item(found: object, wanted: object) -> bool:
    """Two texts, or two elements of what is no tensor."""
    if isinstance(found, np.ndarray) and isinstance(wanted, np.ndarray):
        return same(found, wanted)
    return found == wanted


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

"""Observers: statistics of tensors over several samples, and the range that is quantized.

Every observer records minimum, maximum, mean and a histogram. They differ in the range that they derive from these:

- `MinMaxObserver`: smallest to largest value
- `MovingObserver`: moving averages of the smallest and the largest value of each sample
- `PercentileObserver`: without the smallest and the largest values, a given share of all
- `EntropyObserver`: the range with the least Kullback-Leibler divergence of the quantized from the real distribution
- `MseObserver`: the range with the least mean squared error of the quantized values
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from interposer.core.errors import InvalidArgumentError, did_you_mean
from interposer.core.types import Array

__all__ = [
    "OBSERVERS",
    "EntropyObserver",
    "Histogram",
    "MinMaxObserver",
    "MovingObserver",
    "MseObserver",
    "Observer",
    "PercentileObserver",
    "observer_named",
]

Floats = NDArray[np.float64]
_BINS: Final = 2048
_CANDIDATES: Final = 100
"""How many positions of a bound are tried when a range is searched."""


class Histogram:
    """Counts of values in bins of equal width, which becomes twice as wide when values are out of range.

    `low` is the lower bound of the first bin, and `width` the width of a bin.
    """

    def __init__(self, bins: int = _BINS) -> None:
        self.counts: NDArray[np.int64] = np.zeros(bins, np.int64)
        self.low = self.width = 0.0

    def add(self, values: Array) -> None:
        """Count finite float values; the array must not be empty."""
        low, high = float(values.min()), float(values.max())
        if not self.width:
            self._start(low, high)
        while high > self.high:
            self._widen(downwards=False)
        while low < self.low:
            self._widen(downwards=True)
        bins = ((values - np.float64(self.low)) / self.width).astype(np.int64)
        self.counts += np.bincount(np.clip(bins, 0, len(self.counts) - 1), minlength=len(self.counts))

    @property
    def high(self) -> float:
        """The upper bound of the last bin."""
        return self.low + self.width * len(self.counts)

    @property
    def centers(self) -> Floats:
        """The value in the middle of each bin."""
        return np.asarray(self.low + self.width * (np.arange(len(self.counts)) + 0.5), np.float64)

    def quantile(self, share: float) -> float:
        """Return the value below which this share of all values is, to the width of a bin."""
        cumulative_counts = np.concatenate([[0], np.cumsum(self.counts)])
        edges = self.low + self.width * np.arange(len(cumulative_counts))
        return float(np.interp(share * cumulative_counts[-1], cumulative_counts, edges))

    def _start(self, low: float, high: float) -> None:
        size = max(high - low, abs(low) * 1e-6, abs(high) * 1e-6, 1e-30)
        self.low, self.width = low, size / len(self.counts)

    def _widen(self, downwards: bool) -> None:
        half = len(self.counts) // 2
        pair_counts = self.counts.reshape(half, 2).sum(axis=1)
        empty_counts = np.zeros(half, np.int64)
        self.low -= self.width * len(self.counts) if downwards else 0.0
        self.counts = np.concatenate([empty_counts, pair_counts] if downwards else [pair_counts, empty_counts])
        self.width *= 2


class Observer:
    """Statistics of one tensor: minimum, maximum, mean, a histogram, and the range to quantize.

    `name` is the name by which users choose the observer. `count` is the number of finite values, and `infinite` the
    number of values that are infinite or NaN, which are otherwise ignored.
    """

    name: ClassVar[str] = ""

    def __init__(self) -> None:
        self.low, self.high = math.inf, -math.inf
        self.total = 0.0
        self.count = self.infinite = 0
        self.histogram = Histogram()

    def observe(self, values: Array) -> None:
        """Add the values of one sample; floats of any shape, which may be empty."""
        flat_values = np.asarray(values).reshape(-1)
        finite = (
            flat_values[np.isfinite(flat_values)] if not np.isfinite(flat_values.sum(dtype=np.float64)) else flat_values
        )
        self.infinite += flat_values.size - finite.size
        if not finite.size:
            return
        float32_values = finite.astype(np.float32, copy=False)
        self.count += float32_values.size
        self.total += float(float32_values.sum(dtype=np.float64))
        self.histogram.add(float32_values)
        self._add(float(float32_values.min()), float(float32_values.max()))

    @property
    def mean(self) -> float:
        """The mean of all finite values; 0 if there are none."""
        return self.total / self.count if self.count else 0.0

    def range(self, levels: int = 256) -> tuple[float, float]:
        """Return the bounds to quantize with this number of quantized values; (0, 0) if nothing was observed."""
        return self._range(levels) if self.count else (0.0, 0.0)

    def _add(self, low: float, high: float) -> None:
        self.low, self.high = min(self.low, low), max(self.high, high)

    def _range(self, levels: int) -> tuple[float, float]:
        return self.low, self.high


class MinMaxObserver(Observer):
    """Quantizes from the smallest to the largest value."""

    name = "minmax"


class MovingObserver(Observer):
    """Quantizes between moving averages of the smallest and the largest value of each sample.

    Each sample contributes `weight`; the samples before it contribute the rest.
    """

    name = "moving"

    def __init__(self, weight: float = 0.1) -> None:
        super().__init__()
        self.weight = weight
        self.averages: tuple[float, float] | None = None

    def _add(self, low: float, high: float) -> None:
        super()._add(low, high)
        averages = self.averages or (low, high)
        self.averages = (
            averages[0] + self.weight * (low - averages[0]),
            averages[1] + self.weight * (high - averages[1]),
        )

    def _range(self, levels: int) -> tuple[float, float]:
        return self.averages or (0.0, 0.0)


class PercentileObserver(Observer):
    """Quantizes the given percentage of all values; half of the others are below the range, and half above."""

    name = "percentile"

    def __init__(self, percentile: float = 99.99) -> None:
        super().__init__()
        self.percentile = percentile

    def _range(self, levels: int) -> tuple[float, float]:
        outside_share = (1 - self.percentile / 100) / 2
        low, high = self.histogram.quantile(outside_share), self.histogram.quantile(1 - outside_share)
        return min(max(low, self.low), self.high), max(min(high, self.high), self.low)


class _SearchingObserver(Observer):
    """Base class of observers that try many ranges, and choose the one with the least loss."""

    def _range(self, levels: int) -> tuple[float, float]:
        low, high = min(0.0, self.low), max(0.0, self.high)
        for _ in range(2):
            low, high = self._best([(low, high * share) for share in self._shares(levels)], levels)
            low, high = self._best([(low * share, high) for share in self._shares(levels)], levels)
        return low, high

    def _best(self, ranges: Sequence[tuple[float, float]], levels: int) -> tuple[float, float]:
        """Return the range with the least loss, the widest of several; all zero bounds are equal and return at once."""
        if len(set(ranges)) == 1:
            return ranges[0]
        losses = [self._loss(low, high, levels) for low, high in ranges]
        return ranges[int(np.argmin(losses))]

    def _loss(self, low: float, high: float, levels: int) -> float:
        raise NotImplementedError

    def _shares(self, levels: int) -> list[float]:
        """Return the factors on a bound that are tried, from 1 to one that leaves a bin of the histogram a level."""
        least_share = min(1.0, levels * self.histogram.width / max(self.high - self.low, self.histogram.width))
        return [float(share) for share in np.linspace(1.0, least_share, _CANDIDATES)]


class MseObserver(_SearchingObserver):
    """Quantizes the range with the least mean squared error, as computed from the histogram."""

    name = "mse"

    def _loss(self, low: float, high: float, levels: int) -> float:
        centers, step = self.histogram.centers, (high - low) / (levels - 1)
        if not step:
            return math.inf
        rounded_centers = np.clip(np.rint((centers - low) / step), 0, levels - 1) * step + low
        is_within = (centers > low) & (centers < high)
        errors = np.where(is_within, step * step / 12, (centers - rounded_centers) ** 2)
        return float((errors * self.histogram.counts).sum())


class EntropyObserver(_SearchingObserver):
    """Quantizes the range with the least Kullback-Leibler divergence of the quantized from the real distribution.

    Values in the bin of zero are left out, as zero is always exact, and many values may be zero after a RELU.
    """

    name = "entropy"

    def _loss(self, low: float, high: float, levels: int) -> float:
        centers, counts = self.histogram.centers, self.histogram.counts.astype(np.float64)
        counts[np.abs(centers) <= self.histogram.width / 2] = 0
        is_within = (centers >= low) & (centers <= high)
        if not counts[is_within].sum():
            return math.inf
        real_counts = counts[is_within]
        groups = np.minimum(((centers[is_within] - low) / ((high - low) / levels)).astype(np.int64), levels - 1)
        occupied = (real_counts > 0).astype(np.float64)
        shares = np.bincount(groups, real_counts, levels) / np.maximum(np.bincount(groups, occupied, levels), 1)
        quantized_shares = shares[groups] * occupied
        reference = real_counts.copy()
        reference[0] += counts[centers < low].sum()
        reference[-1] += counts[centers > high].sum()
        return _divergence(reference, quantized_shares)


def _divergence(reference: Floats, quantized: Floats) -> float:
    """Return the Kullback-Leibler divergence of two lists of counts; a count of 0 is smoothed if the other is not."""
    p, q = reference / reference.sum(), quantized / quantized.sum()
    smallest = 1e-10
    is_positive = p > 0
    return float((p[is_positive] * np.log(p[is_positive] / np.maximum(q[is_positive], smallest))).sum())


OBSERVERS: Final[dict[str, type[Observer]]] = {
    observer.name: observer
    for observer in (MinMaxObserver, MovingObserver, PercentileObserver, EntropyObserver, MseObserver)
}
"""The observers by name."""


def observer_named(name: str, percentile: float = 99.99) -> Callable[[], Observer]:
    """Return a function that creates observers of this name.

    Raises:
        InvalidArgumentError: there is no observer of this name, or the percentile is not above 50 and at most 100.
    """
    kind = OBSERVERS.get(name)
    if kind is None:
        raise InvalidArgumentError(
            f"unknown observer {name!r}{did_you_mean(str(name), OBSERVERS)} (known: {', '.join(OBSERVERS)})"
        )
    if not 50 < percentile <= 100:
        raise InvalidArgumentError(f"the percentile must be above 50 and at most 100, not {percentile:.12g}")
    arguments: dict[str, Any] = {"percentile": percentile} if kind is PercentileObserver else {}
    return lambda: kind(**arguments)

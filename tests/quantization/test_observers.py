"""Observers: the ranges that they derive from the same values."""

from __future__ import annotations

import numpy as np
import pytest

from interposer.core.types import DataType
from interposer.quantization.observers import OBSERVERS, Histogram, Observer, observer_named
from interposer.quantization.schemes import quantization_of, quantized_array

VALUES = np.random.default_rng(0).standard_normal(20000).astype(np.float32)
WITH_OUTLIER = np.append(VALUES, np.float32(60))


def observed(name: str, *arrays: np.ndarray) -> Observer:
    observer = observer_named(name)()
    for array in arrays:
        observer.observe(array)
    return observer


def squared_error(bounds: tuple[float, float], values: np.ndarray) -> float:
    q = quantization_of(*bounds, DataType.INT8, symmetric=False)
    codes = quantized_array(values, q, DataType.INT8).astype(float)
    return float((((codes - q.zero_point) * q.scale - values) ** 2).mean())


def test_a_histogram_counts_every_value_while_its_range_grows_in_both_directions():
    histogram = Histogram(8)
    for array in ([0.0, 1.0], [5.0], [-20.0, 3.0], [0.5]):
        histogram.add(np.float32(array))
    assert histogram.counts.sum() == 6
    assert histogram.low <= -20
    assert histogram.high >= 5


def test_a_histogram_of_equal_values_can_grow():
    histogram = Histogram(8)
    histogram.add(np.float32([3, 3]))
    histogram.add(np.float32([-1, 7]))
    assert histogram.counts.sum() == 4


@pytest.mark.parametrize("name", OBSERVERS)
def test_every_observer_covers_most_values_and_never_more_than_were_observed(name):
    low, high = observed(name, VALUES[:10000], VALUES[10000:]).range()
    assert VALUES.min() - 1e-3 <= low < -2
    assert 2 < high <= VALUES.max() + 1e-3


@pytest.mark.parametrize("name", ["percentile", "entropy"])
def test_some_observers_cut_off_a_single_outlier(name):
    low, high = observed(name, WITH_OUTLIER).range()
    assert high < 30
    assert squared_error((low, high), VALUES) < squared_error(observed("minmax", WITH_OUTLIER).range(), VALUES)


def test_the_observer_of_squared_errors_has_the_least_error():
    best = observed("mse", WITH_OUTLIER).range()
    assert squared_error(best, WITH_OUTLIER) <= 1.01 * min(
        squared_error(observed(name, WITH_OUTLIER).range(), WITH_OUTLIER) for name in OBSERVERS
    )


def test_moving_averages_follow_later_samples_slowly():
    assert observed("moving", np.float32([0, 1]), np.float32([0, 2])).range() == (0.0, pytest.approx(1.1))


@pytest.mark.parametrize("name", OBSERVERS)
@pytest.mark.parametrize("values", [[], [0.0, 0.0], [2.0], [-3.0, -3.0]])
def test_every_observer_accepts_empty_and_constant_tensors(name, values):
    low, high = observed(name, np.float32(values)).range()
    assert low <= high
    assert np.isfinite([low, high]).all()


def test_values_that_are_not_finite_are_counted_and_left_out():
    observer = observed("minmax", np.float32([np.nan, np.inf, 1, -2]))
    assert (observer.infinite, observer.count, observer.range(), observer.mean) == (2, 2, (-2.0, 1.0), -0.5)

"""Kernels of TopK and RandomMultinomial."""

from __future__ import annotations

import numpy as np

from interposer.core.types import ANY_TYPE, STORED_FLOATS, Array, DataType
from interposer.kernels.philox import stream, uniform64
from interposer.kernels.reference import kernel
from interposer.ops.choice import RandomMultinomial, TopK

__all__: list[str] = []

ORDERED = ANY_TYPE - STORED_FLOATS - {DataType.STRING}


@kernel(TopK, dtypes={"input": ORDERED})
def top_k(op: TopK, x: Array) -> tuple[Array, Array]:
    """Compute `TopK` by a stable sort, of the reversed axis for the largest elements: lower indices come first."""
    rows = np.moveaxis(x, op.axis, -1)
    numbers = rows.astype(np.float64) if x.dtype.kind not in "biu" else rows
    if op.largest:
        order = rows.shape[-1] - 1 - np.argsort(numbers[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        order = np.argsort(numbers, axis=-1, kind="stable")
    order = order[..., : op.k]
    values = np.take_along_axis(rows, order, axis=-1)
    return np.moveaxis(values, -1, op.axis), np.moveaxis(order, -1, op.axis)


@kernel(RandomMultinomial)
def random_multinomial(op: RandomMultinomial, logits: Array, seeds: Array | None) -> Array:
    """Compute `RandomMultinomial`: uniform random numbers are looked up in the cumulative probabilities of each row.

    Infinite logits and NaN have no probability.
    """
    weights = logits.astype(np.float64)
    is_finite = np.isfinite(weights)
    greatest = np.where(is_finite, weights, -np.inf).max(axis=1, keepdims=True, initial=-1e308)
    sums = np.where(is_finite, np.exp(np.where(is_finite, weights - greatest, 0)), 0).cumsum(axis=1)
    drawn = _uniform(seeds, len(logits) * op.num_samples).reshape(-1, op.num_samples) * sums[:, -1:]
    result = [np.searchsorted(row, numbers, side="right") for row, numbers in zip(sums, drawn, strict=True)]
    classes = np.array(result, np.int64).reshape(drawn.shape)
    return classes.clip(max=logits.shape[1] - 1)


def _uniform(seeds: Array | None, count: int) -> Array:
    """Return `count` float64 numbers from 0 to 1, from TensorFlow's Philox generator if there are seeds."""
    if seeds is None or not seeds.any():
        return np.random.default_rng().random(count)
    return uniform64(stream(int(seeds[0]), int(seeds[1]), 2 * count))[:count]

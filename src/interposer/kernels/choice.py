"""Kernels of TopK and RandomMultinomial."""

from __future__ import annotations

import numpy as np

from interposer.core.types import ANY_TYPE, STORED_FLOATS, Array, DataType
from interposer.kernels.philox import stream, uniform64
from interposer.kernels.real import WIDE_FLOATS
from interposer.kernels.reference import kernel
from interposer.ops.choice import RandomMultinomial, TopK

__all__: list[str] = []

ORDERED = ANY_TYPE - STORED_FLOATS - {DataType.STRING}


@kernel(TopK, dtypes={"input": ORDERED})
def top_k(op: TopK, x: Array) -> tuple[Array, Array]:
    """Compute `TopK` by a stable sort, of the reversed axis for the largest elements: lower indices come first."""
    rows = np.moveaxis(x, op.axis, -1)
    sort_keys = rows.astype(np.float64) if x.dtype.kind not in "biu" else rows
    if op.largest:
        indices = rows.shape[-1] - 1 - np.argsort(sort_keys[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        indices = np.argsort(sort_keys, axis=-1, kind="stable")
    indices = indices[..., : op.k]
    values = np.take_along_axis(rows, indices, axis=-1)
    return np.moveaxis(values, -1, op.axis), np.moveaxis(indices, -1, op.axis)


@kernel(RandomMultinomial, dtypes={"logits": WIDE_FLOATS})
def random_multinomial(op: RandomMultinomial, logits: Array, seeds: Array | None) -> Array:
    """Compute `RandomMultinomial`: uniform random numbers are looked up in the cumulative probabilities of each row.

    Infinite logits and NaN have no probability.
    """
    wide_logits = logits.astype(np.float64)
    is_finite = np.isfinite(wide_logits)
    greatest_logits = np.where(is_finite, wide_logits, -np.inf).max(axis=1, keepdims=True, initial=-1e308)
    cumulative_weights = np.where(is_finite, np.exp(np.where(is_finite, wide_logits - greatest_logits, 0)), 0).cumsum(
        axis=1
    )
    thresholds = _uniform(seeds, len(logits) * op.num_samples).reshape(-1, op.num_samples) * cumulative_weights[:, -1:]
    sampled_rows = [
        np.searchsorted(cumulative, row_thresholds, side="right")
        for cumulative, row_thresholds in zip(cumulative_weights, thresholds, strict=True)
    ]
    classes = np.array(sampled_rows, np.int64).reshape(thresholds.shape)
    return classes.clip(max=logits.shape[1] - 1)


def _uniform(seeds: Array | None, count: int) -> Array:
    """Return `count` float64 numbers from 0 to 1, from TensorFlow's Philox generator if there are seeds."""
    if seeds is None or not seeds.any():
        return np.random.default_rng().random(count)
    return uniform64(stream(int(seeds[0]), int(seeds[1]), 2 * count))[:count]

"""Samples of RandomFill."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from interposer.core.types import DataType
from interposer.ops import Distribution, RandomFill
from interposer.testing.sample import Sample, of, samples
from interposer.testing.samples.common import FLOATS, f32

__all__: list[str] = []


@samples(RandomFill)
def drawn() -> Iterator[Sample]:
    """Yield RandomFill samples: both distributions in every type, with and without a seed, and an empty tensor."""
    for distribution in Distribution:
        for dtype in FLOATS:
            for seed in (3, None):
                op = RandomFill(distribution, -1, 2, seed, dtype)
                title = f"{distribution.value}-{dtype}-{'seed' if seed else 'free'}"
                yield Sample(op, [of([3, 4], DataType.INT64, constant=True)], name=title, statistical=True)
    yield Sample(
        RandomFill(), [of([0, 4], DataType.INT32, constant=True)], name="empty", expected=[np.zeros((0, 4), "f")]
    )
    sure = RandomFill(Distribution.NORMAL, 5, 0)
    yield Sample(sure, [of([2], DataType.INT32, constant=True)], name="worked", expected=[f32([5, 5])])

"""Samples of TopK and RandomMultinomial."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from interposer.core.types import DataType
from interposer.ops import RandomMultinomial, TopK
from interposer.testing.sample import Sample, given, of, samples
from interposer.testing.samples.common import FLOATS, f32, i32, typed

__all__: list[str] = []


@samples(TopK)
def top_k() -> Iterator[Sample]:
    """Yield TopK samples of the largest and the smallest elements, along each axis and in every type."""
    for op in (TopK(3), TopK(2, axis=0), TopK(3, largest=False, index_dtype=DataType.INT64), TopK(0, axis=1)):
        name = f"{op.k}-axis{op.axis}-{'largest' if op.largest else 'smallest'}"
        for title, operand in typed((4, 5), leave_out=[DataType.STRING]):
            yield Sample(op, [operand], name=f"{name}-{title}")


@samples(TopK)
def worked() -> Iterator[Sample]:
    """Yield a worked TopK example in which the first of equal elements is selected."""
    expected = [f32([[5, 2], [7, 7]]), i32([[1, 0], [1, 2]])]
    yield Sample(TopK(2), [of([[2, 5, 2], [1, 7, 7]])], name="worked", expected=expected)


@samples(RandomMultinomial)
def drawn() -> Iterator[Sample]:
    """Yield RandomMultinomial samples with and without seeds, and one in which a single class is possible."""
    for dtype in FLOATS:
        for index_dtype in (DataType.INT32, DataType.INT64):
            for seeds in (of([37, 42], DataType.INT32), None):
                op, title = RandomMultinomial(20, index_dtype), f"{dtype}-{index_dtype}-{seeds is not None}"
                yield Sample(op, [given((2, 6), dtype), seeds], name=title, statistical=True)
    certain_weights = of([[-np.inf, 0.0, -np.inf]])
    yield Sample(RandomMultinomial(4), [certain_weights, None], name="worked", expected=[i32([[1, 1, 1, 1]])])

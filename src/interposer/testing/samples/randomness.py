"""Samples of RandomFill and RandomBits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from interposer.core.types import DataType
from interposer.ops import BitGenerator, Distribution, RandomBits, RandomFill, RandomGenerator
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
    certain_fill = RandomFill(Distribution.NORMAL, 5, 0)
    yield Sample(certain_fill, [of([2], DataType.INT32, constant=True)], name="worked", expected=[f32([5, 5])])
    for distribution in Distribution:
        op = RandomFill(distribution, -1, 2, 3, generator=RandomGenerator.PHILOX, seed2=4)
        shape = of([3, 4], DataType.INT64, constant=True)
        yield Sample(op, [shape], name=f"{distribution.value}-philox", statistical=True)


@samples(RandomBits)
def bits() -> Iterator[Sample]:
    """Yield RandomBits samples: each generator with each size of its state, in every type, and an empty tensor."""
    for generator, sizes in ((BitGenerator.THREEFRY, (2,)), (BitGenerator.PHILOX, (2, 3))):
        for size in sizes:
            state = of(np.arange(7, 7 + size), DataType.UINT64)
            for dtype in (DataType.UINT32, DataType.UINT64, DataType.INT32, DataType.INT64):
                for shape in ((3, 5), (), (0, 4)):
                    name = f"{generator.value}-{size}-{dtype}-{list(shape)}"
                    yield Sample(RandomBits(shape, generator, dtype), [state], name=name)

"""Samples of operators whose number of output elements depends on the data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from interposer.core.types import DataType
from interposer.ops import Compress, NonZero, Unique
from interposer.testing.sample import Sample, given, of, samples
from interposer.testing.samples.common import PLAIN, QUANTIZED, TINY_QUANTIZED, f32, plain, quantized, typed

__all__: list[str] = []


@samples(NonZero)
def places() -> Iterator[Sample]:
    """Yield NonZero samples: every type and rank, with all and no elements selected."""
    for dtype in PLAIN:
        if dtype is not DataType.STRING:
            low = 0.0 if str(dtype).startswith("uint") else -1.0
            yield Sample(NonZero(), [plain((3, 4), dtype, low=low, high=1.0)], name=f"type-{dtype}")
    for dtype, quantization in {**QUANTIZED, **TINY_QUANTIZED}.items():
        yield Sample(
            NonZero(),
            [given((3, 4), dtype, quantization, low=-quantization.scale, high=quantization.scale)],
            name=f"quantized-{dtype}",
        )
    for shape in ((5,), (2, 1, 2, 3), (0, 3)):
        yield Sample(NonZero(), [given(shape)], name="x".join(map(str, shape)))
    yield Sample(NonZero(), [of(np.zeros((2, 2)))], name="nothing")
    worked = [of([[0, 5, 0], [7, 0, 8]])]
    yield Sample(NonZero(), worked, name="worked", expected=[np.array([[0, 1, 1], [1, 0, 2]])])


@samples(Compress)
def chosen() -> Iterator[Sample]:
    """Yield Compress samples: every axis and none, short, constant and false conditions, and every type."""
    for axis in (None, 0, 1, -1):
        for bits in ((True, False, True), (False, True), (False,), (), (True, True)):
            for constant in (False, True):
                name = f"axis{axis}-{''.join(str(int(bit)) for bit in bits)}-{'known' if constant else 'given'}"
                condition = of(bits, DataType.BOOL, constant=constant)
                yield Sample(Compress(axis), [given((3, 3, 3)), condition], name=name)
    for label, x in typed((3, 2)):
        yield Sample(Compress(0), [x, of([True, False, True], DataType.BOOL)], name=f"type-{label}")
    worked = [of([[1, 2, 3], [4, 5, 6]]), of([True, False, True], DataType.BOOL)]
    yield Sample(Compress(1), worked, name="worked", expected=[f32([[1, 3], [4, 6]])])


@samples(Unique)
def different() -> Iterator[Sample]:
    """Yield Unique samples: every type, sorted and unsorted, of elements and of slices along every axis."""
    for is_sorted in (True, False):
        title = "sorted" if is_sorted else "first"
        for dtype in PLAIN:
            low = 0.0 if str(dtype).startswith("uint") else -2.0
            yield Sample(Unique(sorted=is_sorted), [plain((3, 4), dtype, low=low, high=2.0)], name=f"{title}-{dtype}")
            rows = plain((4, 2), dtype, low=low / 2, high=1.0)
            yield Sample(Unique(0, is_sorted), [rows], name=f"{title}-rows-{dtype}")
        for dtype, quantization in {**QUANTIZED, **TINY_QUANTIZED}.items():
            yield Sample(
                Unique(sorted=is_sorted), [quantized((4, 4), dtype, quantization)], name=f"{title}-quantized-{dtype}"
            )
        for axis in (0, 1, 2, -1):
            x = plain((3, 3, 3), DataType.INT32, low=0.0, high=1.0)
            yield Sample(Unique(axis, is_sorted), [x], name=f"{title}-axis{axis}")
        for shape in ((0,), (2, 0), (1, 1)):
            yield Sample(Unique(0, is_sorted), [given(shape)], name=f"{title}-shape-{'x'.join(map(str, shape))}")
    yield Sample(Unique(index_dtype=DataType.INT32), [plain((5,), DataType.INT32)], name="narrow-indices")
    worked_input = of([3, 1, 1, 3, 2])
    for is_sorted, values, index_rows in (
        (True, [1, 2, 3], ([1, 4, 0], [2, 0, 0, 2, 1], [2, 1, 2])),
        (False, [3, 1, 2], ([0, 1, 4], [0, 1, 1, 0, 2], [2, 2, 1])),
    ):
        expected = [f32(values), *(np.array(row, np.int64) for row in index_rows)]
        yield Sample(Unique(sorted=is_sorted), [worked_input], name=f"worked-{is_sorted}", expected=expected)

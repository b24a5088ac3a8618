"""Samples of CumSum, CumProd, ReverseSequence and Range."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops import CumProd, CumSum, Range, ReverseSequence
from interposer.testing.sample import Sample, given, of, samples
from interposer.testing.samples.common import FLOATS, INTEGERS, QUANTIZED, SMALL_FLOATS, f32, i32, plain, typed

__all__: list[str] = []

SHAPE = (2, 3, 4)


@samples(CumSum, CumProd)
def accumulations() -> Iterator[Sample]:
    """Yield CumSum and CumProd samples: every axis and type, forwards and backwards, inclusive and exclusive."""
    for kind in (CumSum, CumProd):
        for exclusive in (False, True):
            for reverse in (False, True):
                title = f"{'exclusive' if exclusive else 'inclusive'}-{'backwards' if reverse else 'forwards'}"
                for axis in (-1, 0, 1):
                    yield Sample(kind(axis, exclusive, reverse), [given(SHAPE)], name=f"{title}-axis{axis}")
                for dtype in (*FLOATS, *SMALL_FLOATS):
                    x = plain(SHAPE, dtype, low=-2, high=2)
                    yield Sample(kind(1, exclusive, reverse), [x], name=f"{title}-{dtype}")
                for dtype in INTEGERS:
                    x = plain(SHAPE, dtype, low=-9, high=9)
                    yield Sample(kind(1, exclusive, reverse), [x], name=f"{title}-{dtype}")
                for dtype, quantization in QUANTIZED.items():
                    output = TensorInfo(SHAPE, dtype, Quantization(quantization.scale * 3, quantization.zero_point))
                    x = given(SHAPE, dtype, quantization, low=-1, high=1)
                    yield Sample(kind(1, exclusive, reverse), [x], [output], f"{title}-quantized-{dtype}")
        for shape in ((5,), (1, 1), (0, 3), (2, 0)):
            yield Sample(kind(), [given(shape)], name=f"shape-{'x'.join(map(str, shape))}")


@samples(CumSum, CumProd)
def worked_accumulations() -> Iterator[Sample]:
    """Yield worked CumSum and CumProd examples with four numbers."""
    for op, title, expected in (
        (CumSum(), "plain", [1, 3, 6, 10]),
        (CumSum(exclusive=True), "exclusive", [0, 1, 3, 6]),
        (CumSum(reverse=True), "reverse", [10, 9, 7, 4]),
        (CumSum(exclusive=True, reverse=True), "both", [9, 7, 4, 0]),
        (CumProd(), "plain", [1, 2, 6, 24]),
        (CumProd(exclusive=True), "exclusive", [1, 1, 2, 6]),
        (CumProd(reverse=True), "reverse", [24, 24, 12, 4]),
        (CumProd(exclusive=True, reverse=True), "both", [24, 12, 4, 1]),
    ):
        yield Sample(op, [of([1, 2, 3, 4])], name=f"worked-{title}", expected=[f32(expected)])


@samples(ReverseSequence)
def reversed_sequences() -> Iterator[Sample]:
    """Yield ReverseSequence samples: every type, several axes, both types of lengths, and empty tensors."""
    for label, x in typed((4, 3, 2)):
        yield Sample(ReverseSequence(), [x, of([0, 4, 3], DataType.INT64)], name=f"type-{label}")
    for time, batch in ((1, 0), (0, 2), (-1, 1), (2, -3)):
        lengths = of([2, 1, 0, 2][: (4, 3, 2)[batch]], DataType.INT32)
        yield Sample(ReverseSequence(time, batch), [given((4, 3, 2)), lengths], name=f"axes{time}-{batch}")
    yield Sample(ReverseSequence(), [given((0, 2)), of([0, 0], DataType.INT32)], name="empty")
    rows, expected = of([[1, 2, 3], [4, 5, 6]]), f32([[2, 1, 3], [6, 5, 4]])
    yield Sample(ReverseSequence(1, 0), [rows, of([2, 3], DataType.INT32)], name="worked", expected=[expected])


@samples(Range)
def ranges() -> Iterator[Sample]:
    """Yield Range samples: every numeric type, constant and input bounds, upwards, downwards and empty ranges."""
    for constant in (False, True):
        for dtype in (*FLOATS, *INTEGERS):
            numbers = [of(number, dtype, constant=constant) for number in (3, 20, 4)]
            name = f"{'known' if constant else 'given'}-{dtype}"
            yield Sample(Range(), numbers, name=name, expected=[np.arange(3, 20, 4).astype(dtype.numpy)])
    descending = [of(number, DataType.INT32) for number in (5, -2, -3)]
    yield Sample(Range(), descending, name="worked-down", expected=[i32([5, 2, -1])])
    yield Sample(Range(), [of(1.0), of(2.2), of(0.5)], name="worked-parts", expected=[f32([1, 1.5, 2])])
    yield Sample(Range(), [of([4]), of([1]), of([1])], name="worked-empty", expected=[f32([])])

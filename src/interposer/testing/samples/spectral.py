"""Samples of the signal processing operators."""

from __future__ import annotations

from collections.abc import Iterator

from interposer.core.types import DataType
from interposer.ops import Dft, MelWeightMatrix, SignalWindow, Stft, WindowFunction
from interposer.testing.sample import Sample, given, of, samples
from interposer.testing.samples.common import FLOATS, INTEGERS, TINY_INTEGERS, f32

__all__: list[str] = []

INT32, INT64 = DataType.INT32, DataType.INT64


@samples(Dft)
def transforms() -> Iterator[Sample]:
    """Yield Dft samples: forward and inverse transforms, real and complex, other lengths and axes, and every type."""
    for parts in (1, 2):
        for inverse in (False, True):
            for onesided in (False, True):
                if onesided and not inverse and parts == 2:
                    continue
                title = f"{parts}-{'inverse' if inverse else 'forward'}-{'onesided' if onesided else 'whole'}"
                for length in (None, 3, 8):
                    op = Dft(length=length, inverse=inverse, onesided=onesided)
                    yield Sample(op, [given((2, 5, parts))], name=f"{title}-{length or 'all'}")
                for axis in (0, 1, 2, -3):
                    op = Dft(axis, inverse=inverse, onesided=onesided)
                    yield Sample(op, [given((3, 4, 5, parts))], name=f"{title}-axis{axis}")
    for dtype in FLOATS:
        yield Sample(Dft(onesided=True), [given((2, 6, 1), dtype)], name=f"type-{dtype}")
    yield Sample(Dft(), [given((0, 4, 1))], name="empty")
    expected = f32([[[4, 0], [-1, 1], [-2, 0], [-1, -1]]])
    yield Sample(Dft(), [of([[[0], [1], [1], [2]]])], name="worked", expected=[expected])
    op = Dft(inverse=True, onesided=True)
    yield Sample(op, [of([[[4, 0], [-1, 1], [-2, 0]]])], name="worked-back", expected=[f32([[[0], [1], [1], [2]]])])


@samples(Stft)
def frames() -> Iterator[Sample]:
    """Yield Stft samples: frames that overlap or not, with and without a window, real and complex, and every type."""
    for dtype in FLOATS:
        for onesided in (True, False):
            op = Stft(2, 4, onesided)
            name = f"{'onesided' if onesided else 'whole'}-{dtype}"
            yield Sample(op, [given((2, 9, 1), dtype)], name=name)
            yield Sample(op, [given((2, 9, 1), dtype), given((4,), dtype)], name=f"{name}-window")
    yield Sample(Stft(3, 2, False), [given((1, 8, 2)), given((2,))], name="complex")
    yield Sample(Stft(5, 8), [given((1, 8, 1))], name="one-frame")
    worked = [of([[[1], [3], [5], [5]]]), of([1, 2])]
    expected = f32([[[[7, 0], [-5, 0]], [[15, 0], [-5, 0]]]])
    yield Sample(Stft(2, 2), worked, name="worked", expected=[expected])


@samples(SignalWindow)
def windows() -> Iterator[Sample]:
    """Yield SignalWindow samples.

    They cover every window function, periodic and symmetric, with constant and input sizes, in every type.
    """
    for function in WindowFunction:
        for periodic in (True, False):
            title = f"{function.name.lower()}-{'periodic' if periodic else 'symmetric'}"
            for dtype in FLOATS:
                op = SignalWindow(function, periodic, dtype)
                yield Sample(op, [of(7, INT64, constant=dtype is DataType.FLOAT32)], name=f"{title}-{dtype}")
            for size in (0, 1, 2):
                yield Sample(SignalWindow(function, periodic), [of(size, INT32)], name=f"{title}-size{size}")
    expected = f32([0, 0.5, 1, 0.5, 0])
    yield Sample(SignalWindow(periodic=False), [of([5], INT64)], name="worked", expected=[expected])


@samples(MelWeightMatrix)
def bands() -> Iterator[Sample]:
    """Yield MelWeightMatrix samples: constant and input parameters, every type, narrow bands, and no bands."""
    for dtype in FLOATS:
        for constant in (False, True):
            integers = [of(number, INT64, constant=constant) for number in (4, 32, 8192)]
            edges = [of(number, constant=constant) for number in (0, 4096)]
            name = f"{'known' if constant else 'given'}-{dtype}"
            yield Sample(MelWeightMatrix(dtype), [*integers, *edges], name=name)
    for bins, length in ((0, 16), (9, 8), (3, 0)):
        integers = [of(number, INT32) for number in (bins, length, 8000)]
        yield Sample(MelWeightMatrix(), [*integers, of(0.0), of(4000.0)], name=f"{bins}-{length}")
    for dtype in (*INTEGERS, *TINY_INTEGERS):
        integers = [of(1, dtype) for _ in range(3)]
        yield Sample(MelWeightMatrix(), [*integers, of(0.0), of(0.5)], name=f"sizes-{dtype}")
    worked_integers = [of(number, INT32) for number in (1, 8, 700)]
    matrix = f32([[0], [1 / 2], [1], [2 / 3], [1 / 3]])
    yield Sample(MelWeightMatrix(), [*worked_integers, of(0.0), of(700.0)], name="worked", expected=[matrix])

"""Samples of Trilu, EyeLike, MatrixDiag, MatrixSetDiag and Det."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from interposer.core.types import DataType
from interposer.ops import Det, EyeLike, MatrixDiag, MatrixSetDiag, Trilu
from interposer.testing.sample import Sample, given, of, samples
from interposer.testing.samples.common import FLOATS, PLAIN, SMALL_FLOATS, f32, i32, retyped, typed

__all__: list[str] = []

WITH_ZERO = tuple(dtype for dtype in PLAIN if dtype is not DataType.STRING)


@samples(Trilu)
def triangles() -> Iterator[Sample]:
    """Yield Trilu samples: upper and lower triangles for every diagonal, in every type and several ranks."""
    for upper in (True, False):
        side = "upper" if upper else "lower"
        for k in (-9, -1, 0, 1, 9):
            yield Sample(Trilu(k, upper), [given((3, 4))], name=f"{side}-{k}")
        for label, x in typed((2, 3, 2), [DataType.STRING]):
            yield Sample(Trilu(upper=upper), [x], name=f"{side}-type-{label}")
        for shape in ((1, 1), (2, 0), (2, 1, 2, 4, 4)):
            yield Sample(Trilu(upper=upper), [given(shape)], name=f"{side}-{'x'.join(map(str, shape))}")
    square = of([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    yield Sample(Trilu(1), [square], name="worked-upper", expected=[f32([[0, 2, 3], [0, 0, 6], [0, 0, 0]])])
    yield Sample(Trilu(0, False), [square], name="worked-lower", expected=[f32([[1, 0, 0], [4, 5, 0], [7, 8, 9]])])


@samples(EyeLike)
def identities() -> Iterator[Sample]:
    """Yield EyeLike samples: every input type, every output type, and every diagonal."""
    for dtype in WITH_ZERO:
        yield Sample(EyeLike(), [given((2, 3), dtype)], name=f"like-{dtype}")
        yield Sample(EyeLike(dtype=dtype), [given((3, 2), DataType.INT32)], name=f"type-{dtype}")
    yield Sample(EyeLike(dtype=DataType.FLOAT32), [given((2, 2), DataType.STRING)], name="like-strings")
    for k in (-2, -1, 1, 5):
        yield Sample(EyeLike(k), [given((3, 3))], name=f"diagonal{k}")
    expected = np.array([[0, 1, 0], [0, 0, 1]], np.int32)
    yield Sample(EyeLike(1, DataType.INT32), [given((2, 3))], name="worked", expected=[expected])


@samples(MatrixDiag)
def diagonal_matrices() -> Iterator[Sample]:
    """Yield MatrixDiag samples: every type, and several ranks."""
    for label, x in typed((2, 3), [DataType.STRING]):
        yield Sample(MatrixDiag(), [x], name=f"type-{label}")
    for shape in ((4,), (0,), (1, 2, 1, 3)):
        yield Sample(MatrixDiag(), [given(shape)], name="x".join(map(str, shape)))
    yield Sample(MatrixDiag(), [of([1, 2])], name="worked", expected=[f32([[1, 0], [0, 2]])])


@samples(MatrixSetDiag)
def other_diagonals() -> Iterator[Sample]:
    """Yield MatrixSetDiag samples: every type, and matrices that are wide, high and square."""
    for label, x in typed((2, 3, 4)):
        yield Sample(MatrixSetDiag(), [x, retyped(x, (2, 3))], name=f"type-{label}")
    for rows, columns in ((3, 3), (4, 2), (1, 5)):
        operands = [given((rows, columns)), given((min(rows, columns),))]
        yield Sample(MatrixSetDiag(), operands, name=f"{rows}x{columns}")
    worked = [of([[1, 2], [3, 4]], DataType.INT32), of([8, 9], DataType.INT32)]
    yield Sample(MatrixSetDiag(), worked, name="worked", expected=[i32([[8, 2], [3, 9]])])


@samples(Det)
def determinants() -> Iterator[Sample]:
    """Yield Det samples: every float and quantized type and several sizes, down to 1 by 1."""
    for dtype in (*FLOATS, *SMALL_FLOATS):
        yield Sample(Det(), [given((2, 3, 3), dtype, low=-1, high=1)], name=f"{dtype}")
    for shape in ((1, 1), (5, 5), (2, 2, 4, 4), (0, 2, 2)):
        yield Sample(Det(), [given(shape)], name="x".join(map(str, shape)))
    yield Sample(Det(), [of([[1, 2], [3, 4]])], name="worked", expected=[f32(-2)])

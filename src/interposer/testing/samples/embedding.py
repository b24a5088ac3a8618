"""Samples of EmbeddingLookup, HashtableLookup, LshProjection and OneHot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from interposer.core.types import DataType, TensorInfo
from interposer.ops import EmbeddingLookup, HashtableLookup, LshProjection, LshProjectionType, OneHot
from interposer.testing.sample import Given, Sample, given, of, samples
from interposer.testing.samples.common import INTEGERS, QUANTIZED, TINY_INTEGERS, f32, i32, plain, typed, u8

__all__: list[str] = []

INDEX_TYPES: Final = (DataType.INT32, DataType.INT64)


@samples(EmbeddingLookup)
def embeddings() -> Iterator[Sample]:
    """Yield EmbeddingLookup samples: rows of every type, with both integer types of indices."""
    for index_dtype in INDEX_TYPES:
        for name, values in typed((4, 2, 3)):
            yield Sample(EmbeddingLookup(), [of([3, 0, 3], index_dtype), values], name=f"{index_dtype}-{name}")


@samples(HashtableLookup)
def tables() -> Iterator[Sample]:
    """Yield HashtableLookup samples: rows of every type; one of the keys is missing from the table."""
    for index_dtype in INDEX_TYPES:
        for name, values in typed((3, 2)):
            operands = [of([7, 5, -2], index_dtype), of([-2, 3, 7], index_dtype), values]
            yield Sample(HashtableLookup(), operands, name=f"{index_dtype}-{name}")


@samples(HashtableLookup)
def worked_table() -> Iterator[Sample]:
    """Yield a worked HashtableLookup example in which three of four keys are found."""
    operands = [of([1234, -292, -11, 0], DataType.INT32), of([-11, 0, 1234], DataType.INT32)]
    values = of([[0, 0.1], [1, 1.1], [2, 2.1]])
    expected = [f32([[2, 2.1], [0, 0], [0, 0.1], [1, 1.1]]), u8([1, 0, 1, 1])]
    yield Sample(HashtableLookup(), [*operands, values], name="worked", expected=expected)


@samples(LshProjection)
def hashes() -> Iterator[Sample]:
    """Yield LshProjection samples: elements of several types and sizes, with and without weights."""
    for kind in LshProjectionType:
        for dtype in (DataType.FLOAT32, DataType.FLOAT16):
            for of_elements in (DataType.INT32, DataType.FLOAT32, DataType.UINT8):
                for size in (1, 20):
                    weights = given((3,), dtype) if size > 1 else None
                    operands = [given((4, 5), dtype), plain((3, size), of_elements), weights]
                    yield Sample(
                        LshProjection(kind), operands, name=f"{kind.name.lower()}-{dtype}-{of_elements}-{size}"
                    )


@samples(LshProjection)
def worked_hashes() -> Iterator[Sample]:
    """Yield LshProjection samples: the hashes that TFLite and NNAPI compute for three pairs of numbers."""
    seeds = of([[0.123, 0.456], [-0.321, -0.654], [1.234, 5.678], [-4.321, -8.765]])
    keys, weights = of([[12345, 54321], [67890, 9876], [-12345678, -87654321]], DataType.INT32), of([0.12, 0.34, 0.56])
    kinds: list[tuple[LshProjectionType, Given | None, list[int]]] = [
        (LshProjectionType.SPARSE_DEPRECATED, None, [1, 2, 2, 0]),
        (LshProjectionType.SPARSE, None, [1, 6, 10, 12]),
        (LshProjectionType.DENSE, weights, [1, 1, 1, 0, 1, 1, 1, 0]),
    ]
    for kind, given_weights, expected in kinds:
        name = f"worked-{kind.name.lower()}"
        yield Sample(LshProjection(kind), [seeds, keys, given_weights], name=name, expected=[i32(expected)])


@samples(OneHot)
def rows() -> Iterator[Sample]:
    """Yield OneHot samples.

    They cover every type of result along each axis; some indices are out of range, some count from the end.
    """
    indices = {dtype: of([[0, 2, 1], [3, 9, 0]], dtype) for dtype in (DataType.INT32, DataType.UINT8, DataType.INT64)}
    for axis in (-1, 0, 1):
        for dtype, operand in indices.items():
            op = OneHot(4, axis, on_value=2.0, off_value=-1.0)
            yield Sample(op, [operand], name=f"axis{axis}-{dtype}")
    for dtype in (*INTEGERS, *TINY_INTEGERS):
        yield Sample(OneHot(2), [of([1, 0, 1, 1], dtype)], name=f"indices-{dtype}")
    negative_indices = of([-1, -4, 2, -5], DataType.INT32)
    for dtype in (DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT64, DataType.INT8, DataType.INT64, DataType.BOOL):
        for from_end in (False, True):
            op = OneHot(4, dtype=dtype, from_end=from_end)
            yield Sample(op, [negative_indices], name=f"{'from-end' if from_end else 'from-front'}-{dtype}")
    for dtype, quantization in QUANTIZED.items():
        yield Sample(
            OneHot(4, dtype=dtype), [negative_indices], [TensorInfo((4, 4), dtype, quantization)], f"quantized-{dtype}"
        )


@samples(OneHot)
def worked_rows() -> Iterator[Sample]:
    """Yield a worked OneHot example with an index in range and one out of range."""
    expected = np.array([[0, 1, 0], [0, 0, 0]], np.float32)
    yield Sample(OneHot(3), [of([1, 3], DataType.INT32)], name="worked", expected=[expected])

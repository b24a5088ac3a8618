"""Samples of operators that pick elements by indices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops import Gather, GatherElements, GatherNd
from interposer.testing.sample import Given, Sample, given, of, samples
from interposer.testing.samples.common import f32, quantized, typed

__all__: list[str] = []

INT8, INT32, INT64 = DataType.INT8, DataType.INT32, DataType.INT64
TABLE: Final = of([[1, 2], [3, 4], [5, 6]])
PER_AXIS: Final = Given(TensorInfo((2, 3), INT8, Quantization([0.1, 0.2, 0.3], axis=1)))


@samples(Gather)
def gather() -> Iterator[Sample]:
    """Yield Gather samples: every axis, indices of every rank, negative and constant ones, batches, and all types."""
    indices = {"scalar": 1, "row": [0, 1, 1], "negative": [-1, 0], "table": [[0, 1], [1, 0], [1, 1]], "none": []}
    for label, index_values in indices.items():
        for axis in (0, 1, 2, -1):
            for dtype in (INT32, INT64):
                operands = [given((2, 3, 2)), of(index_values, dtype)]
                yield Sample(Gather(axis), operands, name=f"{label}-axis{axis}-{dtype}")
        constant = of(index_values, INT32, constant=True)
        yield Sample(Gather(1), [quantized((2, 3, 2), INT8), constant], name=f"{label}-constant")
    for label, operand in typed((3, 2)):
        yield Sample(Gather(), [operand, of([2, 0, 2], INT32)], name=f"type-{label}")
    yield Sample(Gather(), [PER_AXIS, of([1, 0, 1], INT32)], name="other-axis")
    for batch, axis in ((1, 1), (1, 2), (2, 2)):
        batch_indices = given((2, 3, 2)[:batch] + (4,), INT32, low=0, high=1)
        yield Sample(
            Gather(axis, batch_dims=batch), [given((2, 3, 2)), batch_indices], name=f"batch-{batch}-axis{axis}"
        )
    rows = [f32([[5, 6], [1, 2]])]
    yield Sample(Gather(), [TABLE, of([2, 0], INT32)], name="worked", expected=rows)
    columns = [f32([[2, 1], [4, 3], [6, 5]])]
    yield Sample(Gather(1), [TABLE, of([1, -2], INT32)], name="worked-axis", expected=columns)


@samples(GatherNd)
def gather_nd() -> Iterator[Sample]:
    """Yield GatherNd samples: index tuples of every length, constant ones, batches, and all types."""
    for depth in (1, 2, 3):
        for dtype in (INT32, INT64):
            tuples = given((4, depth), dtype, low=-2, high=1)
            yield Sample(GatherNd(), [given((2, 3, 2)), tuples], name=f"depth-{depth}-{dtype}")
        constant = of(np.ones((2, 2, depth)), INT32, constant=True)
        yield Sample(GatherNd(), [quantized((2, 3, 2), INT8), constant], name=f"depth-{depth}-constant")
    for label, operand in typed((3, 2)):
        yield Sample(GatherNd(), [operand, of([[2, 0], [0, 1]], INT32)], name=f"type-{label}")
    for batch in (1, 2):
        tuples = given((2, 3, 4)[:batch] + (4, 1), INT32, low=0, high=1)
        yield Sample(GatherNd(batch_dims=batch), [given((2, 3, 4)), tuples], name=f"batch-{batch}")
    yield Sample(GatherNd(), [given((2, 3)), of(np.zeros((3, 0)), INT32)], name="whole")
    yield Sample(GatherNd(), [given((2, 3)), of(np.zeros((0, 2)), INT32)], name="none")
    elements = [f32([6, 1])]
    yield Sample(GatherNd(), [TABLE, of([[2, 1], [0, 0]], INT32)], name="worked", expected=elements)
    rows = [f32([[3, 4]])]
    yield Sample(GatherNd(), [TABLE, of([[1]], INT32)], name="worked-rows", expected=rows)


@samples(GatherElements)
def gather_elements() -> Iterator[Sample]:
    """Yield GatherElements samples: every axis, more and fewer indices than elements, constant ones, and all types."""
    for axis in (0, 1, 2, -1):
        for count in (1, 5):
            shape = [2, 3, 2]
            shape[axis] = count
            for dtype in (INT32, INT64):
                operands = [given((2, 3, 2)), given(shape, dtype, low=-2, high=1)]
                yield Sample(GatherElements(axis), operands, name=f"{count}-axis{axis}-{dtype}")
    fewer_indices = of([[[1, 0]]], INT32, constant=True)
    yield Sample(GatherElements(2), [quantized((2, 3, 2), INT8), fewer_indices], name="fewer-constant")
    for label, operand in typed((3, 2)):
        yield Sample(GatherElements(), [operand, of([[2, 0], [0, 1]], INT32)], name=f"type-{label}")
    yield Sample(GatherElements(), [given((2, 3)), of(np.zeros((0, 3)), INT64)], name="none")
    expected = [f32([[1, 4], [5, 2]])]
    yield Sample(GatherElements(), [TABLE, of([[0, 1], [2, -3]], INT32)], name="worked", expected=expected)

"""Samples of operators that change or return the shape of a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops import BroadcastTo, Fill, Rank, Reshape, Shape
from interposer.testing.sample import Given, Sample, given, of, samples
from interposer.testing.samples.common import PLAIN, QUANTIZED, TINY_QUANTIZED, f32, i32, like, typed

__all__: list[str] = []

INT8, INT32, INT64 = DataType.INT8, DataType.INT32, DataType.INT64
PER_AXIS: Final = Given(TensorInfo((2, 3, 4), INT8, Quantization([0.1, 0.2], axis=0)))


@samples(Reshape)
def reshape() -> Iterator[Sample]:
    """Yield Reshape samples: all types, shapes with a size of -1, with copied sizes, scalars, and empty tensors."""
    for label, x in typed((2, 3, 4)):
        yield Sample(Reshape((4, 6)), [x], [like(x, (4, 6))], label)
    for source, target in [
        ((2, 3, 4), (-1,)),
        ((2, 3, 4), (2, -1)),
        ((2, 3, 4), (1, 2, 3, 4)),
        ((2, 3, 4), (2, 1, 12, 1)),
        ((6,), (1, 2, 1, 3, 1, 1, 1, 1)),
        ((), (1, 1)),
        ((1, 1), ()),
        ((0, 3), (3, 0)),
        ((0, 3), (0, 5)),
        ((2, 3), (2, 3)),
    ]:
        name = f"{'x'.join(map(str, source)) or 'scalar'}-to-{'x'.join(map(str, target)) or 'scalar'}"
        yield Sample(Reshape(target), [given(source)], name=name)
    yield Sample(Reshape((0, -1), copy_zeros=True), [given((2, 3, 4))], name="copied")
    yield Sample(Reshape((2, 12)), [PER_AXIS], name="axis-stays")
    yield Sample(Reshape((3, 2)), [of([[1, 2, 3], [4, 5, 6]])], name="worked", expected=[_rows(3, 2)])


def _rows(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


@samples(BroadcastTo)
def broadcast_to() -> Iterator[Sample]:
    """Yield BroadcastTo samples: all types, new axes, scalars, and empty tensors."""
    for label, x in typed((3, 1)):
        yield Sample(BroadcastTo((2, 3, 4)), [x], [like(x, (2, 3, 4))], label)
    for source, target in [((), (2, 3)), ((1,), (5,)), ((2, 3), (2, 3)), ((1, 3), (0, 3)), ((3,), (2, 1, 2, 3))]:
        name = f"{'x'.join(map(str, source)) or 'scalar'}-to-{'x'.join(map(str, target))}"
        yield Sample(BroadcastTo(target), [given(source)], name=name)
    expected = [f32([[1, 1], [2, 2]])]
    yield Sample(BroadcastTo((2, 2)), [of([[1], [2]])], name="worked", expected=expected)


@samples(Shape)
def shape() -> Iterator[Sample]:
    """Yield Shape samples: both integer types of the result, for every type of tensor."""
    for dtype in (INT32, INT64):
        for dims in ((), (3,), (2, 0), (2, 3, 4), (1, 2, 1, 2, 1, 2, 1, 2)):
            label = f"{'x'.join(map(str, dims)) or 'scalar'}-{dtype}"
            yield Sample(Shape(dtype), [given(dims)], name=label, expected=[np.array(dims, dtype.numpy)])
    for label, x in typed((2, 3)):
        yield Sample(Shape(), [x], name=f"type-{label}", expected=[i32([2, 3])])


@samples(Rank)
def rank() -> Iterator[Sample]:
    """Yield Rank samples: tensors of rank 0 to 8, of every type."""
    for count in range(9):
        yield Sample(Rank(), [given((1,) * count)], name=str(count), expected=[np.array(count, np.int32)])
    for label, x in typed((2, 3)):
        yield Sample(Rank(), [x], name=f"type-{label}", expected=[np.array(2, np.int32)])


@samples(Fill)
def fill() -> Iterator[Sample]:
    """Yield Fill samples.

    They cover every output type and both types of dimensions; quantized outputs are filled with a float value.
    """
    for dtype in PLAIN:
        if dtype is not DataType.STRING:
            yield Sample(Fill(3.0, dtype), [of([2, 3], INT32, constant=True)], name=str(dtype))
    for dtype, quantization in {**QUANTIZED, **TINY_QUANTIZED}.items():
        dims, output = of([2, 3], INT64, constant=True), TensorInfo((2, 3), dtype, quantization)
        yield Sample(Fill(1.5, dtype), [dims], [output], f"quantized-{dtype}")
    for sizes in ((), (0,), (2, 0, 3), (1, 2, 1, 2, 1, 2, 1, 2)):
        label = f"dims-{'x'.join(map(str, sizes)) or 'scalar'}"
        yield Sample(Fill(-1.0), [of(sizes, INT32, constant=True)], name=label)
    given_dims = [of([2, 3], INT32)]
    yield Sample(Fill(0.5), given_dims, name="worked-given", expected=[np.full((2, 3), 0.5, np.float32)])

"""Samples of the operators that write elements to places that are data."""

from __future__ import annotations

from collections.abc import Iterator

from interposer.ops import ScatterFunction, ScatterNd
from interposer.testing.sample import Given, Sample, of, samples
from interposer.testing.samples.common import (
    BYTES,
    FLOATS,
    INTEGERS,
    SMALL_FLOATS,
    f32,
    plain,
    quantized,
    retyped,
    typed,
)
from interposer.types import DataType, Quantization, TensorInfo

__all__: list[str] = []

NUMBERS = (*FLOATS, *SMALL_FLOATS, *INTEGERS)


def _indices(dtype: DataType = DataType.INT32) -> dict[str, tuple[Given, tuple[int, ...]]]:
    """Indices into a tensor of three by four by two, and the shapes of the updates that belong to them."""
    return {
        "elements": (of([[[0, 1, 1], [2, 3, 0]], [[1, -1, 0], [0, 0, 0]]], dtype), (2, 2)),
        "slices": (of([[0, 2], [2, 0], [0, 1]], dtype), (3, 2)),
        "again": (of([[1], [1], [-3]], dtype), (3, 4, 2)),
        "none": (Given(TensorInfo((0, 1), dtype)), (0, 4, 2)),
    }


@samples(ScatterNd)
def moved() -> Iterator[Sample]:
    """Elements and slices of every type."""
    for index_dtype in (DataType.INT32, DataType.INT64):
        for kind, (indices, shape) in _indices(index_dtype).items():
            if kind == "again":
                continue
            for name, x in typed((3, 4, 2)):
                yield Sample(ScatterNd(), [x, indices, retyped(x, shape)], name=f"{kind}-{index_dtype}-{name}")


@samples(ScatterNd)
def combined() -> Iterator[Sample]:
    """Every function, where some updates fall on the same slice; on a tensor and on zeros."""
    indices, shape = _indices()["again"]
    base = of([3, 4, 2], DataType.INT32, constant=True)
    for function in ScatterFunction:
        op = ScatterNd(function)
        for dtype in NUMBERS if function is not ScatterFunction.UPDATE else ():
            operands = [plain((3, 4, 2), dtype, high=3.0), indices, plain(shape, dtype, low=-2.0, high=2.0)]
            yield Sample(op, operands, name=f"{function.name.lower()}-{dtype}")
        for dtype, q in BYTES.items():
            finer, name = quantized(shape, dtype, Quantization(q.scale / 2, q.zero_point)), f"{function.name.lower()}"
            yield Sample(op, [quantized((3, 4, 2), dtype), indices, finer], name=f"{name}-quantized-{dtype}")
            zeros = [base, indices, quantized(shape, dtype)]
            yield Sample(op.replace(input_enabled=False), zeros, name=f"{name}-zeros-quantized-{dtype}")
        yield Sample(
            op.replace(input_enabled=False), [base, indices, plain(shape)], name=f"{function.name.lower()}-zeros"
        )


@samples(ScatterNd)
def late() -> Iterator[Sample]:
    """The shape comes when the network runs."""
    indices, shape = _indices()["slices"]
    operands = [of([3, 4, 2], DataType.INT32), indices, plain(shape)]
    yield Sample(ScatterNd(ScatterFunction.ADD, input_enabled=False), operands, name="late-shape")


@samples(ScatterNd)
def worked() -> Iterator[Sample]:
    """Two updates of one element, on zeros."""
    operands = [of([4], DataType.INT32), of([[1], [3], [1]], DataType.INT32), of([1, 2, 5])]
    op = ScatterNd(ScatterFunction.ADD, input_enabled=False)
    yield Sample(op, operands, name="worked", expected=[f32([0, 6, 0, 2])])

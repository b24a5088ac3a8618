"""Samples of the operators that write elements to positions that are data."""

from __future__ import annotations

from collections.abc import Iterator

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops import DynamicUpdateSlice, ScatterElements, ScatterFunction, ScatterNd, TensorScatter
from interposer.testing.sample import Given, Sample, given, of, samples
from interposer.testing.samples.common import (
    BYTES,
    FLOATS,
    INTEGERS,
    SMALL_FLOATS,
    f32,
    i32,
    plain,
    quantized,
    retyped,
    typed,
)

__all__: list[str] = []

NUMBERS = (*FLOATS, *SMALL_FLOATS, *INTEGERS)


def _indices(dtype: DataType = DataType.INT32) -> dict[str, tuple[Given, tuple[int, ...]]]:
    """Return index operands into a 3 x 4 x 2 tensor, with the shapes of their updates, by name."""
    return {
        "elements": (of([[[0, 1, 1], [2, 3, 0]], [[1, -1, 0], [0, 0, 0]]], dtype), (2, 2)),
        "slices": (of([[0, 2], [2, 0], [0, 1]], dtype), (3, 2)),
        "again": (of([[1], [1], [-3]], dtype), (3, 4, 2)),
        "none": (Given(TensorInfo((0, 1), dtype)), (0, 4, 2)),
    }


@samples(ScatterNd)
def moved() -> Iterator[Sample]:
    """Yield ScatterNd samples: updates of elements and slices, of every type."""
    for index_dtype in (DataType.INT32, DataType.INT64):
        for kind, (indices, shape) in _indices(index_dtype).items():
            if kind == "again":
                continue
            for name, x in typed((3, 4, 2)):
                yield Sample(ScatterNd(), [x, indices, retyped(x, shape)], name=f"{kind}-{index_dtype}-{name}")


@samples(ScatterNd)
def combined() -> Iterator[Sample]:
    """Yield ScatterNd samples: every function, on a tensor and on zeros, where some updates have the same position."""
    indices, shape = _indices()["again"]
    base = of([3, 4, 2], DataType.INT32, constant=True)
    for function in ScatterFunction:
        op = ScatterNd(function)
        for dtype in NUMBERS if function is not ScatterFunction.UPDATE else ():
            operands = [plain((3, 4, 2), dtype, high=3.0), indices, plain(shape, dtype, low=-2.0, high=2.0)]
            yield Sample(op, operands, name=f"{function.name.lower()}-{dtype}")
        for dtype, quantization in BYTES.items():
            finer_updates, name = (
                quantized(shape, dtype, Quantization(quantization.scale / 2, quantization.zero_point)),
                f"{function.name.lower()}",
            )
            yield Sample(op, [quantized((3, 4, 2), dtype), indices, finer_updates], name=f"{name}-quantized-{dtype}")
            zeros = [base, indices, quantized(shape, dtype)]
            yield Sample(op.replace(input_enabled=False), zeros, name=f"{name}-zeros-quantized-{dtype}")
        yield Sample(
            op.replace(input_enabled=False), [base, indices, plain(shape)], name=f"{function.name.lower()}-zeros"
        )


@samples(ScatterNd)
def late() -> Iterator[Sample]:
    """Yield a ScatterNd sample whose output shape is an input of the network."""
    indices, shape = _indices()["slices"]
    operands = [of([3, 4, 2], DataType.INT32), indices, plain(shape)]
    yield Sample(ScatterNd(ScatterFunction.ADD, input_enabled=False), operands, name="late-shape")


@samples(ScatterNd)
def worked() -> Iterator[Sample]:
    """Yield a worked ScatterNd example with two updates of one element, on zeros."""
    operands = [of([4], DataType.INT32), of([[1], [3], [1]], DataType.INT32), of([1, 2, 5])]
    op = ScatterNd(ScatterFunction.ADD, input_enabled=False)
    yield Sample(op, operands, name="worked", expected=[f32([0, 6, 0, 2])])


@samples(ScatterElements)
def elements() -> Iterator[Sample]:
    """Yield ScatterElements samples.

    They cover every axis, function and type, fewer indices than elements, and duplicate indices.
    """
    for axis in (0, 1, 2, -2):
        shape = [2, 2, 2]
        shape[axis] = 3
        indices = given(shape, DataType.INT64, low=-2, high=1)
        for function in (ScatterFunction.UPDATE, ScatterFunction.ADD):
            name = f"{function.name.lower()}-axis{axis}"
            yield Sample(ScatterElements(axis, function), [plain((2, 3, 2)), indices, plain(shape)], name=name)
    distinct_indices = of([[1, 0, 2], [-1, 1, 0]], DataType.INT32)
    for name, x in typed((3, 3)):
        yield Sample(ScatterElements(), [x, distinct_indices, retyped(x, (2, 3))], name=f"type-{name}")
    repeated_indices = of([[1, 1, 1], [1, -2, 0]], DataType.INT32)
    for function in ScatterFunction:
        op, title = ScatterElements(1, function), function.name.lower()
        for dtype in NUMBERS if function is not ScatterFunction.UPDATE else ():
            operands = [plain((2, 3), dtype, high=3.0), repeated_indices, plain((2, 3), dtype, low=-2.0, high=2.0)]
            yield Sample(op, operands, name=f"{title}-{dtype}")
        for dtype, quantization in BYTES.items():
            finer_updates = quantized((2, 3), dtype, Quantization(quantization.scale / 2, quantization.zero_point))
            yield Sample(
                op, [quantized((2, 3), dtype), repeated_indices, finer_updates], name=f"{title}-quantized-{dtype}"
            )
    no_updates = [plain((2, 3)), Given(TensorInfo((0, 3), DataType.INT64)), plain((0, 3))]
    yield Sample(ScatterElements(), no_updates, name="nothing")
    worked_operands = [of([[1, 2, 3]]), of([[2, 0, 2]], DataType.INT64), of([[10, 20, 30]])]
    for function, expected in (
        (ScatterFunction.ADD, [[21, 2, 43]]),
        (ScatterFunction.MUL, [[20, 2, 900]]),
        (ScatterFunction.MAX, [[20, 2, 30]]),
    ):
        op = ScatterElements(1, function)
        yield Sample(op, worked_operands, name=f"worked-{function.name.lower()}", expected=[f32(expected)])


@samples(TensorScatter)
def caches() -> Iterator[Sample]:
    """Yield TensorScatter samples: every type, with and without start positions, circular updates, and other axes."""
    for name, x in typed((2, 4, 3)):
        start = of([2, 0], DataType.INT64)
        yield Sample(TensorScatter(), [x, retyped(x, (2, 2, 3)), start], name=f"type-{name}")
    for axis, shape in ((1, (2, 4, 3)), (2, (2, 3, 4)), (-1, (2, 3, 4)), (-2, (2, 3, 4, 5))):
        steps = list(shape)
        steps[axis] = 2
        for circular in (False, True):
            start = of([3, 7] if circular else [0, 2], DataType.INT32)
            operands = [plain(shape), plain(steps), start]
            yield Sample(TensorScatter(axis, circular), operands, name=f"axis{axis}-{'circular' if circular else ''}")
    yield Sample(TensorScatter(), [plain((2, 4, 3)), plain((2, 1, 3))], name="beginning")
    yield Sample(TensorScatter(), [plain((2, 4, 3)), plain((2, 0, 3))], name="nothing")
    worked = [of([[1, 2, 3]]), of([[8, 9]]), of([2], DataType.INT64)]
    yield Sample(TensorScatter(1, circular=True), worked, name="worked", expected=[f32([[9, 2, 8]])])


@samples(DynamicUpdateSlice)
def updates() -> Iterator[Sample]:
    """Yield DynamicUpdateSlice samples: every type, starts within and beyond the tensor, and several ranks."""
    for name, x in typed((3, 4)):
        operands = [x, retyped(x, (2, 2)), of([1, 1], DataType.INT32)]
        yield Sample(DynamicUpdateSlice(), operands, name=f"type-{name}")
    for start in ((0, 0), (5, 1), (-3, 9), (1, 2)):
        for dtype in (DataType.INT32, DataType.INT64):
            operands = [plain((3, 4)), plain((2, 3)), of(start, dtype)]
            yield Sample(DynamicUpdateSlice(), operands, name=f"{start}-{dtype}")
    for shape, part in (((4,), (1,)), ((2, 3, 2, 2), (1, 3, 1, 2)), ((2, 2), (0, 2)), ((2, 2), (2, 2))):
        operands = [plain(shape), plain(part), of([1] * len(shape), DataType.INT32)]
        yield Sample(DynamicUpdateSlice(), operands, name=f"{'x'.join(map(str, shape))}-{'x'.join(map(str, part))}")
    worked = [of([1, 2, 3], DataType.INT32), of([8, 9], DataType.INT32), of([2], DataType.INT32)]
    yield Sample(DynamicUpdateSlice(), worked, name="worked", expected=[i32([1, 8, 9])])

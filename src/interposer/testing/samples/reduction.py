"""Samples of reductions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from interposer.core.types import DataType, Quantization
from interposer.ops import ArgMinMax, ArgMinMaxFunction, Mean, Reduce, ReduceOperation
from interposer.testing.sample import Given, Sample, given, of, samples
from interposer.testing.samples.common import (
    BYTES,
    FLOATS,
    INTEGERS,
    QUANTIZED,
    SMALL_FLOATS,
    declared,
    f32,
    i32,
    plain,
)

__all__: list[str] = []

R = ReduceOperation
MIN, MAX = ArgMinMaxFunction.MIN, ArgMinMaxFunction.MAX
SHAPE: Final = (2, 3, 4)
TRUTHS: Final[tuple[ReduceOperation, ...]] = (R.ALL, R.ANY)
CHOICES: Final[tuple[ReduceOperation, ...]] = (R.MIN, R.MAX)
NUMERIC: Final[tuple[ReduceOperation, ...]] = tuple(item for item in R if item not in TRUTHS)
OF_INTEGERS: Final[tuple[ReduceOperation, ...]] = (R.SUM, R.PROD, R.MAX, R.MIN, R.MEAN, R.L1, R.SUM_SQUARE)
AXES: Final = {
    "all": (),
    "first": (0,),
    "last": (-1,),
    "two": (0, 2),
    "twice": (1, 1, -2),
    "every": (0, 1, 2),
}


def _low(operation: ReduceOperation) -> float:
    """Return the lower bound of the random elements; it is positive if the operation takes the logarithm of a sum."""
    return 0.25 if operation is R.LOG_SUM else -2.0


@samples(Mean, Reduce)
def axes() -> Iterator[Sample]:
    """Yield Mean and Reduce samples.

    They cover every choice of axes, with and without retained dimensions, in floats, integers and quantized.
    """
    for label, axis in AXES.items():
        for keep in (False, True):
            title = f"{label}{'-kept' if keep else ''}"
            yield from _mean(Mean(axis, keep), title)
            for operation in NUMERIC:
                op = Reduce(axis, keep, operation)
                x = given(SHAPE, low=_low(operation), high=2)
                yield Sample(op, [x], name=f"{operation.name.lower()}-{title}")
            for operation in TRUTHS:
                yield Sample(
                    Reduce(axis, keep, operation), [given(SHAPE, DataType.BOOL)],
                    name=f"{operation.name.lower()}-{title}",
                )  # fmt: skip


def _mean(op: Mean, title: str) -> Iterator[Sample]:
    yield Sample(op, [given(SHAPE)], name=f"{title}-float32")
    yield Sample(op, [plain(SHAPE, DataType.INT32)], name=f"{title}-int32")
    for dtype, quantization in BYTES.items():
        x = given(SHAPE, dtype, quantization)
        yield Sample(op, [x], [declared(op, x, q=quantization)], f"{title}-quantized-{dtype}")


@samples(Mean, Reduce)
def types() -> Iterator[Sample]:
    """Yield Mean and Reduce samples: every operation in every type for which it is defined."""
    for dtype in (*FLOATS, *SMALL_FLOATS, *INTEGERS):
        yield Sample(Mean((1,)), [plain(SHAPE, dtype, low=-3, high=3)], name=f"type-{dtype}")
        for operation in NUMERIC if dtype.is_float else OF_INTEGERS:
            x = plain(SHAPE, dtype, low=-3 if dtype.is_integer else _low(operation), high=3)
            yield Sample(Reduce((1,), operation=operation), [x], name=f"type-{operation.name.lower()}-{dtype}")
    for operation in (*TRUTHS, *CHOICES):
        title = f"type-{operation.name.lower()}-bool"
        yield Sample(Reduce((1,), operation=operation), [given(SHAPE, DataType.BOOL)], name=title)


@samples(Mean, Reduce)
def quantized_types() -> Iterator[Sample]:
    """Yield Mean and Reduce samples: quantized tensors with another output scale, and MAX and MIN with equal scales."""
    for dtype, quantization in QUANTIZED.items():
        for operation in NUMERIC:
            x = given(SHAPE, dtype, quantization, low=_low(operation), high=2)
            for label, scale_factor in (("", 4.0), ("-one-scale", 1.0)):
                if scale_factor == 4.0 or operation in (*CHOICES, R.MEAN):
                    op = Reduce((1,), operation=operation)
                    title = f"{operation.name.lower()}-quantized-{dtype}{label}"
                    yield _rescaled(
                        op, x, Quantization(quantization.scale * scale_factor, quantization.zero_point), title
                    )
        yield _rescaled(
            Mean((0, 2)),
            given(SHAPE, dtype, quantization),
            Quantization(quantization.scale / 2, quantization.zero_point),
            f"finer-{dtype}",
        )


def _rescaled(op: Mean | Reduce, x: Given, quantization: Quantization, title: str) -> Sample:
    return Sample(op, [x], [declared(op, x, q=quantization)], title)


@samples(Mean, Reduce)
def empty() -> Iterator[Sample]:
    """Yield Mean and Reduce samples: reductions of no elements, and reductions to an empty output."""
    for operation in (R.SUM, R.PROD, R.MAX, R.MIN):
        for dtype in (DataType.FLOAT32, DataType.INT32):
            op = Reduce((0,), operation=operation)
            yield Sample(op, [given((0, 3), dtype)], name=f"empty-{operation.name.lower()}-{dtype}")
    yield Sample(Reduce((1,), operation=R.SUM), [given((0, 3))], name="no-results")
    yield Sample(Mean((1,)), [given((0, 3))], name="no-results")
    yield Sample(Reduce(operation=R.SUM), [given(())], name="scalar")
    yield Sample(Mean(), [given(())], name="scalar")


@samples(Mean, Reduce)
def worked() -> Iterator[Sample]:
    """Yield worked Mean and Reduce examples: rows of a small table; integer means are truncated."""
    table = of([[1, 2, 3], [4, 5, -6]])
    for operation, expected in {
        R.SUM: [6, 3],
        R.PROD: [6, -120],
        R.MAX: [3, 5],
        R.MIN: [1, -6],
        R.MEAN: [2, 1],
        R.L1: [6, 15],
        R.SUM_SQUARE: [14, 77],
        R.L2: np.sqrt([14, 77]),
    }.items():
        op, title = Reduce((1,), operation=operation), f"worked-{operation.name.lower()}"
        yield Sample(op, [table], name=title, expected=[f32(expected)])
    integers = of([[7, -8], [-7, 2]], DataType.INT32)
    yield Sample(Mean((1,)), [integers], name="worked", expected=[i32([0, -2])])
    large_numbers = of([[1000, 1000]])
    expected = [f32([1000 + np.log(2)])]
    yield Sample(Reduce((1,), operation=R.LOG_SUM_EXP), [large_numbers], name="worked-no-overflow", expected=expected)


# --- places -----------------------------------------------------------------------------------------------------------


@samples(ArgMinMax)
def arg_min_max() -> Iterator[Sample]:
    """Yield ArgMinMax samples: every axis and type, both types of indices, and both choices among equal elements."""
    for function in (MIN, MAX):
        title = function.name.lower()
        for axis in (0, 1, -1):
            for keep in (False, True):
                for dtype in (DataType.INT32, DataType.INT64):
                    label = f"{title}-axis{axis}{'-kept' if keep else ''}-{dtype}"
                    yield Sample(ArgMinMax(function, axis, keep, dtype), [given(SHAPE)], name=label)
        for dtype in (*FLOATS, *SMALL_FLOATS, *INTEGERS, DataType.BOOL):
            yield Sample(ArgMinMax(function), [plain(SHAPE, dtype)], name=f"{title}-type-{dtype}")
        for dtype, quantization in QUANTIZED.items():
            yield Sample(ArgMinMax(function), [given(SHAPE, dtype, quantization)], name=f"{title}-quantized-{dtype}")
        yield Sample(ArgMinMax(function, axis=1), [given((0, 3))], name=f"{title}-no-results")


@samples(ArgMinMax)
def worked_arg_min_max() -> Iterator[Sample]:
    """Yield worked ArgMinMax examples for rows with equal elements: both functions, the first and the last index."""
    input_rows = of([[2, 1, 1], [3, 3, 1]])
    for function, last_index, expected in (
        (MIN, False, [1, 2]),
        (MIN, True, [2, 2]),
        (MAX, False, [0, 0]),
        (MAX, True, [0, 1]),
    ):
        title = f"worked-{function.name.lower()}{'-last' if last_index else ''}"
        op = ArgMinMax(function, select_last_index=last_index)
        yield Sample(op, [input_rows], name=title, expected=[i32(expected)])

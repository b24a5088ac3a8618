"""Samples with sizes that are no multiples of vectors and tiles, and that all differ.

Equal sizes hide errors that exchange axes. Multiples of 4, 8 and 16 hide errors in the remainders of vectorized loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from interposer import ops
from interposer.core.schema import Op
from interposer.core.types import DataLayout, DataType
from interposer.ops import (
    Activation,
    ActivationFunction,
    BinaryOperation,
    Comparison,
    ComparisonOperation,
    ElementwiseBinary,
    ElementwiseUnary,
    PoolingAlgorithm,
    ReduceOperation,
    UnaryOperation,
)
from interposer.testing.sample import Given, Sample, given, of, samples, weights

__all__: list[str] = []

LAYOUTS: Final = {"nhwc": DataLayout.NHWC, "nchw": DataLayout.NCHW}
CHANNELS: Final = (1, 3, 7, 19)
ROWS: Final = (3, 5, 37)
ARITHMETIC: Final = (
    ops.Addition, ops.Division, ops.Maximum, ops.Minimum, ops.Multiplication, ops.Subtraction,
)  # fmt: skip
WINDOW: Final[dict[str, Any]] = {
    "stride_x": 1, "stride_y": 2, "dilation_x": 2, "dilation_y": 1, "pad_left": 1, "pad_right": 0, "pad_top": 2,
    "pad_bottom": 3,
}  # fmt: skip
"""A window whose attributes differ between the axes, and whose pads differ between both ends of an axis."""


def _image(layout: DataLayout, channels: int, dims: tuple[int, int, int] = (2, 11, 13)) -> tuple[int, ...]:
    n, h, w = dims
    return (n, h, w, channels) if layout is DataLayout.NHWC else (n, channels, h, w)


@samples(ops.Convolution2d, ops.DepthwiseConvolution2d, ops.TransposeConvolution2d)
def convolutions() -> Iterator[Sample]:
    """Yield samples of 2D convolutions from few channels to many, and from many to few."""
    for label, layout in LAYOUTS.items():
        for inputs, outputs in zip(CHANNELS, reversed(CHANNELS), strict=True):
            title = f"tail-{label}-{inputs}-to-{outputs}"
            image, bias = given(_image(layout, inputs)), weights((outputs,))
            filters = weights(_image(layout, inputs, (outputs, 5, 3)))
            op = ops.Convolution2d(data_layout=layout, **WINDOW)
            yield Sample(op, [image, filters, bias], name=title)
            transposed_op = ops.TransposeConvolution2d(data_layout=layout, **WINDOW)
            yield Sample(transposed_op, [image, filters, bias], name=title)
            depthwise = ops.DepthwiseConvolution2d(data_layout=layout, **WINDOW)
            yield Sample(depthwise, [image, weights((1, 5, 3, inputs)), weights((inputs,))], name=title)


@samples(ops.Pooling2d)
def pools() -> Iterator[Sample]:
    """Yield Pooling2d samples: windows whose size, stride and padding differ between the axes."""
    for label, layout in LAYOUTS.items():
        for pool_type in PoolingAlgorithm:
            for channels in CHANNELS:
                op = ops.Pooling2d(pool_type, pool_width=3, pool_height=5, data_layout=layout, **WINDOW)
                title = f"tail-{pool_type.name.lower()}-{label}-{channels}"
                yield Sample(op, [given(_image(layout, channels))], name=title)


@samples(ops.FullyConnected, ops.BatchMatMul)
def products() -> Iterator[Sample]:
    """Yield FullyConnected and BatchMatMul samples.

    They cover matrices whose rows, columns and depth are no multiples of a vector.
    """
    for rows, inner, columns in ((1, 19, 37), (5, 37, 1), (13, 17, 19), (3, 1, 21)):
        title = f"tail-{rows}x{inner}x{columns}"
        yield Sample(ops.FullyConnected(), [given((rows, inner)), weights((inner, columns)), weights((columns,))],
                     name=title)  # fmt: skip
        yield Sample(ops.BatchMatMul(), [given((2, rows, inner)), given((2, inner, columns))], name=title)


@samples(Activation, ElementwiseUnary, *ARITHMETIC, ops.Softmax, ops.Reduce, ops.Transpose, ops.Concat)
def rows() -> Iterator[Sample]:
    """Yield samples of elementwise operators, softmax and others on rows of 37 elements, which no vector width divides.

    Operands of binary operators broadcast along each axis in turn.
    """
    yield Sample(Activation(ActivationFunction.RELU), [given(ROWS)], name="tail-relu")
    yield Sample(Activation(ActivationFunction.SIGMOID), [given(ROWS)], name="tail-sigmoid")
    yield Sample(ElementwiseUnary(UnaryOperation.EXP), [given(ROWS)], name="tail")
    for kind in ARITHMETIC:
        for label, shape in {"row": (37,), "column": (5, 1), "first": (3, 1, 1), "full": ROWS}.items():
            yield Sample(kind(), [given(ROWS), given(shape, low=0.5)], name=f"tail-{label}")
        yield Sample(kind(), [given((19, 19)), given((19,), low=0.5)], name="tail-square-row")
        yield Sample(kind(), [given((19, 19)), given((19, 1), low=0.5)], name="tail-square-column")
    for axis in range(3):
        yield Sample(ops.Softmax(axis=axis), [given(ROWS)], name=f"tail-{axis}")
        yield Sample(ops.Reduce((axis,), operation=ReduceOperation.SUM), [given(ROWS)], name=f"tail-{axis}")
        yield Sample(ops.Concat(axis=axis), [given(ROWS), given(ROWS)], name=f"tail-{axis}")
    for axes in ((0, 2, 1), (1, 0, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)):
        yield Sample(ops.Transpose(axes), [given(ROWS)], name=f"tail-{''.join(map(str, axes))}")
    yield Sample(ops.Transpose((1, 0)), [given((37, 41))], name="tail-matrix")


@samples(
    ops.Cast, ops.CumProd, ElementwiseBinary, ops.FakeQuantization, ops.Floor, ops.Hardmax, ops.LogSoftmax, ops.Mean,
    ops.Prelu, Comparison, ops.Where,
)  # fmt: skip
def rows_of_results() -> Iterator[Sample]:
    """Yield samples of operators that compute each element of a row of 37, or one result for such a row."""
    x, positive_rows, bools = given(ROWS), given(ROWS, low=0.5), given(ROWS, DataType.BOOL)
    for operation in (BinaryOperation.POWER, BinaryOperation.SQ_DIFF, BinaryOperation.ATAN2):
        yield Sample(
            ElementwiseBinary(operation), [positive_rows, given((5, 1))], name=f"tail-{operation.name.lower()}"
        )
    for dtype in (DataType.INT32, DataType.FLOAT16, DataType.BOOL):
        yield Sample(ops.Cast(dtype), [x], name=f"tail-{dtype}")
    yield Sample(Comparison(ComparisonOperation.LESS), [x, given((37,))], name="tail")
    yield Sample(ops.Where(), [bools, x, given((37,))], name="tail")
    yield Sample(ops.Prelu(), [x, weights((37,))], name="tail")
    for op in (ops.CumProd(-1), ops.FakeQuantization(), ops.Floor(), ops.Hardmax(), ops.LogSoftmax(), ops.Mean((2,))):
        yield Sample(op, [given(ROWS, low=-1.5, high=1.5)], name="tail")


@samples(
    ops.ArgMinMax, ops.BroadcastTo, ops.Gather, ops.GatherElements, ops.Pad, ops.Permute, ops.ReverseV2, ops.Slice,
    ops.Splitter, ops.Stack, ops.StridedSlice, ops.Tile, ops.TopK, ops.Trilu,
)  # fmt: skip
def rows_that_move() -> Iterator[Sample]:
    """Yield samples of operators that move or select elements, along each of three axes of different sizes."""
    x = given(ROWS)
    for axis, size in enumerate(ROWS):
        end_pads = tuple((0, size - 1 if other_axis == axis else 0) for other_axis in range(3))
        begin = tuple(int(other_axis == axis) for other_axis in range(3))
        sizes = tuple(size - num_skipped for size, num_skipped in zip(ROWS, begin, strict=True))
        steps = tuple(2 if other_axis == axis else 1 for other_axis in range(3))
        single_axis_shape = tuple(size if other_axis == axis else 1 for other_axis, size in enumerate(ROWS))
        moving_ops: tuple[Op, ...] = (
            ops.ArgMinMax(axis=axis), ops.Pad(end_pads), ops.ReverseV2((axis,)), ops.Slice(begin, sizes),
            ops.Splitter(axis, (1, size - 1)), ops.StridedSlice(begin, ROWS, steps), ops.Tile(steps),
            ops.TopK(2, axis=axis),
        )  # fmt: skip
        for op in moving_ops:
            yield Sample(op, [x], name=f"tail-{axis}")
        yield Sample(ops.BroadcastTo(ROWS), [given(single_axis_shape)], name=f"tail-{axis}")
        yield Sample(ops.Stack(axis), [x, x], name=f"tail-{axis}")
        yield Sample(ops.Gather(axis), [x, of([size - 1, 0, -1], DataType.INT32)], name=f"tail-{axis}")
        indices = np.arange(np.prod(ROWS)).reshape(ROWS) * 7 % size
        yield Sample(ops.GatherElements(axis), [x, of(indices, DataType.INT32)], name=f"tail-{axis}")
    yield Sample(ops.Permute((1, 2, 0)), [x], name="tail")
    yield Sample(ops.Trilu(3), [x], name="tail")


@samples(ops.BatchNormalization, ops.InstanceNormalization, ops.LayerNormalization, ops.RmsNormalization)
def normalizations() -> Iterator[Sample]:
    """Yield samples of normalization operators on images and rows in which all sizes differ."""
    for label, layout in LAYOUTS.items():
        image, parameters = given(_image(layout, 7)), (weights((7,), low=0.5, high=2), weights((7,)))
        statistics: list[Given | None] = [weights((7,)), weights((7,), low=0.5, high=2), weights((7,)), weights((7,))]
        yield Sample(ops.BatchNormalization(data_layout=layout, eps=0.01), [image, *statistics], name=f"tail-{label}")
        yield Sample(
            ops.InstanceNormalization(data_layout=layout, eps=0.01), [image, *parameters], name=f"tail-{label}"
        )
    gamma, beta = weights((37,), low=0.5, high=2), weights((37,))
    yield Sample(ops.LayerNormalization(eps=0.01), [given(ROWS), gamma, beta], name="tail")
    yield Sample(ops.RmsNormalization(eps=0.01), [given(ROWS), gamma], name="tail")


@samples(ops.Resize, ops.RoiAlign, ops.RoiPooling, ops.Pooling3d)
def unequal_windows() -> Iterator[Sample]:
    """Yield samples of operators on images with different attributes for height and width."""
    for label, layout in LAYOUTS.items():
        for method in (ops.ResizeMethod.BILINEAR, ops.ResizeMethod.NEAREST_NEIGHBOR):
            op = ops.Resize(target_width=17, target_height=5, method=method, data_layout=layout)
            yield Sample(op, [given(_image(layout, 3, (2, 7, 11)))], name=f"tail-{method.name.lower()}-{label}")
        boxes = [of([[0, 0, 9, 14], [3, 2, 17, 20], [1, 7, 20, 11]]), of([1, 0, 1], DataType.INT32)]
        image = given(_image(layout, 3, (2, 7, 11)))
        align = ops.RoiAlign(3, 2, 2.0, 3.0, layout, 1, 3)
        yield Sample(align, [image, *boxes], name=f"tail-{label}")
        yield Sample(ops.RoiPooling(3, 2, 2.0, 3.0, layout), [image, *boxes], name=f"tail-{label}")
    volume: dict[str, Any] = {
        "pool_width": 2,
        "pool_height": 3,
        "pool_depth": 1,
        "stride_x": 3,
        "stride_y": 1,
        "stride_z": 2,
    }
    pads: dict[str, Any] = {
        "pad_left": 1,
        "pad_top": 2,
        "pad_back": 1,
        "dilation_x": 1,
        "dilation_y": 2,
        "dilation_z": 3,
    }
    for pool_type in PoolingAlgorithm:
        volumes = ops.Pooling3d(pool_type, data_layout=DataLayout.NDHWC, **volume, **pads)
        yield Sample(volumes, [given((2, 5, 9, 7, 3))], name=f"tail-{pool_type.name.lower()}")

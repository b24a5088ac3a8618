"""Samples of 2D convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from interposer.core.types import DataLayout, DataType, Quantization, TensorInfo
from interposer.ops import (
    Convolution2d,
    DepthwiseConvolution2d,
    IntegerConvolution2d,
    TransposeConvolution2d,
)
from interposer.testing.sample import Given, Sample, given, of, samples, weights
from interposer.testing.samples.common import (
    BYTES,
    FLOATS,
    INTEGERS,
    SMALL_FLOATS,
    TINY_INTEGERS,
    bytes_of,
    declared,
    f32,
    i8,
    i32,
    image_shape,
    plain,
)

__all__: list[str] = []

NHWC, NCHW = DataLayout.NHWC, DataLayout.NCHW
LAYOUTS: Final = {"nhwc": NHWC, "nchw": NCHW}
INT8, INT16, INT32, INT64, UINT8 = DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64, DataType.UINT8
WINDOWS: Final[dict[str, dict[str, int]]] = {
    "plain": {},
    "padded": {"pad_left": 1, "pad_right": 1, "pad_top": 1, "pad_bottom": 1},
    "uneven-pads": {"pad_left": 2, "pad_bottom": 1},
    "strided": {"stride_x": 2, "stride_y": 2},
    "uneven-strides": {"stride_x": 2, "stride_y": 3, "pad_top": 1},
    "dilated": {"dilation_x": 2, "dilation_y": 2, "pad_left": 1, "pad_top": 1},
    "uneven-dilations": {"dilation_x": 3, "pad_right": 2},
    "all-at-once": {"pad_left": 1, "pad_right": 2, "pad_top": 1, "stride_x": 2, "dilation_y": 2},
}
NUMBERS: Final = (*FLOATS, *SMALL_FLOATS, *INTEGERS, *TINY_INTEGERS)
INPUT: Final = {UINT8: Quantization(1 / 32, 120), INT8: Quantization(1 / 32, -3), INT16: Quantization(1 / 4096)}
OUTPUT: Final = {UINT8: Quantization(1 / 8, 130), INT8: Quantization(1 / 8, 7), INT16: Quantization(1 / 1024)}
WEIGHTS: Final = {UINT8: Quantization(1 / 100, 128), INT8: Quantization(1 / 120)}


def _filters(op: Any, channels: int, outputs: int, size: tuple[int, int] = (3, 2)) -> tuple[int, ...]:
    """Return the shape of the weights of a convolution in its layout.

    `channels` and `outputs` are the numbers of input and output channels, and `size` is the height and width of the
    window.
    """
    if isinstance(op, DepthwiseConvolution2d):
        return (1, *size, outputs)
    if isinstance(op, TransposeConvolution2d):
        return image_shape(op.data_layout, outputs // op.groups, *size, channels)
    return image_shape(op.data_layout, outputs, *size, channels // op.groups)


def _ops(**attributes: Any) -> Iterator[Any]:
    yield from (op_class(**attributes) for op_class in (Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d))


@samples(Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d)
def windows() -> Iterator[Sample]:
    """Yield samples of 2D convolutions: padding, strides and dilations in both layouts, with and without a bias.

    The tensors are float32 or quantized.
    """
    for label, layout in LAYOUTS.items():
        for title, window in WINDOWS.items():
            for op in _ops(data_layout=layout, **window):
                image, filters = image_shape(layout, 2, 7, 6, 2), _filters(op, 2, 4)
                bias = weights((4,))
                yield Sample(op, [given(image), weights(filters), bias], name=f"{title}-{label}-float32")
                yield Sample(op, [given(image), weights(filters)], name=f"{title}-{label}-no-bias")
                for dtype in BYTES:
                    yield _quantized(op, image, filters, dtype, f"{title}-{label}-{dtype}")


@samples(Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d)
def types() -> Iterator[Sample]:
    """Yield samples of 2D convolutions of every numeric type; integers that are not quantized wrap around."""
    for dtype in NUMBERS:
        for op in _ops(data_layout=NHWC, pad_left=1, stride_y=2):
            low, high = (-4.0, 4.0) if dtype.is_float else (-3, 3)
            operands = [plain((1, 5, 5, 2), dtype, low=low, high=high), _small(_filters(op, 2, 4), dtype)]
            yield Sample(op, [*operands, _small((4,), dtype)], name=f"type-{dtype}")


def _small(shape: tuple[int, ...], dtype: DataType) -> Given:
    low = 0.0 if str(dtype).startswith("uint") else -1.0 if dtype.is_float else -2.0
    return weights(shape, dtype, low=low, high=1.0 if dtype.is_float else 2.0)


@samples(Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d)
def quantized_types() -> Iterator[Sample]:
    """Yield samples of quantized 2D convolutions.

    They cover 8- and 16-bit tensors, weights with one scale or per-channel scales, and biases of 32 and 64 bits.
    """
    for label, layout in LAYOUTS.items():
        for op in _ops(data_layout=layout, pad_left=1, pad_top=1):
            image, filters = image_shape(layout, 1, 5, 4, 2), _filters(op, 2, 4)
            for dtype in INPUT:
                for bias in (None, INT32, INT64) if dtype is INT16 else (None, INT32):
                    for per_axis in (False, True):
                        title = f"{label}-{dtype}-bias-{bias}-{'channels' if per_axis else 'tensor'}"
                        yield _quantized(op, image, filters, dtype, title, bias, per_axis)


def _quantized(
    op: Any, image: tuple[int, ...], filters: tuple[int, ...], dtype: DataType, title: str,
    bias: DataType | None = INT32, per_axis: bool = False,
) -> Sample:  # fmt: skip
    axis = 3 if isinstance(op, DepthwiseConvolution2d) else 0
    weight_type = UINT8 if dtype is UINT8 and not per_axis else INT8
    quantization, channels = WEIGHTS[weight_type], filters[axis]
    if per_axis:
        quantization = Quantization([quantization.scale * (1 + index / 2) for index in range(channels)], axis=axis)
    operands: list[Given | None] = [given(image, dtype, INPUT[dtype]), weights(filters, weight_type, quantization)]
    if bias is not None:
        scales = [INPUT[dtype].scale * scale for scale in quantization.scales]
        operands.append(weights((channels,), bias, Quantization(scales, axis=0 if per_axis else None)))
    return Sample(op, operands, [declared(op, *operands, q=OUTPUT[dtype])], title)


@samples(Convolution2d, TransposeConvolution2d)
def groups() -> Iterator[Sample]:
    """Yield Convolution2d and TransposeConvolution2d samples.

    They cover grouped convolutions, up to one group for each channel.
    """
    for label, layout in LAYOUTS.items():
        for count in (2, 4):
            for op_class in (Convolution2d, TransposeConvolution2d):
                op = op_class(groups=count, data_layout=layout, pad_left=1)
                image, filters = image_shape(layout, 2, 4, 5, 4), _filters(op, 4, 8)
                bias = weights((8,))
                yield Sample(op, [given(image), weights(filters), bias], name=f"groups-{count}-{label}")


@samples(DepthwiseConvolution2d)
def multipliers() -> Iterator[Sample]:
    """Yield DepthwiseConvolution2d samples: depthwise convolutions with one, two and three outputs for each channel."""
    for label, layout in LAYOUTS.items():
        for times in (1, 2, 3):
            op = DepthwiseConvolution2d(data_layout=layout, pad_right=1)
            operands = [given(image_shape(layout, 2, 5, 4, 3)), weights((1, 2, 2, 3 * times)), weights((3 * times,))]
            yield Sample(op, operands, name=f"multiplier-{times}-{label}")


@samples(Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d)
def unusual_shapes() -> Iterator[Sample]:
    """Yield samples of 2D convolutions of unusual shapes.

    They cover an empty batch, an image of one pixel, windows of one pixel and of the whole image, and input weights.
    """
    for label, layout in LAYOUTS.items():
        for title, (n, h, w), size in [
            ("empty", (0, 4, 4), (2, 2)),
            ("pixel", (1, 1, 1), (1, 1)),
            ("pointwise", (2, 3, 4), (1, 1)),
            ("whole", (1, 4, 3), (4, 3)),
        ]:
            for op in _ops(data_layout=layout):
                operands = [given(image_shape(layout, n, h, w, 2)), weights(_filters(op, 2, 4, size)), weights((4,))]
                yield Sample(op, operands, name=f"{title}-{label}")
        for op in _ops(data_layout=layout):
            operands = [given(image_shape(layout, 1, 4, 4, 2)), given(_filters(op, 2, 4)), given((4,))]
            yield Sample(op, operands, name=f"given-weights-{label}")


@samples(TransposeConvolution2d)
def output_shapes() -> Iterator[Sample]:
    """Yield TransposeConvolution2d samples whose declared output is larger or smaller than the attributes imply."""
    for label, layout in LAYOUTS.items():
        for title, (h, w) in {"larger": (9, 8), "smaller": (6, 6)}.items():
            op = TransposeConvolution2d(
                data_layout=layout, stride_x=2, stride_y=2, pad_top=1, output_shape=image_shape(layout, 1, h, w, 4)
            )
            operands = [given(image_shape(layout, 1, 3, 3, 2)), weights(_filters(op, 2, 4))]
            yield Sample(op, operands, name=f"{title}-{label}")


@samples(Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d)
def worked() -> Iterator[Sample]:
    """Yield worked examples of 2D convolutions.

    They are the numbers 1 to 9 under a window of 2 by 2, and a pixel spread by a stride of 2.
    """
    image, window = np.arange(1, 10, dtype=np.float32).reshape(1, 3, 3, 1), [[1, 2], [3, 4]]
    filters = f32(window).reshape(1, 2, 2, 1)
    expected = f32([[37, 47], [67, 77]]).reshape(1, 2, 2, 1)
    for kind in (Convolution2d, DepthwiseConvolution2d):
        operands = [of(image), of(filters, constant=True)]
        yield Sample(kind(data_layout=NHWC), operands, name="worked", expected=[expected])
    expected_pixels = f32([[1, 2, 2, 4], [3, 4, 6, 8], [3, 6, 4, 8], [9, 12, 12, 16]]).reshape(1, 4, 4, 1)
    op = TransposeConvolution2d(stride_x=2, stride_y=2, data_layout=NHWC)
    pixels = of(f32([1, 2, 3, 4]).reshape(1, 2, 2, 1))
    yield Sample(op, [pixels, of(filters, constant=True)], name="worked", expected=[expected_pixels])


@samples(Convolution2d)
def worked_quantized() -> Iterator[Sample]:
    """Yield a worked quantized Convolution2d example without rounding: (1, 2) times (3, -1) plus 0.5 is 1.5."""
    half, eighth = Quantization(0.5, 10), Quantization(0.125, -2)
    operands = [
        Given(TensorInfo((1, 1, 1, 2), INT8, half), i8([12, 14]).reshape(1, 1, 1, 2)),
        Given(TensorInfo((1, 1, 1, 2), INT8, Quantization(0.5)), i8([6, -2]).reshape(1, 1, 1, 2), constant=True),
        Given(TensorInfo((1,), INT32, Quantization(0.25)), i32([2]), constant=True),
    ]
    output, expected = TensorInfo((1, 1, 1, 1), INT8, eighth), i8([10]).reshape(1, 1, 1, 1)
    yield Sample(Convolution2d(data_layout=NHWC), operands, [output], "worked-quantized", [expected])


@samples(IntegerConvolution2d)
def integer_windows() -> Iterator[Sample]:
    """Yield IntegerConvolution2d samples: windows, groups, pairs of types, and zero points, in both layouts."""
    for label, layout in LAYOUTS.items():
        for title, window in WINDOWS.items():
            op = IntegerConvolution2d(data_layout=layout, **window)
            operands = [
                bytes_of(image_shape(layout, 2, 7, 6, 5), UINT8),
                bytes_of(_filters(op, 5, 7), INT8, constant=True),
            ]
            yield Sample(op, [*operands, bytes_of((), UINT8)], name=f"integers-{label}-{title}")
        for groups, channels, outputs in ((2, 6, 4), (5, 5, 5), (24, 24, 48)):
            op = IntegerConvolution2d(data_layout=layout, groups=groups, pad_left=1)
            image = bytes_of(image_shape(layout, 1, 5, 6, channels), UINT8)
            filters = bytes_of(_filters(op, channels, outputs), INT8, constant=True)
            yield Sample(op, [image, filters, bytes_of((), UINT8)], name=f"integers-{label}-groups-{groups}")
        for input_dtype, weights_dtype in ((UINT8, UINT8), (INT8, INT8), (INT8, UINT8)):
            op = IntegerConvolution2d(data_layout=layout, pad_bottom=1)
            image = bytes_of(image_shape(layout, 1, 4, 5, 3), input_dtype)
            for constant in (False, True):
                filters = bytes_of(_filters(op, 3, 4), weights_dtype, constant=constant)
                zero_points = [bytes_of((), input_dtype), bytes_of((4, 1, 1, 1), weights_dtype, constant=constant)]
                title = f"integers-{label}-{input_dtype}-{weights_dtype}{'-constant' if constant else ''}"
                yield Sample(op, [image, filters, *zero_points], name=title)
    op = IntegerConvolution2d()
    yield Sample(op, [bytes_of((0, 2, 3, 3), UINT8), bytes_of((3, 2, 1, 1), UINT8)], name="integers-empty")

"""Samples of quantized tensors with many elements, some of which saturate, and of long sums.

With many elements, the mean of the errors separates a bias of half a step from chance. The
scales of inputs and results have odd ratios, so that few results lie halfway between two steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from interposer import ops
from interposer.core.schema import Op
from interposer.core.types import DataLayout, DataType, Quantization, TensorInfo
from interposer.ops import Activation, ActivationFunction, PoolingAlgorithm, ReduceOperation
from interposer.testing.sample import Given, Sample, given, of, samples, weights
from interposer.testing.samples.common import declared

__all__: list[str] = []

A, R = ActivationFunction, ReduceOperation
INT8, UINT8, INT16, INT32 = DataType.INT8, DataType.UINT8, DataType.INT16, DataType.INT32
FLOAT32, FLOAT16, BFLOAT16 = DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16
INPUT: Final = {
    INT8: Quantization(0.0313, -3),
    UINT8: Quantization(0.0313, 120),
    INT16: Quantization(0.000119),
}
RESULT: Final = {
    INT8: Quantization(0.0247, 5),
    UINT8: Quantization(0.0247, 117),
    INT16: Quantization(0.0000967),
}
"""Quantizations with which numbers from -4 to 4 exceed both ends of the range."""
ENDS: Final = {
    INT8: (Quantization(0.0157, -128), Quantization(0.0193, 127)),
    UINT8: (Quantization(0.0157, 0), Quantization(0.0193, 255)),
}
"""Quantizations with the zero point at the lower and at the upper end of the range."""
SHAPE: Final = (6, 5, 37)
NHWC: Final = DataLayout.NHWC


def _one(op: Op, operands: list[Given | None], dtype: DataType, name: str, scale_factor: float = 1.0) -> Sample:
    output_quantization = RESULT[dtype]
    scaled_quantization = Quantization(output_quantization.scale * scale_factor, output_quantization.zero_point)
    return Sample(
        op,
        operands,
        [declared(op, *operands, q=scaled_quantization)],
        f"many-{name}-{dtype}" if name else f"many-{dtype}",
    )


@samples(ops.Quantize)
def quantize() -> Iterator[Sample]:
    """Yield Quantize samples: conversions from float32, and from one quantization to another."""
    for dtype in INPUT:
        yield _one(ops.Quantize(dtype), [given(SHAPE)], dtype, "")
        for source, quantization in INPUT.items():
            yield _one(ops.Quantize(dtype), [given(SHAPE, source, quantization)], dtype, f"requantize-{source}-to")


@samples(Activation)
def activations() -> Iterator[Sample]:
    """Yield Activation samples: activations whose results are rescaled."""
    for function, a, b in (
        (A.RELU, 0.0, 0.0), (A.LEAKY_RELU, 0.173, 0.0), (A.BOUNDED_RELU, 2.9, -1.3), (A.TANH, 1.0, 1.0),
        (A.HARD_SWISH, 0.0, 0.0), (A.LINEAR, 0.83, 0.37),
    ):  # fmt: skip
        for dtype, quantization in INPUT.items():
            op = Activation(function, a, b)
            yield _one(op, [given(SHAPE, dtype, quantization)], dtype, function.name.lower(), 0.7)


@samples(ops.Addition, ops.Subtraction, ops.Multiplication, ops.Maximum, ops.Minimum)
def arithmetic() -> Iterator[Sample]:
    """Yield quantized samples of arithmetic on operands of different scales, some with extreme zero points."""
    for kind in (ops.Addition, ops.Subtraction, ops.Multiplication, ops.Maximum, ops.Minimum):
        op = kind()
        for dtype, quantization in INPUT.items():
            second_quantization = Quantization(quantization.scale * 0.83, quantization.zero_point)
            yield _one(op, [given(SHAPE, dtype, quantization), given((5, 1), dtype, second_quantization)], dtype, "")
        for dtype, (low, high) in ENDS.items():
            output_end = low if kind in (ops.Maximum, ops.Subtraction) else high
            output_end = RESULT[dtype] if kind is ops.Addition else output_end
            operands: list[Given | None] = [given(SHAPE, dtype, low, low=0), given(SHAPE, dtype, high, high=0)]
            output = declared(op, *operands, q=Quantization(0.0127, output_end.zero_point))
            yield Sample(op, operands, [output], f"many-ends-{dtype}")


@samples(ops.Prelu)
def slopes() -> Iterator[Sample]:
    """Yield Prelu samples: a slope for each channel."""
    for dtype, quantization in INPUT.items():
        yield _one(ops.Prelu(), [given(SHAPE, dtype, quantization), weights((37,), dtype, quantization)], dtype, "")


@samples(ops.Convolution2d, ops.DepthwiseConvolution2d, ops.TransposeConvolution2d)
def convolutions() -> Iterator[Sample]:
    """Yield quantized samples of 2D convolutions.

    They have channel counts that are no multiple of a vector, per-channel scales, and extreme zero points.
    """
    for dtype, quantization in INPUT.items():
        for per_axis in (False, True):
            label = "channels" if per_axis else "tensor"
            yield _convolved(
                ops.Convolution2d(pad_left=1, pad_bottom=2, stride_x=2, data_layout=NHWC), dtype, quantization, label
            )
            yield _convolved(
                ops.DepthwiseConvolution2d(pad_right=2, pad_top=1, data_layout=NHWC), dtype, quantization, label
            )
            yield _convolved(
                ops.TransposeConvolution2d(stride_y=2, pad_left=1, data_layout=NHWC), dtype, quantization, label
            )
    for dtype, (low, high) in ENDS.items():
        op = ops.Convolution2d(pad_left=1, pad_top=2, data_layout=NHWC)
        yield _convolved(op, dtype, low, "low-end")
        yield _convolved(op, dtype, high, "high-end")


def _convolved(op: Any, dtype: DataType, quantization: Quantization, label: str) -> Sample:
    channels, outputs, per_axis = 11, 21, label == "channels"
    shape, axis = (outputs, 3, 2, channels), 0
    if isinstance(op, ops.DepthwiseConvolution2d):
        shape, axis, outputs = (1, 3, 2, channels), 3, channels
    weights_type = UINT8 if dtype is UINT8 and not per_axis else INT8
    scales = [0.0071 * (1 + (index % 5) / 2) for index in range(outputs)] if per_axis else [0.0113]
    weights_quantization = Quantization(scales, 128 if weights_type is UINT8 else 0, axis if per_axis else None)
    bias_quantization = Quantization([quantization.scale * scale for scale in scales], 0, 0 if per_axis else None)
    low, high = (
        (0.0 if quantization.zero_point in (-128, 0) and dtype is not INT16 else -4.0),
        (0.0 if label == "high-end" else 4.0),
    )
    operands: list[Given | None] = [
        given((2, 7, 6, channels), dtype, quantization, low=low, high=high),
        weights(shape, weights_type, weights_quantization),
        weights((outputs,), DataType.INT64 if dtype is INT16 else INT32, bias_quantization),
    ]
    return _one(op, operands, dtype, label, 1.7 if isinstance(op, ops.DepthwiseConvolution2d) else 4.3)


@samples(ops.FullyConnected, ops.BatchMatMul)
def products() -> Iterator[Sample]:
    """Yield FullyConnected and BatchMatMul samples: sums of 75 products that do not cancel out and exceed 16 bits."""
    for dtype, quantization in INPUT.items():
        weights_type = UINT8 if dtype is UINT8 else INT8
        weights_quantization = Quantization(0.0091, 128 if weights_type is UINT8 else 0)
        operands: list[Given | None] = [
            given((43, 75), dtype, quantization, low=1),
            weights((75, 19), weights_type, weights_quantization, low=-0.2),
        ]
        yield _one(ops.FullyConnected(), operands, dtype, "", 41.3)
        matrices: list[Given | None] = [
            given((2, 23, 75), dtype, quantization, low=1),
            given((2, 75, 19), dtype, quantization, low=-1),
        ]
        yield _one(ops.BatchMatMul(), matrices, dtype, "", 163.1)


@samples(ops.Pooling2d)
def pools() -> Iterator[Sample]:
    """Yield Pooling2d samples: averages and maxima with another output scale."""
    for dtype, quantization in INPUT.items():
        for pool_type in (PoolingAlgorithm.AVERAGE, PoolingAlgorithm.MAX):
            window: dict[str, Any] = {"pool_width": 2, "pool_height": 3, "stride_x": 1, "stride_y": 2, "pad_left": 1}
            op = ops.Pooling2d(pool_type, data_layout=NHWC, **window)
            yield _one(
                op,
                [given((3, 9, 6, 13), dtype, quantization)],
                dtype,
                pool_type.name.lower(),
                1.37 if pool_type is PoolingAlgorithm.AVERAGE else 1.21,
            )
            operands: list[Given | None] = [given((3, 9, 6, 13), dtype, quantization)]
            yield Sample(
                op,
                operands,
                [declared(op, *operands, q=quantization)],
                f"many-{pool_type.name.lower()}-one-scale-{dtype}",
            )


@samples(ops.Mean, ops.Reduce)
def reductions() -> Iterator[Sample]:
    """Yield Mean and Reduce samples: means, sums and maxima of 7 elements."""
    for dtype, quantization in INPUT.items():
        operands: list[Given | None] = [given((19, 7, 37), dtype, quantization)]
        yield _one(ops.Mean((1,)), operands, dtype, "", 0.43)
        for operation in (R.SUM, R.MAX, R.MIN):
            scale_factor = 3.7 if operation is R.SUM else 1.21
            yield _one(ops.Reduce((1,), operation=operation), operands, dtype, operation.name.lower(), scale_factor)


@samples(ops.BatchNormalization, ops.L2Normalization, ops.Resize, ops.Softmax)
def others() -> Iterator[Sample]:
    """Yield quantized samples of normalizations, interpolated images, and softmax, with many elements."""
    for dtype in (INT8, UINT8):
        quantization = INPUT[dtype]
        statistics: list[Given | None] = [
            Given(TensorInfo((7,), dtype, quantization), low=low, high=high, constant=True)
            for low, high in ((-1, 1), (0.5, 2), (-1, 1), (0.5, 2))
        ]
        image = given((2, 7, 6, 7), dtype, quantization)
        op = ops.BatchNormalization(eps=0.01, data_layout=NHWC)
        yield _one(op, [image, *statistics], dtype, "", 2.3)
        unit = Quantization(1 / 128, 128 if dtype is UINT8 else 0)
        l2 = ops.L2Normalization(axis=2)
        yield Sample(l2, [given(SHAPE, dtype, quantization)], [TensorInfo(SHAPE, dtype, unit)], f"many-{dtype}")
        resize = ops.Resize(target_height=11, target_width=9, data_layout=NHWC, method=ops.ResizeMethod.BILINEAR)
        yield Sample(resize, [image], [declared(resize, image, q=quantization)], f"many-{dtype}")
        yield Sample(ops.Softmax(), [given((41, 13), dtype, quantization)], name=f"many-{dtype}")


# --- long sums --------------------------------------------------------------------------------------------------------


@samples(ops.Reduce, ops.Mean, ops.FullyConnected, ops.BatchMatMul, ops.LayerNormalization, ops.Softmax)
def long_sums() -> Iterator[Sample]:
    """Yield samples of sums of thousands of numbers of the same sign, in which a narrow accumulator stops growing."""
    for dtype in (FLOAT32, FLOAT16, BFLOAT16):
        row = given((3, 4001), dtype, low=0.5, high=1.5)
        yield Sample(ops.Reduce((1,), operation=R.SUM), [row], name=f"long-sum-{dtype}")
        yield Sample(ops.Reduce((1,), operation=R.MEAN), [row], name=f"long-mean-{dtype}")
        yield Sample(ops.Mean((1,)), [row], name=f"long-{dtype}")
        matrix = weights((4001, 5), dtype, low=0.25, high=0.75)
        yield Sample(ops.FullyConnected(), [row, matrix], name=f"long-{dtype}")
        yield Sample(ops.BatchMatMul(), [row, matrix], name=f"long-{dtype}")
        wide_rows = given((3, 4001), dtype, low=6.0, high=10.0)
        yield Sample(ops.LayerNormalization(), [wide_rows], name=f"long-{dtype}")
        yield Sample(ops.Softmax(), [given((3, 4001), dtype, low=-1, high=1)], name=f"long-{dtype}")


@samples(ops.Convolution2d, ops.Pooling2d)
def long_windows() -> Iterator[Sample]:
    """Yield Convolution2d and Pooling2d samples: windows of 1,573 numbers of the same sign."""
    for dtype in (FLOAT32, FLOAT16):
        image = given((1, 11, 13, 11), dtype, low=0.5, high=1.5)
        filters = weights((3, 11, 13, 11), dtype, low=0.25, high=0.75)
        yield Sample(ops.Convolution2d(data_layout=NHWC), [image, filters], name=f"long-{dtype}")
        pool = ops.Pooling2d(PoolingAlgorithm.AVERAGE, data_layout=NHWC)
        yield Sample(pool, [image], name=f"long-{dtype}")


@samples(ops.Reduce, ops.CumSum, ops.FullyConnected, ops.BatchMatMul)
def whole_sums() -> Iterator[Sample]:
    """Yield samples of integer sums that exceed 16 bits, and of sums that exceed 32 bits and wrap around."""
    small = np.arange(1, 112).reshape(3, 37) * 1009
    large = small * 20_011_003
    for bits, rows in {"16": small, "32": large}.items():
        x = of(rows.astype(np.int32), INT32)
        yield Sample(ops.Reduce((1,), operation=R.SUM), [x], name=f"beyond-{bits}-bits")
        yield Sample(ops.CumSum(axis=1), [x], name=f"beyond-{bits}-bits")
        matrix = of(np.arange(1, 75).reshape(37, 2), INT32)
        yield Sample(ops.BatchMatMul(), [x, matrix], name=f"beyond-{bits}-bits")

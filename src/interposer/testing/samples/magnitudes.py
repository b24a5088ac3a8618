"""Samples of very large and very small floats: 1e20 to 3e38 and 2e-38, where intermediate values overflow or underflow.

The square of 1e20 and the sum of two numbers of 2e38 are not float32 numbers, but a mean, a norm or a normalized row of
such numbers is. All elements of a sample have similar magnitudes, as larger ones would hide errors of smaller ones.
Sums of products have terms of one sign: partial sums that overflow in one order of summation need not in another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from interposer import ops
from interposer.core.schema import Op
from interposer.core.types import Array, DataLayout, DataType
from interposer.ops import (
    Activation,
    ActivationFunction,
    BinaryOperation,
    ElementwiseBinary,
    ElementwiseUnary,
    PoolingAlgorithm,
    ReduceOperation,
    UnaryOperation,
)
from interposer.testing.sample import Given, Sample, of, samples, weights
from interposer.testing.samples.activation import PARAMETERS

__all__: list[str] = []

MAGNITUDES: Final = {"1e20": 1e20, "1e30": 1e30, "3e38": 3e38, "2e-38": 2e-38}
COUNT: Final = 37
CHANNELS: Final = (3, 16)
NHWC: Final[dict[str, Any]] = {"data_layout": DataLayout.NHWC}


def _around(magnitude: float, *shape: int, is_signed: bool = True) -> Array:
    """Return numbers from 0.6 to 1 times the magnitude, of alternating signs unless `is_signed` is False."""
    count = int(np.prod(shape))
    signs = np.where(np.arange(count) % 3 == 1, -1.0, 1.0) if is_signed else 1.0
    return np.asarray((magnitude * np.linspace(0.6, 1.0, count) * signs).reshape(shape).astype(np.float32))


def _sample(op: Op, operands: Sequence[Given], name: str) -> Sample:
    return Sample(op, operands, name=name, extreme=True)


@samples(Activation)
def activations() -> Iterator[Sample]:
    """Yield Activation samples of every function and magnitude."""
    for function in ActivationFunction:
        op = Activation(function, *PARAMETERS.get(function, (1.0, 0.0)))
        for title, magnitude in MAGNITUDES.items():
            is_signed = function is not ActivationFunction.SQRT
            operand = of(_around(magnitude, COUNT, is_signed=is_signed))
            yield _sample(op, [operand], f"magnitude-{function.name.lower()}-{title}")


_UNDEFINED: Final = frozenset({
    UnaryOperation.LOGICAL_NOT, UnaryOperation.BITWISE_NOT, UnaryOperation.SIN, UnaryOperation.COS, UnaryOperation.TAN,
    UnaryOperation.ASIN, UnaryOperation.ACOS, UnaryOperation.ATANH,
})  # fmt: skip
"""Functions of integers, truth values and numbers up to 1, and periodic ones, which few libraries compute right."""


@samples(ElementwiseUnary)
def functions() -> Iterator[Sample]:
    """Yield ElementwiseUnary samples of every function of large numbers, in every magnitude."""
    for operation in UnaryOperation:
        for title, magnitude in MAGNITUDES.items() if operation not in _UNDEFINED else ():
            operand = of(_around(magnitude, COUNT))
            yield _sample(ElementwiseUnary(operation), [operand], f"magnitude-{operation.name.lower()}-{title}")


@samples(ElementwiseBinary, ops.Addition, ops.Division, ops.Multiplication, ops.Subtraction, ops.Prelu)
def pairs() -> Iterator[Sample]:
    """Yield samples of binary operators on numbers of equal magnitudes, and on large and ordinary ones."""
    op_of_operation = {BinaryOperation.ADD: ops.Addition, BinaryOperation.SUB: ops.Subtraction,
             BinaryOperation.MUL: ops.Multiplication, BinaryOperation.DIV: ops.Division}  # fmt: skip
    other_operations = (BinaryOperation.SQ_DIFF, BinaryOperation.FLOOR_DIV, BinaryOperation.ATAN2)
    for title, magnitude in MAGNITUDES.items():
        x, y = of(_around(magnitude, COUNT)), of(_around(magnitude, COUNT, is_signed=False)[::-1].copy())
        for op in (*(kind() for kind in op_of_operation.values()), *map(ElementwiseBinary, other_operations)):
            yield _sample(op, [x, y], f"{op.operation.name.lower()}-magnitude-{title}")
        yield _sample(ops.Division(), [x, of(np.linspace(0.5, 2, COUNT))], f"magnitude-{title}-by-ordinary")
        yield _sample(ops.Prelu(), [x, of(np.linspace(0.25, 0.75, COUNT), constant=True)], f"magnitude-{title}")


@samples(ops.Reduce, ops.Mean)
def reductions() -> Iterator[Sample]:
    """Yield Reduce and Mean samples over rows and over columns."""
    operations = (
        ReduceOperation.MEAN, ReduceOperation.SUM, ReduceOperation.L1, ReduceOperation.L2, ReduceOperation.MAX,
        ReduceOperation.MIN, ReduceOperation.PROD, ReduceOperation.SUM_SQUARE, ReduceOperation.LOG_SUM,
        ReduceOperation.LOG_SUM_EXP,
    )  # fmt: skip
    for title, magnitude in {**MAGNITUDES, "1e38": 1e38}.items():
        operand = of(_around(magnitude, 5, 7, is_signed=False))
        for axis in range(2):
            for operation in operations:
                op = ops.Reduce((axis,), operation=operation)
                yield _sample(op, [operand], f"magnitude-{operation.name.lower()}-{title}-axis{axis}")
            yield _sample(ops.Mean((axis,)), [operand], f"magnitude-{title}-axis{axis}")


@samples(ops.Softmax, ops.LogSoftmax)
def probabilities() -> Iterator[Sample]:
    """Yield Softmax and LogSoftmax samples along both axes; most probabilities of large scores are 0 or 1."""
    for kind in (ops.Softmax, ops.LogSoftmax):
        for title, magnitude in MAGNITUDES.items():
            for axis in range(2):
                operand = of(_around(magnitude, 5, 7))
                yield _sample(kind(axis=axis), [operand], f"magnitude-{title}-axis{axis}")


@samples(ops.Pooling2d, ops.Pooling3d)
def pools() -> Iterator[Sample]:
    """Yield Pooling2d and Pooling3d samples of every kind of pooling, of few channels and many."""
    for title, magnitude in MAGNITUDES.items():
        for pool_type in PoolingAlgorithm:
            for channels in CHANNELS:
                op = ops.Pooling2d(pool_type, pool_width=2, pool_height=3, stride_x=2, stride_y=1, **NHWC)
                image, name = of(_around(magnitude, 2, 5, 7, channels)), f"magnitude-{pool_type.name.lower()}-{title}"
                yield _sample(op, [image], f"{name}-{channels}")
            volume: dict[str, Any] = {"pool_width": 2, "pool_height": 3, "pool_depth": 2}
            op3d = ops.Pooling3d(pool_type, data_layout=DataLayout.NDHWC, **volume)
            yield _sample(op3d, [of(_around(magnitude, 1, 3, 4, 5, 3))], name)


def _channels(low: float, high: float) -> Given:
    return of(np.linspace(low, high, 7), constant=True)


@samples(
    ops.BatchNormalization, ops.InstanceNormalization, ops.LayerNormalization, ops.RmsNormalization,
    ops.GroupNormalization, ops.MeanVarianceNormalization, ops.L2Normalization, ops.Normalization,
)  # fmt: skip
def normalizations() -> Iterator[Sample]:
    """Yield samples of all normalization operators, whose squares overflow, and of which the results are about 1."""
    gamma, beta = _channels(0.5, 2.0), _channels(-1.0, 1.0)
    statistics = [_channels(-1.0, 1.0), _channels(0.5, 2.0), _channels(-1.0, 1.0), _channels(0.1, 0.5)]
    for title, magnitude in MAGNITUDES.items():
        rows, image = of(_around(magnitude, 5, 7)), of(_around(magnitude, 2, 3, 5, 7))
        name = f"magnitude-{title}"
        yield _sample(ops.BatchNormalization(eps=0.01, **NHWC), [image, *statistics], name)
        yield _sample(ops.InstanceNormalization(eps=0.01, **NHWC), [image, gamma, beta], name)
        yield _sample(ops.GroupNormalization(num_groups=7, eps=0.01, **NHWC), [image, gamma, beta], name)
        yield _sample(ops.LayerNormalization(eps=0.01), [rows, gamma, beta], name)
        yield _sample(ops.RmsNormalization(eps=0.01), [rows, gamma], name)
        yield _sample(ops.MeanVarianceNormalization((1, 2), eps=0.01), [image], name)
        yield _sample(ops.L2Normalization(**NHWC), [image], name)
        yield _sample(ops.Normalization(**NHWC), [image], name)
        nchw = of(_around(magnitude, 2, 7, 3, 5))
        yield _sample(ops.L2Normalization(data_layout=DataLayout.NCHW), [nchw], f"{name}-nchw")
        yield _sample(ops.Normalization(data_layout=DataLayout.NCHW), [nchw], f"{name}-nchw")


@samples(ops.Resize)
def resized() -> Iterator[Sample]:
    """Yield Resize samples, of one channel and of several."""
    for title, magnitude in MAGNITUDES.items():
        for channels in (1, 3):
            op = ops.Resize(target_width=9, target_height=5, method=ops.ResizeMethod.BILINEAR, **NHWC)
            yield _sample(op, [of(_around(magnitude, 1, 3, 4, channels))], f"magnitude-{title}-{channels}")


@samples(ops.Convolution2d, ops.DepthwiseConvolution2d, ops.FullyConnected, ops.BatchMatMul)
def products() -> Iterator[Sample]:
    """Yield samples of matrix products and convolutions of large and ordinary numbers; no partial sum overflows."""
    for title, magnitude in {"1e20": 1e20, "1e30": 1e30, "1e36": 1e36, "2e-38": 2e-38}.items():
        image, rows = of(_around(magnitude, 1, 5, 7, 3, is_signed=False)), of(_around(magnitude, 5, 7, is_signed=False))
        filters, matrix = weights((4, 2, 2, 3), low=0.1), weights((7, 4), low=0.1)
        yield _sample(ops.Convolution2d(**NHWC), [image, filters], f"magnitude-{title}")
        depthwise = ops.DepthwiseConvolution2d(**NHWC)
        yield _sample(depthwise, [image, weights((1, 2, 2, 3), low=0.1)], f"magnitude-{title}")
        yield _sample(ops.FullyConnected(), [rows, matrix], f"magnitude-{title}")
        yield _sample(ops.BatchMatMul(), [rows, matrix], f"magnitude-{title}")


@samples(ops.FakeQuantization, ops.Cast)
def converted() -> Iterator[Sample]:
    """Yield samples of conversions to narrower types, which saturate or become infinite."""
    for title, magnitude in MAGNITUDES.items():
        operand = of(_around(magnitude, COUNT))
        yield _sample(ops.FakeQuantization(), [operand], f"magnitude-{title}")
        yield _sample(ops.Cast(DataType.FLOAT16), [operand], f"magnitude-{title}")

"""Samples of special values: NaN, infinities, signed zeros, denormal numbers, and integers at the ends of their range.

Where possible, arrays have 37 elements, so that both vectorized loops and their remainders process each value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from interposer import ops
from interposer.core.schema import Op
from interposer.core.types import Array, DataLayout, DataType, Quantization, TensorInfo, integer_range
from interposer.ops import (
    Activation,
    ActivationFunction,
    BinaryOperation,
    ComparisonOperation,
    ElementwiseBinary,
    ElementwiseUnary,
    PoolingAlgorithm,
    ReduceOperation,
    UnaryOperation,
)
from interposer.testing.sample import Given, Sample, of, samples
from interposer.testing.samples.activation import PARAMETERS

__all__: list[str] = []

A, B, C, R, U = ActivationFunction, BinaryOperation, ComparisonOperation, ReduceOperation, UnaryOperation
NAN, INF = np.nan, np.inf
FLOAT32, FLOAT16, INT32 = DataType.FLOAT32, DataType.FLOAT16, DataType.INT32
COUNT: Final = 37
VALUES: Final[dict[str, list[float]]] = {
    "nan": [NAN, -1.5, 0.5, 2.5],
    "infinite": [INF, -1.5, -INF, 0.75],
    "zeros": [0.0, -0.0, 1.0, -1.0],
    "denormal": [1e-40, -1e-40, 3e-39, -7e-42],
}
PAIRS: Final = [NAN, INF, -INF, 0.0, -0.0, 1.5, -2.0]
LINEAR: Final = (B.ADD, B.SUB, B.MUL, B.DIV, B.MAXIMUM, B.MINIMUM)
INTEGER: Final = (B.ADD, B.SUB, B.MUL, B.MAXIMUM, B.MINIMUM)
NAMED: Final = (ElementwiseBinary, ops.Addition, ops.Subtraction, ops.Multiplication, ops.Division, ops.Maximum,
                ops.Minimum)  # fmt: skip
EXACT: Final = (A.RELU, A.BOUNDED_RELU, A.LEAKY_RELU, A.ABS)
EXACT_UNARY: Final = (U.ABS, U.NEG)
WHOLE: Final = (DataType.INT8, DataType.UINT8, DataType.INT16, INT32, DataType.INT64)


def _many(values: list[float], dtype: DataType = FLOAT32) -> Given:
    return of(np.resize(np.asarray(values), COUNT), dtype)


# --- element by element -----------------------------------------------------------------------------------------------


@samples(Activation)
def activations() -> Iterator[Sample]:
    """Yield Activation samples.

    They cover NaN, infinities and zeros for every activation, and denormal numbers for those that preserve them.
    """
    for function in ActivationFunction:
        op = Activation(function, *PARAMETERS.get(function, (1.0, 0.0)))
        for title in ("nan", "infinite", "zeros"):
            yield Sample(op, [_many(VALUES[title])], name=f"special-{function.name.lower()}-{title}")
    for function in EXACT:
        op = Activation(function, *PARAMETERS.get(function, (1.0, 0.0)))
        yield Sample(op, [_many(VALUES["denormal"])], name=f"special-{function.name.lower()}-denormal")


@samples(ElementwiseUnary)
def functions() -> Iterator[Sample]:
    """Yield ElementwiseUnary samples.

    They cover NaN, infinities and zeros for every function, and signed zeros for those that preserve the sign.
    """
    for operation in UnaryOperation:
        op, title = ElementwiseUnary(operation), operation.name.lower()
        if operation in (U.LOGICAL_NOT, U.BITWISE_NOT):
            continue
        for label in ("nan", "infinite"):
            yield Sample(op, [_many(VALUES[label])], name=f"special-{title}-{label}")
    for operation in EXACT_UNARY:
        op, title = ElementwiseUnary(operation), operation.name.lower()
        for label in ("zeros", "denormal"):
            yield Sample(op, [_many(VALUES[label])], name=f"special-{title}-{label}", exact=True)
        for dtype in WHOLE:
            low, high = integer_range(dtype)
            yield Sample(op, [_integers([low, high, low + 1, 0], dtype)], name=f"special-{title}-ends-{dtype}")


@samples(*NAMED)
def arithmetic() -> Iterator[Sample]:
    """Yield samples of binary arithmetic: all pairs of special values, and denormal operands and results."""
    a, b = np.meshgrid(PAIRS, PAIRS, indexing="ij")
    for operation in LINEAR:
        op, title = _named(operation)
        for dtype in (FLOAT32, FLOAT16):
            yield Sample(op, [of(a, dtype), of(b, dtype)], name=f"{title}special-pairs-{dtype}")
    small, zero = VALUES["denormal"], [0.0]
    for operation in (B.ADD, B.SUB, B.MAXIMUM):
        op, title = _named(operation)
        yield Sample(op, [_many(small), _many(zero)], name=f"{title}special-denormal")
    op, title = _named(B.MUL)
    yield Sample(op, [_many([1e-20, -3e-20]), _many([1e-20])], name=f"{title}special-denormal-result")


@samples(*NAMED)
def whole_numbers() -> Iterator[Sample]:
    """Yield samples of binary arithmetic on integers whose results wrap around, as in two's complement."""
    for operation in INTEGER:
        op, title = _named(operation)
        for dtype in (*WHOLE, DataType.UINT32, DataType.UINT64):
            low, high = integer_range(dtype)
            ends = [low, high, low + 1, high - 1, 0, 1, 2]
            index_a, index_b = np.meshgrid(np.arange(7), np.arange(7), indexing="ij")
            array = np.array(ends, dtype.numpy)
            operands = [of(array[index_a], dtype), of(array[index_b], dtype)]
            yield Sample(op, operands, name=f"{title}special-ends-{dtype}")


def _named(operation: BinaryOperation) -> tuple[Op, str]:
    op = ElementwiseBinary(operation)
    canonical_op = op.canonical()
    return canonical_op, f"{operation.name.lower()}-" if type(canonical_op) is ElementwiseBinary else ""


def _integers(values: list[int], dtype: DataType) -> Given:
    return of(np.resize(np.array(values, dtype.numpy), COUNT), dtype)


@samples(ops.Comparison)
def comparisons() -> Iterator[Sample]:
    """Yield Comparison samples: all pairs of special values: NaN equals nothing, -0.0 equals 0.0."""
    a, b = np.meshgrid(PAIRS, PAIRS, indexing="ij")
    for operation in C:
        op = ops.Comparison(operation)
        yield Sample(op, [of(a), of(b)], name=f"special-pairs-{operation.name.lower()}")


@samples(ops.Prelu)
def slopes() -> Iterator[Sample]:
    """Yield Prelu samples: NaN and infinities with a slope for each element."""
    for title in ("nan", "infinite"):
        operands = [_many(VALUES[title]), of(np.resize([0.5, 0.25, -2.0], COUNT), constant=True)]
        yield Sample(ops.Prelu(), operands, name=f"special-{title}")


@samples(ops.Quantize)
def quantized() -> Iterator[Sample]:
    """Yield Quantize samples.

    They cover infinities (which saturate), NaN (which gives zero), and numbers halfway between two steps.
    """
    values = [NAN, INF, -INF, 0.25, 0.75, -0.25, -0.75, 1e9, -1e9, -0.0]
    for dtype, zero_point in ((DataType.INT8, -3), (DataType.UINT8, 100), (DataType.INT16, 0)):
        info = TensorInfo((COUNT,), dtype, Quantization(0.5, zero_point))
        yield Sample(ops.Quantize(dtype), [_many(values)], [info], f"special-{dtype}", exact=True)


# --- elements together ------------------------------------------------------------------------------------------------


def _rows(value: float) -> Array:
    """Return five rows of seven numbers; the second row holds the value once, the fourth holds it and its negation."""
    rows = np.linspace(-1.75, 2.0, 35, dtype=np.float32).reshape(5, 7)
    rows[1, 2] = rows[3, 5] = value
    rows[3, 1] = -value
    return rows


@samples(ops.Reduce, ops.Mean)
def sums() -> Iterator[Sample]:
    """Yield Reduce and Mean samples: rows with NaN or an infinity, which must affect only their own results."""
    for title, value in {"nan": NAN, "infinite": INF}.items():
        for operation in (R.SUM, R.PROD, R.MAX, R.MIN, R.MEAN):
            op = ops.Reduce((1,), operation=operation)
            yield Sample(op, [of(_rows(value))], name=f"special-{operation.name.lower()}-{title}")
        yield Sample(ops.Mean((1,)), [of(_rows(value))], name=f"special-{title}")


@samples(ops.Softmax, ops.LogSoftmax)
def probabilities() -> Iterator[Sample]:
    """Yield Softmax and LogSoftmax samples: rows with NaN, and rows with one or more -inf, as masks produce them."""
    masked = _rows(0.0)
    masked[0, ::2] = -INF
    for kind in (ops.Softmax, ops.LogSoftmax):
        yield Sample(kind(), [of(masked)], name="special-masked")
        row = _rows(0.0)
        row[1, 2] = NAN
        yield Sample(kind(), [of(row)], name="special-nan")


@samples(ops.Pooling2d)
def pools() -> Iterator[Sample]:
    """Yield Pooling2d samples: images with a NaN or an infinity, which must affect only the windows that contain it."""
    for title, value in {"nan": NAN, "infinite": INF}.items():
        image = np.linspace(-2, 2, 2 * 5 * 7 * 3, dtype=np.float32).reshape(2, 5, 7, 3)
        image[1, 2, 3, 1] = value
        for pool_type in (PoolingAlgorithm.MAX, PoolingAlgorithm.AVERAGE):
            op = ops.Pooling2d(
                pool_type, pool_width=2, pool_height=3, stride_x=2, stride_y=1, data_layout=DataLayout.NHWC
            )
            yield Sample(op, [of(image)], name=f"special-{pool_type.name.lower()}-{title}")


@samples(ops.Convolution2d, ops.DepthwiseConvolution2d, ops.FullyConnected, ops.BatchMatMul)
def products() -> Iterator[Sample]:
    """Yield samples of matrix products and convolutions whose operands contain a NaN or an infinity.

    It must affect only the results that depend on it.
    """
    for title, value in {"nan": NAN, "infinite": INF}.items():
        image = np.linspace(-2, 2, 5 * 7 * 3, dtype=np.float32).reshape(1, 5, 7, 3)
        image[0, 2, 3, 1] = value
        window: dict[str, Any] = {"pad_left": 1, "data_layout": DataLayout.NHWC}
        filters = np.linspace(0.5, 1.5, 4 * 3 * 2 * 3, dtype=np.float32)
        filters_of_all_channels = of(filters.reshape(4, 3, 2, 3), constant=True)
        yield Sample(ops.Convolution2d(**window), [of(image), filters_of_all_channels], name=f"special-{title}")
        depthwise_filters = of(filters[:18].reshape(1, 3, 2, 3), constant=True)
        yield Sample(ops.DepthwiseConvolution2d(**window), [of(image), depthwise_filters], name=f"special-{title}")
        matrix = of(np.linspace(0.5, 1.5, 28).reshape(7, 4), constant=True)
        yield Sample(ops.FullyConnected(), [of(_rows(value)), matrix], name=f"special-{title}")
        yield Sample(ops.BatchMatMul(), [of(_rows(value)), matrix], name=f"special-{title}")


# --- moved about ------------------------------------------------------------------------------------------------------


@samples(
    ops.Concat, ops.DepthToSpace, ops.Gather, ops.Pad, ops.Reshape, ops.ReverseV2, ops.Slice, ops.SpaceToDepth,
    ops.Tile, ops.Transpose,
)  # fmt: skip
def moved() -> Iterator[Sample]:
    """Yield samples of operators that only move elements, with special values, of which every bit must be preserved."""
    values = [NAN, INF, -INF, -0.0, 0.0, 1e-40, -1e-40, 3.4e38, 1.5]
    x = of(np.resize(np.asarray(values, np.float32), 24).reshape(2, 3, 4))
    image = of(np.resize(np.asarray(values, np.float32), 48).reshape(1, 2, 3, 8))
    wide_image = of(np.resize(np.asarray(values, np.float32), 48).reshape(1, 4, 6, 2))
    nhwc: dict[str, Any] = {"block_size": 2, "data_layout": DataLayout.NHWC}
    for op, operands in (
        (ops.Concat(axis=1), [x, x]),
        (ops.DepthToSpace(**nhwc), [image]),
        (ops.SpaceToDepth(**nhwc), [wide_image]),
        (ops.Gather(axis=1), [x, of([2, 0], INT32)]),
        (ops.Pad(pad_list=((0, 0), (1, 0), (0, 2))), [x]),
        (ops.Reshape(target_shape=(4, 6)), [x]),
        (ops.ReverseV2(axis=(1,)), [x]),
        (ops.Slice(begin=(0, 1, 1), size=(2, 2, 3)), [x]),
        (ops.Tile(multiples=(1, 2, 1)), [x]),
        (ops.Transpose(permutation=(2, 0, 1)), [x]),
    ):
        yield Sample(op, operands, name="special")

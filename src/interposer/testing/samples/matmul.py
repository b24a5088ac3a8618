"""Samples of FullyConnected and BatchMatMul."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops import BatchMatMul, FullyConnected, IntegerMatMul
from interposer.testing.sample import Given, Sample, given, of, samples, weights
from interposer.testing.samples.common import (
    FLOATS,
    INTEGERS,
    SMALL_FLOATS,
    TINY_INTEGERS,
    bytes_of,
    declared,
    f32,
    plain,
)

__all__: list[str] = []

INT8, INT16, INT32, INT64, UINT8 = DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64, DataType.UINT8
NUMBERS: Final = (*FLOATS, *SMALL_FLOATS, *INTEGERS, *TINY_INTEGERS)
INPUT: Final = {UINT8: Quantization(1 / 32, 120), INT8: Quantization(1 / 32, -3), INT16: Quantization(1 / 4096)}
OUTPUT: Final = {UINT8: Quantization(1 / 8, 130), INT8: Quantization(1 / 8, 7), INT16: Quantization(1 / 1024)}


# --- FullyConnected ---------------------------------------------------------------------------------------------------


@samples(FullyConnected)
def fully_connected() -> Iterator[Sample]:
    """Yield FullyConnected samples.

    They cover vectors, matrices and images as inputs; weights in both orders; with and without a bias.
    """
    for label, op in {
        "plain": FullyConnected(),
        "transposed": FullyConnected(transpose_weight_matrix=True),
        "axes-kept": FullyConnected(transpose_weight_matrix=True, keep_dims=True),
    }.items():
        for shape in ((6,), (1, 6), (3, 6), (2, 2, 6), (2, 1, 3, 6), (0, 6), (2, 0, 6)):
            matrix = (5, 6) if op.transpose_weight_matrix else (6, 5)
            title = f"{label}-{'x'.join(map(str, shape))}"
            yield Sample(op, [given(shape), weights(matrix), weights((5,))], name=f"{title}-bias")
            yield Sample(op, [given(shape), weights(matrix)], name=title)
    image = given((2, 2, 3, 2))
    yield Sample(FullyConnected(), [image, weights((12, 5)), weights((5,))], name="image")
    yield Sample(FullyConnected(), [given((2, 6)), given((6, 5)), given((5,))], name="given-weights")


@samples(FullyConnected)
def fully_connected_types() -> Iterator[Sample]:
    """Yield FullyConnected samples: all types that can be summed."""
    for dtype in NUMBERS:
        low, high = (-1.0, 1.0) if dtype.is_float else (-2.0, 2.0)
        operands = [plain((2, 5), dtype, low=2 * low, high=2 * high), _constant((5, 4), dtype, low, high)]
        yield Sample(FullyConnected(), [*operands, _constant((4,), dtype, low, high)], name=f"type-{dtype}")


def _constant(shape: tuple[int, ...], dtype: DataType, low: float, high: float) -> Given:
    return weights(shape, dtype, low=0.0 if str(dtype).startswith("uint") else low, high=high)


@samples(FullyConnected)
def quantized_fully_connected() -> Iterator[Sample]:
    """Yield FullyConnected samples.

    They cover 8- and 16-bit tensors, weights with one scale or one for each output, and biases of 32 and 64 bits.
    """
    for transpose in (False, True):
        for dtype in INPUT:
            for bias in (None, INT32, INT64) if dtype is INT16 else (None, INT32):
                for per_axis in (False, True):
                    yield _quantized(transpose, dtype, bias, per_axis)


def _quantized(transpose: bool, dtype: DataType, bias: DataType | None, per_axis: bool) -> Sample:
    op = FullyConnected(transpose_weight_matrix=transpose)
    weight_type = UINT8 if dtype is UINT8 and not per_axis else INT8
    scales = [0.01 * (1 + index / 2) for index in range(4)] if per_axis else [0.01]
    weights_quantization = Quantization(
        scales, 128 if weight_type is UINT8 else 0, op.output_axis if per_axis else None
    )
    operands = [
        given((3, 6), dtype, INPUT[dtype]),
        weights((4, 6) if transpose else (6, 4), weight_type, weights_quantization),
    ]
    if bias is not None:
        bias_quantization = Quantization([INPUT[dtype].scale * scale for scale in scales], axis=0 if per_axis else None)
        operands.append(weights((4,), bias, bias_quantization))
    title = f"{'transposed' if transpose else 'plain'}-{dtype}-bias-{bias}-{'outputs' if per_axis else 'tensor'}"
    return Sample(op, operands, [TensorInfo((3, 4), dtype, OUTPUT[dtype])], title)


@samples(FullyConnected)
def worked_fully_connected() -> Iterator[Sample]:
    """Yield a worked FullyConnected example with two rows, three outputs and a bias, in both layouts of weights."""
    rows, matrix, bias = of([[1, 2], [3, 4]]), [[1, 0, -1], [2, 1, 0]], of([10, 20, 30], constant=True)
    expected = [f32([[15, 22, 29], [21, 24, 27]])]
    yield Sample(FullyConnected(), [rows, of(matrix, constant=True), bias], name="worked", expected=expected)
    transposed = of(np.transpose(matrix), constant=True)
    op = FullyConnected(transpose_weight_matrix=True)
    yield Sample(op, [rows, transposed, bias], name="worked-transposed", expected=expected)


# --- BatchMatMul ------------------------------------------------------------------------------------------------------

PRODUCTS: Final = {
    "matrices": ((2, 3), (3, 4)),
    "batch": ((2, 2, 3), (2, 3, 4)),
    "broadcast": ((2, 1, 2, 3), (3, 3, 4)),
    "one-matrix": ((2, 3), (4, 3, 2)),
    "vector-first": ((3,), (2, 3, 4)),
    "vector-second": ((2, 2, 3), (3,)),
    "vectors": ((3,), (3,)),
    "column": ((1, 3, 1), (1, 1, 3)),
    "empty": ((0, 3), (3, 4)),
    "empty-sums": ((2, 0), (0, 3)),
}


@samples(BatchMatMul)
def matmul() -> Iterator[Sample]:
    """Yield BatchMatMul samples of the shapes that NumPy's `matmul` supports, and some with one constant operand."""
    for label, (a, b) in PRODUCTS.items():
        for dtype in (DataType.FLOAT32, DataType.FLOAT16, INT32):
            yield Sample(BatchMatMul(), [plain(a, dtype), plain(b, dtype)], name=f"{label}-{dtype}")
    yield Sample(BatchMatMul(), [given((2, 3)), weights((3, 4))], name="constant-b")
    yield Sample(BatchMatMul(), [weights((2, 3)), given((3, 4))], name="constant-a")


@samples(BatchMatMul)
def matmul_types() -> Iterator[Sample]:
    """Yield BatchMatMul samples: all types that can be summed."""
    for dtype in NUMBERS:
        bounds = (-2.0, 2.0)
        operands = [plain(shape, dtype, low=bounds[0], high=bounds[1]) for shape in ((2, 3, 4), (2, 4, 2))]
        yield Sample(BatchMatMul(), operands, name=f"type-{dtype}")
    for dtype, quantization in INPUT.items():
        for label, (a, b) in PRODUCTS.items():
            op, operands = (
                BatchMatMul(),
                [
                    given(a, dtype, quantization),
                    given(b, dtype, Quantization(quantization.scale / 2, quantization.zero_point)),
                ],
            )
            output = declared(op, *operands, q=OUTPUT[dtype])
            yield Sample(op, operands, [output], f"{label}-quantized-{dtype}")


@samples(BatchMatMul)
def transposed_matmul() -> Iterator[Sample]:
    """Yield BatchMatMul samples: products with either operand transposed, or both, and adjoints of square matrices."""
    for x in (False, True):
        for y in (False, True):
            shapes = (2, 4, 3) if x else (2, 3, 4), (2, 2, 4) if y else (2, 4, 2)
            op = BatchMatMul(transpose_x=x, transpose_y=y)
            for dtype in (DataType.FLOAT32, DataType.BFLOAT16):
                yield Sample(op, [given(shape, dtype) for shape in shapes], name=f"transposed-{x:d}{y:d}-{dtype}")
            operands = [given(shape, INT8, INPUT[INT8]) for shape in shapes]
            output = TensorInfo((2, 3, 2), INT8, OUTPUT[INT8])
            yield Sample(op, operands, [output], name=f"transposed-{x:d}{y:d}-quantized")
    for dtype in (*FLOATS, *SMALL_FLOATS):
        for label, op in {"x": BatchMatMul(adjoint_x=True), "y": BatchMatMul(adjoint_y=True)}.items():
            operands = [given((2, 3, 3), dtype, low=-2, high=2), given((2, 3, 3), dtype, low=-2, high=2)]
            yield Sample(op, operands, name=f"adjoint-{label}-{dtype}")


@samples(BatchMatMul)
def worked_matmul() -> Iterator[Sample]:
    """Yield worked BatchMatMul examples: a product, a product with the adjugate, and one with `x` transposed.

    A matrix times its adjugate is the determinant times the identity matrix.
    """
    a, b = of([[1, 2], [3, 4]]), of([[5, 6], [7, 8]])
    yield Sample(BatchMatMul(), [a, b], name="worked", expected=[f32([[19, 22], [43, 50]])])
    determinants = [f32([[-2, 0], [0, -2]])]
    yield Sample(BatchMatMul(adjoint_y=True), [a, a], name="worked-adjoint", expected=determinants)
    product_of_transposed = [f32([[26, 30], [38, 44]])]
    yield Sample(BatchMatMul(transpose_x=True), [a, b], name="worked-transposed", expected=product_of_transposed)


# --- IntegerMatMul ----------------------------------------------------------------------------------------------------


@samples(IntegerMatMul)
def integer_matmul() -> Iterator[Sample]:
    """Yield IntegerMatMul samples: pairs of types, input and constant matrices, zero points, vectors and batches."""
    for type_a, type_b in ((UINT8, INT8), (UINT8, UINT8), (INT8, INT8), (INT8, UINT8)):
        for constant in (False, True):
            operands = [bytes_of((3, 5), type_a), bytes_of((5, 4), type_b, constant=constant)]
            name = f"{type_a}-{type_b}{'-constant' if constant else ''}"
            yield Sample(IntegerMatMul(), operands, name=name)
            zero_points = [bytes_of((), type_a), bytes_of((), type_b, constant=constant)]
            yield Sample(IntegerMatMul(), [*operands, *zero_points], name=f"{name}-zero-points")
            column_zero_points = [None, bytes_of((4,), type_b, constant=constant)]
            yield Sample(IntegerMatMul(), [*operands, *column_zero_points], name=f"{name}-columns")
            row_zero_points = [bytes_of((3, 1), type_a), bytes_of((), type_b)]
            yield Sample(IntegerMatMul(), [*operands, *row_zero_points], name=f"{name}-rows")
    for a, b in (
        ((6,), (6, 5)), ((2, 6), (6,)), ((6,), (6,)), ((2, 1, 3, 6), (4, 6, 5)), ((0, 6), (6, 5)), ((2, 0), (0, 3)),
    ):  # fmt: skip
        title = f"{'x'.join(map(str, a))}-by-{'x'.join(map(str, b))}"
        matrices = [bytes_of(a, UINT8), bytes_of(b, INT8)]
        yield Sample(IntegerMatMul(), [*matrices, bytes_of((), UINT8)], name=title)
    for count, depth, width in ((1, 64, 70), (37, 130, 33), (2, 3, 1), (2, 0, 3)):
        matrices = [bytes_of((2, count, depth), UINT8), bytes_of((depth, width), INT8, constant=True)]
        yield Sample(IntegerMatMul(), [*matrices, bytes_of((1,), UINT8)], name=f"constant-{count}x{depth}x{width}")

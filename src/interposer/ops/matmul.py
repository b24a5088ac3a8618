"""Matrix multiplication operators."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import ResultQuantization, Role
from interposer.core.types import MAX_RANK, DataType, TensorInfo, TensorShape, differ
from interposer.ops.axes import broadcast_shapes, zero_point_problems
from interposer.ops.quantization import Requantization, requantization

__all__ = ["BatchMatMul", "FullyConnected", "IntegerMatMul"]

_BYTES: Final = [DataType.INT8, DataType.UINT8]


@op(quantized=ResultQuantization.OBSERVED)
class FullyConnected(Op):
    """Fully connected (dense) layer: multiply a batch of vectors with a weight matrix and add a bias.

    Shapes:
        input: (N, ...), which is reshaped to rows of I elements; with ``keep_dims`` (..., I)
        weights: (I, O), with ``transpose_weight_matrix`` (O, I)
        bias: (O,)
        output: (rows, O), with ``keep_dims`` (..., O)

    Example:
        >>> weights = [[3.0, 4.0, 5.0], [10.0, 20.0, 30.0]]
        >>> compute(FullyConnected(), [[1.0, 2.0]], weights, bias=[0.0, 0.0, 100.0]).tolist()
        [[23.0, 44.0, 165.0]]
        >>> q, weights = Quantization(0.5, 128), np.uint8([[129], [132]])
        >>> quantization = {"input": q, "weights": q, "output": Quantization(0.25)}
        >>> compute(FullyConnected(), np.uint8([[130, 129]]), weights, quantization=quantization).tolist()
        [[6]]

    Source:
        ONNX Gemm-13; TFLite FULLY_CONNECTED; NNAPI FULLY_CONNECTED; Arm NN FullyConnectedDescriptor.
    """

    input = operand(rank=(1, MAX_RANK))
    weights = operand(role=Role.WEIGHTS, rank=2)
    bias = operand(role=Role.BIAS, rank=1, optional=True)
    output = result(dtype_of="input")

    transpose_weight_matrix: bool = attribute(default=False, doc="Each row of the weights belongs to one output.")
    keep_dims: bool = attribute(default=False, doc="Keep all axes of the input except the last one.")
    requantization: Requantization = requantization()

    @property
    def output_axis(self) -> int:
        return 0 if self.transpose_weight_matrix else 1

    def check(self, input: TensorInfo, weights: TensorInfo, bias: TensorInfo | None) -> Iterator[str]:
        row_size, outputs = weights.shape[1 - self.output_axis], weights.shape[self.output_axis]
        if self.keep_dims and differ(input.shape[-1], row_size):
            yield f"input has rows of {input.shape[-1]} elements, but weights expect {row_size}"
        if row_size == 0:
            yield "weights expect rows of 0 elements; expected at least 1"
        elif input.num_elements % row_size:
            yield f"input of shape {input.shape} cannot be divided into rows of {row_size} elements, as weights require"
        weights_axis = weights.quantization.axis if weights.quantization else None
        if weights_axis not in {None, self.output_axis}:
            expected = f"axis {self.output_axis}, the outputs' axis"
            yield f"weights are quantized along axis {weights_axis}; expected {expected}"
        if bias is not None and differ(bias.shape[0], outputs):
            yield f"bias has {bias.shape[0]} elements; expected {outputs}, one for each output"

    def infer(self, input: TensorInfo, weights: TensorInfo, bias: TensorInfo | None) -> TensorInfo:
        row_size, outputs = weights.shape[1 - self.output_axis], weights.shape[self.output_axis]
        if self.keep_dims:
            return TensorInfo((*input.shape[:-1], outputs), input.dtype)
        return TensorInfo((_rows(input.shape, row_size), outputs), input.dtype)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return 2 * int(outputs[0].num_elements) * (inputs[1].shape[1 - self.output_axis] if inputs[1] else 0)


def _rows(shape: TensorShape, row_size: int) -> int:
    """Return the number of rows of `row_size` elements into which a tensor of this shape can be divided.

    If the dimensions after the first multiply to `row_size`, this is the first dimension, which may be unknown.
    """
    if not shape[1:] or math.prod(shape[1:]) != row_size:
        return shape.num_elements // row_size
    return shape[0]


@op
class BatchMatMul(Op):
    """Batched matrix multiplication over the last two axes, like NumPy's ``matmul``.

    Shapes:
        a: (..., I, K), with ``transpose_x`` (..., K, I), or (K,)
        b: (..., K, J), with ``transpose_y`` (..., J, K), or (K,)
        output: (..., I, J), without I or J where that operand has rank 1; batch axes are broadcast

    As in Arm NN, "adjoint" means the adjugate of a square matrix: the transpose of its cofactor matrix. In TFLite, it
    means the transpose, as there are no complex numbers.

    Example:
        >>> a = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
        >>> compute(BatchMatMul(), a, [[0, 1], [1, 0]]).tolist()
        [[[2, 1], [4, 3]], [[6, 5], [8, 7]]]
        >>> compute(BatchMatMul(transpose_x=True), a, [10, 1]).tolist()
        [[13, 24], [57, 68]]

    Source:
        ONNX MatMul-13; TFLite BATCH_MATMUL; NNAPI BATCH_MATMUL; Arm NN BatchMatMulDescriptor.
    """

    a = operand(rank=(1, MAX_RANK))
    b = operand(rank=(1, MAX_RANK))
    output = result(dtype_of="a")

    transpose_x: bool = attribute(default=False, doc="Transpose the matrices of a.")
    transpose_y: bool = attribute(default=False, doc="Transpose the matrices of b.")
    adjoint_x: bool = attribute(default=False, doc="Take the adjugates of the matrices of a.")
    adjoint_y: bool = attribute(default=False, doc="Take the adjugates of the matrices of b.")
    requantization: Requantization = requantization()

    def result_quantization(self, dtype: DataType) -> ResultQuantization | str:
        if self.adjoint_x or self.adjoint_y:
            return "adjugate matrices have no form in integers"
        return ResultQuantization.OBSERVED

    def check(self, a: TensorInfo, b: TensorInfo) -> Iterator[str]:
        yield from _product_problems(a, b, *self._matrices(a, b))
        for name, info, needs_square in (("a", a, self.adjoint_x), ("b", b, self.adjoint_y)):
            if needs_square and (info.rank < 2 or differ(*info.shape[-2:])):
                yield f"{name} has shape {info.shape}; only square matrices have an adjoint"

    def _matrices(self, a: TensorInfo, b: TensorInfo) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of the matrices that are multiplied: both operands', transposed, with rank 2 or more."""
        return _matrix_shape(a.shape, self.transpose_x, (1, *a.shape)), _matrix_shape(
            b.shape, self.transpose_y, (*b.shape, 1)
        )

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        [a, b] = inputs
        assert a is not None
        assert b is not None
        return 2 * int(outputs[0].num_elements) * self._matrices(a, b)[0][-1]

    def infer(self, a: TensorInfo, b: TensorInfo) -> TensorInfo:
        return TensorInfo(_product_shape(a, b, *self._matrices(a, b)), a.dtype)


def _matrix_shape(shape: TensorShape, transpose: bool, shape_of_vector: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) == 1:
        return shape_of_vector
    return (*shape[:-2], shape[-1], shape[-2]) if transpose else shape


def _product_problems(a: TensorInfo, b: TensorInfo, a_shape: Sequence[int], b_shape: Sequence[int]) -> Iterator[str]:
    """Yield errors if the matrices of `a` and `b`, of the shapes `a_shape` and `b_shape`, cannot be multiplied.

    These shapes are transposed and have rank 2 or more; those of `a` and `b` are for the messages.
    """
    if differ(a_shape[-1], b_shape[-2]):
        yield f"a {a.shape} has rows of {a_shape[-1]} elements, but b {b.shape} has columns of {b_shape[-2]}"
    if broadcast_shapes(TensorShape(a_shape[:-2]), TensorShape(b_shape[:-2])) is None:
        yield f"the batches of a, {a.shape}, and of b, {b.shape}, cannot be broadcast together"


def _product_shape(a: TensorInfo, b: TensorInfo, a_shape: Sequence[int], b_shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of the product of matrices of the shapes `a_shape` and `b_shape`.

    The row or column dimension is left out if `a` or `b` itself has rank 1.
    """
    batch = broadcast_shapes(TensorShape(a_shape[:-2]), TensorShape(b_shape[:-2])) or ()
    rows = a_shape[-2:-1] if a.rank > 1 else ()
    columns = b_shape[-1:] if b.rank > 1 else ()
    return (*batch, *rows, *columns)


@op
class IntegerMatMul(Op):
    """Batched matrix multiplication of 8-bit integers: ``(a - a_zero_point) @ (b - b_zero_point)`` in int32.

    The integers are used as they are stored, without a scale. Sums that exceed int32 wrap around.

    Shapes:
        a: (..., I, K), or (K,)
        b: (..., K, J), or (K,)
        a_zero_point: broadcasts to the shape of a, for example () or (I, 1)
        b_zero_point: broadcasts to the shape of b, for example () or (J,)
        output: (..., I, J), as in `BatchMatMul`

    Example:
        >>> a, b = np.uint8([[130, 125]]), np.int8([[1, 2], [3, -4]])
        >>> compute(IntegerMatMul(), a, b, np.uint8(128)).tolist()
        [[-7, 16]]
        >>> compute(IntegerMatMul(), a, b, np.uint8(128), np.int8([1, 0])).tolist()
        [[-6, 16]]

    Source:
        ONNX MatMulInteger-10.
    """

    a = operand(rank=(1, MAX_RANK), dtypes=_BYTES)
    b = operand(rank=(1, MAX_RANK), dtypes=_BYTES)
    a_zero_point = operand(role=Role.PARAMETER, dtypes=_BYTES, optional=True)
    b_zero_point = operand(role=Role.PARAMETER, dtypes=_BYTES, optional=True)
    output = result(dtypes=[DataType.INT32])

    def check(
        self, a: TensorInfo, b: TensorInfo, a_zero_point: TensorInfo | None, b_zero_point: TensorInfo | None
    ) -> Iterator[str]:
        yield from _product_problems(a, b, *_matrices(a, b))
        yield from zero_point_problems("a", a, a_zero_point)
        yield from zero_point_problems("b", b, b_zero_point)

    def infer(
        self, a: TensorInfo, b: TensorInfo, a_zero_point: TensorInfo | None, b_zero_point: TensorInfo | None
    ) -> TensorInfo:
        return TensorInfo(_product_shape(a, b, *_matrices(a, b)), DataType.INT32)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return 2 * int(outputs[0].num_elements) * (inputs[0].shape[-1] if inputs[0] else 0)


def _matrices(a: TensorInfo, b: TensorInfo) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return _matrix_shape(a.shape, False, (1, *a.shape)), _matrix_shape(b.shape, False, (*b.shape, 1))

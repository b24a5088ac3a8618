"""Operators on matrices (the last two axes): triangles, diagonals and determinants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Trait
from interposer.core.types import FLOATS, MAX_RANK, DataType, TensorInfo, TensorShape, differ
from interposer.ops.axes import quantized_axis_problems

__all__ = ["Det", "EyeLike", "MatrixDiag", "MatrixSetDiag", "Trilu"]


@op(traits=Trait.MOVES | Trait.FILLS)
class Trilu(Op):
    """Keep the upper or lower triangle of every matrix, and set the other elements to zero.

    Element (i, j) is unchanged if j - i >= k; without ``upper``, if j - i <= k.

    Shapes:
        input, output: any of rank 2 or more, the same

    Example:
        >>> compute(Trilu(), [[1, 2, 3], [4, 5, 6], [7, 8, 9]]).tolist()
        [[1, 2, 3], [0, 5, 6], [0, 0, 9]]
        >>> compute(Trilu(upper=False, k=1), [[1, 2, 3], [4, 5, 6], [7, 8, 9]]).tolist()
        [[1, 2, 0], [4, 5, 6], [7, 8, 9]]

    Source:
        ONNX Trilu-14, whose second input is ``k`` here.
    """

    input = operand(rank=(2, MAX_RANK))
    output = result(like="input")

    k: int = attribute(
        default=0, doc="The diagonal at which the triangle ends: 0 is the main diagonal, 1 the one above."
    )
    upper: bool = attribute(default=True, doc="Keep the upper triangle, not the lower one.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        if input.dtype is DataType.STRING:
            yield "input is string, which has no zero; expected another type"


@op
class EyeLike(Op):
    """A matrix with the shape of the input, ones along a diagonal, and zeros elsewhere.

    Shapes:
        input: (M, N)
        output: (M, N), 1 where j - i = k

    Example:
        >>> compute(EyeLike(), [[7, 7, 7], [7, 7, 7]]).tolist()
        [[1, 0, 0], [0, 1, 0]]
        >>> compute(EyeLike(k=1, dtype=DataType.FLOAT32), [[7, 7, 7], [7, 7, 7]]).tolist()
        [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]

    Source:
        ONNX EyeLike-22.
    """

    input = operand(rank=2)
    output = result(rank=2)

    k: int = attribute(default=0, doc="The diagonal: 0 is the main diagonal, 1 the one above.")
    dtype: DataType | None = attribute(default=None, doc="The type of the result; None means the input's.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        if (self.dtype or input.dtype) is DataType.STRING:
            yield "the result is string, which has no one; expected another type"

    def infer(self, input: TensorInfo) -> TensorInfo:
        return TensorInfo(input.shape, self.dtype or input.dtype)


@op(traits=Trait.MOVES | Trait.FILLS)
class MatrixDiag(Op):
    """Diagonal matrices, whose main diagonals are the rows of the input.

    Shapes:
        input: (..., N)
        output: (..., N, N)

    Example:
        >>> compute(MatrixDiag(), [[1, 2], [3, 4]]).tolist()
        [[[1, 0], [0, 2]], [[3, 0], [0, 4]]]

    Source:
        TFLite MATRIX_DIAG.
    """

    input = operand(rank=(1, MAX_RANK - 1))
    output = result(dtype_of="input")

    def check(self, input: TensorInfo) -> Iterator[str]:
        if input.dtype is DataType.STRING:
            yield "input is string, which has no zero; expected another type"
        yield from quantized_axis_problems(input, [input.rank - 1], "spread")

    def infer(self, input: TensorInfo) -> TensorInfo:
        return input.with_shape((*input.shape, input.shape[-1]))


@op(traits=Trait.MOVES)
class MatrixSetDiag(Op):
    """Replace the main diagonal of every matrix.

    Shapes:
        input, output: (..., M, N), the same
        diagonal: (..., min(M, N))

    Example:
        >>> compute(MatrixSetDiag(), [[1, 2, 3], [4, 5, 6]], [10, 20]).tolist()
        [[10, 2, 3], [4, 20, 6]]

    Source:
        TFLite MATRIX_SET_DIAG.
    """

    input = operand(rank=(2, MAX_RANK))
    diagonal = operand(rank=(1, MAX_RANK - 1), same_dtype_as="input")
    output = result(like="input")

    def check(self, input: TensorInfo, diagonal: TensorInfo) -> Iterator[str]:
        *batch, rows, columns = input.shape
        expected = TensorShape((*batch, columns if columns < rows else rows))
        if not expected.accepts(diagonal.shape):
            yield f"diagonal has shape {diagonal.shape}; expected {expected}"
        if diagonal.quantization != input.quantization:
            yield "diagonal and input have different quantizations; requantize one of them first"


@op
class Det(Op):
    """The determinant of every matrix.

    Shapes:
        input: (..., N, N)
        output: (...)

    Example:
        >>> compute(Det(), [[[2.0, 0.0], [5.0, 3.0]], [[0.0, 1.0], [1.0, 0.0]]]).tolist()
        [6.0, -1.0]

    Source:
        ONNX Det-22.
    """

    input = operand(rank=(2, MAX_RANK), dtypes=FLOATS)
    output = result(dtype_of="input")

    def check(self, input: TensorInfo) -> Iterator[str]:
        if differ(*input.shape[-2:]):
            yield f"input has shape {input.shape}; only square matrices have a determinant"

    def infer(self, input: TensorInfo) -> TensorInfo:
        return input.with_shape(input.shape[:-2])

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        size = inputs[0].shape[-1] if inputs[0] else 0
        return int(outputs[0].num_elements) * size**3

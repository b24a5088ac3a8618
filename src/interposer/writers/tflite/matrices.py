"""TFLite writers for operators on matrices, which are the last two axes."""

from __future__ import annotations

import numpy as np

from interposer.core.types import DataType
from interposer.ops.matrices import EyeLike, MatrixDiag, MatrixSetDiag, Trilu
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []


@writer(MatrixDiag, moves=True)
def matrix_diagonal(draft: Draft, op: MatrixDiag) -> Tensor:
    """Write MatrixDiag as MATRIX_DIAG, whose other elements are the quantized value 0: the zero point must be 0."""
    if draft.result.zero_point:
        refuse("its zero point is not 0")
    return draft.final("MATRIX_DIAG", draft.operand(0))


@writer(MatrixSetDiag, moves=True)
def set_diagonal(draft: Draft, op: MatrixSetDiag) -> Tensor:
    """Write MatrixSetDiag: replace the diagonals of matrices."""
    return draft.final("MATRIX_SET_DIAG", *draft.tensors())


@writer(Trilu, moves=True)
def triangle(draft: Draft, op: Trilu) -> Tensor:
    """Write Trilu; elements outside of the triangle become 0, or the zero point."""
    x, q = draft.operand(0), draft.result.quantization
    rows, columns = draft.concrete(x)[-2:]
    row, column = np.ogrid[:rows, :columns]
    mask = column - row >= op.k if op.upper else column - row <= op.k
    zero = draft.constant(draft.result.zero_point, x.dtype, "zero", q)
    return draft.final("SELECT_V2", draft.constant(mask, DataType.BOOL, "kept"), x, zero)


@writer(EyeLike, typed=True)
def eye_like(draft: Draft, op: EyeLike) -> Tensor:
    """Write EyeLike as a constant, as the shape must be known."""
    rows, columns = draft.concrete(draft.operand(0))
    return draft.constant(np.eye(rows, columns, op.k), op.dtype or draft.info(0).dtype, "eye")

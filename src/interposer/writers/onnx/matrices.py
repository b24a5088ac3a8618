"""ONNX writers for operators on matrices, which are the last two axes."""

from __future__ import annotations

import numpy as np

from interposer.core.types import DataType
from interposer.ops.matrices import Det, EyeLike, MatrixDiag, MatrixSetDiag, Trilu
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor

__all__: list[str] = []


@writer(Trilu)
def trilu(draft: Draft, op: Trilu) -> Tensor:
    """Write Trilu; the number of the diagonal is an operand."""
    return draft.node("Trilu", draft.operand(0), draft.ints(op.k, "k"), upper=int(op.upper))


@writer(Trilu, quantized=True)
def quantized_trilu(draft: Draft, op: Trilu) -> Tensor:
    """Write Trilu of quantized values; elements outside of the triangle become the zero point."""
    rows, columns = draft.shape(0)[-2:]
    row, column = np.ogrid[:rows, :columns]
    mask = column - row >= op.k if op.upper else column - row <= op.k
    zero = _zero(draft, draft.operand(0))
    return draft.node("Where", draft.constant(mask, DataType.BOOL, "kept"), draft.operand(0), zero)


def _zero(draft: Draft, x: Tensor) -> Tensor:
    q = draft.result.quantization
    if q is None or not q.per_axis:
        return draft.like(draft.result.zero_point, x)
    shape = [-1 if axis == q.axis else 1 for axis in range(draft.result.rank)]
    return draft.constant(np.reshape(q.zero_points, shape), x.dtype, "zero_point")


@writer(EyeLike, also_quantized=True)
def eye_like(draft: Draft, op: EyeLike) -> Tensor:
    """Write EyeLike; the type is an attribute, and types that EyeLike lacks are cast."""
    dtype = op.dtype or draft.operand(0).dtype
    written_type = dtype if draft.gives("EyeLike", dtype) else DataType.FLOAT32
    return draft.cast(_eye(draft, op, written_type), dtype)


def _eye(draft: Draft, op: EyeLike, dtype: DataType) -> Tensor:
    x = draft.operand(0)
    if not draft.takes("EyeLike", x.dtype):
        x = draft.constant(np.zeros(draft.shape(0)), DataType.FLOAT32, "like")
    return draft.node("EyeLike", x, giving=dtype, dtype=dtype, k=op.k or None)


@writer(MatrixDiag, moves=True)
def matrix_diag(draft: Draft, op: MatrixDiag) -> Tensor:
    """Write MatrixDiag with Where: a mask selects the row of the input on the diagonal, and zeros elsewhere."""
    x, size = draft.operand(0), draft.shape(0)[-1]
    is_diagonal = draft.constant(np.eye(size, dtype=bool), DataType.BOOL, "diagonal")
    return draft.node("Where", is_diagonal, draft.unsqueeze(x, [draft.rank - 1]), _zero(draft, x))


@writer(MatrixSetDiag, moves=True)
def matrix_set_diag(draft: Draft, op: MatrixSetDiag) -> Tensor:
    """Write MatrixSetDiag: the diagonal is padded, repeated as rows and columns, and selected."""
    x, diagonal = draft.tensors()
    *_, rows, columns = draft.shape(0)
    is_diagonal = draft.constant(np.eye(rows, columns, dtype=bool), DataType.BOOL, "diagonal")
    if columns < rows:
        return draft.node("Where", is_diagonal, draft.unsqueeze(diagonal, [draft.rank - 2]), x)
    return draft.node("Where", is_diagonal, draft.unsqueeze(diagonal, [draft.rank - 1]), x)


@writer(Det)
def det(draft: Draft, op: Det) -> Tensor:
    """Write Det as the operator of this name."""
    return draft.node("Det", draft.operand(0))

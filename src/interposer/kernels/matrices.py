"""Kernels of the operators on matrices."""

from __future__ import annotations

import numpy as np

from interposer.core.types import Array
from interposer.kernels.encoding import encoded
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.matrices import Det, EyeLike, MatrixDiag, MatrixSetDiag, Trilu

__all__: list[str] = []


@kernel(Trilu)
def triangle(op: Trilu, x: Array, *, info: KernelInfo) -> Array:
    """Compute `Trilu` by comparing j - i, the number of the diagonal of element (i, j), with k."""
    diagonal = _diagonals(*x.shape[-2:])
    return np.where(diagonal >= op.k if op.upper else diagonal <= op.k, x, encoded(0.0, info.output))


def _diagonals(rows: int, columns: int) -> Array:
    row, column = np.ogrid[:rows, :columns]
    diagonals: Array = column - row
    return diagonals


@kernel(EyeLike, quantized=False)
def eye_like(op: EyeLike, x: Array) -> Array:
    """Compute `EyeLike`: ones on a diagonal, else zeros, in the output's type."""
    return np.equal(_diagonals(*x.shape), op.k)


@kernel(MatrixDiag)
def matrix_diagonal(op: MatrixDiag, x: Array, *, info: KernelInfo) -> Array:
    """Compute `MatrixDiag`: each row becomes the diagonal of a matrix that is zero elsewhere."""
    on_diagonal = np.eye(x.shape[-1], dtype=bool)
    return np.where(on_diagonal, x[..., np.newaxis, :], encoded(0.0, info.output))


@kernel(MatrixSetDiag)
def set_diagonal(op: MatrixSetDiag, x: Array, diagonal: Array, *, out: Array) -> None:
    """Compute `MatrixSetDiag` by writing the diagonal into a copy of `x`."""
    np.copyto(out, x)
    positions = np.arange(diagonal.shape[-1])
    out[..., positions, positions] = diagonal


@kernel(Det)
def determinant(op: Det, x: Array) -> Array:
    """Compute `Det` in float64, and round once."""
    return np.asarray(np.linalg.det(x.astype(np.float64)))

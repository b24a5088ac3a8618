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
    """By the number of the diagonal that every element is on."""
    diagonal = _diagonals(*x.shape[-2:])
    return np.where(diagonal >= op.k if op.upper else diagonal <= op.k, x, encoded(0.0, info.output))


def _diagonals(rows: int, columns: int) -> Array:
    row, column = np.ogrid[:rows, :columns]
    numbers: Array = column - row
    return numbers


@kernel(EyeLike, quantized=False)
def eye_like(op: EyeLike, x: Array) -> Array:
    """Ones and zeros of any type."""
    return np.equal(_diagonals(*x.shape), op.k)


@kernel(MatrixDiag)
def matrix_diagonal(op: MatrixDiag, x: Array, *, info: KernelInfo) -> Array:
    """Return every element meets its own row once."""
    own = np.eye(x.shape[-1], dtype=bool)
    return np.where(own, x[..., np.newaxis, :], encoded(0.0, info.output))


@kernel(MatrixSetDiag)
def set_diagonal(op: MatrixSetDiag, x: Array, diagonal: Array, *, out: Array) -> None:
    """Written into a copy."""
    np.copyto(out, x)
    places = np.arange(diagonal.shape[-1])
    out[..., places, places] = diagonal


@kernel(Det)
def determinant(op: Det, x: Array) -> Array:
    """In float64, rounded once."""
    return np.asarray(np.linalg.det(x.astype(np.float64)))

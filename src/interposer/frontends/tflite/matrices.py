"""Operators on matrices."""

from __future__ import annotations

from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.matrices import MatrixDiag, MatrixSetDiag

__all__: list[str] = []


@operator("MATRIX_DIAG")
def matrix_diagonal(node: Node) -> list[Value]:
    """Return rows become diagonals."""
    return node.result(MatrixDiag(), node.input(0))


@operator("MATRIX_SET_DIAG")
def set_diagonal(node: Node) -> list[Value]:
    """Matrices get another diagonal."""
    return node.result(MatrixSetDiag(), node.input(0), node.input(1))

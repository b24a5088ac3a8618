"""TFLite converters for operators on matrices."""

from __future__ import annotations

from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.matrices import MatrixDiag, MatrixSetDiag

__all__: list[str] = []


@operator("MATRIX_DIAG")
def matrix_diagonal(node: Node) -> Value:
    """Convert MATRIX_DIAG: rows become diagonals of matrices."""
    return node.result(MatrixDiag(), node.value(0))


@operator("MATRIX_SET_DIAG")
def set_diagonal(node: Node) -> Value:
    """Convert MATRIX_SET_DIAG: replace the diagonals of matrices."""
    return node.result(MatrixSetDiag(), node.value(0), node.value(1))

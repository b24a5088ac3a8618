"""ONNX converters for operators on matrices."""

from __future__ import annotations

from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.tensors import data_type
from interposer.ir.graph import Value
from interposer.ops.einsum import Einsum
from interposer.ops.matrices import Det, EyeLike, Trilu

__all__ = ["trilu"]


@operator("Trilu", since=14)
def trilu(node: Node) -> Value:
    """Convert Trilu; the number of the diagonal is an operand."""
    k = int(node.number_of(1, "k")) if node.has(1) else 0
    return node.result(Trilu(k, node.flag("upper", True)), node.value(0))


@operator("EyeLike", since=9)
def eye_like(node: Node) -> Value:
    """Convert EyeLike; without the attribute dtype, the result has the input's type."""
    dtype = data_type(node.integer("dtype")) if node.has_attribute("dtype") else None
    return node.result(EyeLike(node.integer("k", 0), dtype), node.value(0))


@operator("Det", since=11)
def det(node: Node) -> Value:
    """Convert Det: one determinant for every matrix."""
    return node.result(Det(), node.value(0))


@operator("Einsum", since=12)
def einsum(node: Node) -> Value:
    """Convert Einsum; the equation has the same meaning as in NumPy."""
    return node.result(Einsum(node.text("equation")), *node.values())

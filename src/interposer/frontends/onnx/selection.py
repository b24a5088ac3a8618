"""ONNX converters for operators whose result sizes depend on the data."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.ir.graph import Value
from interposer.ops.selection import Compress, NonZero, Unique

__all__: list[str] = []


@operator("NonZero", since=9)
def non_zero(node: Node) -> Value:
    """Convert NonZero: a row of indices for each axis."""
    return node.result(NonZero(), node.value(0))


@operator("Compress", since=9)
def compress(node: Node) -> Value:
    """Convert Compress; without an axis, the input is flattened."""
    return node.result(Compress(_axis(node)), node.value(0), node.value(1))


@operator("Unique", since=11)
def unique(node: Node) -> Sequence[Value]:
    """Convert Unique; the result is sorted by default."""
    return node.results(Unique(_axis(node), node.flag("sorted", True)), node.value(0))


def _axis(node: Node) -> int | None:
    return node.integer("axis") if node.has_attribute("axis") else None

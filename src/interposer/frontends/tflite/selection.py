"""TFLite converters for operators that select elements; some result sizes depend on the data."""

from __future__ import annotations

from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.choice import TopK
from interposer.ops.dynamic import DynamicTopK
from interposer.ops.rearrange import Transpose
from interposer.ops.selection import NonZero, Unique

__all__: list[str] = []


@operator("WHERE")
def where(node: Node) -> Value:
    """Convert WHERE: the indices of nonzero elements, one row each."""
    return node.result(Transpose((1, 0)), node.step(NonZero(), node.value(0)))


@operator("UNIQUE")
def unique(node: Node) -> list[Value]:
    """Convert UNIQUE: unique elements in the order of their first occurrence."""
    if len(node.output_infos) != 2:
        node.fail(f"it has {len(node.output_infos)} outputs; expected 2")
    op = Unique(sorted=False, index_dtype=node.output_infos[1].dtype)
    values, _, inverse, _ = node.steps(op, node.value(0))
    return [values, inverse]


@operator("TOPK_V2")
def top_k(node: Node) -> list[Value]:
    """Convert TOPK_V2; k is an input."""
    dtype = node.output_infos[-1].dtype
    if node.is_computed(1):
        return node.results(DynamicTopK(index_dtype=dtype), node.value(0), node.value(1))
    return node.results(TopK(node.integer_of(1, "how many"), index_dtype=dtype), node.value(0))

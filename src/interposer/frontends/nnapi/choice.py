"""NNAPI converters for operators that select or sample."""

from __future__ import annotations

from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value
from interposer.ops.choice import RandomMultinomial, TopK

__all__: list[str] = []


@operator("TOPK_V2", inputs=2)
def top_k(node: Node) -> list[Value]:
    """Convert TOPK_V2: the largest elements along the last axis."""
    return node.results(TopK(node.integer_of(1, "k")), node.value(0))


@operator("RANDOM_MULTINOMIAL", inputs=3)
def random_multinomial(node: Node) -> list[Value]:
    """Convert RANDOM_MULTINOMIAL: samples drawn with two seeds."""
    op = RandomMultinomial(node.integer_of(1, "the number of samples"))
    return node.results(op, node.value(0), node.value(2))

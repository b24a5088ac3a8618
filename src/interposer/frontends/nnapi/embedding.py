"""NNAPI converters for lookups in tables."""

from __future__ import annotations

from typing import Final

from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value
from interposer.ops.embedding import EmbeddingLookup, HashtableLookup, LshProjection, LshProjectionType

__all__: list[str] = []

_TYPES: Final = {member.value: member for member in LshProjectionType}


@operator("EMBEDDING_LOOKUP", inputs=2)
def embedding_lookup(node: Node) -> list[Value]:
    """Convert EMBEDDING_LOOKUP: rows by index."""
    return node.results(EmbeddingLookup(), node.value(0), node.value(1))


@operator("HASHTABLE_LOOKUP", inputs=3)
def hashtable_lookup(node: Node) -> list[Value]:
    """Convert HASHTABLE_LOOKUP: rows by key, and a flag for each key that was found."""
    return node.results(HashtableLookup(), *(node.value(index) for index in range(3)))


@operator("LSH_PROJECTION", inputs=4)
def lsh_projection(node: Node) -> list[Value]:
    """Convert LSH_PROJECTION; the weights of the elements are optional."""
    number = node.integer_of(3, "the type")
    kind = _TYPES.get(number) or node.fail(f"the type (input 3) is {number}; expected 1 to {max(_TYPES)}")
    return node.results(LshProjection(kind), node.value(0), node.value(1), node.optional(2))

"""TFLite converters for lookups in hash tables, sparse lookups and locality-sensitive hashing."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.types import Dim
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.elementwise import (
    Comparison,
    ComparisonOperation,
    Division,
    ElementwiseUnary,
    Multiplication,
    UnaryOperation,
    Where,
)
from interposer.ops.embedding import EmbeddingLookup, HashtableLookup, LshProjection, LshProjectionType
from interposer.ops.rearrange import Concat, Slice
from interposer.ops.reshape import Reshape, Shape
from interposer.ops.scatter import ScatterFunction, ScatterNd

__all__: list[str] = []

_PROJECTIONS: Final = {1: LshProjectionType.SPARSE, 2: LshProjectionType.DENSE}
_SUM, _MEAN, _SQRTN = 0, 1, 2


@operator("HASHTABLE_LOOKUP")
def hashtable_lookup(node: Node) -> list[Value]:
    """Convert HASHTABLE_LOOKUP: rows of a table by their keys."""
    return node.results(HashtableLookup(), *node.values())


@operator("LSH_PROJECTION", options=True)
def lsh_projection(node: Node) -> Value:
    """Convert LSH_PROJECTION with sparse or dense results."""
    kind = _PROJECTIONS.get(node.options["type"]) or node.fail(f"type {node.options['type']} is not known")
    return node.result(LshProjection(kind), node.value(0), node.value(1), node.optional(2))


@operator("EMBEDDING_LOOKUP_SPARSE", options=True)
def sparse_lookup(node: Node) -> Value:
    """Convert EMBEDDING_LOOKUP_SPARSE: add up the weighted rows of a table that belong to one place of the result.

    The sum is divided by that of the weights (MEAN), or by the square root of that of their squares (SQRTN).
    """
    numbers, places, weights = node.value(0, rank=1), node.value(1, rank=2), node.value(3, rank=1)
    if isinstance(places.known.shape[1], Dim) or places.known.shape[1] < 1:
        node.fail(f"the indices have shape {places.known.shape}; expected at least one column")
    table, combiner = node.value(4), node.options["combiner"]
    if combiner not in {_SUM, _MEAN, _SQRTN}:
        node.fail(f"combiner {combiner} is not known")
    weights = node.step(Reshape((-1, *[1] * (table.known.rank - 1))), weights)
    rows = node.step(Multiplication(), node.step(EmbeddingLookup(), numbers, table), weights)
    total = _summed(node, places, rows)
    if combiner == _SUM:
        return total
    shares = weights if combiner == _MEAN else node.step(Multiplication(), weights, weights)
    divisor = _summed(node, places, shares)
    if combiner == _SQRTN:
        divisor = node.step(ElementwiseUnary(UnaryOperation.SQRT), divisor)
    return node.result(Division(), total, _or_one_without_rows(node, places, weights, divisor))


def _summed(node: Node, places: Value, rows: Value) -> Value:
    """Return the sums of the rows at each place, whose last coordinate does not count."""
    row_shape = node.step(Slice((1,), (-1,)), node.step(Shape(), rows))
    shape = node.step(Concat(0), node.step(Slice((0,), (places.known.shape[1] - 1,)), node.value(2)), row_shape)
    places = node.step(Slice((0, 0), (-1, places.known.shape[1] - 1)), places)
    return node.step(ScatterNd(ScatterFunction.ADD, input_enabled=False), shape, places, rows)


def _or_one_without_rows(node: Node, places: Value, weights: Value, divisor: Value) -> Value:
    """Return the divisor, but 1 for places that no row belongs to."""
    zero, unit = (node.constant(np.array(number, np.float32)) for number in (0, 1))
    units = node.step(Where(), node.step(Comparison(), weights, weights), unit, unit)
    count = _summed(node, places, units)
    return node.step(Where(), node.step(Comparison(ComparisonOperation.GREATER), count, zero), divisor, unit)

"""TFLite converters for operators that select or write elements by index, key or condition."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.types import DataType, Dim
from interposer.frontends.elementwise import EQUAL, GREATER, SQRT
from interposer.frontends.tflite.blockwise import is_blockwise
from interposer.frontends.tflite.hybrid import signed
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.reshape import broadcast_by
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.choice import TopK
from interposer.ops.dynamic import DynamicTopK
from interposer.ops.elementwise import Division, Multiplication, Where
from interposer.ops.embedding import EmbeddingLookup, HashtableLookup, LshProjection, LshProjectionType
from interposer.ops.gather import Gather, GatherNd
from interposer.ops.quantization import Cast, Dequantize
from interposer.ops.rearrange import Concat, Slice, Transpose
from interposer.ops.reshape import BroadcastTo, Reshape, Shape
from interposer.ops.scatter import DynamicUpdateSlice, ScatterFunction, ScatterNd
from interposer.ops.selection import NonZero, Unique

__all__: list[str] = []


@operator("GATHER", options=True)
def gather(node: Node) -> Value:
    """Convert GATHER; axis and batch axes are options."""
    op = Gather(node.options["axis"], node.options["batch_dims"])
    return node.result(op, node.value(0), _indices(node))


def _indices(node: Node) -> Value:
    """Return the indices (input 1) as int32 or int64; TFLite also takes int16."""
    indices = node.value(1)
    return node.step(Cast(DataType.INT32), indices) if indices.known.dtype is DataType.INT16 else indices


@operator("GATHER_ND")
def gather_nd(node: Node) -> Value:
    """Convert GATHER_ND; each row of the indices is the position of a slice."""
    return node.result(GatherNd(), node.value(0), _indices(node))


@operator("EMBEDDING_LOOKUP")
def embedding_lookup(node: Node) -> Value:
    """Convert EMBEDDING_LOOKUP: rows of a table, which may be quantized even if the result is float."""
    table = node.value(1)
    if table.known.is_quantized and node.output_info.dtype.is_float:
        table = node.step(Dequantize(node.output_info.dtype), signed(node, table))
    if is_blockwise(table) and table.known.dtype is not node.output_info.dtype:
        return node.result(Cast(node.output_info.dtype), node.step(Gather(), table, node.value(0)))
    return node.result(Gather(), table, node.value(0))


# --- scatter ----------------------------------------------------------------------------------------------------------


@operator("SCATTER_ND")
def scatter_nd(node: Node) -> Value:
    """Convert SCATTER_ND: add updates to zeros; the shape is the last input. Sums of bool are OR."""
    op, updates = ScatterNd(ScatterFunction.ADD, input_enabled=False), node.value(1)
    if updates.known.dtype is not DataType.BOOL:
        return node.result(op, node.value(2), node.value(0), updates)
    counts = node.step(op, node.value(2), node.value(0), node.step(Cast(DataType.INT32), updates))
    return node.result(Cast(DataType.BOOL), counts)


@operator("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(node: Node) -> Value:
    """Convert DYNAMIC_UPDATE_SLICE; the position is an input."""
    return node.result(DynamicUpdateSlice(), node.value(0), node.value(1), node.value(2))


@operator("SPARSE_TO_DENSE")
def sparse_to_dense(node: Node) -> Value:
    """Convert SPARSE_TO_DENSE: write one value, or one for each index, over a default value."""
    indices, updates = node.value(0), node.value(2)
    rank = int(node.info(1).num_elements)
    columns = indices.known.shape[1] if indices.known.rank > 1 else 1
    if indices.known.rank > 2 or columns != rank:
        node.fail(f"the indices have shape {indices.known.shape}; expected a position of {rank} axes in each row")
    rows = node.step(Reshape((-1, rank)), indices)
    count = rows.known.shape[0]
    if updates.known.rank == 0:
        if isinstance(count, Dim):
            node.open_shape("the number of indices is not known")
        updates = node.step(BroadcastTo((count,)), updates)
    return node.result(ScatterNd(), broadcast_by(node, 1, node.value(3)), rows, updates)


# --- selection --------------------------------------------------------------------------------------------------------


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


# --- embedding --------------------------------------------------------------------------------------------------------


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
        divisor = node.step(SQRT, divisor)
    return node.result(Division(), total, _or_one_without_rows(node, places, weights, divisor))


def _summed(node: Node, places: Value, rows: Value) -> Value:
    """Return the sums of the rows at each place, whose last coordinate does not count."""
    row_shape = node.step(Slice((1,), (-1,)), node.step(Shape(), rows))
    shape = node.step(Concat(0), node.step(Slice((0,), (places.known.shape[1] - 1,)), node.value(2)), row_shape)
    places = node.step(Slice((0, 0), (-1, places.known.shape[1] - 1)), places)
    return node.step(ScatterNd(ScatterFunction.ADD, input_enabled=False), shape, places, rows)


def _or_one_without_rows(node: Node, places: Value, weights: Value, divisor: Value) -> Value:
    """Return the divisor, but 1 for places that no row belongs to."""
    zero, one = (node.constant(np.array(number, np.float32)) for number in (0, 1))
    ones = node.step(Where(), node.step(EQUAL, weights, weights), one, one)
    count = _summed(node, places, ones)
    return node.step(Where(), node.step(GREATER, count, zero), divisor, one)

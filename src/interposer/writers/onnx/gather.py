"""ONNX writers for operators that select elements by computed indices."""

from __future__ import annotations

import numpy as np

from interposer.core.types import DataType
from interposer.ops.axes import normal_axis
from interposer.ops.embedding import EmbeddingLookup, HashtableLookup, LshProjection, OneHot
from interposer.ops.gather import Gather, GatherElements, GatherNd
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.encoding import encoded
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []


@writer(Gather, moves=True)
def gather(draft: Draft, op: Gather) -> Tensor:
    """Write Gather as Gather; with batch axes, as GatherND with index tuples of length 1 and transposes around it."""
    params, indices = draft.operand(0), draft.operand(1)
    if not op.batch_dims:
        return draft.node("Gather", params, indices, axis=op.axis)
    rank, batch, axis = draft.rank, op.batch_dims, normal_axis(op.axis, draft.rank)
    index_rank = draft.info(1).rank - batch
    transposed_params = draft.transpose(params, (*range(batch), axis, *(i for i in range(batch, rank) if i != axis)))
    tuples = draft.unsqueeze(indices, [draft.info(1).rank])
    gathered = draft.node("GatherND", transposed_params, tuples, batch_dims=batch)
    outer_axes = range(batch + index_rank, index_rank + axis)
    inner_axes = range(index_rank + axis, index_rank + rank - 1)
    return draft.transpose(gathered, (*range(batch), *outer_axes, *range(batch, batch + index_rank), *inner_axes))


@writer(GatherNd, moves=True)
def gather_nd(draft: Draft, op: GatherNd) -> Tensor:
    """Write GatherNd as GatherND; empty index tuples are refused."""
    params, indices = draft.operand(0), draft.operand(1)
    if draft.info(1).shape[-1] == 0:
        refuse("its tuples of indices are empty")
    return draft.node("GatherND", params, indices, batch_dims=op.batch_dims or None)


@writer(GatherElements, moves=True)
def gather_elements(draft: Draft, op: GatherElements) -> Tensor:
    """Write GatherElements as the operator of this name."""
    return draft.node("GatherElements", *draft.tensors(), axis=op.axis)


@writer(EmbeddingLookup, moves=True)
def embedding_lookup(draft: Draft, op: EmbeddingLookup) -> Tensor:
    """Write EmbeddingLookup as Gather, which counts negative indices from the end."""
    return draft.node("Gather", draft.operand(1), draft.operand(0))


@writer(HashtableLookup, moves=True)
def hashtable_lookup(draft: Draft, op: HashtableLookup) -> list[Tensor]:
    """Write HashtableLookup: the position of a key is the ArgMax of its comparison with all keys."""
    lookups, keys, values = draft.tensors()
    if not draft.info(1).num_elements:
        refuse("its table is empty")
    is_equal = draft.node("Equal", draft.unsqueeze(lookups, [1]), keys)
    hits = draft.cast(is_equal, DataType.UINT8)
    hit_counts = draft.reduce("ReduceMax", hits, [1], keep=False)
    rows = draft.node("Gather", values, draft.node("ArgMax", hits, axis=1, keepdims=0))
    is_found = draft.cast(hit_counts, DataType.BOOL)
    mask = draft.unsqueeze(is_found, range(1, draft.info(2).rank))
    default = "" if values.dtype is DataType.STRING else 0
    return [draft.node("Where", mask, rows, draft.constant(default, values.dtype)), hit_counts]


@writer(LshProjection, also_quantized=True)
def lsh_projection(draft: Draft, op: LshProjection) -> Tensor:
    """Refuse LshProjection, as ONNX has no hash functions."""
    refuse("ONNX has no hash functions")


@writer(OneHot, also_quantized=True)
def one_hot(draft: Draft, op: OneHot) -> Tensor:
    """Write OneHot; if negative indices must not count from the end, they are moved out of range."""
    indices = draft.cast(draft.operand(0), DataType.INT64)
    if not op.from_end:
        negative = draft.node("Less", indices, draft.ints(0))
        indices = draft.node("Where", negative, draft.ints(op.depth), indices)
    result_info = draft.result
    values = np.array([encoded(op.off_value, result_info), encoded(op.on_value, result_info)])
    return draft.node(
        "OneHot", indices, draft.ints([op.depth]), draft.constant(values, op.dtype, "values"), axis=op.axis
    )

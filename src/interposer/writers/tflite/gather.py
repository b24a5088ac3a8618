"""TFLite writers for operators that select elements by computed indices."""

from __future__ import annotations

import numpy as np

from interposer.core.types import DataType, TensorInfo
from interposer.ops.axes import normal_axis
from interposer.ops.embedding import EmbeddingLookup, HashtableLookup, OneHot
from interposer.ops.gather import Gather, GatherElements, GatherNd
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []


@writer(Gather, moves=True)
def gather(draft: Draft, op: Gather) -> Tensor:
    """Write Gather; axis and batch axes are options."""
    axis = normal_axis(op.axis, draft.rank)
    indices = _counted(draft, draft.operand(1), (draft.info(0).shape[axis],))
    return draft.final("GATHER", draft.operand(0), indices, axis=axis, batch_dims=op.batch_dims)


def _counted(draft: Draft, indices: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return indices with the size of the axis added to negative ones, which TFLite does not support.

    `sizes` has the sizes that the last axis of the indices refers to, or one size for all.
    """
    if indices.array is not None and not (indices.array < 0).any():
        return indices
    known_sizes = [draft.known(size, "size of the axis") for size in sizes]
    limits = np.array(known_sizes if len(known_sizes) > 1 else known_sizes[0])
    if indices.array is None and limits.all():
        divisors = draft.constant(limits, indices.dtype, "extents")
        return draft.node("FLOOR_MOD", indices, divisors, giving=indices.info)
    if indices.array is None:
        return indices
    return draft.constant(np.where(indices.array < 0, indices.array + limits, indices.array), indices.dtype, "indices")


@writer(GatherNd, moves=True)
def gather_nd(draft: Draft, op: GatherNd) -> Tensor:
    """Write GatherNd; each row of the indices is the position of a slice."""
    if op.batch_dims:
        refuse("it has batch axes, which GATHER_ND has not")
    depth = draft.known(draft.info(1).shape[-1], "number of indices in a row")
    if not depth:
        refuse("its tuples of indices are empty")
    indices = _counted(draft, draft.operand(1), tuple(draft.info(0).shape[:depth]))
    return draft.final("GATHER_ND", draft.operand(0), indices)


@writer(GatherElements, moves=True)
def gather_elements(draft: Draft, op: GatherElements) -> Tensor:
    """Write GatherElements as GATHER_ND; each index is extended by its own position along the other axes."""
    shape, axis = draft.concrete(draft.operand(1), "its index"), normal_axis(op.axis, draft.rank)
    indices = draft.cast(_counted(draft, draft.operand(1), (draft.info(0).shape[axis],)), DataType.INT32)
    positions = np.indices(shape)
    coordinates = [
        draft.reshape(indices, (*shape, 1)) if number == axis else draft.ints(positions[number][..., None], "places")
        for number in range(draft.rank)
    ]
    rows = draft.node(
        "CONCATENATION", *coordinates, giving=TensorInfo((*shape, draft.rank), DataType.INT32), axis=draft.rank
    )
    return draft.final("GATHER_ND", draft.operand(0), rows)


@writer(EmbeddingLookup, moves=True)
def embedding_lookup(draft: Draft, op: EmbeddingLookup) -> Tensor:
    """Write EmbeddingLookup: rows of a table."""
    lookups, values = draft.tensors()
    return draft.final("GATHER", values, lookups, axis=0)


@writer(HashtableLookup)
def hashtable_lookup(draft: Draft, op: HashtableLookup) -> Tensor:
    """Refuse HashtableLookup: TFLite's HASHTABLE_LOOKUP is not supported when a file is read."""
    refuse("HASHTABLE_LOOKUP cannot be read back")


@writer(OneHot, typed=True)
def one_hot(draft: Draft, op: OneHot) -> Tensor:
    """Write OneHot; the depth and both values are operands."""
    if op.from_end:
        refuse("it counts indices from the end, which ONE_HOT does not")
    on_value, off_value = (draft.constant(value, op.dtype, "value") for value in (op.on_value, op.off_value))
    indices = draft.operand(0)
    if indices.dtype not in (DataType.INT32, DataType.INT64):
        indices = draft.cast(indices, DataType.INT32 if indices.dtype.bits < 32 else DataType.INT64)
    depth = draft.constant(op.depth, DataType.INT32, "depth")
    return draft.final("ONE_HOT", indices, depth, on_value, off_value, axis=normal_axis(op.axis, draft.result.rank))

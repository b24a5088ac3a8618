"""TFLite writers for operators that write elements to computed positions."""

from __future__ import annotations

import numpy as np

from interposer.core.types import DataType, TensorInfo
from interposer.ops.scatter import DynamicUpdateSlice, ScatterFunction, ScatterNd
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []


@writer(ScatterNd)
def scatter_nd(draft: Draft, op: ScatterNd) -> Tensor:
    """Write ScatterNd, which adds updates to zeros; the shape is the last operand."""
    if op.input_enabled or op.function is not ScatterFunction.ADD:
        refuse("SCATTER_ND only adds updates to zeros")
    shape, indices, updates = draft.tensors()
    depth = draft.known(draft.info(1).shape[-1], "number of indices in a row")
    if not depth:
        refuse("its tuples of indices are empty")
    shape, indices = (draft.cast(tensor, DataType.INT32) for tensor in (shape, indices))
    return draft.final("SCATTER_ND", _counted(draft, indices, shape, depth), updates, shape)


def _counted(draft: Draft, indices: Tensor, shape: Tensor, depth: int) -> Tensor:
    """Return index tuples with the dimension's size added to negative indices, which TFLite does not support.

    Each tuple has `depth` indices, for the first `depth` dimensions of the tensor's `shape`.
    """
    if indices.array is not None and not (indices.array < 0).any():
        return indices
    if shape.array is not None:
        sizes = draft.ints(np.maximum(shape.array[:depth], 1), "extents")
    else:
        info = TensorInfo((depth,), DataType.INT32)
        sizes = draft.node("SLICE", shape, draft.ints([0]), draft.ints([depth]), giving=info)
    return draft.node("FLOOR_MOD", indices, sizes, giving=indices.info)


@writer(DynamicUpdateSlice, moves=True)
def dynamic_update_slice(draft: Draft, op: DynamicUpdateSlice) -> Tensor:
    """Write DynamicUpdateSlice; the position is an operand."""
    return draft.final("DYNAMIC_UPDATE_SLICE", *draft.tensors())

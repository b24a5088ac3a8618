"""Operators that write elements to places that are data."""

from __future__ import annotations

from interposer.ops.scatter import DynamicUpdateSlice, ScatterFunction, ScatterNd
from interposer.types import DataType
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.registry import refuse, writer
from interposer.writers.tflite.sheet import Tensor

__all__: list[str] = []


@writer(ScatterNd)
def scatter_nd(draft: Draft, op: ScatterNd) -> Tensor:
    """Updates are added to zeros; the shape comes last."""
    if op.input_enabled or op.function is not ScatterFunction.ADD:
        refuse("SCATTER_ND only adds updates to zeros")
    shape, indices, updates = draft.tensors()
    if not draft.known(draft.info(1).shape[-1], "number of indices in a row"):
        refuse("its tuples of indices are empty")
    shape, indices = (draft.cast(one, DataType.INT32) for one in (shape, indices))
    return draft.final("SCATTER_ND", indices, updates, shape)


@writer(DynamicUpdateSlice, moves=True)
def dynamic_update_slice(draft: Draft, op: DynamicUpdateSlice) -> Tensor:
    """The place is an operand."""
    return draft.final("DYNAMIC_UPDATE_SLICE", *draft.tensors())

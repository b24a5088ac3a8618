"""Arm NN writers for operators that read or write elements by their indices."""

from __future__ import annotations

import numpy as np

from interposer.core.types import DataType, TensorInfo
from interposer.formats.armnn.schema import SCATTER_FUNCTIONS
from interposer.ops.axes import normal_axis
from interposer.ops.gather import Gather, GatherNd
from interposer.ops.scatter import ScatterFunction, ScatterNd
from interposer.writers.armnn.armnn_layer_writers import writer
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor
from interposer.writers.armnn.types import dimensions
from interposer.writers.refusals import refuse

__all__: list[str] = []

_AXIS_SINCE = "20.11"
"""The first release whose reference backend gathers along another axis than the first one."""


@writer(Gather, moves=True)
def gather(draft: Draft, op: Gather) -> Tensor:
    """Write Gather; for release 20.08, the axis is moved to the front."""
    if op.batch_dims:
        refuse(f"its first {op.batch_dims} axes are batches, of which Arm NN's Gather has none")
    x = draft.operand(0)
    shape = dimensions(x.info)
    axis = normal_axis(op.axis, len(shape))
    indices = _indices(draft, 1, shape[axis])
    if axis and draft.release.target == "20.08":
        return _gathered_in_front(draft, x, indices, axis)
    return _gathered(draft, x, indices, axis, (*shape[:axis], *dimensions(indices.info), *shape[axis + 1 :]))


def _gathered_in_front(draft: Draft, x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """Write a Gather along the first axis, between transposes that move `axis` to the front and back."""
    rank, index_shape = len(dimensions(x.info)), dimensions(indices.info)
    axis_first = draft.transpose(x, (axis, *range(axis), *range(axis + 1, rank)))
    info = TensorInfo((*index_shape, *axis_first.shape[1:]), x.dtype, x.info.quantization)
    gathered = draft.node("Gather", axis_first, indices, giving=info, descriptor={"axis": 0})
    count = len(index_shape)
    permutation = (*range(count, count + axis), *range(count), *range(count + axis, count + rank - 1))
    if draft.info(1).rank:
        return draft.transpose(gathered, permutation, final=True)
    return draft.reshape(draft.transpose(gathered, permutation), (), final=True)


def _gathered(draft: Draft, x: Tensor, indices: Tensor, axis: int, shape: tuple[int, ...]) -> Tensor:
    if shape == dimensions(draft.result):
        return draft.final("Gather", x, indices, descriptor={"axis": axis})
    info = TensorInfo(shape, x.dtype, x.info.quantization)
    return draft.reshape(draft.node("Gather", x, indices, giving=info, descriptor={"axis": axis}), (), final=True)


def _indices(draft: Draft, number: int, *sizes: int) -> Tensor:
    """Return indices as int32; constants are counted from the front, and others may be negative in Arm NN."""
    indices = draft.operand(number)
    if indices.array is not None:
        array = np.asarray(indices.array, np.int64)
        array = np.where(array < 0, array + np.array(sizes), array)
        return Tensor(TensorInfo(array.shape, DataType.INT32), array.astype(np.int32), indices.name)
    if indices.dtype is not DataType.INT32:
        refuse(f"its indices are {indices.dtype}; Arm NN's are int32")
    return indices


@writer(GatherNd, moves=True)
def gather_nd(draft: Draft, op: GatherNd) -> Tensor:
    """Write GatherNd."""
    if op.batch_dims:
        refuse(f"its first {op.batch_dims} axes are batches, of which Arm NN's GatherNd has none")
    x, depth = draft.operand(0), int(draft.info(1).shape[-1])
    return draft.final("GatherNd", x, _indices(draft, 1, *dimensions(x.info)[:depth]))


@writer(ScatterNd, moves=True)
def scatter_nd(draft: Draft, op: ScatterNd) -> Tensor:
    """Write ScatterNd; a shape as its first operand must be int32."""
    x, depth = draft.operand(0), int(draft.info(1).shape[-1])
    is_narrow = draft.result.dtype in (DataType.UINT8, DataType.INT8) and not draft.result.is_quantized
    if is_narrow and op.function is not ScatterFunction.UPDATE:
        refuse("Arm NN only has 8-bit integers that are quantized")
    if not op.input_enabled and x.dtype is not DataType.INT32:
        shape = draft.array(0, "shape")
        x = draft.constant(shape, DataType.INT32, "shape")
    fields = {"m_Function": SCATTER_FUNCTIONS.index(op.function.name), "m_InputEnabled": op.input_enabled}
    indices = _indices(draft, 1, *dimensions(draft.result)[:depth])
    return draft.final("ScatterNd", x, indices, draft.operand(2), descriptor=fields)

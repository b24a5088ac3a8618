"""Arm NN writers for operators that combine, divide and rearrange tensors."""

from __future__ import annotations

from itertools import chain
from typing import Final

import numpy as np

from interposer.core.types import DataType, TensorInfo, integer_range
from interposer.formats.armnn.schema import PADDING_MODES
from interposer.ops.axes import normal_axes, normal_axis
from interposer.ops.rearrange import (
    Concat,
    Pad,
    PaddingMode,
    Permute,
    ReverseV2,
    Splitter,
    Stack,
    Tile,
    Transpose,
)
from interposer.writers.armnn.armnn_layer_writers import writer
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor
from interposer.writers.armnn.types import dimensions
from interposer.writers.armnn.views import origins, views
from interposer.writers.refusals import refuse

__all__: list[str] = []

_MODES_SINCE: Final = "21.11"
_TILE_SINCE: Final = "23.08"
_MOST_COPIES: Final = 64
"""The largest number of copies for which Tile is written as Concat, which all releases read."""


@writer(Concat, moves=True)
def concat(draft: Draft, op: Concat) -> Tensor:
    """Write Concat; one input is copied by a Reshape."""
    inputs = draft.tensors()
    if len(inputs) == 1:
        return draft.reshape(inputs[0], (), final=True)
    axis = normal_axis(op.axis, draft.rank)
    return draft.final("Concat", *inputs, descriptor=origins(axis, [dimensions(tensor.info) for tensor in inputs]))


@writer(Splitter, moves=True)
def splitter(draft: Draft, op: Splitter) -> list[Tensor]:
    """Write Splitter."""
    axis = normal_axis(op.axis, draft.rank)
    return draft.finals(
        "Splitter", draft.operand(0), descriptor=views(axis, [dimensions(info) for info in draft.results])
    )


@writer(Stack, moves=True)
def stack(draft: Draft, op: Stack) -> Tensor:
    """Write Stack; scalars, which have the shape [1] in Arm NN, are concatenated."""
    inputs = draft.tensors()
    shape = dimensions(inputs[0].info)
    if not draft.rank:
        return (
            draft.final("Concat", *inputs, descriptor=origins(0, [shape] * len(inputs)))
            if len(inputs) > 1
            else (draft.reshape(inputs[0], (), final=True))
        )
    axis = normal_axis(op.axis, draft.rank + 1)
    return draft.final("Stack", *inputs, descriptor={"axis": axis, "numInputs": len(inputs), "inputShape": shape})


@writer(Pad)
def pad(draft: Draft, op: Pad) -> Tensor:
    """Write Pad; the value of a quantized border is a quantized one in Arm NN."""
    if op.padding_mode.name not in PADDING_MODES:
        refuse(f"Arm NN has no padding mode {op.padding_mode.name}")
    if op.padding_mode is not PaddingMode.CONSTANT:
        draft.need(_MODES_SINCE, f"the padding mode {op.padding_mode.name}")
    fill_value, q = op.pad_value, draft.result.quantization
    if q is not None:
        low, high = integer_range(draft.result.dtype)
        fill_value = float(np.clip(np.rint(fill_value / q.scale) + q.zero_point, low, high))
    if not draft.rank:
        return draft.reshape(draft.operand(0), (), final=True)
    fields = {"padList": tuple(chain(*op.pad_list)), "padValue": fill_value}
    mode = PADDING_MODES.index(op.padding_mode.name)
    return draft.final("Pad", draft.operand(0), descriptor=fields | {"paddingMode": mode})


@writer(Transpose, moves=True)
def transpose(draft: Draft, op: Transpose) -> Tensor:
    """Write Transpose."""
    return draft.transpose(draft.operand(0), op.permutation or range(1), final=True)


@writer(Permute, moves=True)
def permute(draft: Draft, op: Permute) -> Tensor:
    """Write Permute."""
    return draft.final("Permute", draft.operand(0), descriptor={"dimMappings": op.dim_mappings or range(1)})


@writer(Tile, moves=True)
def tile(draft: Draft, op: Tile) -> Tensor:
    """Write Tile, for old releases as Concat of the same tensor if there are few copies."""
    x = draft.operand(0)
    if not draft.rank:
        return draft.reshape(x, (), final=True)
    has_few_copies = 0 not in op.multiples and sum(op.multiples) <= _MOST_COPIES
    if draft.release.prefers(_TILE_SINCE) or not has_few_copies:
        return draft.final("Tile", x, descriptor={"m_Multiples": op.multiples})
    axes = [axis for axis, count in enumerate(op.multiples) if count != 1]
    if not axes:
        return draft.reshape(x, (), final=True)
    for axis in axes[:-1]:
        x = _repeated(draft, x, axis, op.multiples[axis], final=False)
    return _repeated(draft, x, axes[-1], op.multiples[axes[-1]], final=True)


def _repeated(draft: Draft, x: Tensor, axis: int, count: int, *, final: bool) -> Tensor:
    shape = dimensions(x.info)
    descriptor = origins(axis, [shape] * count)
    if final:
        return draft.final("Concat", *[x] * count, descriptor=descriptor)
    info = TensorInfo(
        [size * (count if position == axis else 1) for position, size in enumerate(shape)], x.dtype, x.info.quantization
    )
    return draft.node("Concat", *[x] * count, giving=info, descriptor=descriptor)


@writer(ReverseV2, moves=True)
def reverse(draft: Draft, op: ReverseV2) -> Tensor:
    """Write ReverseV2, for old releases as a StridedSlice with negative strides."""
    x, rank = draft.operand(0), draft.rank
    axes = set(normal_axes(op.axis, rank))
    if not rank or not axes:
        return draft.reshape(x, (), final=True)
    q = x.info.quantization
    if draft.release.prefers(_TILE_SINCE) or (q is not None and q.per_axis):
        return draft.final("ReverseV2", x, draft.constant(sorted(axes), DataType.INT32, "axes"))
    mask = sum(1 << axis for axis in range(rank))
    stride = tuple(-1 if axis in axes else 1 for axis in range(rank))
    fields = {"begin": [0] * rank, "end": [0] * rank, "stride": stride, "beginMask": mask, "endMask": mask}
    return draft.final("StridedSlice", x, descriptor=fields | {"dataLayout": 1})

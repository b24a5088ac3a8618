"""TFLite writers for operators that rearrange elements."""

from __future__ import annotations

from typing import Final

from interposer.core.types import DataType, integer_range
from interposer.ops.axes import normal_axis
from interposer.ops.rearrange import (
    Concat,
    Pad,
    PaddingMode,
    Permute,
    ReverseV2,
    Slice,
    Splitter,
    Stack,
    StridedSlice,
    Tile,
    Transpose,
)
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []

_MIRRORS: Final = {PaddingMode.REFLECT: 0, PaddingMode.SYMMETRIC: 1}


@writer(Transpose, Permute, moves=True)
def transpose(draft: Draft, op: Transpose | Permute) -> Tensor:
    """Write Transpose and Permute; the permutation is an operand."""
    if not draft.rank:
        return draft.reshape_to(draft.operand(0), draft.result)
    return draft.final("TRANSPOSE", draft.operand(0), draft.ints(op.permutation, "order"))


@writer(Concat, also_quantized=True)
def concat(draft: Draft, op: Concat) -> Tensor:
    """Write Concat; inputs may only have different scales if TFLite rescales them."""
    output_info = draft.result
    differs = any(x.info.quantization != output_info.quantization for x in draft.tensors())
    if differs and output_info.dtype is not DataType.UINT8:
        refuse("the scales of inputs and result differ, which CONCATENATION only knows of quantized uint8")
    return draft.final("CONCATENATION", *draft.tensors(), axis=normal_axis(op.axis, draft.rank))


@writer(Stack, moves=True)
def stack(draft: Draft, op: Stack) -> Tensor:
    """Write Stack: concatenate along a new axis."""
    tensors = draft.tensors()
    return draft.final("PACK", *tensors, axis=normal_axis(op.axis, draft.rank + 1), values_count=len(tensors))


@writer(Splitter, moves=True)
def split(draft: Draft, op: Splitter) -> list[Tensor]:
    """Write Splitter as SPLIT for equal sizes, else as SPLIT_V."""
    x, axis = draft.operand(0), normal_axis(op.axis, draft.rank)
    if len(set(op.sizes)) == 1 and op.sizes[0]:
        return draft.finals("SPLIT", draft.ints(axis, "axis"), x, num_splits=len(op.sizes))
    sizes = draft.ints(op.sizes, "sizes")
    return draft.finals("SPLIT_V", x, sizes, draft.ints(axis, "axis"), num_splits=len(op.sizes))


@writer(Slice, moves=True)
def slice_(draft: Draft, op: Slice) -> Tensor:
    """Write Slice; begin and size are operands."""
    if not draft.rank:
        return draft.reshape_to(draft.operand(0), draft.result)
    return draft.final("SLICE", draft.operand(0), draft.ints(op.begin, "begin"), draft.ints(op.size, "size"))


@writer(StridedSlice, moves=True)
def strided_slice(draft: Draft, op: StridedSlice) -> Tensor:
    """Write StridedSlice; begin, end and step are operands."""
    if not op.begin:
        return draft.reshape_to(draft.operand(0), draft.result)
    bounds = {"begin": op.begin, "end": op.end, "stride": op.stride}
    masks = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    operands = [draft.ints(values, name) for name, values in bounds.items()]
    mask_fields = {name: getattr(op, name) for name in masks}
    return draft.final("STRIDED_SLICE", draft.operand(0), *operands, **mask_fields)


@writer(Pad, moves=True)
def pad(draft: Draft, op: Pad) -> Tensor:
    """Write Pad with zeros, with another constant, or with mirroring."""
    x = draft.operand(0)
    if not draft.rank:
        return draft.reshape_to(x, draft.result)
    pads = draft.ints(op.pad_list, "pads")
    if op.padding_mode in _MIRRORS:
        return draft.final("MIRROR_PAD", x, pads, mode=_MIRRORS[op.padding_mode])
    if op.padding_mode is not PaddingMode.CONSTANT:
        refuse(f"TFLite has no padding of mode {op.padding_mode.name}")
    if not op.pad_value:
        return draft.final("PAD", x, pads)
    return draft.final("PADV2", x, pads, _stored(draft, x, op.pad_value))


def _stored(draft: Draft, x: Tensor, fill: float) -> Tensor:
    q = x.info.quantization
    if q is None:
        return draft.like(fill, x)
    low, high = integer_range(x.dtype)
    integer = min(max(fill / q.scale + q.zero_point, low), high)
    if integer != round(integer):
        refuse(f"its border of {fill:g} is no number that {x.info} can hold")
    return draft.constant(round(integer), x.dtype, "value", q)


@writer(Tile, moves=True)
def tile(draft: Draft, op: Tile) -> Tensor:
    """Write Tile; the multiples are an operand."""
    if not draft.rank:
        return draft.reshape_to(draft.operand(0), draft.result)
    return draft.final("TILE", draft.operand(0), draft.ints(op.multiples, "multiples"))


@writer(ReverseV2, moves=True)
def reverse(draft: Draft, op: ReverseV2) -> Tensor:
    """Write ReverseV2 as one REVERSE_V2 if the axes are adjacent, as TFLite requires, else as one for each axis."""
    axes = [normal_axis(axis, draft.rank) for axis in op.axis]
    if not axes:
        return draft.reshape_to(draft.operand(0), draft.result)
    if len(set(axes)) < len(axes):
        refuse("it turns an axis twice")
    x, first_axis = draft.operand(0), min(axes)
    are_adjacent = sorted(axes) == list(range(first_axis, first_axis + len(axes)))
    for group in [axes] if are_adjacent else [[axis] for axis in axes]:
        x = draft.node("REVERSE_V2", x, draft.ints(group, "axes"), giving=draft.result)
    return x

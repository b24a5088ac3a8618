"""ONNX writers for operators that rearrange elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.types import Dim
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
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.encoding import encoded
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor

__all__ = ["FARTHEST", "LARGEST", "LEAST"]

LARGEST: Final = 2**63 - 1
"""The number that means the end of an axis."""
LEAST: Final = -(2**63) + 1
"""The number that means the position before the start of an axis, for negative steps."""
FARTHEST: Final = 2**31 - 2
"""A number beyond the end of any axis; for ONNX Runtime, 2**31 - 1 means the position before the start backwards."""
_MODES: Final = {PaddingMode.REFLECT: "reflect", PaddingMode.EDGE: "edge", PaddingMode.WRAP: "wrap"}
_NUMPY_MODES: Final = {PaddingMode.SYMMETRIC: "symmetric", PaddingMode.WRAP: "wrap"}
_WRAP_SINCE: Final = 19


@writer(Transpose, Permute, moves=True)
def transpose(draft: Draft, op: Transpose | Permute) -> Tensor:
    """Write Transpose and Permute as Transpose."""
    return draft.node("Transpose", draft.operand(0), perm=op.permutation) if draft.rank else draft.operand(0)


@writer(Concat, moves=True)
def concat(draft: Draft, op: Concat) -> Tensor:
    """Write Concat as the operator of this name."""
    return draft.node("Concat", *draft.tensors(), axis=op.axis)


@writer(Stack, moves=True)
def stack(draft: Draft, op: Stack) -> Tensor:
    """Write Stack: each tensor gets the new axis, then they are concatenated."""
    axis = normal_axis(op.axis, draft.rank + 1)
    return draft.concat([draft.unsqueeze(tensor, [axis]) for tensor in draft.tensors()], axis)


@writer(Splitter, moves=True)
def split(draft: Draft, op: Splitter) -> list[Tensor]:
    """Write Splitter as Split; the sizes are an operand."""
    if not op.sizes:
        return []
    return draft.nodes("Split", draft.operand(0), draft.ints(op.sizes, "sizes"), count=len(op.sizes), axis=op.axis)


@writer(Slice, moves=True)
def slice_box(draft: Draft, op: Slice) -> Tensor:
    """Write Slice; only the axes that are sliced are listed."""
    shape = draft.info(0).shape
    sizes = op.sizes(shape)
    axes = [i for i, (begin, size) in enumerate(zip(op.begin, sizes, strict=True)) if begin or size is not shape[i]]
    axes = [i for i in axes if op.begin[i] or op.size[i] != -1]
    ends = [LARGEST if op.size[i] == -1 else op.begin[i] + op.size[i] for i in axes]
    return draft.slice(draft.operand(0), [op.begin[i] for i in axes], ends, axes)


@writer(StridedSlice, moves=True)
def strided_slice(draft: Draft, op: StridedSlice) -> Tensor:
    """Write StridedSlice; shrunk axes are slices of one element that are squeezed, and new axes are inserted last."""
    index = op.index(draft.rank)
    axis_indices = [indexer for indexer in index if indexer is not None]
    x, shape, sliced = draft.operand(0), draft.info(0).shape, dict(enumerate(axis_indices))
    for axis, indexer in sliced.items():
        if isinstance(indexer, slice) and _may_start_before(indexer, shape[axis]):
            x, sliced[axis] = _shortened(draft, x, axis, indexer)
    cuts = [(axis, _cut(indexer)) for axis, indexer in sliced.items() if indexer != slice(None, None, 1)]
    starts, ends, steps = ([cut[i] for _, cut in cuts] for i in range(3))
    axes = [axis for axis, _ in cuts]
    x = draft.slice(x, starts, ends, axes, steps if any(step != 1 for step in steps) else None)
    x = draft.squeeze(x, [axis for axis, indexer in enumerate(axis_indices) if isinstance(indexer, int)])
    remaining_indexers = [indexer for indexer in index if not isinstance(indexer, int)]
    return draft.unsqueeze(x, [axis for axis, indexer in enumerate(remaining_indexers) if indexer is None])


def _may_start_before(index: slice, dim: int) -> bool:
    """Return True if a backward slice may start before the first element, where ONNX does not select nothing."""
    if index.start is None or index.start >= -1 or (index.step or 1) > 0:
        return False
    return isinstance(dim, Dim) or index.start < -dim


def _shortened(draft: Draft, x: Tensor, axis: int, index: slice) -> tuple[Tensor, slice]:
    """Return the elements of `x` up to the start of a backward slice, and the slice of them that begins at their end.

    There are none if the slice starts before the first element.
    """
    size = draft.info(0).shape[axis]
    if not isinstance(size, Dim) or (index.stop is not None and index.start <= index.stop < 0):
        return x, slice(0, 0, 1)
    end = index.stop - index.start - 1 if index.stop is not None and index.stop < 0 else index.stop
    return draft.slice(x, [0], [index.start + 1], [axis]), slice(-1, end, index.step)


def _cut(index: slice | int) -> tuple[int, int, int]:
    if isinstance(index, int):
        return index, LARGEST if index == -1 else index + 1, 1
    step = index.step or 1
    start = index.start if index.start is not None else 0 if step > 0 else LARGEST
    end = index.stop if index.stop is not None else LARGEST if step > 0 else LEAST
    return start, end if step > 0 else min(end, FARTHEST), step


@writer(ReverseV2, moves=True)
def reverse(draft: Draft, op: ReverseV2) -> Tensor:
    """Write ReverseV2 as slices with step -1."""
    axes = [normal_axis(axis, draft.rank) for axis in op.axis]
    num_axes = len(axes)
    return draft.slice(draft.operand(0), [-1] * num_axes, [LEAST] * num_axes, axes, [-1] * num_axes)


@writer(Tile, moves=True)
def tile(draft: Draft, op: Tile) -> Tensor:
    """Write Tile; the repeats are an operand."""
    return draft.node("Tile", draft.operand(0), draft.ints(op.multiples, "multiples"))


@writer(Pad, moves=True)
def pad(draft: Draft, op: Pad) -> Tensor:
    """Write Pad; modes that ONNX lacks become a Gather along each axis."""
    x = draft.operand(0)
    if not any(any(pair) for pair in op.pad_list):
        return x
    if op.padding_mode is PaddingMode.SYMMETRIC or (op.padding_mode is PaddingMode.WRAP and draft.opset < _WRAP_SINCE):
        return _picked(draft, op, x)
    pads = draft.ints([*(before for before, _ in op.pad_list), *(after for _, after in op.pad_list)], "pads")
    if op.padding_mode is not PaddingMode.CONSTANT:
        return draft.node("Pad", x, pads, mode=_MODES[op.padding_mode])
    fill = draft.constant(encoded(op.pad_value, draft.result), x.dtype, "value")
    return draft.node("Pad", x, pads, fill)


def _picked(draft: Draft, op: Pad, x: Tensor) -> Tensor:
    for axis, pair in enumerate(op.pad_list):
        if any(pair):
            size = draft.known(draft.info(0).shape[axis], f"dimension of axis {axis}")
            places: Sequence[int] = np.pad(np.arange(size), pair, mode=_NUMPY_MODES[op.padding_mode])  # type: ignore[call-overload]
            x = draft.node("Gather", x, draft.ints(places, "places"), axis=axis)
    return x

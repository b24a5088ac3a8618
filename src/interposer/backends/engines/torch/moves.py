"""Operators that move elements."""

from __future__ import annotations

from typing import Any

from interposer.backends.engines.engine import RefusedError
from interposer.backends.engines.torch.package import functional, torch
from interposer.backends.engines.torch.table import ANY, Function, kind_of, makes
from interposer.ir.graph import Layer
from interposer.ops import (
    BroadcastTo,
    Concat,
    DepthToSpace,
    Gather,
    Pad,
    PaddingMode,
    Permute,
    Reshape,
    ReverseV2,
    Slice,
    SpaceToDepth,
    Splitter,
    Stack,
    StridedSlice,
    Tile,
    Transpose,
)

__all__: list[str] = []


def _shape(layer: Layer) -> list[int]:
    return [int(size) for size in layer.output_infos[0].shape]


@makes(Reshape, types=ANY, moves=True)
def reshape(op: Reshape, layer: Layer) -> Function:
    """Return a function that reshapes to the inferred shape."""
    shape = _shape(layer)
    return lambda x: x.reshape(shape)


@makes(BroadcastTo, types=ANY, moves=True)
def broadcast(op: BroadcastTo, layer: Layer) -> Function:
    """Return a function that broadcasts to the inferred shape."""
    shape = _shape(layer)
    return lambda x: x.broadcast_to(shape)


@makes(Transpose, types=ANY, moves=True)
def transpose(op: Transpose, layer: Layer) -> Function:
    """Return a function that permutes the axes of a tensor, as a view."""
    return lambda x: x.permute(op.permutation)


@makes(Permute, types=ANY, moves=True)
def permute(op: Permute, layer: Layer) -> Function:
    """Return a function that permutes the axes of a tensor, as a view, by a map from source axes to target axes."""
    order = [op.dim_mappings.index(axis) for axis in range(len(op.dim_mappings))]
    return lambda x: x.permute(order)


@makes(Concat, types=ANY, moves=True)
def concat(op: Concat, layer: Layer) -> Function:
    """Return a function that concatenates along an axis."""
    return lambda *tensors: torch.cat(tensors, op.axis)


@makes(Stack, types=ANY, moves=True)
def stack(op: Stack, layer: Layer) -> Function:
    """Return a function that concatenates along a new axis."""
    return lambda *tensors: torch.stack(tensors, op.axis)


@makes(Splitter, types=ANY, moves=True)
def split(op: Splitter, layer: Layer) -> Function:
    """Return a function that splits a tensor into views along an axis."""
    sizes = [int(info.shape[op.axis]) for info in layer.output_infos]
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return lambda x: [x.narrow(op.axis, start, size) for start, size in zip(starts, sizes, strict=True)]


@makes(Slice, types=ANY, moves=True)
def slice_(op: Slice, layer: Layer) -> Function:
    """Return a function that slices a tensor, as a view."""
    shape = _shape(layer)
    slices = tuple(slice(start, start + size) for start, size in zip(op.begin, shape, strict=True))
    return lambda x: x[slices]


@makes(StridedSlice, types=ANY, moves=True)
def strided_slice(op: StridedSlice, layer: Layer) -> Function:
    """Return a function that slices a tensor, as a view; negative steps and masks that change the rank are refused."""
    if op.shrink_axis_mask or op.ellipsis_mask or op.new_axis_mask or min(op.stride, default=1) < 0:
        raise RefusedError("torch supports only slices of all axes with positive steps")
    begins = [None if op.begin_mask >> i & 1 else begin for i, begin in enumerate(op.begin)]
    ends = [None if op.end_mask >> i & 1 else end for i, end in enumerate(op.end)]
    slices = tuple(map(slice, begins, ends, op.stride))
    return lambda x: x[slices]


@makes(Pad, types=ANY)
def pad(op: Pad, layer: Layer) -> Function:
    """Return a function that pads with a constant; torch expects the padding of the last axis first."""
    if op.padding_mode is not PaddingMode.CONSTANT:
        raise RefusedError(f"torch supports only constant padding for all ranks, not {op.padding_mode.name}")
    dtype = kind_of(layer.values[0])
    pads = [size for pair in reversed(op.pad_list) for size in pair]
    if not dtype.is_float and op.pad_value != int(op.pad_value):
        raise RefusedError(f"the value {op.pad_value} does not fit into {dtype}")
    value = op.pad_value if dtype.is_float else int(op.pad_value)
    return lambda x: functional.pad(x, pads, value=value)


@makes(Tile, types=ANY, moves=True)
def tile(op: Tile, layer: Layer) -> Function:
    """Return torch's tile."""
    return lambda x: x.repeat(op.multiples)


@makes(ReverseV2, types=ANY, moves=True)
def reverse(op: ReverseV2, layer: Layer) -> Function:
    """Return torch's flip."""
    return lambda x: torch.flip(x, op.axis)


@makes(Gather, types=ANY, moves=True)
def gather(op: Gather, layer: Layer) -> Function:
    """Return a function that selects whole slices; negative indices count from the end of the axis."""
    if op.batch_dims:
        raise RefusedError("torch supports gathering only without batch dimensions")
    axis, shape = op.axis, _shape(layer)
    size = int(layer.values[0].known.shape[axis])

    def compute(params: Any, indices: Any) -> Any:
        flat = indices.reshape(-1).to(torch.int64)
        return params.index_select(axis, torch.where(flat < 0, flat + size, flat)).reshape(shape)

    return compute


@makes(DepthToSpace, SpaceToDepth, types=ANY, moves=True)
def between_depth_and_space(op: DepthToSpace | SpaceToDepth, layer: Layer) -> Function:
    """Return a function that splits each block into separate axes and permutes them."""
    h, w, c = op.data_layout.axes()
    n, b = int(layer.values[0].known.shape[0]), op.block_size
    height, width, depth = (int(layer.values[0].known.shape[axis]) for axis in (h, w, c))
    shape = _shape(layer)
    if isinstance(op, DepthToSpace):
        if getattr(op, "mode", None) is not None and op.mode.name != "DCR":
            raise RefusedError(f"torch supports only the depth order DCR, not {op.mode.name}")
        blocks_channels_last = (n, height, width, b, b, depth // b**2), (0, 1, 3, 2, 4, 5)
        blocks_channels_first = (n, b, b, depth // b**2, height, width), (0, 3, 4, 1, 5, 2)
    else:
        blocks_channels_last = (n, height // b, b, width // b, b, depth), (0, 1, 3, 2, 4, 5)
        blocks_channels_first = (n, depth, height // b, b, width // b, b), (0, 3, 5, 1, 2, 4)
    blocks, order = blocks_channels_last if c == 3 else blocks_channels_first
    return lambda x: x.reshape(blocks).permute(order).reshape(shape)

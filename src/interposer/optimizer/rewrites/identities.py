"""Layers that do nothing: their output is their input."""

from __future__ import annotations

from interposer.core.types import UNKNOWN
from interposer.ir.graph import Layer
from interposer.ops import (
    Activation,
    ActivationFunction,
    BatchToSpaceNd,
    BroadcastTo,
    Cast,
    Concat,
    DepthToSpace,
    Pad,
    Permute,
    Quantize,
    Reshape,
    Slice,
    SpaceToBatchNd,
    SpaceToDepth,
    Splitter,
    StridedSlice,
    Tile,
    Transpose,
)
from interposer.optimizer.rewrites.pattern import Replacement, keeps_codes, rewrite

__all__ = ["IDENTITIES"]


@rewrite(Transpose, Permute)
def drop_idle_transpose(op: Transpose | Permute, layer: Layer) -> Replacement:
    """Return a Transpose that leaves every axis where it is."""
    return _input(layer) if op.permutation == tuple(range(len(op.permutation))) else None


@rewrite(Reshape, BroadcastTo, Tile)
def drop_idle_reshape(op: Reshape | BroadcastTo | Tile, layer: Layer) -> Replacement:
    """Return a Reshape, BroadcastTo or Tile to the shape that its input has."""
    before, after = layer.inputs[0], layer.output.known.shape
    same = before is not None and before.known.shape == after and after.count(UNKNOWN) <= 1
    return _input(layer) if same else None


@rewrite(Pad, SpaceToBatchNd, BatchToSpaceNd)
def drop_idle_pad(op: Pad | SpaceToBatchNd | BatchToSpaceNd, layer: Layer) -> Replacement:
    """Return a Pad of nothing; a block of one element without pads or crops."""
    pads = op.crops if isinstance(op, BatchToSpaceNd) else op.pad_list
    blocks = () if isinstance(op, Pad) else op.block_shape
    return None if any(map(any, pads)) or set(blocks) - {1} else _input(layer)


@rewrite(SpaceToDepth, DepthToSpace)
def drop_idle_block(op: SpaceToDepth | DepthToSpace, layer: Layer) -> Replacement:
    """Return a SpaceToDepth or DepthToSpace with blocks of one element."""
    return _input(layer) if op.block_size == 1 else None


@rewrite(Slice)
def drop_idle_slice(op: Slice, layer: Layer) -> Replacement:
    """Return a Slice of everything."""
    before = layer.values[0].known.shape
    whole = not any(op.begin) and all(size in (-1, dim) for size, dim in zip(op.size, before, strict=True))
    return _input(layer) if whole else None


@rewrite(StridedSlice)
def drop_idle_strided_slice(op: StridedSlice, layer: Layer) -> Replacement:
    """Return a StridedSlice of everything in steps of one."""
    before = layer.values[0].known
    index = op.index(before.rank)
    whole = all(
        isinstance(item, slice) and item.step in (1, None) and not item.start and _reaches(item.stop, dim)
        for item, dim in zip(index, before.shape, strict=False)
    )
    return _input(layer) if whole and len(index) == before.rank else None


def _reaches(stop: int | None, dim: int) -> bool:
    return stop is None or stop >= dim


@rewrite(Concat, Splitter)
def drop_lone_part(op: Concat | Splitter, layer: Layer) -> Replacement:
    """Remove a Concat of one tensor, or a Splitter into one part unless its sizes define an unknown dimension."""
    if len(layer.inputs) > 1 or len(layer.outputs) > 1:
        return None
    return _input(layer) if layer.values[0].known.shape == layer.output.known.shape else None


@rewrite(Cast, Quantize)
def drop_idle_cast(op: Cast | Quantize, layer: Layer) -> Replacement:
    """Return a Cast to the type, or a Quantize to the type and quantization, that the input has.

    Codes of more than 16 bits are left alone: requantizing them need not be exact.
    """
    before = layer.values[0].known
    wide = isinstance(op, Quantize) and before.dtype.itemsize > 2
    return None if wide or before != layer.output.known else layer.inputs[0]


@rewrite(Activation)
def drop_linear(op: Activation, layer: Layer) -> Replacement:
    """Return the linear function 1 * x + 0."""
    idle = op.function is ActivationFunction.LINEAR and op.a == 1 and op.b == 0
    return layer.inputs[0] if idle and layer.values[0].known == layer.output.known else None


def _input(layer: Layer) -> Replacement:
    return layer.inputs[0] if keeps_codes(layer) else None


IDENTITIES = (
    drop_idle_transpose,
    drop_idle_reshape,
    drop_idle_pad,
    drop_idle_block,
    drop_idle_slice,
    drop_idle_strided_slice,
    drop_lone_part,
    drop_idle_cast,
    drop_linear,
)

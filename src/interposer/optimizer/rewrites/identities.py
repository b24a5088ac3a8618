"""Rewrites that remove layers whose output equals their input."""

from __future__ import annotations

from interposer.core.types import UNKNOWN
from interposer.ir.graph import Layer
from interposer.ops import (
    Activation,
    ActivationFunction,
    BatchToSpaceNd,
    BroadcastTo,
    Cast,
    Compress,
    Concat,
    DepthToSpace,
    Pad,
    Permute,
    Quantize,
    Reshape,
    Resize,
    Slice,
    SpaceToBatchNd,
    SpaceToDepth,
    Splitter,
    StridedSlice,
    Tile,
    Transpose,
)
from interposer.rewriting.pattern import New, Replacement, above, keeps_codes, rewrite

__all__ = ["IDENTITIES"]


@rewrite(Transpose, Permute)
def drop_idle_transpose(op: Transpose | Permute, layer: Layer) -> Replacement:
    """Remove a Transpose that leaves every axis in place."""
    return _input(layer) if op.permutation == tuple(range(len(op.permutation))) else None


@rewrite(Reshape, BroadcastTo, Tile)
def drop_idle_reshape(op: Reshape | BroadcastTo | Tile, layer: Layer) -> Replacement:
    """Remove a Reshape, BroadcastTo or Tile whose result has the shape of its input."""
    source, output_shape = layer.inputs[0], layer.output.known.shape
    has_same_shape = source is not None and source.known.shape == output_shape and output_shape.count(UNKNOWN) <= 1
    return _input(layer) if has_same_shape else None


@rewrite(Pad, SpaceToBatchNd, BatchToSpaceNd)
def drop_idle_pad(op: Pad | SpaceToBatchNd | BatchToSpaceNd, layer: Layer) -> Replacement:
    """Remove a Pad of width 0, or a block operator with blocks of one element and no padding or crops."""
    pads = op.crops if isinstance(op, BatchToSpaceNd) else op.pad_list
    blocks = () if isinstance(op, Pad) else op.block_shape
    return None if any(map(any, pads)) or set(blocks) - {1} else _input(layer)


@rewrite(SpaceToDepth, DepthToSpace)
def drop_idle_block(op: SpaceToDepth | DepthToSpace, layer: Layer) -> Replacement:
    """Remove a SpaceToDepth or DepthToSpace with blocks of one element."""
    return _input(layer) if op.block_size == 1 else None


@rewrite(Resize)
def drop_idle_resize(op: Resize, layer: Layer) -> Replacement:
    """Remove a Resize to the size that the image has: every pixel then lies on a pixel of the input.

    Infinite values stay what they are, while BILINEAR, computed as a sum, multiplies them by 0 and gives NaN.
    """
    return _input(layer) if layer.values[0].known.shape == layer.output.known.shape else None


@rewrite(Slice)
def drop_idle_slice(op: Slice, layer: Layer) -> Replacement:
    """Remove a Slice of the whole tensor."""
    shape = layer.values[0].known.shape
    is_whole = not any(op.begin) and all(size in (-1, dim) for size, dim in zip(op.size, shape, strict=True))
    return _input(layer) if is_whole else None


@rewrite(StridedSlice)
def drop_idle_strided_slice(op: StridedSlice, layer: Layer) -> Replacement:
    """Remove a StridedSlice of the whole tensor with strides of 1."""
    info = layer.values[0].known
    index = op.index(info.rank)
    is_whole = all(
        isinstance(axis_index, slice)
        and axis_index.step in (1, None)
        and not axis_index.start
        and _reaches(axis_index.stop, dim)
        for axis_index, dim in zip(index, info.shape, strict=False)
    )
    return _input(layer) if is_whole and len(index) == info.rank else None


def _reaches(stop: int | None, dim: int) -> bool:
    return stop is None or stop >= dim


@rewrite(Concat, Splitter)
def drop_lone_part(op: Concat | Splitter, layer: Layer) -> Replacement:
    """Remove a Concat of one tensor, or a Splitter with one output.

    The Splitter stays if its sizes define a dimension that is otherwise unknown.
    """
    if len(layer.inputs) > 1 or len(layer.outputs) > 1:
        return None
    return _input(layer) if layer.values[0].known.shape == layer.output.known.shape else None


@rewrite(Cast, Quantize)
def drop_idle_cast(op: Cast | Quantize, layer: Layer) -> Replacement:
    """Remove a Cast to the input's type, or a Quantize to the input's type and quantization.

    Quantized values of more than 16 bits are not affected, since requantizing them need not be exact.
    """
    info = layer.values[0].known
    is_wide = isinstance(op, Quantize) and info.dtype.itemsize > 2
    return None if is_wide or info != layer.output.known else layer.inputs[0]


@rewrite(Cast)
def drop_casts_around_compress(op: Cast, layer: Layer) -> Replacement:
    """Apply a Compress to the quantized input, if one Cast drops the quantization before it and one restores it after.

    Files of ONNX whose inputs and outputs have quantization annotations contain such casts.
    """
    compress = above(layer.inputs[0], Compress)
    inner = above(compress.layer.inputs[0], Cast) if compress else None
    if compress is None or inner is None or len(compress.layer.output.consumers) > 1:
        return None
    source_info, dropped_info, restored_info = inner.layer.values[0].known, inner.layer.output.known, layer.output.known
    is_relabeled = source_info.dtype is dropped_info.dtype is restored_info.dtype and dropped_info.quantization is None
    quantization = source_info.quantization
    if not is_relabeled or quantization is None or quantization.per_axis or quantization != restored_info.quantization:
        return None
    return New(compress.op, [inner.layer.inputs[0], compress.layer.inputs[1]])


@rewrite(Activation)
def drop_linear(op: Activation, layer: Layer) -> Replacement:
    """Remove the linear activation 1 * x + 0."""
    is_identity = op.function is ActivationFunction.LINEAR and op.a == 1 and op.b == 0
    return layer.inputs[0] if is_identity and layer.values[0].known == layer.output.known else None


def _input(layer: Layer) -> Replacement:
    return layer.inputs[0] if keeps_codes(layer) else None


IDENTITIES = (
    drop_idle_transpose,
    drop_idle_reshape,
    drop_idle_pad,
    drop_idle_block,
    drop_idle_resize,
    drop_idle_slice,
    drop_idle_strided_slice,
    drop_lone_part,
    drop_idle_cast,
    drop_casts_around_compress,
    drop_linear,
)

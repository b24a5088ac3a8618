"""Rewrites that move layers from dequantized weights to the quantized integers and their scales.

Rows of an embedding table are selected while they are quantized, and weights keep a form that backends compute with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.types import MAX_RANK, QUANTIZABLE, Quantization, integer_range
from interposer.ir.graph import Layer, Value
from interposer.ops import BlockDequantize, Constant, Dequantize, Gather, Permute, Reshape, Transpose
from interposer.rewriting.pattern import New, Replacement, above, constant, rewrite

__all__ = ["BLOCKS"]

Item = Value | New


@rewrite(Transpose, Permute)
def transpose_blocks(op: Transpose | Permute, layer: Layer) -> Replacement:
    """Transpose integers and their scales, and dequantize them afterwards."""
    inner = above(layer.inputs[0], BlockDequantize)
    if inner is None or not inner.layer.values[0].is_constant:
        return None
    axis = op.permutation.index(inner.op.axis % inner.layer.values[0].known.rank)
    operands = [New(Transpose(op.permutation), [value]) for value in inner.layer.values]
    return New(BlockDequantize(inner.op.block_size, axis, inner.op.dtype), operands)


@rewrite(Reshape)
def merge_blocks(op: Reshape, layer: Layer) -> Replacement:
    """Merge the axis of the elements of a block into the axis of the blocks, and dequantize afterwards."""
    inner = above(layer.inputs[0], BlockDequantize)
    if inner is None or not inner.layer.values[0].is_constant:
        return None
    shape, merged = tuple(inner.layer.values[0].known.shape), tuple(layer.output.known.shape)
    if inner.op.axis % len(shape) != len(shape) - 1 or len(shape) < 2 or not 0 < shape[-1] <= inner.op.block_size:
        return None
    if merged != (*shape[:-2], shape[-2] * shape[-1]):
        return None
    codes, *numbers = inner.layer.values
    operands = [New(Reshape(merged), [codes]), *(New(Reshape(shape[:-1]), [value]) for value in numbers)]
    return New(BlockDequantize(shape[-1], len(shape) - 2, inner.op.dtype), operands)


@rewrite(Gather)
def gather_blocks(op: Gather, layer: Layer) -> Replacement:
    """Select from quantized integers and their scales, and dequantize what was selected."""
    inner = above(layer.inputs[0], BlockDequantize)
    if inner is None or not inner.layer.values[0].is_constant:
        return None
    return _gathered(op, layer, inner.op, inner.layer.values)


@rewrite(Gather)
def gather_rows(op: Gather, layer: Layer) -> Replacement:
    """Select rows from an integer matrix with a scale for each row, and dequantize what was selected."""
    inner = above(layer.inputs[0], Dequantize)
    codes = None if inner is None else inner.layer.values[0]
    if inner is None or codes is None or not isinstance(codes.producer.op, Constant) or codes.known.rank != 2:
        return None
    q, columns = codes.known.quantization, codes.known.shape[1]
    if q is None or q.axis != 0 or not columns or not _fit(codes, q):
        return None
    scales = constant(np.asarray(q.scales, np.float32).reshape(-1, 1))
    points = constant(np.asarray(q.zero_points).reshape(-1, 1).astype(codes.known.dtype.numpy))
    operands = [constant(codes.producer.op.value), scales, *([points] if any(q.zero_points) else [])]
    return _gathered(op, layer, BlockDequantize(columns, 1, inner.op.dtype), operands)


def _fit(codes: Value, q: Quantization) -> bool:
    low, high = integer_range(codes.known.dtype)
    return codes.known.dtype in QUANTIZABLE and all(low <= point <= high for point in q.zero_points)


def _gathered(op: Gather, layer: Layer, blocks: BlockDequantize, operands: Sequence[Item]) -> New | None:
    """Return the dequantization of gathered operands; None if the selected axis is the one that has blocks."""
    params, indices = layer.values[0].known, layer.values[1].known
    axis, along = op.axis % params.rank, blocks.axis % params.rank
    if axis == along or op.batch_dims or params.rank + indices.rank - 1 > MAX_RANK:
        return None
    moved = along if along < axis else along + indices.rank - 1
    chosen = [New(op, [item, layer.values[1]]) for item in operands]
    return New(BlockDequantize(blocks.block_size, moved, blocks.dtype), chosen)


BLOCKS: Final = (transpose_blocks, merge_blocks, gather_blocks, gather_rows)

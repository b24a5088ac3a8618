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
    dequantize = above(layer.inputs[0], BlockDequantize)
    if dequantize is None or not dequantize.layer.values[0].is_constant:
        return None
    axis = op.permutation.index(dequantize.op.axis % dequantize.layer.values[0].known.rank)
    operands = [New(Transpose(op.permutation), [value]) for value in dequantize.layer.values]
    return New(BlockDequantize(dequantize.op.block_size, axis, dequantize.op.dtype), operands)


@rewrite(Reshape)
def merge_blocks(op: Reshape, layer: Layer) -> Replacement:
    """Merge the axis of the elements of a block into the axis of the blocks, and dequantize afterwards."""
    dequantize = above(layer.inputs[0], BlockDequantize)
    if dequantize is None or not dequantize.layer.values[0].is_constant:
        return None
    shape, merged_shape = tuple(dequantize.layer.values[0].known.shape), tuple(layer.output.known.shape)
    if (
        dequantize.op.axis % len(shape) != len(shape) - 1
        or len(shape) < 2
        or not 0 < shape[-1] <= dequantize.op.block_size
    ):
        return None
    if merged_shape != (*shape[:-2], shape[-2] * shape[-1]):
        return None
    quantized, *scales_and_points = dequantize.layer.values
    operands = [
        New(Reshape(merged_shape), [quantized]),
        *(New(Reshape(shape[:-1]), [value]) for value in scales_and_points),
    ]
    return New(BlockDequantize(shape[-1], len(shape) - 2, dequantize.op.dtype), operands)


@rewrite(Gather)
def gather_blocks(op: Gather, layer: Layer) -> Replacement:
    """Select from quantized integers and their scales, and dequantize what was selected."""
    dequantize = above(layer.inputs[0], BlockDequantize)
    if dequantize is None or not dequantize.layer.values[0].is_constant:
        return None
    return _gathered(op, layer, dequantize.op, dequantize.layer.values)


@rewrite(Gather)
def gather_rows(op: Gather, layer: Layer) -> Replacement:
    """Select rows from an integer matrix with a scale for each row, and dequantize what was selected."""
    dequantize = above(layer.inputs[0], Dequantize)
    quantized = None if dequantize is None else dequantize.layer.values[0]
    if (
        dequantize is None
        or quantized is None
        or not isinstance(quantized.producer.op, Constant)
        or quantized.known.rank != 2
    ):
        return None
    quantization, columns = quantized.known.quantization, quantized.known.shape[1]
    if quantization is None or quantization.axis != 0 or not columns or not _fit(quantized, quantization):
        return None
    scales = constant(np.asarray(quantization.scales, np.float32).reshape(-1, 1))
    points = constant(np.asarray(quantization.zero_points).reshape(-1, 1).astype(quantized.known.dtype.numpy))
    operands = [constant(quantized.producer.op.value), scales, *([points] if any(quantization.zero_points) else [])]
    return _gathered(op, layer, BlockDequantize(columns, 1, dequantize.op.dtype), operands)


def _fit(quantized: Value, quantization: Quantization) -> bool:
    low, high = integer_range(quantized.known.dtype)
    return quantized.known.dtype in QUANTIZABLE and all(low <= point <= high for point in quantization.zero_points)


def _gathered(op: Gather, layer: Layer, blocks: BlockDequantize, operands: Sequence[Item]) -> New | None:
    """Return the dequantization of gathered operands; None if the selected axis is the one that has blocks."""
    params, indices = layer.values[0].known, layer.values[1].known
    axis, block_axis = op.axis % params.rank, blocks.axis % params.rank
    if axis == block_axis or op.batch_dims or params.rank + indices.rank - 1 > MAX_RANK:
        return None
    new_block_axis = block_axis if block_axis < axis else block_axis + indices.rank - 1
    gathered = [New(op, [operand, layer.values[1]]) for operand in operands]
    return New(BlockDequantize(blocks.block_size, new_block_axis, blocks.dtype), gathered)


BLOCKS: Final = (transpose_blocks, merge_blocks, gather_blocks, gather_rows)

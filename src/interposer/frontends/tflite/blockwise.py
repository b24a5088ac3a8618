"""Weights with a scale for every block of elements, which the file stores in a tensor of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import Array, DataType
from interposer.frontends.tflite.contents import Blocks, Tensor, packed_bits
from interposer.ir.graph import Value
from interposer.ops.quantization import BlockDequantize

__all__ = ["BlockWeights", "block_weights", "is_blockwise"]

_SCALES: Final = frozenset({DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16})


class BlockWeights(NamedTuple):
    """A BlockDequantize operator and its operands after the weights; all zero points are 0 if they are None."""

    op: BlockDequantize
    scales: Array
    zero_points: Array | None


def is_blockwise(weights: Value) -> bool:
    """Return True for weights with a scale for every block, which a layer dequantizes."""
    return isinstance(weights.producer.op, BlockDequantize)


def block_weights(tensor: Tensor, blocks: Blocks, array_of: Callable[[int], Array | None], where: str) -> BlockWeights:
    """Return how a constant tensor with a scale for every block is dequantized.

    `array_of` returns the array of the tensor with an index, or None if it is no constant. If blocks span several
    dimensions, the scales are repeated along all of these dimensions but one.

    Raises:
        ParseError: the tensor has no integers of at most 8 bits, or the scales do not fit its shape; `where` is the
            location of the operator.
    """
    if not (tensor.dtype in {"int8", "uint8"} or packed_bits(tensor.dtype)):
        raise ParseError(f"tensor {tensor.name!r} of {tensor.dtype} has scales for blocks of integers", where=where)
    scales = array_of(blocks.scales)
    if scales is None or DataType.of(scales.dtype) not in _SCALES:
        raise ParseError(f"the scales of the blocks of tensor {tensor.name!r} are not constant floats", where=where)
    sizes = _sizes_of_blocks(tensor.shape, scales, blocks)
    if sizes is None:
        message = f"tensor {tensor.name!r} of shape {list(tensor.shape)} has scales of shape {list(scales.shape)}"
        raise ParseError(f"{message}, which do not fit blocks of {blocks.size or list(blocks.shape)}", where=where)
    points = _zero_points(array_of(blocks.zero_points), scales.size, tensor, where)
    return _along_one_axis(tensor.shape, sizes, scales, points)


def _sizes_of_blocks(shape: Sequence[int], scales: Array, blocks: Blocks) -> tuple[int, ...] | None:
    """Return the size of a block along each dimension, or None if the scales do not fit the shape.

    The file has a size for all dimensions (`Blocks.shape`), or the dimensions that have several scales (`Blocks.axes`).
    Without either, blocks lie along the only dimension that has as many scales as blocks, or along the last one.
    """
    last_axis, block = len(shape) - 1, blocks.size
    candidates: list[tuple[int, ...]] = []
    if blocks.shape:
        candidates = [blocks.shape]
    elif blocks.axes:
        blocked_axis = blocks.axes[-1] if block > 1 else None
        candidates = [
            tuple(block if d == blocked_axis else 1 if d in blocks.axes else max(1, n) for d, n in enumerate(shape))
        ]
    elif block > 0:
        candidates = [
            tuple(block if d == axis else 1 for d in range(len(shape))) for axis in (last_axis, *range(last_axis))
        ]
    of_all_dimensions = [sizes for sizes in candidates if len(sizes) == len(shape) and min(sizes, default=0) > 0]
    exact_sizes = [sizes for sizes in of_all_dimensions if _counts(shape, sizes) == scales.shape]
    fitting_sizes = [
        sizes for sizes in of_all_dimensions if np.prod(_counts(shape, sizes), dtype=object) == scales.size
    ]
    return next(iter(exact_sizes + fitting_sizes[:1]), None)


def _counts(shape: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the number of blocks along each dimension."""
    return tuple(-(-size // block) for size, block in zip(shape, sizes, strict=True))


def _zero_points(array: Array | None, count: int, tensor: Tensor, where: str) -> Array | None:
    """Return the zero points with the type of the weights; None if all are 0, or if the file has no constant for them.

    One zero point holds for all blocks.
    """
    if array is None or (array.dtype.kind in "iuf" and not array.any()):
        return None
    type_limits = np.iinfo(np.uint8 if tensor.dtype.startswith("u") else np.int8)
    is_integer = array.dtype.kind in "iu" and type_limits.min <= array.min() and array.max() <= type_limits.max
    if array.size not in (1, count) or not is_integer:
        message = f"tensor {tensor.name!r} has {array.size} zero points of type {array.dtype} for {count} blocks"
        raise ParseError(f"{message}; expected an integer of 8 bits for each block", where=where)
    return np.broadcast_to(array.astype(type_limits.dtype).reshape(-1), count)


def _along_one_axis(shape: Sequence[int], sizes: Sequence[int], scales: Array, points: Array | None) -> BlockWeights:
    """Return the operator and its operands; blocks remain along the last dimension in which a block has many elements.

    Scales and zero points are repeated along the other dimensions.
    """
    blocked_axes = [axis for axis, size in enumerate(sizes) if size > 1]
    kept_axis = blocked_axes[-1] if blocked_axes else len(sizes) - 1

    def repeated(values: Array) -> Array:
        values = values.reshape(_counts(shape, sizes))
        for axis in blocked_axes[:-1]:
            values = values.repeat(sizes[axis], axis).take(range(shape[axis]), axis)
        return values

    op = BlockDequantize(sizes[kept_axis], kept_axis)
    return BlockWeights(op, repeated(scales), None if points is None else repeated(points))

"""ONNX converters for ONNX Runtime's operators on weights of few bits, which have a scale for each block.

Weights become `BlockDequantize` layers. Backends multiply with the packed integers if they can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import Array, DataType, differ, from_bits
from interposer.frontends.axes import checked_axis
from interposer.frontends.elementwise import BITWISE_AND, GREATER_OR_EQUAL, LESS, LOGICAL_AND, SHIFT_RIGHT
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.reshaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Multiplication, Subtraction, Where
from interposer.ops.gather import Gather
from interposer.ops.matmul import BatchMatMul, FullyConnected
from interposer.ops.quantization import BlockDequantize
from interposer.ops.rearrange import Slice, Stack

__all__ = ["bit_points", "block_size_of", "unpacked_bits"]

_NARROW_TYPES: Final = {2: DataType.UINT2, 4: DataType.UINT4}
_LARGEST: Final = 2**31 - 1
_FP4: Final = (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
_NF4: Final = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
_TABLES: Final = {0: (*_FP4, *(-number for number in _FP4)), 1: _NF4}
"""The numbers of the 4-bit types FP4 and NF4 of the library bitsandbytes, by the attribute quant_type."""


# --- MatMulNBits ------------------------------------------------------------------------------------------------------


@operator("MatMulNBits", domain=MICROSOFT)
def matmul_of_few_bits(node: Node) -> Value:
    """Convert MatMulNBits: the product with weights of 2, 4 or 8 bits, which have a scale for each block of a column.

    The input stays float at all values of accuracy_level, which asks for the least accuracy.
    """
    k, n, bits, block_size = _positive(node, "K"), _positive(node, "N"), node.integer("bits", 4), block_size_of(node)
    if bits not in (2, 4, 8):
        node.unsupported(f"its weights have {bits} bits; 2, 4 and 8 are supported")
    if node.integer("weight_prepacked", 0):
        node.unsupported("its weights are packed for a GPU (weight_prepacked)")
    a, blocks_per_row = node.value(0), -(-k // block_size)
    _check_columns(a, k, "K")
    quantized = unpacked_bits(node, _sized(node, 1, (n, blocks_per_row, block_size * bits // 8)), bits)
    quantized = _first_columns(node, reshaped(node, quantized, [n, blocks_per_row * block_size]), k)
    scales = reshaped(node, _sized(node, 2, (n, blocks_per_row)), [n, blocks_per_row])
    weights = _dequantized(node, quantized, scales, bit_points(node, 3, bits, n, blocks_per_row), block_size, k)
    return _with_bias(node, _product(node, a, weights, is_transposed=True), node.optional(5), n)


def _positive(node: Node, name: str) -> int:
    size = node.integer(name)
    if not 0 < size <= _LARGEST:
        raise ParseError(f"{name} is {size}; expected 1 to {_LARGEST}")
    return size


def block_size_of(node: Node, default: int | None = None) -> int:
    """Return the attribute block_size; raise `ParseError` unless it is a power of two of at least 16."""
    size = node.integer("block_size", default)
    if not 16 <= size <= _LARGEST or size & (size - 1):
        raise ParseError(f"block_size is {size}; expected a power of two, 16 or more")
    return size


def _check_columns(a: Value, size: int, title: str) -> None:
    if not a.known.rank or differ(a.known.shape[-1], size):
        raise ParseError(f"its input has shape {a.known.shape}; expected rows of {size} elements, as {title} says")


def _sized(node: Node, index: int, shape: Sequence[int]) -> Value:
    """Return an operand that has as many elements as a tensor of this shape; raise `ParseError` otherwise."""
    operand, count = node.value(index), math.prod(shape)
    if differ(operand.known.num_elements, count):
        raise ParseError(f"its input number {index} has shape {operand.known.shape}; expected {list(shape)}")
    return operand


def bit_points(node: Node, index: int, bits: int, n: int, blocks_per_row: int) -> Value:
    """Return the zero points in operand `index` with the shape (n, counts): integers, or floats of the scales' type.

    Integers of `bits` bits are packed in the bytes of each row. Without the operand, they are half their range.
    """
    if not node.has(index):
        return _constant_of_bits(node, np.full((n, blocks_per_row), 1 << bits - 1, np.uint8), bits)
    if node.info(index).dtype is not DataType.UINT8:
        return reshaped(node, _sized(node, index, (n, blocks_per_row)), [n, blocks_per_row])
    bytes_per_row = -(-blocks_per_row * bits // 8)
    rows = reshaped(node, _sized(node, index, (n, bytes_per_row)), [n, bytes_per_row])
    return _first_columns(node, unpacked_bits(node, rows, bits), blocks_per_row)


def unpacked_bits(node: Node, packed: Value, bits: int) -> Value:
    """Return the integers of `bits` bits that the bytes of a tensor hold along its last axis, the lowest bits first.

    Those of a constant get the type with this number of bits, others are uint8.
    """
    if packed.known.dtype is not DataType.UINT8:
        raise ParseError(f"it has packed integers of type {packed.known.dtype}; expected uint8")
    per_byte = 8 // bits
    if packed.constant is not None:
        fields = np.stack([packed.constant >> np.uint8(bits * i) for i in range(per_byte)], axis=-1)
        return _constant_of_bits(node, fields.reshape(*packed.constant.shape[:-1], -1), bits)
    if bits == 8:
        return packed
    shift, mask = SHIFT_RIGHT, BITWISE_AND
    shifted = [node.step(shift, packed, node.scalar_like(bits * i, packed)) for i in range(per_byte)]
    masked = [node.step(mask, byte, node.scalar_like((1 << bits) - 1, byte)) for byte in shifted]
    *axes, last_size = packed.known.shape
    return reshaped(node, node.step(Stack(-1), *masked), [*axes, last_size * per_byte], len(axes))


def _constant_of_bits(node: Node, integers: Array, bits: int) -> Value:
    """Return a constant with integers of `bits` bits, which are the lowest bits of bytes."""
    return node.constant(from_bits(integers, _NARROW_TYPES[bits]) if bits in _NARROW_TYPES else integers)


def _first_columns(node: Node, matrix: Value, num_columns: int) -> Value:
    """Return the first `num_columns` columns of a matrix."""
    if matrix.known.shape[1] == num_columns:
        return matrix
    if matrix.constant is not None:
        return node.constant(np.ascontiguousarray(matrix.constant[:, :num_columns]))
    return node.step(Slice((0, 0), (-1, num_columns)), matrix)


def _dequantized(node: Node, quantized: Value, scales: Value, zero_points: Value, block_size: int, k: int) -> Value:
    """Return the weights (n, k) as floats of the scales' type; `zero_points` have the shape of the scales."""
    dtype = scales.known.dtype
    groups = node.optional(4)
    if groups is not None:
        scales, zero_points = (_by_group(node, groups, per_group, k) for per_group in (scales, zero_points))
        block_size = 1
    if zero_points.known.dtype.is_float:
        integer_points = _as_integers(zero_points, quantized)
        if integer_points is None:
            return _dequantized_with_float_zeros(node, quantized, scales, zero_points, block_size)
        zero_points = node.constant(integer_points)
    elif zero_points.known.dtype is not quantized.known.dtype:
        zero_points = node.cast(zero_points, quantized.known.dtype)
    return node.step(BlockDequantize(block_size, 1, dtype), quantized, scales, zero_points)


def _by_group(node: Node, groups: Value, per_group: Value, k: int) -> Value:
    """Return the scale or zero point of each of the `k` columns, whose group has the index that `groups` gives."""
    if groups.known.rank != 1 or groups.known.shape[0] < k:
        raise ParseError(f"its g_idx has shape {groups.known.shape}; expected {k} elements")
    indices = groups if groups.known.shape[0] == k else node.step(Slice((0,), (k,)), groups)
    return node.step(Gather(1), per_group, indices)


def _as_integers(zero_points: Value, quantized: Value) -> Array | None:
    """Return float zero points as integers of the type of `quantized`; None if they are not integers of this type."""
    floats = zero_points.constant
    if floats is None:
        return None
    numbers, largest = floats.astype(np.float64), (1 << quantized.known.dtype.bits) - 1
    if not bool(((numbers >= 0) & (numbers <= largest) & (numbers == np.floor(numbers))).all()):
        return None
    integers = numbers.astype(np.uint8)
    return integers if quantized.known.dtype is DataType.UINT8 else from_bits(integers, quantized.known.dtype)


def _dequantized_with_float_zeros(
    node: Node, quantized: Value, scales: Value, zero_points: Value, block_size: int
) -> Value:
    """Return the weights for zero points that are floats: the products of integers and scales, less zero x scale."""
    ones = node.constant(np.ones(tuple(scales.known.shape), np.float32))
    floats = node.step(BlockDequantize(block_size, 1), quantized, ones)
    block_indices = node.constant(np.arange(floats.known.shape[1]) // block_size)
    spread = [
        node.step(Gather(1), node.cast(per_block, DataType.FLOAT32), block_indices)
        for per_block in (zero_points, scales)
    ]
    weights = node.step(Multiplication(), node.step(Subtraction(), floats, spread[0]), spread[1])
    return node.cast(weights, scales.known.dtype)


def _product(node: Node, a: Value, weights: Value, *, is_transposed: bool) -> Value:
    """Return the product of `a` and a matrix, which is transposed before if `is_transposed`."""
    weights = node.cast(weights, a.known.dtype)
    if a.known.rank < 2:
        return node.result(BatchMatMul(transpose_y=is_transposed), a, weights)
    return node.result(FullyConnected(transpose_weight_matrix=is_transposed, keep_dims=a.known.rank > 2), a, weights)


def _with_bias(node: Node, product: Value, bias: Value | None, n: int) -> Value:
    if bias is None:
        return product
    if bias.known.rank != 1 or differ(bias.known.shape[0], n):
        raise ParseError(f"its bias has shape {bias.known.shape}; expected {n} elements")
    return node.step(Addition(), product, bias)


# --- 4-bit floats -----------------------------------------------------------------------------------------------------


@operator("MatMulBnb4", domain=MICROSOFT)
def matmul_of_four_bit_floats(node: Node) -> Value:
    """Convert MatMulBnb4: the product with weights of the 4-bit types FP4 or NF4, in blocks of the flattened matrix."""
    k, n, kind, block_size = _positive(node, "K"), _positive(node, "N"), node.integer("quant_type"), block_size_of(node)
    if kind not in _TABLES:
        raise ParseError(f"quant_type is {kind}; expected 0 (FP4) or 1 (NF4)")
    a, is_transposed = node.value(0), node.flag("transB", True)
    _check_columns(a, k if is_transposed else n, "K" if is_transposed else "N")
    packed, count, blocks = _sized(node, 1, (-(-n * k // 2),)), n * k, -(-n * k // block_size)
    unscaled = _by_table(node, reshaped(node, packed, [-1]), _TABLES[kind], count)
    absmax = reshaped(node, _sized(node, 2, (blocks,)), [-1])
    scales = node.step(Gather(0), node.cast(absmax, DataType.FLOAT32), node.constant(np.arange(count) // block_size))
    weights = reshaped(node, node.step(Multiplication(), unscaled, scales), [n, k])
    return _product(node, a, weights, is_transposed=is_transposed)


def _by_table(node: Node, packed: Value, table: Sequence[float], count: int) -> Value:
    """Return the first `count` numbers of a table by 4-bit indices, of which each byte has two, the high bits first."""
    pairs = node.constant(np.array([(table[i >> 4], table[i & 15]) for i in range(256)], np.float32))
    entries = reshaped(node, node.step(Gather(0), pairs, node.cast(packed, DataType.INT32)), [-1])
    return entries if entries.known.shape[0] == count else node.step(Slice((0,), (count,)), entries)


@operator("MatMulFpQ4", domain=MICROSOFT)
def matmul_of_packed_blocks(node: Node) -> Value:
    """Convert MatMulFpQ4: the product with a constant that holds scales and 4-bit integers block by block."""
    kind, a = node.integer("blk_quant_type", 1), node.value(0)
    if kind not in (0, 1, 2):
        raise ParseError(f"blk_quant_type is {kind}; expected 0, 1 or 2")
    k, n = _matrix_shape(node)
    _check_columns(a, k, "B_shape")
    block_size, has_zero_points = 64 if kind == 2 else 32, kind == 1
    packed_weights = node.array(1, "weights")
    blocks, bytes_per_block = -(-k // block_size), 4 + has_zero_points + block_size // 2
    if packed_weights.dtype != np.uint8 or packed_weights.size != n * blocks * bytes_per_block:
        raise ParseError(
            f"its weights are {packed_weights.dtype}{list(packed_weights.shape)}; "
            f"expected {n * blocks * bytes_per_block} bytes"
        )
    packed_blocks = packed_weights.reshape(n, blocks, bytes_per_block)
    scales = np.ascontiguousarray(packed_blocks[:, :, :4]).view(np.float32).reshape(n, blocks)
    zero_points = packed_blocks[:, :, 4] if has_zero_points else np.full((n, blocks), 8, np.uint8)
    nibbles = packed_blocks[:, :, 4 + has_zero_points :].reshape(n, blocks, block_size // 32, 16)
    integers = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1).reshape(n, blocks * block_size)[:, :k]
    operands = [_constant_of_bits(node, integers, 4), node.constant(scales), _constant_of_bits(node, zero_points, 4)]
    return _product(node, a, node.step(BlockDequantize(block_size, 1), *operands), is_transposed=True)


def _matrix_shape(node: Node) -> tuple[int, int]:
    shape = node.integers_of(2, "B_shape")
    if len(shape) != 2 or not all(0 < size <= _LARGEST for size in shape):
        raise ParseError(f"its B_shape is {list(shape)}; expected the two dimensions of a matrix")
    return shape[0], shape[1]


# --- GatherBlockQuantized ---------------------------------------------------------------------------------------------


@operator("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(node: Node) -> Value:
    """Convert GatherBlockQuantized: select from a tensor of few bits with a scale for each block, and dequantize.

    Indices out of range select zeros.
    """
    data, bits = node.value(0), node.integer("bits", 4)
    if data.known.dtype.is_float:
        table = _scaled_floats(node)
    else:
        is_packed = data.known.dtype is DataType.UINT8
        if is_packed:
            _check_bytes(node, bits)
        table = _dequantized_table(
            node, unpacked_bits(node, data, bits) if is_packed else data, bits if is_packed else 0
        )
    axis = checked_axis(node.integer("gather_axis", 0), data.known.rank)
    return _gathered_or_zero(node, table, node.value(1), axis)


def _check_bytes(node: Node, bits: int) -> None:
    """Raise `ParseError` unless bytes with integers of `bits` bits have scales along their last axis."""
    rank = node.info(0).rank
    axis, gathered = node.integer("quantize_axis", 1), node.integer("gather_axis", 0)
    if bits not in (2, 4, 8):
        raise ParseError(f"bits is {bits}; expected 2, 4 or 8")
    if checked_axis(axis, rank) != rank - 1 or checked_axis(gathered, rank) != 0:
        raise ParseError(
            f"quantize_axis is {axis} and gather_axis {gathered}; expected the last and the first for bytes"
        )


def _dequantized_table(node: Node, quantized: Value, bits: int) -> Value:
    """Return integers with block scales dequantized; `bits` is the width of those in bytes, or 0 for 4-bit types."""
    scales, block_size, rank = node.value(2), block_size_of(node, 128), quantized.known.rank
    axis = checked_axis(node.integer("quantize_axis", 1), rank)
    zero_points = None
    if node.has(3):
        zero_points = node.value(3)
        if bits:
            zero_points = unpacked_bits(node, zero_points, bits)
            zero_points = _first_along(node, zero_points, scales.known.shape[-1])
    elif bits:
        shape = node.concrete(scales.known.shape, "scales")
        zero_points = _constant_of_bits(node, np.full(shape, 1 << bits - 1, np.uint8), bits)
    if zero_points is not None:
        zero_points = node.cast(zero_points, quantized.known.dtype)
    return node.step(BlockDequantize(block_size, axis, scales.known.dtype), quantized, scales, zero_points)


def _first_along(node: Node, tensor: Value, size: int) -> Value:
    """Return the first `size` elements along the last axis of a tensor."""
    shape = tensor.known.shape
    if not differ(shape[-1], size):
        return tensor
    return node.step(
        Slice((0,) * len(shape), (*[-1] * (len(shape) - 1), node.known(size, "scales' dimension"))), tensor
    )


def _scaled_floats(node: Node) -> Value:
    """Return narrow floats times their block scales; a block_size of 0 is one block for the whole axis."""
    weights, scales, block_size = node.value(0), node.value(2), node.integer("block_size", 128)
    if node.has(3):
        raise ParseError("it has zero points, but its data are floats")
    shape = node.concrete(weights.known.shape, "data")
    axis = checked_axis(node.integer("quantize_axis", 1), len(shape))
    floats = node.cast(weights, DataType.FLOAT32)
    block_indices = np.arange(shape[axis]) // (block_size_of(node) if block_size else max(1, shape[axis]))
    scale_per_element = node.step(Gather(axis), node.cast(scales, DataType.FLOAT32), node.constant(block_indices))
    return node.cast(node.step(Multiplication(), floats, scale_per_element), scales.known.dtype)


def _gathered_or_zero(node: Node, table: Value, indices: Value, axis: int) -> Value:
    """Return slices of `table` along `axis`; indices out of range select zeros."""
    size = node.known(table.known.shape[axis], "data's dimension")
    if indices.constant is not None and bool(((indices.constant >= -size) & (indices.constant < size)).all()):
        return node.result(Gather(axis), table, indices)
    not_below = node.step(GREATER_OR_EQUAL, indices, node.scalar_like(-size, indices))
    not_above = node.step(LESS, indices, node.scalar_like(size, indices))
    is_valid = node.step(LOGICAL_AND, not_below, not_above)
    safe_indices = node.step(Where(), is_valid, indices, node.scalar_like(0, indices))
    slices = node.step(Gather(axis), table, safe_indices)
    trailing_ones = [1] * (table.known.rank - 1 - axis)
    mask = (
        reshaped(node, is_valid, [*indices.known.shape, *trailing_ones], indices.known.rank)
        if trailing_ones
        else is_valid
    )
    return node.result(Where(), mask, slices, node.scalar_like(0, slices))

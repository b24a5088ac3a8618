"""ONNX converters for quantized operators and type conversions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.schema import Op
from interposer.core.types import (
    FLOATS,
    MAX_RANK,
    QUANTIZABLE,
    Array,
    DataType,
    Quantization,
    TensorInfo,
    differ,
    integer_range,
)
from interposer.frontends.axes import checked_axis
from interposer.frontends.elementwise import ABS, BITWISE_AND, IS_NAN, ROUND
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.tensors import data_type
from interposer.frontends.reshaping import final_reshape, reshaped
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.elementwise import Addition, Division, Multiplication, Subtraction, Where
from interposer.ops.gather import Gather
from interposer.ops.quantization import (
    Bitcast,
    BlockDequantize,
    Cast,
    Dequantize,
    DynamicQuantize,
    Quantize,
    RoundingMethod,
)

__all__ = ["along", "centered", "quantization", "real", "requantized", "with_quantization"]

_SATURATING: Final = {
    DataType.FLOAT8_E4M3FN: 448.0,
    DataType.FLOAT8_E4M3FNUZ: 240.0,
    DataType.FLOAT8_E5M2: 57344.0,
    DataType.FLOAT8_E5M2FNUZ: 57344.0,
}
_FINITE_ONLY: Final = frozenset({DataType.FLOAT6_E2M3FN, DataType.FLOAT6_E3M2FN, DataType.FLOAT4_E2M1FN})
_ROUND_MODES: Final = {"up": 0x7FFFFF, "down": 0, "nearest": 0x400000}
"""For each rounding mode, the number to add to the bits of a float32 before its significand is cleared."""
_OLD_NAMES: Final = {"FLOAT": "float32", "DOUBLE": "float64"}


@operator("Cast")
def cast_by_name(node: Node) -> Value:
    """Convert Cast before opset 6, with the type as a name."""
    name = node.text("to").upper()
    return node.result(Cast(DataType.of(_OLD_NAMES.get(name, name.lower()))), node.value(0))


@operator("Cast", since=6)
def cast(node: Node) -> Value:
    """Convert Cast, with the type as a number."""
    return _cast(node, data_type(node.integer("to")))


@operator("CastLike", since=15)
def cast_like(node: Node) -> Value:
    """Convert CastLike, with the type of the second operand."""
    return _cast(node, node.info(1).dtype)


def _cast(node: Node, dtype: DataType) -> Value:
    x, source_dtype = node.value(0), node.info(0).dtype
    if dtype is source_dtype:
        return x
    if DataType.STRING in (dtype, source_dtype):
        return node.result(Cast(dtype), x)
    if dtype is DataType.FLOAT8_E8M0FNU:
        x = _powers_of_two(node, node.cast(x, DataType.FLOAT32))
    elif dtype in _SATURATING and node.flag("saturate", True):
        x = _clamped(node, x if source_dtype in FLOATS else node.cast(x, DataType.FLOAT32), dtype)
    elif dtype.is_integer and dtype.bits < 8 and source_dtype.is_float:  # out of range, only the lowest bits count
        x = node.step(Cast(DataType.INT32), x)
    return node.result(Cast(dtype), x)


def _clamped(node: Node, x: Value, dtype: DataType) -> Value:
    """Return float values clamped to the largest finite values of the narrow float type `dtype`."""
    limit = _SATURATING[dtype]
    return node.step(Activation(ActivationFunction.BOUNDED_RELU, limit, -limit), x)


def _powers_of_two(node: Node, x: Value) -> Value:
    """Return the absolute values of a float32 tensor rounded to powers of two, for casts to float8e8m0.

    The attribute round_mode says in which direction. The bits of the significand are cleared after a constant is added.
    """
    mode = node.text("round_mode", "up")
    if mode not in _ROUND_MODES:
        raise ParseError(f"its round_mode is {mode!r}; expected {', '.join(_ROUND_MODES)}")
    bits = node.step(Bitcast(DataType.INT32), node.step(ABS, x))
    raised = node.step(Addition(), bits, node.scalar_like(_ROUND_MODES[mode], bits))
    exponents = node.step(BITWISE_AND, raised, node.scalar_like(0x7F800000, bits))
    is_nan = node.step(IS_NAN, x)
    rounded = node.step(Where(), is_nan, x, node.step(Bitcast(DataType.FLOAT32), exponents))
    if not node.flag("saturate", True):
        return rounded
    return node.step(Activation(ActivationFunction.BOUNDED_RELU, 2.0**127, 2.0**-127), rounded)


@operator("BitCast", since=26)
def bitcast(node: Node) -> Value:
    """Convert BitCast, between types of the same width."""
    return node.result(Bitcast(data_type(node.integer("to"))), node.value(0))


@operator("QuantizeLinear", since=10)
def quantize_linear(node: Node) -> Value:
    """Convert QuantizeLinear, which rounds half to even."""
    scale, zero_point = _scale_and_zero_point(node)
    type_number = node.integer("output_dtype", 0) if zero_point is None else 0
    named_type = data_type(type_number) if type_number else DataType.UINT8
    dtype = named_type if zero_point is None else zero_point.dtype
    is_divided = dtype in QUANTIZABLE and _division_type(node, scale) is DataType.FLOAT32
    q = _constant_quantization(node, scale, zero_point) if is_divided else None
    return _quantized_by_arithmetic(node, dtype) if q is None else requantized(node, node.value(0), dtype, q)


@operator("DequantizeLinear", since=10)
def dequantize_linear(node: Node) -> Value:
    """Convert DequantizeLinear; the result has the type of the scale."""
    scale, zero_point = _scale_and_zero_point(node)
    if zero_point is not None and zero_point.dtype is not node.dtype(0):
        raise ParseError(f"its zero point is {zero_point.dtype}, but it takes {node.dtype(0)}")
    type_number = node.integer("output_dtype", 0)
    dtype = data_type(type_number) if type_number else scale.dtype
    q = _constant_quantization(node, scale, zero_point)
    if q is not None:
        return _dequantized_by_constants(node, q, dtype)
    op = _block_dequantize(node, dtype)
    if op is not None and not op.violations(*_integers_with_scales(node)):
        return node.result(op, node.plain(node.value(0)), node.value(1), node.optional(2))
    return _dequantized_by_arithmetic(node, dtype)


def _dequantized_by_constants(node: Node, q: Quantization, dtype: DataType) -> Value:
    """Return the input dequantized to floats of type `dtype` with the quantization `q`.

    An initializer becomes a constant with this quantization at once.
    """
    array = node.unused_initializer(0)
    if array is None or node.dtype(0) not in QUANTIZABLE:
        return dequantized(node, node.value(0), q, dtype)
    return _dequantized(node, node.constant(array, q), dtype, node.name)


def _block_dequantize(node: Node, dtype: DataType) -> BlockDequantize | None:
    """Return the operator for integers with a scale for every block; None for other scales and for narrow floats."""
    block_size, rank = node.integer("block_size", 0), node.info(0).rank
    if block_size < 1 or not node.info(0).shape.is_concrete or dtype not in FLOATS:
        return None
    return BlockDequantize(block_size, checked_axis(node.integer("axis", 1), rank), dtype)


def _integers_with_scales(node: Node) -> tuple[TensorInfo, TensorInfo, TensorInfo | None]:
    return node.info(0).with_quantization(None), node.info(1), node.info(2) if node.has(2) else None


def _scale_and_zero_point(node: Node) -> tuple[TensorInfo, TensorInfo | None]:
    """Return the infos of the scale and of the zero point, None if that is absent, without adding constants."""
    return node.stored_info(1), node.stored_info(2) if node.has(2) else None


def _constant_quantization(node: Node, scale: TensorInfo, zero_point: TensorInfo | None) -> Quantization | None:
    """Return the quantization of which the node has scale and zero point as constants, per tensor or per channel.

    The result is None if they are not known or have blocks. Scales of 0, which some tools write for channels of zeros,
    give None too: arithmetic handles them. Equal operands of several nodes give the same object.
    """
    scales, zero_points = scale.constant, None if zero_point is None else zero_point.constant
    if scales is None or (zero_points is None and zero_point is not None) or node.integer("block_size", 0):
        return None
    shape = node.stored_info(0).shape
    key = id(scales), id(zero_points), node.integer("axis", 1), len(shape) if shape.is_ranked else None
    known_quantizations = node.importer.quantizations
    parameters = known_quantizations.get(key)
    if parameters is None:
        q = quantization(node, 1, shape.rank) if _are_positive(scales) else None
        parameters = known_quantizations[key] = scales, zero_points, q
    return parameters[-1]


def _are_positive(scales: Array) -> bool:
    """Return True if scales are positive, or if one is not finite, which a `Quantization` refuses."""
    if scales.size == 1:
        scale = float(scales.item())
        return scale > 0 or not math.isfinite(scale)
    wide_scales = scales.astype(np.float64)
    return bool((wide_scales > 0).all() or not np.isfinite(wide_scales).all())


def _quantized_by_arithmetic(node: Node, dtype: DataType) -> Value:
    """Return the tensor quantized to `dtype` by a division, an addition, a clamping and a cast.

    This is for scales computed at run time, block scales and narrow floats, which a Quantize layer does not support.
    """
    if dtype not in QUANTIZABLE | _SATURATING.keys() | _FINITE_ONLY:
        node.unsupported(f"it quantizes to {dtype}")
    x, scale, zero_point = _float_operands(node, _division_type(node, node.info(1)))
    scaled = node.step(Division(), x, scale)
    if dtype in QUANTIZABLE:  # float16 does not represent every 16-bit integer
        scaled = node.cast(node.step(ROUND, scaled), DataType.FLOAT32)
        zero_point = zero_point and node.cast(zero_point, DataType.FLOAT32)
    scaled = scaled if zero_point is None else node.step(Addition(), scaled, zero_point)
    if dtype in _SATURATING:
        scaled = _clamped(node, scaled, dtype) if node.flag("saturate", True) else scaled
    elif dtype in QUANTIZABLE:
        low, high = map(float, integer_range(dtype))
        scaled = node.step(Activation(ActivationFunction.BOUNDED_RELU, high, low), scaled)
    return _merged(node, Cast(dtype), scaled)


def _division_type(node: Node, scale: TensorInfo) -> DataType:
    """Return the type of the division: the attribute `precision`, or the scale's type since 23, float32 before."""
    type_number = node.integer("precision", 0)
    if type_number:
        dtype = data_type(type_number)
        if dtype not in FLOATS:
            raise ParseError(f"its precision is {dtype}; expected a type of float values")
        return dtype
    return scale.dtype if node.version >= 23 and scale.dtype in FLOATS else DataType.FLOAT32


def _dequantized_by_arithmetic(node: Node, dtype: DataType) -> Value:
    x, scale, zero_point = _float_operands(node, dtype)
    return _merged(node, Multiplication(), x if zero_point is None else node.step(Subtraction(), x, zero_point), scale)


def _float_operands(node: Node, dtype: DataType) -> tuple[Value, Value, Value | None]:
    """Return the operands tensor, scale and zero point (None if absent) as floats of type `dtype` that broadcast.

    With block scales, the tensor is reshaped so that each block has an axis of its own.
    """
    x, scale = (node.cast(node.plain(node.value(i)), dtype) for i in (0, 1))
    zero_point = node.cast(node.value(2), dtype) if node.has(2) else None
    axis = _axis_of_blocks(node)
    if axis is None:
        return x, _spread(node, scale), zero_point and _spread(node, zero_point)
    blocked_shape, scale_shape = list(scale.known.shape), list(scale.known.shape)
    blocked_shape.insert(axis + 1, node.integer("block_size"))
    scale_shape.insert(axis + 1, 1)
    return (
        reshaped(node, x, blocked_shape),
        reshaped(node, scale, scale_shape),
        zero_point and reshaped(node, zero_point, scale_shape),
    )


def _axis_of_blocks(node: Node) -> int | None:
    """Return the axis that block scales divide into equal blocks; None if there are none, or the sizes do not fit."""
    shape, scale_shape, size = node.info(0).shape, node.info(1).shape, node.integer("block_size", 0)
    if size < 1 or len(scale_shape) != len(shape) or len(shape) == MAX_RANK:
        return None
    axis = checked_axis(node.integer("axis", 1), len(shape))
    covered_sizes = [dimension * size if i == axis else dimension for i, dimension in enumerate(scale_shape)]
    return axis if shape.is_concrete and tuple(covered_sizes) == tuple(shape) else None


def _merged(node: Node, op: Op, *operands: Value) -> Value:
    """Add the last operator of the node on `operands`, and return its result in the shape of the node's input.

    If the operands have an additional axis for blocks of a block scale, it is merged into the axis before it.
    """
    if operands[0].known.rank == node.info(0).rank:
        return node.result(op, *operands)
    return final_reshape(node, node.step(op, *operands), node.info(0).shape)


def _spread(node: Node, numbers: Value) -> Value:
    """Return scales or zero points (one, one per channel, or one per block), reshaped to broadcast with the input.

    Block scales are repeated for every element of their block. `ParseError` is raised if the shape fits none of the
    three.
    """
    shape, block_size = node.info(0).shape, node.integer("block_size", 0)
    if numbers.known.num_elements == 1:
        return reshaped(node, numbers, [])
    axis = checked_axis(node.integer("axis", 1), len(shape))
    if numbers.known.rank == 1 and not block_size:
        return reshaped(node, numbers, [-1 if i == axis else 1 for i in range(len(shape))])
    does_not_fit = numbers.known.rank != len(shape) or block_size < 1
    block_indices = np.arange(
        0 if does_not_fit else node.known(shape[axis], "input's dimension along the blocks")
    ) // max(block_size, 1)
    if does_not_fit or differ(numbers.known.shape[axis], len(set(block_indices.tolist()))):
        raise ParseError(f"its scale has shape {numbers.known.shape}, its input {shape} and blocks of {block_size}")
    return node.step(Gather(axis), numbers, node.constant(block_indices))


def quantization(node: Node, index: int, rank: int, axis: int | None = None) -> Quantization:
    """Return the quantization that constant operands give to a tensor of rank `rank`.

    The scale is operand `index`, and the zero point the next one, by default 0. Several scales are along `axis`, by
    default the attribute axis.
    """
    scale = node.array(index, "scale")
    zero_point = node.array(index + 1, "zero point") if node.has(index + 1) else np.zeros(scale.shape, np.int64)
    if scale.size == zero_point.size == 1:
        return Quantization(float(scale.item()), int(zero_point.item()))
    if scale.shape != zero_point.shape:
        raise ParseError(f"its scale has shape {list(scale.shape)}, its zero point {list(zero_point.shape)}")
    if scale.ndim != 1:
        raise ParseError(f"its scale has shape {list(scale.shape)}; expected one number, or one for each channel")
    axis = node.integer("axis", 1) if axis is None else axis
    axis = axis if 0 <= axis < rank else checked_axis(axis, rank)
    return Quantization.of_arrays(scale.astype(np.float64), zero_point.astype(np.int64), axis)


def requantized(node: Node, floats: Value, dtype: DataType, q: Quantization) -> Value:
    """Return float values quantized to `dtype` with the quantization `q`, ties to even, as the node's own result."""
    if not floats.known.dtype.is_float:
        floats = node.step(Cast(DataType.FLOAT32), floats)
    info = TensorInfo(floats.known.shape, dtype, q)
    return node.importer.add_known(_quantize(dtype), (floats,), node.name, node.source, info, declared=True)


def _dequantized(node: Node, stored: Value, dtype: DataType, name: str) -> Value:
    """Return a quantized tensor, whose quantization is known, dequantized to floats by a layer with this name."""
    info = TensorInfo(stored.known.shape, dtype)
    return node.importer.add_known(_dequantize(dtype), (stored,), name, node.source, info)


@cache
def _quantize(dtype: DataType) -> Quantize:
    return Quantize(dtype, RoundingMethod.HALF_TO_EVEN)


@cache
def _dequantize(dtype: DataType) -> Dequantize:
    return Dequantize(dtype)


def with_quantization(node: Node, stored: Value, q: Quantization) -> Value:
    """Return the constant `stored` as a constant with the quantization `q`."""
    assert stored.constant is not None
    return stored if stored.known.quantization == q else node.constant(stored.constant, q)


def dequantized(node: Node, stored: Value, q: Quantization, dtype: DataType, *, final: bool = True) -> Value:
    """Return quantized values dequantized to floats of type `dtype`; `final` says that this is the node's own result.

    A constant, or a tensor that is known to have the quantization `q`, needs one operator. Other integers are converted
    with arithmetic, as their producer may use other scales.
    """
    if stored.constant is not None and stored.known.dtype in QUANTIZABLE:
        stored = with_quantization(node, stored, q)
    stored_quantization = stored.known.quantization
    if stored_quantization is q or stored_quantization == q:
        return _dequantized(node, stored, dtype, node.name if final else node.step_name(_dequantize(dtype)))
    if stored.known.dtype in QUANTIZABLE:
        stored = node.step(Cast(DataType.INT32), stored)
    if any(q.zero_points):
        zero_points = np.array(q.zero_points).astype(stored.known.dtype.numpy)
        stored = node.step(Subtraction(), stored, node.constant(_broadcast_array(q.axis, zero_points, stored)))
    scale = _broadcast_array(q.axis, np.array(q.scales), stored).astype(dtype.numpy)
    add_layer = node.result if final else node.step
    return add_layer(Multiplication(), node.step(Cast(dtype), stored), node.constant(scale))


def real(node: Node, stored: Value, q: Quantization) -> Value:
    """Return the integers `stored` dequantized with `q` to float32, as an intermediate result of the node."""
    return dequantized(node, stored, q, DataType.FLOAT32, final=False)


def centered(node: Node, stored: Value, zero_point: Value | None, axis: int = 0) -> Value:
    """Return `stored` as int32 with the zero point subtracted; a vector of zero points is along `axis`."""
    wide_values = node.step(Cast(DataType.INT32), stored)
    if zero_point is None:
        return wide_values
    broadcast_point = along(node, node.step(Cast(DataType.INT32), zero_point), stored, axis)
    return node.step(Subtraction(), wide_values, broadcast_point)


def along(node: Node, zero_point: Value | None, stored: Value, axis: int) -> Value | None:
    """Return zero points reshaped to broadcast with `stored`; a vector of them is along `axis`. None stays None."""
    if zero_point is None or zero_point.known.rank != 1:
        return zero_point
    if zero_point.known.num_elements == 1:
        return reshaped(node, zero_point, [])
    shape = [1] * stored.known.rank
    shape[checked_axis(axis, stored.known.rank)] = -1
    return reshaped(node, zero_point, shape)


def _broadcast_array(axis: int | None, numbers: Array, tensor: Value) -> Array:
    if axis is None:
        return numbers.reshape(())
    shape = [1] * tensor.known.rank
    shape[axis] = -1
    return numbers.reshape(shape)


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(node: Node) -> Sequence[Value]:
    """Convert DynamicQuantizeLinear: the range of the data, zero included, is divided into 255 steps."""
    return node.results(DynamicQuantize(), node.value(0))

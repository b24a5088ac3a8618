"""Quantized operators, and conversions between types."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.errors import ParseError
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.registry import operator
from interposer.frontends.onnx.shaping import checked_axis
from interposer.frontends.onnx.tensors import data_type
from interposer.ir.graph import Value
from interposer.ops.elementwise import Multiplication, Subtraction
from interposer.ops.quantization import Cast, Dequantize, Quantize, RoundingMethod
from interposer.types import QUANTIZABLE, Array, DataType, Quantization

__all__ = ["dequantized", "quantization", "requantized"]

_OLD_NAMES: Final = {"FLOAT": "float32", "DOUBLE": "float64"}


@operator("Cast")
def cast_by_name(node: Node) -> Value:
    """The type was given by its name."""
    name = node.text("to").upper()
    return node.add(Cast(DataType.of(_OLD_NAMES.get(name, name.lower()))), node.value(0))


@operator("Cast", since=6)
def cast(node: Node) -> Value:
    """The type is given by its number."""
    return _cast(node, data_type(node.integer("to")))


@operator("CastLike", since=15)
def cast_like(node: Node) -> Value:
    """The type is that of another value."""
    return _cast(node, node.info(1).dtype)


def _cast(node: Node, dtype: DataType) -> Value:
    if DataType.STRING in (dtype, node.info(0).dtype) and dtype is not node.info(0).dtype:
        node.unsupported("it converts to or from texts")
    return node.value(0) if dtype is node.info(0).dtype else node.add(Cast(dtype), node.value(0))


@operator("QuantizeLinear", since=10)
def quantize_linear(node: Node) -> Value:
    """Rounds half to even."""
    dtype = _quantized_type(node)
    q = quantization(node, 1, node.info(0).rank)
    return requantized(node, node.value(0), dtype, q)


def _quantized_type(node: Node) -> DataType:
    asked = node.integer("output_dtype", 0)
    dtype = node.info(2).dtype if node.has(2) else data_type(asked) if asked else DataType.UINT8
    if dtype not in QUANTIZABLE:
        node.unsupported(f"it quantizes to {dtype}")
    return dtype


@operator("DequantizeLinear", since=10)
def dequantize_linear(node: Node) -> Value:
    """The type of the result is that of the scale."""
    q = quantization(node, 1, node.info(0).rank)
    asked = node.integer("output_dtype", 0)
    return dequantized(node, node.value(0), q, data_type(asked) if asked else node.info(1).dtype)


def quantization(node: Node, index: int, rank: int, axis: int | None = None) -> Quantization:
    """What the scale at `index` and the zero point behind it, both constants, say of a tensor of this rank."""
    scale = node.array(index, "scale")
    zero_point = node.array(index + 1, "zero point") if node.has(index + 1) else np.zeros(scale.shape, np.int64)
    if node.integer("block_size", 0):
        node.unsupported("it has a scale for each block")
    if scale.shape != zero_point.shape and not scale.size == zero_point.size == 1:
        raise ParseError(f"its scale has shape {list(scale.shape)}, its zero point {list(zero_point.shape)}")
    scales, points = scale.astype(np.float64).reshape(-1).tolist(), zero_point.astype(np.int64).reshape(-1).tolist()
    if len(scales) == 1:
        return Quantization(scales[0], points[0])
    if scale.ndim != 1:
        raise ParseError(f"its scale has shape {list(scale.shape)}; expected one number, or one for each channel")
    return Quantization(scales, points, checked_axis(node.integer("axis", 1) if axis is None else axis, rank))


def requantized(node: Node, real: Value, dtype: DataType, q: Quantization) -> Value:
    """Real numbers as integers, as the node's own result."""
    if not real.known.dtype.is_float:
        real = node.step(Cast(DataType.FLOAT32), real)
    return node.add(Quantize(dtype, RoundingMethod.HALF_TO_EVEN), real, quantization=q)


def dequantized(node: Node, stored: Value, q: Quantization, dtype: DataType, final: bool = True) -> Value:
    """The real numbers that integers stand for.

    A tensor that is known to be quantized so, and a constant, need one operator; other integers are converted with
    arithmetic, as nothing says that their maker meant these scales.
    """
    make = node.add if final else node.step
    if stored.constant is not None and stored.known.dtype in QUANTIZABLE:
        stored = node.constant(stored.constant, q)
    if stored.known.quantization == q:
        return make(Dequantize(dtype), stored)
    if stored.known.dtype in QUANTIZABLE:
        stored = node.step(Cast(DataType.INT32), stored)
    if any(q.zero_points):
        stored = node.step(Subtraction(), stored, node.constant(_along(q, np.array(q.zero_points, np.int32), stored)))
    scale = _along(q, np.array(q.scales), stored).astype(dtype.numpy)
    return make(Multiplication(), node.step(Cast(dtype), stored), node.constant(scale))


def _along(q: Quantization, numbers: Array, value: Value) -> Array:
    if q.axis is None:
        return numbers.reshape(())
    shape = [1] * value.known.rank
    shape[q.axis] = -1
    return numbers.reshape(shape)

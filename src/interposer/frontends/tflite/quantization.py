"""TFLite converters for quantization and type conversion."""

from __future__ import annotations

import numpy as np

from interposer.core.types import DataType
from interposer.frontends.bits import reinterpreted
from interposer.frontends.tflite.blockwise import is_blockwise
from interposer.frontends.tflite.consistency import integer_range
from interposer.frontends.tflite.contents import packed_bits
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.elementwise import Maximum, Minimum
from interposer.ops.quantization import Cast, ConvertFp16ToFp32, Dequantize, FakeQuantization, Quantize

__all__: list[str] = []


@operator("QUANTIZE")
def quantize(node: Node) -> Value:
    """Convert QUANTIZE; scale and zero point are those of the output."""
    if node.output_info.quantization is None:
        node.fail("its output has no scale")
    stored_type = node.importer.stored_type(node.operator.outputs[0])
    x = _clamped(node, stored_type) if packed_bits(stored_type) else node.value(0)
    return node.result(Quantize(node.output_info.dtype), x)


def _clamped(node: Node, stored_type: str) -> Value:
    """Return the input clamped to the numbers that the type `stored_type` of 2 or 4 bits can represent.

    Layers have such types as integers of 8 bits, which would saturate later.
    """
    info, x = node.output_info, node.value(0)
    if not x.known.dtype.is_float or info.quantization is None or info.quantization.axis is not None:
        node.fail(f"its output is {stored_type}, which is only supported for a float input and one scale")
    low, high = ((bound - info.zero_point) * info.scale for bound in integer_range(stored_type))
    clamped_below = node.step(Maximum(), x, node.constant(np.asarray(low, x.known.dtype.numpy)))
    return node.step(Minimum(), clamped_below, node.constant(np.asarray(high, x.known.dtype.numpy)))


@operator("DEQUANTIZE")
def dequantize(node: Node) -> Value:
    """Convert DEQUANTIZE; constant weights (float16 or integers) are dequantized once, during the import."""
    x = node.value(0)
    if is_blockwise(x):
        return x if x.known.dtype is node.output_info.dtype else node.result(Cast(node.output_info.dtype), x)
    op = ConvertFp16ToFp32() if x.known.dtype is DataType.FLOAT16 else Dequantize(node.output_info.dtype)
    return node.result(op, x, fold=True)


@operator("DENSIFY")
def densify(node: Node) -> Value:
    """Convert DENSIFY, whose input is a sparse constant; the import makes all sparse constants dense."""
    if node.value(0).constant is None:
        node.fail("its input is no constant")
    return node.value(0)


@operator("FAKE_QUANT", options=True)
def fake_quantization(node: Node) -> Value:
    """Convert FAKE_QUANT, which rounds to the values that a quantized tensor can represent."""
    options = node.options
    return node.result(
        FakeQuantization(options["min"], options["max"], options["num_bits"], options["narrow_range"]), node.value(0)
    )


@operator("CAST")
def cast(node: Node) -> Value:
    """Convert CAST to the type of the output."""
    return node.result(Cast(node.output_info.dtype), node.value(0))


@operator("BITCAST")
def bitcast(node: Node) -> Value:
    """Convert BITCAST to the type of the output."""
    stored_types = [node.importer.stored_type(index) for index in (node.operator.inputs[0], node.operator.outputs[0])]
    if any(map(packed_bits, stored_types)):
        node.unsupported(f"it makes {stored_types[1]} of {stored_types[0]}")
    return reinterpreted(node, node.value(0), node.output_info.dtype)

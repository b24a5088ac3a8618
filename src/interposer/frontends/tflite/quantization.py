"""TFLite converters for quantization and type conversion."""

from __future__ import annotations

from interposer.core.types import DataType
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.quantization import Bitcast, Cast, ConvertFp16ToFp32, Dequantize, FakeQuantization, Quantize

__all__: list[str] = []


@operator("QUANTIZE")
def quantize(node: Node) -> list[Value]:
    """Convert QUANTIZE; scale and zero point are those of the output."""
    if node.output_info.quantization is None:
        node.fail("its output has no scale")
    return node.result(Quantize(node.output_info.dtype), node.input(0))


@operator("DEQUANTIZE")
def dequantize(node: Node) -> list[Value]:
    """Convert DEQUANTIZE; constant weights (float16 or integers) are dequantized once, during the import."""
    x = node.input(0)
    op = ConvertFp16ToFp32() if x.known.dtype is DataType.FLOAT16 else Dequantize(node.output_info.dtype)
    return node.result(op, x, fold=True)


@operator("DENSIFY")
def densify(node: Node) -> list[Value]:
    """Convert DENSIFY, whose input is a sparse constant; the import makes all sparse constants dense."""
    if node.input(0).constant is None:
        node.fail("its input is no constant")
    return [node.input(0)]


@operator("FAKE_QUANT", options=True)
def fake_quantization(node: Node) -> list[Value]:
    """Convert FAKE_QUANT, which rounds to the values that a quantized tensor can represent."""
    o = node.options
    return node.result(FakeQuantization(o["min"], o["max"], o["num_bits"], o["narrow_range"]), node.input(0))


@operator("CAST")
def cast(node: Node) -> list[Value]:
    """Convert CAST to the type of the output."""
    return node.result(Cast(node.output_info.dtype), node.input(0))


@operator("BITCAST")
def bitcast(node: Node) -> list[Value]:
    """Convert BITCAST to the type of the output, which must have the same width."""
    return node.result(Bitcast(node.output_info.dtype), node.input(0))

"""Converters of layers that change the type of elements."""

from __future__ import annotations

from interposer.core.types import DataType
from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.ir.graph import Value
from interposer.ops.quantization import Cast, Dequantize, Quantize

__all__: list[str] = []


@layer("Quantize")
def quantize(node: Node) -> list[Value]:
    """Convert Quantize, whose type, scale and offset are those of its output slot."""
    return node.result(Quantize(node.infos[0].dtype), node.input())


@layer("Dequantize")
def dequantize(node: Node) -> list[Value]:
    """Convert Dequantize; floats are only converted to another type."""
    x, dtype = node.input(), node.infos[0].dtype
    return node.result(Dequantize(dtype) if x.known.is_quantized else Cast(dtype), x)


@layer("Cast")
def cast(node: Node) -> list[Value]:
    """Convert Cast, which converts the real values of quantized tensors."""
    x, info = node.input(), node.infos[0]
    if x.known.is_quantized and not info.is_quantized:
        real = node.add(Dequantize(), x)
        return [node.given(real)] if info.dtype is real.known.dtype else node.result(Cast(info.dtype), real)
    if not info.is_quantized:
        return node.result(Cast(info.dtype), x)
    if not x.known.is_quantized and not x.known.dtype.is_float:
        x = node.add(Cast(DataType.FLOAT32), x)
    return node.result(Quantize(info.dtype), x)

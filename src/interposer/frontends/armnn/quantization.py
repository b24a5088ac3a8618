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
    return node.results(Quantize(node.infos[0].dtype), node.value(0))


@layer("Dequantize")
def dequantize(node: Node) -> list[Value]:
    """Convert Dequantize; floats are only converted to another type."""
    x, dtype = node.value(0), node.infos[0].dtype
    return node.results(Dequantize(dtype) if x.known.is_quantized else Cast(dtype), x)


@layer("Cast")
def cast(node: Node) -> list[Value]:
    """Convert Cast, which converts the real values of quantized tensors."""
    x, info = node.value(0), node.infos[0]
    if x.known.is_quantized and not info.is_quantized:
        real = node.step(Dequantize(), x)
        return [node.given(real)] if info.dtype is real.known.dtype else node.results(Cast(info.dtype), real)
    if not info.is_quantized:
        return node.results(Cast(info.dtype), x)
    if not x.known.is_quantized and not x.known.dtype.is_float:
        x = node.step(Cast(DataType.FLOAT32), x)
    return node.results(Quantize(info.dtype), x)

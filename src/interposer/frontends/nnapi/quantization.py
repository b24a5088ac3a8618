"""NNAPI converters for quantization and type conversion."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.types import DataType
from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value
from interposer.ops.elementwise import Maximum, Minimum
from interposer.ops.quantization import Cast, Dequantize, Quantize

__all__: list[str] = []

_CODES: Final = {DataType.UINT8: (0, 255), DataType.INT8: (-128, 127)}


@operator("QUANTIZE", inputs=1)
def quantize(node: Node) -> list[Value]:
    """Convert QUANTIZE; scale and zero point are those of the output."""
    return node.results(Quantize(node.outputs[0].dtype), node.value(0))


@operator("DEQUANTIZE", inputs=1)
def dequantize(node: Node) -> list[Value]:
    """Convert DEQUANTIZE to the type of the output."""
    return node.results(Dequantize(node.outputs[0].dtype), node.value(0))


@operator("CAST", inputs=1)
def cast(node: Node) -> list[Value]:
    """Convert CAST; quantized values are cast as plain integers, and values too large for 8 bits are clamped."""
    x, dtype = node.value(0), node.outputs[0].dtype
    limits = _CODES.get(dtype)
    if x.known.dtype is DataType.INT32 and limits is not None:
        low, high = (node.constant(np.array(limit, np.int32)) for limit in limits)
        x = node.step(Minimum(), node.step(Maximum(), x, low), high)
    return node.results(Cast(dtype), x)

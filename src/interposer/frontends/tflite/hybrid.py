"""Hybrid operators, which have float activations and quantized weights.

LiteRT quantizes the activations to 8 bits before it multiplies them, with a scale for each row or image. A
DynamicFakeQuantization layer rounds them in the same way; the product is then computed in float.
"""

from __future__ import annotations

import numpy as np

from interposer.core.types import DataType, Quantization
from interposer.frontends.tflite.blockwise import is_blockwise
from interposer.frontends.tflite.node import Node
from interposer.ir.graph import Value
from interposer.ops.quantization import Dequantize, DynamicFakeQuantization

__all__ = ["float_weights", "is_hybrid", "rounded", "signed"]


def is_hybrid(x: Value, weights: Value) -> bool:
    """Return True if the activations `x` are float and the weights are quantized."""
    return x.known.dtype.is_float and (weights.known.is_quantized or is_blockwise(weights))


def rounded(node: Node, x: Value, axes: tuple[int, ...], *, asymmetric: bool) -> Value:
    """Return the activations `x` of a hybrid operator, rounded to 8 bits; elements along `axes` share a scale."""
    return node.step(DynamicFakeQuantization(axes, asymmetric), x)


def float_weights(node: Node, index: int, x: Value, *, rank: int | None = None, fold: bool = True) -> Value:
    """Return the weights of an operator, dequantized if the activations `x` are float and the weights are quantized.

    Without `fold`, a layer dequantizes constants, so that backends may compute with quantized weights.
    """
    weights = node.value(index, rank=rank)
    if not is_hybrid(x, weights) or is_blockwise(weights):
        return weights
    return node.step(Dequantize(x.known.dtype), signed(node, weights), fold=fold)


def signed(node: Node, weights: Value) -> Value:
    """Return the quantized weights of a hybrid operator, with the bits of uint8 constants read as int8.

    Old converters stored symmetric int8 weights with the type uint8. LiteRT's hybrid kernels read both as int8.
    """
    info = weights.known
    if info.dtype is not DataType.UINT8 or info.quantization is None or weights.constant is None:
        return weights
    symmetric_quantization = Quantization(info.quantization.scales, 0, info.quantization.axis)
    array = np.ascontiguousarray(weights.constant).view(np.int8)
    return node.constant(array, symmetric_quantization)

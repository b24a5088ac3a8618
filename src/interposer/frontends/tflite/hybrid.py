"""Weights of hybrid operators, which have float activations and quantized weights."""

from __future__ import annotations

import numpy as np

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.frontends.tflite.node import Node
from interposer.ir.graph import Value
from interposer.ops.quantization import Dequantize

__all__ = ["float_weights", "signed"]


def float_weights(node: Node, index: int, x: Value, *, rank: int | None = None, fold: bool = True) -> Value:
    """Return the weights of an operator, dequantized if the activations `x` are float and the weights are quantized.

    Without `fold`, a layer dequantizes constants, so that backends may compute with quantized weights.
    """
    weights = node.input(index, rank=rank)
    if x.known.is_quantized or not x.known.dtype.is_float or not weights.known.is_quantized:
        return weights
    return node.add(Dequantize(x.known.dtype), signed(node, weights), fold=fold)


def signed(node: Node, weights: Value) -> Value:
    """Return the quantized weights of a hybrid operator, with the bits of uint8 constants read as int8.

    Old converters stored symmetric int8 weights with the type uint8. LiteRT's hybrid kernels read both as int8.
    """
    info = weights.known
    if info.dtype is not DataType.UINT8 or info.quantization is None or weights.constant is None:
        return weights
    symmetric = Quantization(info.quantization.scales, 0, info.quantization.axis)
    array = np.ascontiguousarray(weights.constant).view(np.int8)
    return node.constant(array, TensorInfo(info.shape, DataType.INT8, symmetric))

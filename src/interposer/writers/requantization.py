"""Layers whose quantized results are rounded half to even, for formats that round them in fixed point."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from interposer.core.traits import Role
from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ops import (
    Activation,
    BatchMatMul,
    Convolution2d,
    Convolution3d,
    DepthwiseConvolution2d,
    ElementwiseBinary,
    FullyConnected,
    Mean,
    Pooling2d,
    Reduce,
    Requantization,
    TransposeConvolution2d,
)
from interposer.rewriting.pattern import New, Replacement, constant, rewrite

__all__ = ["requantize_in_fixed_point"]

_ROUNDING: Final = (
    Activation, BatchMatMul, Convolution2d, Convolution3d, DepthwiseConvolution2d, ElementwiseBinary, FullyConnected,
    Mean, Pooling2d, Reduce, TransposeConvolution2d,
)  # fmt: skip


@rewrite(*_ROUNDING)
def requantize_in_fixed_point(op: Any, layer: Layer) -> Replacement:
    """Replace a layer that rounds half to even by one that rounds in fixed point; results may differ by one step.

    A constant bias of floats becomes integers in steps of the products. It stays as it is if it is not constant or does
    not fit into the integers.
    """
    if op.requantization is Requantization.FIXED_POINT:
        return None
    operands: list[Value | New | None] = list(layer.inputs)
    for index in op.inputs_of(Role.BIAS, len(operands)):
        operands[index] = _integer_bias(layer, index)
    return New(op.replace(requantization=Requantization.FIXED_POINT), operands, info=layer.output.known, like=layer)


def _integer_bias(layer: Layer, index: int) -> Value | New | None:
    bias, (x, weights) = layer.inputs[index], (value.known for value in layer.values[:2])
    if bias is None or bias.constant is None or not bias.known.dtype.is_float:
        return bias
    steps = _steps(x, weights)
    dtype = np.dtype(np.int64 if x.dtype is DataType.INT16 else np.int32)
    integers = None if steps is None else _rounded(bias.constant, steps, dtype)
    return bias if integers is None else constant(integers, steps, name=bias.name)


def _steps(x: TensorInfo, weights: TensorInfo) -> Quantization | None:
    if x.quantization is None or weights.quantization is None:
        return None
    products = [float(np.float32(x.scale)) * float(np.float32(scale)) for scale in weights.quantization.scales]
    return Quantization(products, 0, 0 if weights.quantization.per_axis else None)


def _rounded(bias: Array, steps: Quantization, dtype: np.dtype[Any]) -> Array | None:
    """Return the bias in these steps as integers; None if one of them does not fit."""
    integers = np.rint(bias.astype(np.float64) / np.asarray(steps.scales))
    fits = np.isfinite(integers).all() and np.abs(integers).max(initial=0) <= np.iinfo(dtype).max
    return integers.astype(dtype) if fits else None

"""Kernels of 3D pooling; maxima and sums are computed one axis after the other."""

from __future__ import annotations

from functools import reduce

import numpy as np

from interposer.core.types import FLOATS, Array, DataType, Quantization
from interposer.kernels.accumulation import NUMBERS
from interposer.kernels.fixedpoint import dequantize, limits, quantize, rescale
from interposer.kernels.layout import from_nhwc, to_nhwc
from interposer.kernels.pooling_rules import EIGHT_OR_SIXTEEN_BITS, floats_or_max, one_scale
from interposer.kernels.reference import kernel
from interposer.kernels.sliding import covered, slide
from interposer.kernels.table import KernelInfo
from interposer.ops.pooling import PaddingMethod, PoolingAlgorithm
from interposer.ops.pooling3d import Pooling3d
from interposer.ops.volume import spatial_axes

__all__: list[str] = []


@kernel(Pooling3d, quantized=False, dtypes=NUMBERS, when=floats_or_max)
def pooling3d(op: Pooling3d, x: Array, *, info: KernelInfo) -> Array:
    """Compute `Pooling3d` of unquantized tensors; sums are computed in float64 and rounded once."""
    pooled = _largest(op, x, info) if op.pool_type is PoolingAlgorithm.MAX else _mean(op, x, info)
    return from_nhwc(pooled, op.data_layout)


@kernel(Pooling3d, quantized=True, dtypes=EIGHT_OR_SIXTEEN_BITS, when=one_scale)
def pooling3d_quantized(op: Pooling3d, x: Array, *, info: KernelInfo) -> Array:
    """Compute `Pooling3d` of quantized tensors: MAX on quantized values, AVERAGE and L2 on float values."""
    input_quantization, output_quantization = (
        tensor.quantization or Quantization(1.0) for tensor in (info.input, info.output)
    )
    if op.pool_type is PoolingAlgorithm.MAX:
        pooled = rescale(_largest(op, x, info), input_quantization, output_quantization, info.output.dtype)
    else:
        pooled = quantize(_mean(op, dequantize(x, input_quantization), info), output_quantization, info.output.dtype)
    return from_nhwc(pooled, op.data_layout)


def _largest(op: Pooling3d, x: Array, info: KernelInfo) -> Array:
    """Return the largest element of each window, (N, OD, OH, OW, C); the zero point for a window of padding only."""
    dtype = info.input.dtype
    if dtype in FLOATS:
        maxima = _reduced_windows(op, x.astype(np.float64), info, np.maximum, -np.inf)
    else:
        wide_values = x.astype(np.uint64 if dtype is DataType.UINT64 else np.int64)
        maxima = _reduced_windows(op, wide_values, info, np.maximum, limits(dtype)[0])
    return np.where(_count(op, info, padding=False) > 0, maxima, info.input.zero_point)


def _mean(op: Pooling3d, x: Array, info: KernelInfo) -> Array:
    """Return the mean of each window, or for L2 the root of the mean square, as (N, OD, OH, OW, C)."""
    power = 2 if op.pool_type is PoolingAlgorithm.L2 else 1
    sums = _reduced_windows(op, x.astype(np.float64) ** power, info, np.add, 0)
    mean: Array = sums / np.maximum(_count(op, info, padding=op.padding_method is PaddingMethod.IGNORE_VALUE), 1)
    return np.sqrt(mean) if power == 2 else mean


def _reduced_windows(op: Pooling3d, x: Array, info: KernelInfo, combine: np.ufunc, initial: float) -> Array:
    axes = spatial_axes(op.data_layout)
    windows = op.windows(*(x.shape[axis] for axis in axes))
    volume = x
    for axis, window in zip(axes, windows, strict=True):
        volume = slide(volume, axis, window, info.output.shape[axis], combine, initial)
    return to_nhwc(volume, op.data_layout)


def _count(op: Pooling3d, info: KernelInfo, *, padding: bool) -> Array:
    """Return the number of cells of each window that are in the volume, (OD, OH, OW, 1).

    With `padding`, cells that are in the padding are counted too.
    """
    axes = spatial_axes(op.data_layout)
    sizes = [info.input.shape[axis] for axis in axes]
    counts = []
    for axis, size, window in zip(axes, sizes, op.windows(*sizes), strict=True):
        counts.append(covered(window, size, info.output.shape[axis], padding=padding))
    return reduce(np.multiply.outer, counts)[..., np.newaxis]

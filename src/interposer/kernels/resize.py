"""Kernels of the operators that resize images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import FLOATS, INTEGERS, Array, DataType, Quantization
from interposer.kernels.fixedpoint import dequantize, quantize, rescale, round_half_away
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.resize import Resize, ResizeMethod

__all__ = ["Neighbours", "nearest_pixels"]


class Neighbours(NamedTuple):
    """For each output pixel along an axis: the two input pixels around it, and the weight of the second one.

    The weights are floats, or integers in steps of 1/1024.
    """

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    weight: Array


def _bilinear(op: Resize, info: KernelInfo) -> str | None:
    return None if op.method is ResizeMethod.BILINEAR else "is for BILINEAR"


def _nearest(op: Resize, info: KernelInfo) -> str | None:
    nearest = op.method is ResizeMethod.NEAREST_NEIGHBOR
    return None if nearest else f"input is {info.input.dtype}; BILINEAR takes floats and integers"


def _scale(op: Resize, size: int, target_size: int) -> np.float32:
    if op.align_corners and target_size > 1:
        return np.float32(size - 1) / np.float32(target_size - 1)
    return np.float32(size) / np.float32(target_size)


def _target_sizes(op: Resize) -> tuple[tuple[int, int], tuple[int, int]]:
    height, width, _ = op.data_layout.axes()
    return (height, op.target_height), (width, op.target_width)


def nearest_pixels(op: Resize, size: int, target_size: int) -> NDArray[np.int64]:
    """Return the nearest input pixel of each of `target_size` output pixels along an axis of `size` input pixels.

    Positions are computed in float32, as TFLite's reference does.
    """
    offset = np.float32(0.5 if op.half_pixel_centers else 0)
    positions = (np.arange(target_size, dtype=np.float32) + offset) * _scale(op, size, target_size)
    nearest = round_half_away(positions) if op.align_corners else np.floor(positions)
    return np.clip(nearest.astype(np.int64), 0, size - 1)


@kernel(Resize, when=_nearest)
def resize_nearest(op: Resize, x: Array, *, info: KernelInfo) -> Array:
    """Compute `Resize` with NEAREST_NEIGHBOR for any type, by indexing rows and columns."""
    for axis, target_size in _target_sizes(op):
        x = x.take(nearest_pixels(op, x.shape[axis], target_size), axis)
    scales = _two_scales(info)
    return x if scales is None else rescale(x, *scales, info.output.dtype)


@kernel(Resize, dtypes=FLOATS | {DataType.UINT8}, when=_bilinear)
def resize_bilinear(op: Resize, x: Array, *, info: KernelInfo) -> Array:
    """Compute `Resize` with BILINEAR in float32 (float64 for float64), also for uint8, as TFLite's reference does.

    TFLite requires the same quantization of input and output. With another one, float values are interpolated.
    """
    scales = _two_scales(info)
    if scales is not None:
        return quantize(_interpolated(op, dequantize(x, scales[0])), scales[1], info.output.dtype)
    blended = _interpolated(op, x)
    return blended if x.dtype != np.uint8 else (blended + np.float32(0.5)).astype(np.uint8)


def _two_scales(info: KernelInfo) -> tuple[Quantization, Quantization] | None:
    """Return the quantizations of input and output if both are quantized and these differ, else None."""
    source, target = info.input.quantization, info.output.quantization
    return None if source is None or target is None or source == target else (source, target)


def _interpolated(op: Resize, x: Array) -> Array:
    floats = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    rows, columns = (_float_neighbours(op, x.shape[axis], target_size) for axis, target_size in _target_sizes(op))
    return _blended(op, floats, rows, columns, floats.dtype.type(1))


def _float_neighbours(op: Resize, size: int, target_size: int) -> Neighbours:
    positions = np.arange(target_size, dtype=np.float32) * _scale(op, size, target_size)
    if op.half_pixel_centers:
        positions = (np.arange(target_size, dtype=np.float32) + np.float32(0.5)) * _scale(
            op, size, target_size
        ) - np.float32(0.5)
    low = np.clip(np.floor(positions).astype(np.int64), 0, size - 1)
    high = np.clip(np.ceil(positions).astype(np.int64), 0, size - 1)
    return Neighbours(low, high, positions - low.astype(np.float32))


@kernel(Resize, dtypes=INTEGERS - {DataType.UINT8}, when=_bilinear)
def resize_bilinear_integer(op: Resize, x: Array, *, info: KernelInfo) -> Array:
    """Compute `Resize` with BILINEAR in integers with 10-bit weights, rounded half away from zero, as TFLite does.

    TFLite requires the same quantization of input and output. With another one, float values are interpolated.
    """
    scales = _two_scales(info)
    if scales is not None:
        return quantize(_interpolated(op, dequantize(x, scales[0])), scales[1], info.output.dtype)
    rows, columns = (_fixed_point_neighbours(op, x.shape[axis], target_size) for axis, target_size in _target_sizes(op))
    blended = _blended(op, x.astype(np.int64), rows, columns, np.int64(1 << 10))
    magnitude = (np.abs(blended) + (1 << 19)) >> 20
    return np.where(blended > 0, magnitude, -magnitude).astype(x.dtype)


def _fixed_point_neighbours(op: Resize, size: int, target_size: int) -> Neighbours:
    numerator, denominator = (
        (size - 1, target_size - 1) if op.align_corners and target_size > 1 else (size, target_size)
    )
    scale = ((1 << 10) * numerator + denominator // 2) // denominator
    positions = np.arange(target_size, dtype=np.int64) * scale
    if op.half_pixel_centers:
        positions += scale // 2 - (1 << 9)
    low = np.clip(positions >> 10, 0, size - 1)
    high = np.clip((positions + (1 << 10) - 1) >> 10, 0, size - 1)
    return Neighbours(low, high, positions - (low << 10))


def _blended(op: Resize, x: Array, rows: Neighbours, columns: Neighbours, one: np.generic) -> Array:
    """Return the weighted sum of the four neighbouring pixels, added in TFLite's order.

    The weights of `rows` and `columns` are in units in which `one` stands for 1.
    """
    (height, _), (width, _) = _target_sizes(op)
    row_weight = np.expand_dims(rows.weight.astype(x.dtype), [axis for axis in range(x.ndim) if axis != height])
    column_weight = np.expand_dims(columns.weight.astype(x.dtype), [axis for axis in range(x.ndim) if axis != width])
    upper, lower = x.take(rows.low, height), x.take(rows.high, height)
    blended: Array = upper.take(columns.low, width) * (one - row_weight) * (one - column_weight)
    blended += lower.take(columns.low, width) * row_weight * (one - column_weight)
    blended += upper.take(columns.high, width) * (one - row_weight) * column_weight
    blended += lower.take(columns.high, width) * row_weight * column_weight
    return blended

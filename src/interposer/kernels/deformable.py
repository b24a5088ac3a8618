"""Deformable convolution kernel."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from interposer.core.types import Array
from interposer.kernels.real import real
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.deformable import DeformableConvolution2d

__all__: list[str] = []


@kernel(DeformableConvolution2d)
def deformable_convolution(
    op: DeformableConvolution2d, x: Array, weights: Array, offset: Array, bias: Array | None, mask: Array | None, *,
    info: KernelInfo,
) -> Array:  # fmt: skip
    """Compute `DeformableConvolution2d`: gather the samples of all weights, then sum by a matrix product."""
    n, _, height, width = info.output.shape
    samples = _samples(op, real(x, info.input), real(offset, info.input), weights.shape[2:])
    if mask is not None:
        samples *= real(mask, info.input).reshape(n, op.offset_groups, 1, *weights.shape[2:], height, width)
    size = math.prod(weights.shape[1:])
    grouped_samples = samples.reshape(n, op.groups, size, height * width)
    filters = real(weights, info.input).reshape(op.groups, weights.shape[0] // op.groups, size)
    sums: Array = (filters @ grouped_samples).reshape(info.output.shape)
    return sums if bias is None else sums + real(bias, info.input).reshape(-1, 1, 1)


def _samples(op: DeformableConvolution2d, x: Array, offset: Array, window: tuple[int, ...]) -> Array:
    """Return the interpolated image at the sampling positions of all weights, as (N, D, I / D, KH, KW, OH, OW).

    `x` is (N, I, H, W), D is the number of offset groups, and `window` is (KH, KW). A pixel of weight 0 does not count,
    even if it is infinite.
    """
    n, channels, *image_size = x.shape
    output_size = offset.shape[2:]
    axis_offsets = np.moveaxis(offset.reshape(n, op.offset_groups, *window, 2, *output_size), 4, 0)
    positions = [_axis_positions(op, axis, window, output_size) + axis_offsets[axis] for axis in (0, 1)]
    groups = x.reshape(n, op.offset_groups, channels // op.offset_groups, *image_size)
    neighbors = [_neighbors(axis_positions, size) for axis_positions, size in zip(positions, image_size, strict=True)]
    sums = np.zeros((*groups.shape[:3], *window, *output_size), x.dtype)
    image_index, group_index = np.ogrid[:n, : op.offset_groups]
    leading_indices = (image_index.reshape(n, 1, 1, 1, 1, 1), group_index.reshape(1, -1, 1, 1, 1, 1))
    for (row, row_weight), (column, column_weight) in product(*neighbors) if x.size else ():
        pixels = np.moveaxis(groups, 2, -1)[(*leading_indices, row, column)]
        weights = (row_weight * column_weight)[:, :, np.newaxis]
        sums += np.multiply(np.moveaxis(pixels, -1, 2), weights, where=weights != 0, out=np.zeros_like(sums))
    return sums


def _axis_positions(
    op: DeformableConvolution2d, axis: int, window: tuple[int, ...], output_size: tuple[int, ...]
) -> Array:
    """Return the sampling positions without offsets along an axis, an array that broadcasts to (KH, KW, OH, OW).

    Axis 0 is the height, axis 1 the width. `window` is (KH, KW), and `output_size` is (OH, OW).
    """
    axis_window = op.windows(*window)[axis]
    taps, steps = np.arange(window[axis]) * axis_window.dilation, np.arange(output_size[axis]) * axis_window.stride
    positions = taps[:, np.newaxis] + steps - axis_window.pad_before
    return positions[:, np.newaxis, :, np.newaxis] if axis == 0 else positions[np.newaxis, :, np.newaxis, :]


def _neighbors(positions: Array, size: int) -> list[tuple[Array, Array]]:
    """Return the pixels below and above positions along an axis, each with its weight for the interpolation.

    The weights are 0 outside the image, which has `size` pixels along the axis.
    """
    low = np.floor(positions)
    neighbors = []
    for pixel, weight in ((low, 1 - (positions - low)), (low + 1, positions - low)):
        is_inside = (pixel >= 0) & (pixel < size)
        index = np.clip(np.where(is_inside, pixel, 0), 0, max(size - 1, 0)).astype(np.int64)
        neighbors.append((index, np.where(is_inside, weight, 0)))
    return neighbors

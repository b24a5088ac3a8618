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
    seen = _seen(op, real(x, info.input), real(offset, info.input), weights.shape[2:])
    if mask is not None:
        seen *= real(mask, info.input).reshape(n, op.offset_groups, 1, *weights.shape[2:], height, width)
    size = math.prod(weights.shape[1:])
    columns = seen.reshape(n, op.groups, size, height * width)
    filters = real(weights, info.input).reshape(op.groups, weights.shape[0] // op.groups, size)
    sums: Array = (filters @ columns).reshape(info.output.shape)
    return sums if bias is None else sums + real(bias, info.input).reshape(-1, 1, 1)


def _seen(op: DeformableConvolution2d, x: Array, offset: Array, window: tuple[int, ...]) -> Array:
    """Return the interpolated image at the sampling positions of all weights, as (N, D, I / D, KH, KW, OH, OW).

    `x` is (N, I, H, W), D is the number of offset groups, and `window` is (KH, KW).
    """
    n, channels, *image = x.shape
    places = offset.shape[2:]
    moves = np.moveaxis(offset.reshape(n, op.offset_groups, *window, 2, *places), 4, 0)
    at = [_start(op, axis, window, places) + moves[axis] for axis in (0, 1)]
    groups = x.reshape(n, op.offset_groups, channels // op.offset_groups, *image)
    corners = [_corners(place, size) for place, size in zip(at, image, strict=True)]
    total = np.zeros((*groups.shape[:3], *window, *places), x.dtype)
    sample, group = np.ogrid[:n, : op.offset_groups]
    first = (sample.reshape(n, 1, 1, 1, 1, 1), group.reshape(1, -1, 1, 1, 1, 1))
    for (row, down), (column, across) in product(*corners) if x.size else ():
        picked = np.moveaxis(groups, 2, -1)[(*first, row, column)]
        total += np.moveaxis(picked, -1, 2) * (down * across)[:, :, np.newaxis]
    return total


def _start(op: DeformableConvolution2d, axis: int, window: tuple[int, ...], places: tuple[int, ...]) -> Array:
    """Return the sampling positions without offsets along an axis, an array that broadcasts to (KH, KW, OH, OW).

    Axis 0 is the height, axis 1 the width. `window` is (KH, KW), and `places` is (OH, OW).
    """
    moving = op.windows(*window)[axis]
    taps, steps = np.arange(window[axis]) * moving.dilation, np.arange(places[axis]) * moving.stride
    at = taps[:, np.newaxis] + steps - moving.pad_before
    return at[:, np.newaxis, :, np.newaxis] if axis == 0 else at[np.newaxis, :, np.newaxis, :]


def _corners(at: Array, size: int) -> list[tuple[Array, Array]]:
    """Return the pixels below and above the positions `at` along an axis, each with its weight for the interpolation.

    The weights are 0 outside the image, which has `size` pixels along the axis.
    """
    low = np.floor(at)
    result = []
    for pixel, weight in ((low, 1 - (at - low)), (low + 1, at - low)):
        there = (pixel >= 0) & (pixel < size)
        number = np.clip(np.where(there, pixel, 0), 0, max(size - 1, 0)).astype(np.int64)
        result.append((number, np.where(there, weight, 0)))
    return result

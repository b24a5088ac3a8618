"""Kernels of GridSample and AffineGrid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from interposer.core.types import FLOATS, Array, DataType
from interposer.kernels.encoding import encoded
from interposer.kernels.real import all_quantized, real, store
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.grid import AffineGrid, GridPadding, GridSample, GridSampleMode

__all__: list[str] = []


class _Pixels(NamedTuple):
    """A neighbouring pixel of every grid position along one axis: its index, its weight, and if it is in the image."""

    pixel_index: Array
    weight: Array
    is_inside: Array


def _is_mixed(op: GridSample, info: KernelInfo) -> str | None:
    if op.mode is GridSampleMode.NEAREST:
        return "takes modes that mix pixels"
    is_supported = info.input.is_quantized or info.input.dtype in FLOATS
    return (
        None if is_supported else f"input is {info.input.dtype}; takes floats and quantized tensors for {op.mode.name}"
    )


def _is_nearest(op: GridSample, info: KernelInfo) -> str | None:
    if op.mode is not GridSampleMode.NEAREST:
        return _is_mixed(op, info) or f"takes NEAREST, not {op.mode.name}"
    return "input is string, which has no zero; expected another type" if info.input.dtype is DataType.STRING else None


def _same_quantization(op: GridSample, info: KernelInfo) -> str | None:
    is_same = info.input.quantization == info.output.quantization
    return None if is_same else "takes tensors of one quantization"


@kernel(GridSample, when=(_is_nearest, _same_quantization))
def pick_nearest(op: GridSample, x: Array, grid: Array, *, info: KernelInfo) -> Array:
    """Compute `GridSample` with NEAREST: elements are copied unchanged."""
    if x.size == 0:
        return np.broadcast_to(encoded(0.0, info.output), tuple(info.output.shape))
    [nearest] = zip(*_neighbours(op, x, grid, info), strict=True)
    return np.where(_all_inside(nearest), _picked(x, nearest), encoded(0.0, info.output))


@kernel(GridSample, when=(all_quantized, _is_mixed))
def mix_neighbours(op: GridSample, x: Array, grid: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `GridSample` as the sum over neighbouring pixels, weighted by the product of the axes' weights."""
    values, blended = real(x, info.input), np.zeros(out.shape)
    for pixels in product(*_neighbours(op, x, grid, info)) if x.size else ():
        weight = np.prod([pixel.weight for pixel in pixels], axis=0)[:, np.newaxis]
        blended += np.where(_all_inside(pixels), weight * _picked(values, pixels), 0)
    store(blended.astype(values.dtype), info.output, out)


def _picked(x: Array, pixels: Sequence[_Pixels]) -> Array:
    """Return for every channel and grid position the value of one pixel, whose index along each axis is in `pixels`."""
    sample = np.arange(len(x)).reshape(-1, *[1] * (x.ndim - 2))
    channels_last = np.moveaxis(x, 1, -1)
    return np.moveaxis(channels_last[(sample, *(pixel.pixel_index for pixel in pixels))], -1, 1)


def _all_inside(pixels: Sequence[_Pixels]) -> Array:
    is_inside: Array = np.all([pixel.is_inside for pixel in pixels], axis=0)
    return is_inside[:, np.newaxis]


def _neighbours(op: GridSample, x: Array, grid: Array, info: KernelInfo) -> list[list[_Pixels]]:
    """Return for each spatial axis, in the order of the axes of `x`, the neighbouring pixels of every grid position."""
    coordinates = np.moveaxis(real(grid, info.at(1)), -1, 0)[::-1]
    return [
        _axis_neighbours(op, axis_coordinates, size)
        for axis_coordinates, size in zip(coordinates, x.shape[2:], strict=True)
    ]


def _axis_neighbours(op: GridSample, coordinates: Array, size: int) -> list[_Pixels]:
    one = coordinates.dtype.type(1)
    positions = (coordinates + one) / 2 * (size - 1) if op.align_corners else ((coordinates + one) * size - one) / 2
    positions = np.rint(positions) if op.mode is GridSampleMode.NEAREST else positions
    if op.padding_mode is GridPadding.BORDER:
        margin = 2 if op.mode is GridSampleMode.CUBIC else 0  # where all four taps are the pixel of the border
        positions = np.clip(positions, -margin, size - 1 + margin)
    elif op.padding_mode is GridPadding.REFLECTION:
        positions = _reflected(positions, size, op.align_corners)
    left_pixels = np.floor(positions)
    offsets, weights = _weights(op.mode, positions - left_pixels)
    return [_pixels(op, left_pixels + offset, weight, size) for offset, weight in zip(offsets, weights, strict=True)]


def _weights(mode: GridSampleMode, distance: Array) -> tuple[range, list[Array]]:
    """Return the offsets of the neighbouring pixels from the pixel left of the position, and their weights.

    `distance` is the distance of the position from that pixel, from 0 to 1.
    """
    if mode is GridSampleMode.NEAREST:
        return range(1), [np.ones_like(distance)]
    if mode is GridSampleMode.LINEAR:
        return range(2), [1 - distance, distance]
    return range(-1, 3), [_outer(distance + 1), _inner(distance), _inner(1 - distance), _outer(2 - distance)]


def _inner(offset: Array) -> Array:
    return np.polyval([1.25, -2.25, 0, 1], offset)


def _outer(offset: Array) -> Array:
    return np.polyval([-0.75, 3.75, -6, 3], offset)


def _pixels(op: GridSample, index: Array, weight: Array, size: int) -> _Pixels:
    is_inside = np.full(index.shape, True)
    if op.padding_mode is GridPadding.ZEROS:
        is_inside = (index >= 0) & (index < size)
    elif op.padding_mode is GridPadding.REFLECTION:
        index = _reflected(index, size, op.align_corners)
    return _Pixels(np.clip(np.nan_to_num(index), 0, size - 1).astype(np.int64), weight, is_inside)


def _reflected(positions: Array, image_size: int, align_corners: bool) -> Array:
    """Mirror positions outside the image at its edges, or with `align_corners` at the centers of the outer pixels.

    The positions are in pixels along an axis of size `image_size`; they may be mirrored several times.
    """
    low = 0.0 if align_corners else -0.5
    period_half = image_size - 1 if align_corners else image_size
    if period_half == 0:
        return np.zeros_like(positions)
    distance = np.mod(positions - low, 2 * period_half)
    mirrored: Array = np.minimum(distance, 2 * period_half - distance) + low
    return mirrored


@kernel(AffineGrid)
def affine_grid(op: AffineGrid, theta: Array, *, info: KernelInfo) -> Array:
    """Compute `AffineGrid`; a position has its coordinate along the last axis first."""
    matrix = real(theta, info.input)
    axes = [_pixel_centers(size, op.align_corners) for size in op.extents]
    coordinates = np.stack(np.meshgrid(*axes, indexing="ij")[::-1], -1).astype(matrix.dtype)
    linear: Array = np.einsum("nij,pj->npi", matrix[:, :, :-1], coordinates.reshape(-1, len(op.extents)))
    positions: Array = linear + matrix[:, np.newaxis, :, -1]
    return positions.reshape(info.output.shape)


def _pixel_centers(size: int, align_corners: bool) -> Array:
    """Return the coordinates of the centers of `size` pixels along an axis whose edges are at -1 and 1.

    With `align_corners`, the centers of the outer pixels are at -1 and 1.
    """
    if align_corners:
        return np.linspace(-1, 1, size) if size > 1 else np.zeros(size)
    return np.asarray((2 * np.arange(size) + 1) / max(size, 1) - 1)

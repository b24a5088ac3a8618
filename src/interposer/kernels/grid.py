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

    number: Array
    weight: Array
    there: Array


def _is_mixed(op: GridSample, info: KernelInfo) -> str | None:
    if op.mode is GridSampleMode.NEAREST:
        return "takes modes that mix pixels"
    known = info.input.is_quantized or info.input.dtype in FLOATS
    return None if known else f"input is {info.input.dtype}; takes floats and quantized tensors for {op.mode.name}"


def _is_nearest(op: GridSample, info: KernelInfo) -> str | None:
    if op.mode is not GridSampleMode.NEAREST:
        return _is_mixed(op, info) or f"takes NEAREST, not {op.mode.name}"
    return "input is string, which has no zero; expected another type" if info.input.dtype is DataType.STRING else None


def _same_quantization(op: GridSample, info: KernelInfo) -> str | None:
    same = info.input.quantization == info.output.quantization
    return None if same else "takes tensors of one quantization"


@kernel(GridSample, when=(_is_nearest, _same_quantization))
def pick_nearest(op: GridSample, x: Array, grid: Array, *, info: KernelInfo) -> Array:
    """Compute `GridSample` with NEAREST: elements are copied unchanged."""
    if x.size == 0:
        return np.broadcast_to(encoded(0.0, info.output), tuple(info.output.shape))
    [pixels] = zip(*_neighbours(op, x, grid, info), strict=True)
    return np.where(_all_there(pixels), _picked(x, pixels), encoded(0.0, info.output))


@kernel(GridSample, when=(all_quantized, _is_mixed))
def mix_neighbours(op: GridSample, x: Array, grid: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `GridSample` as the sum over neighbouring pixels, weighted by the product of the axes' weights."""
    values, total = real(x, info.input), np.zeros(out.shape)
    for pixels in product(*_neighbours(op, x, grid, info)) if x.size else ():
        weight = np.prod([pixel.weight for pixel in pixels], axis=0)[:, np.newaxis]
        total += np.where(_all_there(pixels), weight * _picked(values, pixels), 0)
    store(total.astype(values.dtype), info.output, out)


def _picked(x: Array, pixels: Sequence[_Pixels]) -> Array:
    """Return for every channel and grid position the value of one pixel, whose index along each axis is in `pixels`."""
    sample = np.arange(len(x)).reshape(-1, *[1] * (x.ndim - 2))
    last = np.moveaxis(x, 1, -1)
    return np.moveaxis(last[(sample, *(pixel.number for pixel in pixels))], -1, 1)


def _all_there(pixels: Sequence[_Pixels]) -> Array:
    there: Array = np.all([pixel.there for pixel in pixels], axis=0)
    return there[:, np.newaxis]


def _neighbours(op: GridSample, x: Array, grid: Array, info: KernelInfo) -> list[list[_Pixels]]:
    """Return for each spatial axis, in the order of the axes of `x`, the neighbouring pixels of every grid position."""
    places = np.moveaxis(real(grid, info.at(1)), -1, 0)[::-1]
    return [_along(op, place, size) for place, size in zip(places, x.shape[2:], strict=True)]


def _along(op: GridSample, place: Array, size: int) -> list[_Pixels]:
    item = place.dtype.type(1)
    at = (place + item) / 2 * (size - 1) if op.align_corners else ((place + item) * size - item) / 2
    at = np.rint(at) if op.mode is GridSampleMode.NEAREST else at
    if op.padding_mode is GridPadding.BORDER:
        at = np.clip(at, 0, size - 1)
    elif op.padding_mode is GridPadding.REFLECTION:
        at = _reflected(at, size, op.align_corners)
    left = np.floor(at)
    offsets, weights = _weights(op.mode, at - left)
    return [_pixels(op, left + offset, weight, size) for offset, weight in zip(offsets, weights, strict=True)]


def _weights(mode: GridSampleMode, ratio: Array) -> tuple[range, list[Array]]:
    """Return the offsets of the neighbouring pixels from the pixel left of the position, and their weights.

    `ratio` is the distance of the position from that pixel, from 0 to 1.
    """
    if mode is GridSampleMode.NEAREST:
        return range(1), [np.ones_like(ratio)]
    if mode is GridSampleMode.LINEAR:
        return range(2), [1 - ratio, ratio]
    return range(-1, 3), [_outer(ratio + 1), _inner(ratio), _inner(1 - ratio), _outer(2 - ratio)]


def _inner(distance: Array) -> Array:
    return np.polyval([1.25, -2.25, 0, 1], distance)


def _outer(distance: Array) -> Array:
    return np.polyval([-0.75, 3.75, -6, 3], distance)


def _pixels(op: GridSample, number: Array, weight: Array, size: int) -> _Pixels:
    there = np.full(number.shape, True)
    if op.padding_mode is GridPadding.ZEROS:
        there = (number >= 0) & (number < size)
    elif op.padding_mode is GridPadding.REFLECTION:
        number = _reflected(number, size, op.align_corners)
    return _Pixels(np.clip(np.nan_to_num(number), 0, size - 1).astype(np.int64), weight, there)


def _reflected(at: Array, dimension: int, align_corners: bool) -> Array:
    """Mirror positions outside the image at its edges, or with `align_corners` at the centers of the outer pixels.

    The positions are in pixels along an axis of size `dimension`; they may be mirrored several times.
    """
    low = 0.0 if align_corners else -0.5
    size = dimension - 1 if align_corners else dimension
    if size == 0:
        return np.zeros_like(at)
    way = np.mod(at - low, 2 * size)
    mirrored: Array = np.minimum(way, 2 * size - way) + low
    return mirrored


@kernel(AffineGrid)
def affine_grid(op: AffineGrid, theta: Array, *, info: KernelInfo) -> Array:
    """Compute `AffineGrid`; a position has its coordinate along the last axis first."""
    matrix = real(theta, info.input)
    axes = [_middles(size, op.align_corners) for size in op.extents]
    places = np.stack(np.meshgrid(*axes, indexing="ij")[::-1], -1).astype(matrix.dtype)
    moved: Array = np.einsum("nij,pj->npi", matrix[:, :, :-1], places.reshape(-1, len(op.extents)))
    shifted: Array = moved + matrix[:, np.newaxis, :, -1]
    return shifted.reshape(info.output.shape)


def _middles(size: int, align_corners: bool) -> Array:
    """Return the coordinates of the centers of `size` pixels along an axis whose edges are at -1 and 1.

    With `align_corners`, the centers of the outer pixels are at -1 and 1.
    """
    if align_corners:
        return np.linspace(-1, 1, size) if size > 1 else np.zeros(size)
    return np.asarray((2 * np.arange(size) + 1) / max(size, 1) - 1)

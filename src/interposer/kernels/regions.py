"""Kernels of the operators on regions of an image. Coordinates are float32, or float64 for float64 inputs."""

from __future__ import annotations

import itertools
from typing import Final, NamedTuple

import numpy as np

from interposer.core.errors import InvalidValueError
from interposer.core.types import Array, DataType
from interposer.kernels.boxes import REALS, REALS_OF_FEW_BITS, check_boxes, check_images, reals_only, stored
from interposer.kernels.fixedpoint import round_half_away
from interposer.kernels.layout import from_nhwc, to_nhwc
from interposer.kernels.real import real
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.regions import HeatmapMaxKeypoint, RoiAlign, RoiAlignMode, RoiPooling

__all__: list[str] = []

FARTHEST: Final = 1.5
"""The maximum distance, in cells, of the interpolated maximum from the largest cell."""
MOST_SAMPLES: Final = 1 << 20
"""The maximum number of samples of a bin along an axis, if it follows from the size of the bin."""


class _Samples(NamedTuple):
    """The positions along one axis at which the bins of a region are sampled, as arrays (bins, samples).

    `low` and `high` are the two neighbouring cells, `fraction` is the weight of the second one, and `is_inside` is
    False for samples outside of the image, which are 0.
    """

    low: Array
    high: Array
    fraction: Array
    is_inside: Array

    def mean(self, cells: Array) -> Array:
        """Return the mean of the samples of each bin along the first axis of the cells, (bins, ...).

        Only cells that have a part in a sample count, so that NaN in another cell does not spread.
        """
        weights = self._weights(len(cells))
        neighbours = [
            np.union1d(low[is_inside], high[is_inside])
            for low, high, is_inside in zip(self.low, self.high, self.is_inside, strict=True)
        ]
        return np.stack(
            [
                np.tensordot(row[neighbour], cells[neighbour], 1)
                for row, neighbour in zip(weights, neighbours, strict=True)
            ]
        )

    def _weights(self, size: int) -> Array:
        """Return the weights (bins, size) with which the mean of each bin sums the `size` cells of the axis."""
        bins, samples = self.low.shape
        weights = np.zeros((bins, size))
        rows = np.arange(bins)[:, np.newaxis]
        np.add.at(weights, (rows, self.low), self.is_inside * (1 - self.fraction))
        np.add.at(weights, (rows, self.high), self.is_inside * self.fraction)
        weights /= max(samples, 1)
        return weights


def _samples(
    start: float, end: float, bins: int, samples_per_bin: int, axis_size: int, *, half_pixel: bool
) -> _Samples:
    """Return the sampling positions of a region from `start` to `end`, both in cells of an axis with `axis_size` cells.

    Each bin has `samples_per_bin` samples; 0 means as many as follow from the size of the bin.

    Raises:
        InvalidValueError: the region is not finite, or too large for the number of samples that follows from it.
    """
    offset = np.float32(0.5 if half_pixel else 0)
    size = (end - offset) - (start - offset)
    step = (size if half_pixel else np.maximum(size, np.float32(1))) / np.float32(bins)
    if not np.isfinite(step) or (not samples_per_bin and step > MOST_SAMPLES):
        reason = f"regions has one from {start:g} to {end:g} cells, which cannot be sampled"
        raise InvalidValueError(reason, operand="regions")
    count = samples_per_bin or max(0, int(np.ceil(step)))
    sample_offsets = step / np.float32(max(count, 1)) * (np.arange(count, dtype=np.float32) + np.float32(0.5))
    positions = (start - offset) + step * np.arange(bins, dtype=np.float32)[:, np.newaxis] + sample_offsets
    is_inside = (positions >= -1) & (positions <= axis_size)
    clipped = np.clip(positions, 0, axis_size - 1)
    low = np.floor(clipped).astype(np.int64)
    return _Samples(low, np.minimum(low + 1, axis_size - 1), clipped - low, is_inside)


@kernel(RoiAlign, dtypes={"input": REALS_OF_FEW_BITS, "*": REALS}, when=reals_only)
def roi_align(op: RoiAlign, x: Array, regions: Array, batches: Array, *, info: KernelInfo) -> Array:
    """Compute `RoiAlign` in float64: the mean over a grid of interpolated samples is taken along both axes in turn."""
    images = to_nhwc(real(x, info.at(0)), op.data_layout)
    check_images(batches, len(images))
    _, height, width, channels = images.shape
    pooled = np.empty((len(regions), op.output_height, op.output_width, channels))
    for index, (x1, y1, x2, y2) in enumerate(_in_cells(op, real(regions, info.at(1)))):
        row_samples = _samples(y1, y2, op.output_height, op.height_sampling_ratio, height, half_pixel=op.half_pixel)
        column_samples = _samples(x1, x2, op.output_width, op.width_sampling_ratio, width, half_pixel=op.half_pixel)
        image = images[batches[index]]
        if op.mode is RoiAlignMode.MAX:
            pooled[index] = _largest(image, row_samples, column_samples)
        else:
            pooled[index] = column_samples.mean(row_samples.mean(image).swapaxes(0, 1)).swapaxes(0, 1)
    return from_nhwc(stored(pooled, info.output), op.data_layout)


def _in_cells(op: RoiAlign | RoiPooling, regions: Array) -> Array:
    scale = 1 / np.array([op.width_stride, op.height_stride] * 2, regions.dtype)
    scaled: Array = regions * scale
    return scaled


def _largest(image: Array, row_samples: _Samples, column_samples: _Samples) -> Array:
    """Return for each bin the largest product of a neighbouring cell and its weight, over all samples; (bins, bins, C).

    `image` is (H, W, C). `row_samples` and `column_samples` are the samples along height and width. A bin without
    samples is 0.
    """
    maxima = np.full((len(row_samples.low), len(column_samples.low), image.shape[2]), -np.inf)
    for rows, row_weights in ((row_samples.low, 1 - row_samples.fraction), (row_samples.high, row_samples.fraction)):
        for columns, weights in (
            (column_samples.low, 1 - column_samples.fraction),
            (column_samples.high, column_samples.fraction),
        ):
            sample_weights = np.multiply.outer(row_weights * row_samples.is_inside, weights * column_samples.is_inside)[
                ..., np.newaxis
            ]
            cells = image[rows[:, :, np.newaxis, np.newaxis], columns] * sample_weights
            maxima = np.maximum(maxima, cells.max(axis=(1, 3), initial=-np.inf))
    return np.where(np.isinf(maxima), 0, maxima)


@kernel(RoiPooling, dtypes={"input": REALS_OF_FEW_BITS, "*": REALS}, when=reals_only)
def roi_pooling(op: RoiPooling, x: Array, regions: Array, batches: Array, *, info: KernelInfo) -> Array:
    """Compute `RoiPooling` on quantized values, which are rescaled at the end if the quantizations differ."""
    images = to_nhwc(x, op.data_layout)
    check_images(batches, len(images))
    _, height, width, channels = images.shape
    shape = (len(regions), op.output_height, op.output_width, channels)
    pooled = np.full(shape, info.input.zero_point, x.dtype)
    for index, (x1, y1, x2, y2) in enumerate(round_half_away(_in_cells(op, real(regions, info.at(1))))):
        rows, columns = _bins(y1, y2, op.output_height, height), _bins(x1, x2, op.output_width, width)
        for (i, row), (j, column) in itertools.product(rows, columns):
            pooled[index, i, j] = images[batches[index], row, column].max(axis=(0, 1))
    if info.output.quantization != info.input.quantization:
        pooled = stored(real(pooled, info.input), info.output)
    return from_nhwc(pooled, op.data_layout)


def _bins(start: float, end: float, bins: int, size: int) -> list[tuple[int, slice]]:
    """Return the index and the range of cells of each bin that is not empty, along an axis with `size` cells.

    The region reaches from cell `start` to cell `end`, which is included.
    """
    step = np.float32(max(end - start + 1, 1)) / np.float32(bins)
    borders = step * np.arange(bins + 1, dtype=np.float32) + np.float32(start)
    begins = np.clip(np.floor(borders[:-1]), 0, size).astype(int)
    ends = np.clip(np.ceil(borders[1:]), 0, size).astype(int)
    ranges = enumerate(zip(begins.tolist(), ends.tolist(), strict=True))
    return [(index, slice(*bounds)) for index, bounds in ranges if bounds[0] < bounds[1]]


@kernel(HeatmapMaxKeypoint, dtypes={"heatmaps": REALS_OF_FEW_BITS, "*": REALS}, when=reals_only)
def heatmap_max_keypoint(
    op: HeatmapMaxKeypoint, heatmaps: Array, boxes: Array, *, info: KernelInfo
) -> tuple[Array, Array]:
    """Compute `HeatmapMaxKeypoint` for all heatmaps at once, as (N, K, S, S)."""
    maps = np.moveaxis(to_nhwc(real(heatmaps, info.at(0)), op.data_layout), 3, 1)
    box_corners = real(boxes, info.at(1))
    check_boxes(box_corners, "boxes")
    n, k, size, _ = maps.shape
    row, column = np.divmod(maps.reshape(n, k, size * size).argmax(axis=2), size)
    tolerance = np.float32(1e-3 if info.input.dtype is DataType.FLOAT16 else 1e-5)
    delta, scores = _summit(_around(maps, row, column), tolerance)
    fractions = (np.stack([column, row], axis=-1).astype(np.float32) + delta + np.float32(0.5)) / np.float32(size)
    low_corners, high_corners = box_corners[:, np.newaxis, :2], box_corners[:, np.newaxis, 2:]
    return stored(scores, info.outputs[0]), stored(
        fractions * (high_corners - low_corners) + low_corners, info.outputs[1]
    )


def _around(maps: Array, row: Array, column: Array) -> Array:
    """Return the 3 x 3 cells around the cell (row, column) of each heatmap (N, K, S, S), as (3, 3, N, K).

    Cells beyond the border are mirrored.
    """
    padded = np.pad(maps, [(0, 0), (0, 0), (1, 1), (1, 1)], mode="reflect")
    n, k = np.ogrid[: maps.shape[0], : maps.shape[1]]
    return np.stack([[padded[n, k, row + i, column + j] for j in range(3)] for i in range(3)])


def _summit(cells: Array, tolerance: np.float32) -> tuple[Array, Array]:
    """Return the maximum of the quadratic function through cells (3, 3, ...): its offset as x and y, and its value.

    The offset has shape (..., 2). With the gradient ``g`` and the matrix of second derivatives ``[[a, b], [b, c]]``,
    the offset ``d`` solves ``[[a, b], [b, c]] d = -g``. If the matrix is singular within `tolerance`, the offset is 0
    and the value that of the center.
    """
    center = cells[1, 1]
    gx, gy = (cells[1, 2] - cells[1, 0]) / 2, (cells[2, 1] - cells[0, 1]) / 2
    a, c = cells[1, 0] - 2 * center + cells[1, 2], cells[0, 1] - 2 * center + cells[2, 1]
    b = (cells[2, 2] - cells[2, 0] - cells[0, 2] + cells[0, 0]) / 4
    determinant = a * c - b * b
    is_singular = np.abs(determinant) < tolerance + tolerance * (a * c)
    x, y = np.where(is_singular, 0, [(b * gy - c * gx) / determinant, (b * gx - a * gy) / determinant])
    limit_factor = FARTHEST / np.maximum(np.maximum(np.abs(x), np.abs(y)), FARTHEST)
    x, y = x * limit_factor, y * limit_factor
    value = center + gx * x + gy * y + ((a * x + b * y) * x + (b * x + c * y) * y) / 2
    return np.stack([x, y], axis=-1), np.where(is_singular, center, value)

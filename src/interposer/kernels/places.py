"""Views of an image that give the elements in each window, for convolutions and pooling.

A position of the window is called a place, and an element of the window a cell. Sizes, strides, dilations and paddings
may come from an untrusted file, so no array is allocated that is larger than the image or the result of the operator.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from interposer.core.types import Array
from interposer.ops.window import Window

__all__ = ["Steps", "places", "visible"]


class Steps(NamedTuple):
    """The coordinates of a sliding window's cells along an axis of an image.

    Cell number c at place number p is at ``origin + p * stride + c * dilation``. `place_count` is the number of places
    (positions of the window), and `size` the number of cells. Coordinates may be outside of the image.
    """

    origin: int
    place_count: int
    stride: int
    size: int
    dilation: int

    @property
    def last(self) -> int:
        """The greatest coordinate: that of the last cell at the last place."""
        return self.origin + (self.place_count - 1) * self.stride + (self.size - 1) * self.dilation

    def positions(self) -> Array:
        """Return the coordinates of all cells at all places, with shape (number of places, size of the window)."""
        cell_offsets = np.arange(self.size) * self.dilation
        return (self.origin + np.arange(self.place_count) * self.stride)[:, np.newaxis] + cell_offsets


def visible(window: Window, axis_size: int, count: int) -> tuple[Steps, slice]:
    """Leave out the cells of a window that are outside of the axis at all of its `count` places.

    Return the coordinates of the other cells, and their range within the window. `axis_size` is the size of the axis.
    """
    travel = (count - 1) * window.stride
    first_cell = max(0, -((travel - window.pad_before) // window.dilation))
    cell_end = min(window.size, -(-(axis_size + window.pad_before) // window.dilation))
    size = max(0, cell_end - first_cell)
    origin = first_cell * window.dilation - window.pad_before
    return Steps(origin, count, window.stride, size, window.dilation), slice(first_cell, first_cell + size)


def places(image: Array, rows: Steps, columns: Steps, padding: float = 0) -> Array:
    """Return the cells of the window at each place of an image (N, H, W, C), as a view (N, OH, OW, KH, KW, C).

    `rows` and `columns` are the window's coordinates along height and width, such as those that `visible` returns. The
    view is read-only. Cells outside of the image have the value `padding`.
    """
    n, height, width, c = image.shape
    shape = (n, rows.place_count, columns.place_count, rows.size, columns.size, c)
    if 0 in shape:
        return np.empty(shape, image.dtype)
    (top, bottom), (left, right) = pads = _pads(rows, height), _pads(columns, width)
    padded_area = (top + height + bottom) * (left + width + right)
    if padded_area > 4 * (height * width + math.prod(shape[1:5])):
        return _picked(image, rows.positions(), columns.positions(), padding)
    padded = np.pad(image, [(0, 0), *pads, (0, 0)], constant_values=padding) if any(pads[0] + pads[1]) else image
    by_n, by_y, by_x, by_c = padded.strides
    strides = (by_n, by_y * rows.stride, by_x * columns.stride, by_y * rows.dilation, by_x * columns.dilation, by_c)
    start = padded[:, rows.origin + top :, columns.origin + left :]
    return as_strided(start, shape, strides, writeable=False)


def _pads(steps: Steps, size: int) -> tuple[int, int]:
    return max(0, -steps.origin), max(0, steps.last + 1 - size)


def _picked(image: Array, ys: Array, xs: Array, padding: float) -> Array:
    """Return the same cells as `places`, by indexing, for a window that covers much more padding than image.

    `ys` (OH, KH) and `xs` (OW, KW) are the coordinates of the cells.
    """
    _, height, width, _ = image.shape
    y, x = ys[:, np.newaxis, :, np.newaxis], xs[:, np.newaxis, :]
    is_inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    cells = image[:, y.clip(0, height - 1), x.clip(0, width - 1)]
    return np.where(is_inside[..., np.newaxis], cells, image.dtype.type(padding))

"""Windows that slide along any axes of a tensor, one cell of the window at a time.

A position of the window is called a place, and an element of the window a cell. Sizes, strides, dilations and paddings
may come from an untrusted file, so no array is allocated that is larger than the tensor or the result of the operator.
"""

from __future__ import annotations

import numpy as np

from interposer.core.types import Array
from interposer.kernels.places import visible
from interposer.ops.window import Window

__all__ = ["cell_slices", "covered", "slide"]


def cell_slices(window: Window, cell: int, size: int, count: int) -> tuple[slice, slice]:
    """Return the places at which one cell of the window is on the axis, and the cell's positions there, as two slices.

    `cell` is the cell's index, `size` the size of the axis, and `count` the number of places.
    """
    offset = cell * window.dilation - window.pad_before
    first_place = max(0, -(offset // window.stride))
    place_end = min(count, -((offset - size) // window.stride))
    first_position = first_place * window.stride + offset
    place_count = max(0, place_end - first_place)
    return slice(first_place, first_place + place_count), slice(
        first_position, first_position + place_count * window.stride, window.stride
    )


def slide(x: Array, axis: int, window: Window, count: int, combine: np.ufunc, initial: float) -> Array:
    """Combine the cells of the window at each of `count` places along an axis by a ufunc, beginning with `initial`.

    The result has the shape of `x` with `count` along the axis. Cells outside of the tensor are left out.
    """
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    combined = np.full(shape, initial, x.dtype)
    leading_slices = (slice(None),) * axis
    _, cells = visible(window, x.shape[axis], count)
    for cell in range(cells.start, cells.stop):
        places, positions = cell_slices(window, cell, x.shape[axis], count)
        target = combined[(*leading_slices, places)]
        combine(target, x[(*leading_slices, positions)], out=target)
    return combined


def covered(window: Window, size: int, count: int, *, padding: bool) -> Array:
    """Return for each of `count` places the number of the window's cells that are on an axis of this size.

    With `padding`, cells that are in the padding are counted too, but none beyond it.
    """
    low, high = (-window.pad_before, size + window.pad_after) if padding else (0, size)
    starts = np.arange(count) * window.stride - window.pad_before
    begin, end = (np.clip(-((starts - limit) // window.dilation), 0, window.size) for limit in (low, high))
    cells: Array = end - begin
    return cells

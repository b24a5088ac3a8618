"""Windows that slide along any axes of a tensor, one cell of the window at a time.

Sizes, strides, dilations and paddings may come from a file that lies: nothing larger than the tensor or the result of
the operator is made of them.
"""

from __future__ import annotations

import numpy as np

from interposer.core.types import Array
from interposer.ops.window import Window

__all__ = ["covered", "seen", "slide"]


def seen(window: Window, cell: int, size: int, count: int) -> tuple[slice, slice]:
    """For one cell of the window: at which of `count` places it lies on the axis, and where on the axis that is."""
    offset = cell * window.dilation - window.pad_before
    first = max(0, -(offset // window.stride))
    end = min(count, -((offset - size) // window.stride))
    start = first * window.stride + offset
    number = max(0, end - first)
    return slice(first, first + number), slice(start, start + number * window.stride, window.stride)


def slide(x: Array, axis: int, window: Window, count: int, combine: np.ufunc, start: float) -> Array:
    """Combine what lies under the window at each of `count` places along an axis, beginning with `start`."""
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    result = np.full(shape, start, x.dtype)
    ahead = (slice(None),) * axis
    for cell in _cells(window, x.shape[axis], count):
        places, positions = seen(window, cell, x.shape[axis], count)
        target = result[(*ahead, places)]
        combine(target, x[(*ahead, positions)], out=target)
    return result


def _cells(window: Window, size: int, count: int) -> range:
    """Return the cells of the window that lie on the axis at some place."""
    way = (count - 1) * window.stride - window.pad_before
    first = max(0, -(way // window.dilation))
    return range(first, min(window.size, -(-(size + window.pad_before) // window.dilation)))


def covered(window: Window, count: int, low: int, high: int) -> Array:
    """Return how many cells of the window lie between the positions `low` and `high` at each place along an axis."""
    first = np.arange(count) * window.stride - window.pad_before
    before, until = (np.clip(-((first - limit) // window.dilation), 0, window.size) for limit in (low, high))
    cells: Array = until - before
    return cells

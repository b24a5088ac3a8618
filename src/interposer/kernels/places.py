"""The places of a window on an image, as a view: what convolutions and pooling look at."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from interposer.ops.window import Window
from interposer.types import Array

__all__ = ["places"]


def places(image: Array, windows: tuple[Window, Window], padding: float = 0) -> Array:
    """What lies under the window at each place on the image (N, H, W, C): a read-only view (N, OH, OW, KH, KW, C)."""
    rows, columns = windows
    pads = [(rows.pad_before, rows.pad_after), (columns.pad_before, columns.pad_after)]
    padded = np.pad(image, [(0, 0), *pads, (0, 0)], constant_values=padding) if np.any(pads) else image
    n, height, width, c = image.shape
    shape = (n, rows.places(height), columns.places(width), rows.size, columns.size, c)
    by_n, by_y, by_x, by_c = padded.strides
    strides = (by_n, by_y * rows.stride, by_x * columns.stride, by_y * rows.dilation, by_x * columns.dilation, by_c)
    return as_strided(padded, shape, strides, writeable=False)

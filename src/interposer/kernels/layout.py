"""Images with their channels last, whatever layout they come in."""

from __future__ import annotations

import numpy as np

from interposer.core.types import Array, DataLayout

__all__ = ["from_nhwc", "to_nhwc"]


def to_nhwc(x: Array, layout: DataLayout) -> Array:
    """Return a view with the channels as the last axis; weights count as images, one for each output channel."""
    return x if layout.channels_last else np.moveaxis(x, 1, -1)


def from_nhwc(x: Array, layout: DataLayout) -> Array:
    """Return a view in `layout` of an array whose last axis are the channels."""
    return x if layout.channels_last else np.moveaxis(x, -1, 1)

"""Views of images with their channels as the last axis, for any data layout."""

from __future__ import annotations

import numpy as np

from interposer.core.types import Array, DataLayout

__all__ = ["from_nhwc", "to_nhwc"]


def to_nhwc(x: Array, layout: DataLayout) -> Array:
    """Return a view of an image with its channels as the last axis; `layout` is the image's own layout.

    Weights can be passed too, since they are laid out like one image for each output channel.
    """
    return x if layout.channels_last else np.moveaxis(x, 1, -1)


def from_nhwc(x: Array, layout: DataLayout) -> Array:
    """Undo `to_nhwc`: return a view in this data layout of an array with its channels as the last axis."""
    return x if layout.channels_last else np.moveaxis(x, -1, 1)

"""Sliding windows in volumes, for 3D convolution and pooling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from interposer.core.types import DataLayout, TensorShape
from interposer.ops.window import Window

__all__ = ["VOLUMES", "Windows", "spatial_axes", "volume_shape", "window_problems"]

VOLUMES: Final = (DataLayout.NDHWC, DataLayout.NCDHW)
Windows = tuple[Window, Window, Window]


def spatial_axes(layout: DataLayout) -> tuple[int, int, int]:
    """Return the indices of the axes depth, height and width in NDHWC or NCDHW."""
    depth_axis = 1 if layout.channels_last else 2
    return depth_axis, depth_axis + 1, depth_axis + 2


def volume_shape(layout: DataLayout, batch: int, sizes: Sequence[int], channels: int) -> TensorShape:
    """Return the shape of volumes in the layout NDHWC or NCDHW; `sizes` are depth, height and width."""
    return TensorShape((batch, *sizes, channels) if layout.channels_last else (batch, channels, *sizes))


def window_problems(windows: Windows, sizes: Sequence[int], *, rounded_up: bool = False) -> Iterator[str]:
    """Yield an error for every axis on which the window is empty or does not fit into the padded volume.

    `windows` and `sizes` are those of depth, height and width; `rounded_up` is that of `Window.problems`.
    """
    for window, size, name in zip(windows, sizes, ("depth", "height", "width"), strict=True):
        yield from window.problems(size, name, rounded_up=rounded_up)

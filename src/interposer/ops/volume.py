"""How a window slides through a volume: what convolution and pooling in three dimensions have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from interposer.core.types import DataLayout, TensorShape
from interposer.ops.window import Window

__all__ = ["VOLUMES", "Windows", "spatial_axes", "volume_shape", "window_problems"]

VOLUMES: Final = (DataLayout.NDHWC, DataLayout.NCDHW)
Windows = tuple[Window, Window, Window]


def spatial_axes(layout: DataLayout) -> tuple[int, int, int]:
    """Positions of depth, height and width."""
    first = 1 if layout.channels_last else 2
    return first, first + 1, first + 2


def volume_shape(layout: DataLayout, batch: int, sizes: Sequence[int], channels: int) -> TensorShape:
    """Return the shape of a volume of these dimensions in a layout."""
    return TensorShape((batch, *sizes, channels) if layout.channels_last else (batch, channels, *sizes))


def window_problems(windows: Windows, sizes: Sequence[int]) -> Iterator[str]:
    """Yield why a window has no place in a volume of these dimensions."""
    for window, size, name in zip(windows, sizes, ("depth", "height", "width"), strict=True):
        yield from window.problems(size, name)

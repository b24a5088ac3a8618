"""Sliding windows along one axis of an image, for convolution and pooling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Window"]


class Window(NamedTuple):
    """A sliding window along one axis of an image; all sizes are in elements."""

    size: int
    stride: int
    dilation: int
    pad_before: int
    pad_after: int

    @property
    def reach(self) -> int:
        """The number of elements that the window spans, including gaps from dilation."""
        return (self.size - 1) * self.dilation + 1

    def places(self, size: int) -> int:
        """Return the number of window positions along an axis of this size, including padding."""
        return (size + self.pad_before + self.pad_after - self.reach) // self.stride + 1

    def problems(self, size: int, axis: str) -> Iterator[str]:
        """Yield an error if the window is empty, or does not fit on an axis of this size."""
        padded = size + self.pad_before + self.pad_after
        if self.size == 0:
            yield f"the window has {axis} 0"
        elif padded < self.reach:
            yield f"the window spans {self.reach} cells in {axis}, but the padded input has only {padded}"

"""How a window slides along one axis of an image: what convolutions and pooling have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Window"]


class Window(NamedTuple):
    """How a window moves along one axis of an image."""

    size: int
    stride: int
    dilation: int
    pad_before: int
    pad_after: int

    @property
    def reach(self) -> int:
        """How many cells of the image it spans, gaps included."""
        return (self.size - 1) * self.dilation + 1

    def places(self, size: int) -> int:
        """Return how many places it has on a padded axis of this dimension."""
        return (size + self.pad_before + self.pad_after - self.reach) // self.stride + 1

    def problems(self, size: int, axis: str) -> Iterator[str]:
        """Yield why it has no place on an axis of this dimension."""
        padded = size + self.pad_before + self.pad_after
        if self.size == 0:
            yield f"the window has {axis} 0"
        elif padded < self.reach:
            yield f"the window spans {self.reach} cells in {axis}, but the padded input has only {padded}"

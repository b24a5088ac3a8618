"""Sliding windows along one axis of an image, for convolution and pooling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from interposer.core.types import Dim

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

    def places_rounded_up(self, size: int) -> int:
        """Return the number of positions if the last may pass the end; one that begins in the end pad is left out."""
        if isinstance(size, Dim):
            return self.places(size)
        room = size + self.pad_before + self.pad_after - self.reach
        places = -(-room // self.stride) + 1
        return places - 1 if (places - 1) * self.stride >= size + self.pad_before else places

    def covered(self, places: int) -> int:
        """Return the number of elements that this many positions span, including padding."""
        return (places - 1) * self.stride + self.reach

    def pad_after_for(self, size: int, places: int) -> int:
        """Return the smallest end padding with which an axis of this size has this many positions."""
        return max(0, self.covered(places) - size - self.pad_before)

    def same_pads(self, size: int) -> tuple[int, int] | None:
        """Return the pads before and after an axis with which the window has ceil(size / stride) positions.

        An odd number puts the extra element at the end. None if the pads follow from a size that is not known.
        """
        if self.stride == 1:
            total = max(0, self.reach - 1)
        elif isinstance(size, Dim) or self.stride == 0:
            return None
        else:
            total = max(0, self.covered(-(-size // self.stride)) - size)
        return total // 2, total - total // 2

    def problems(self, size: int, axis: str) -> Iterator[str]:
        """Yield an error if the window is empty, or does not fit on an axis of this size."""
        padded = size + self.pad_before + self.pad_after
        if self.size == 0:
            yield f"the window has {axis} 0"
        elif padded < self.reach:
            yield f"the window spans {self.reach} cells in {axis}, but the padded input has only {padded}"

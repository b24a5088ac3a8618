"""Sliding windows along one axis of an image, for convolution and pooling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from interposer.core.types import Dim

__all__ = ["Window"]


class Window(NamedTuple):
    """A sliding window along one axis of an image; all sizes are in elements.

    `size` is the number of elements in the window, `stride` the distance of its positions, `dilation` the distance of
    its elements, and the paddings are added before and after the axis.
    """

    size: int
    stride: int
    dilation: int
    pad_before: int
    pad_after: int

    @property
    def reach(self) -> int:
        """The number of elements from the first to the last element of the window, including the gaps of a dilation."""
        return (self.size - 1) * self.dilation + 1

    def places(self, size: int) -> int:
        """Return the number of positions of the window along an axis of this size with padding, all within it."""
        return (size + self.pad_before + self.pad_after - self.reach) // self.stride + 1

    def places_rounded_up(self, size: int) -> int:
        """Return the number of positions along an axis of this size if the last one may exceed the end padding.

        A last position that would begin in the end padding, or after it, is left out.
        """
        if isinstance(size, Dim):
            return self.places(size)
        travel = size + self.pad_before + self.pad_after - self.reach
        places = -(-travel // self.stride) + 1
        return places - 1 if (places - 1) * self.stride >= size + self.pad_before else places

    def covered(self, places: int) -> int:
        """Return the number of elements from the start of the first to the end of the last of `places` positions.

        This is the size of the axis that they need, including padding.
        """
        return (places - 1) * self.stride + self.reach

    def pad_after_for(self, size: int, places: int) -> int:
        """Return the smallest end padding with which an axis of this size has this many positions of the window.

        The start padding is `pad_before`.
        """
        return max(0, self.covered(places) - size - self.pad_before)

    def same_pads(self, size: int) -> tuple[int, int] | None:
        """Return the padding before and after an axis of this size with which there are ceil(size / stride) positions.

        If the total is odd, the extra element is at the end. None if the size matters and is not known, or if the
        stride is 0.
        """
        if self.stride == 1:
            total_padding = max(0, self.reach - 1)
        elif isinstance(size, Dim) or self.stride == 0:
            return None
        else:
            total_padding = max(0, self.covered(-(-size // self.stride)) - size)
        return total_padding // 2, total_padding - total_padding // 2

    def problems(self, size: int, axis: str, *, rounded_up: bool = False) -> Iterator[str]:
        """Yield an error if the window is empty, or does not fit on an axis of this size with padding.

        `axis` is the name of the axis for the message, such as "height". If the number of positions is `rounded_up`,
        the window may exceed the padding by less than its stride.
        """
        allowed_size = size + self.pad_before + self.pad_after
        if rounded_up and allowed_size > 0:
            allowed_size += self.stride - 1
        if self.size == 0:
            yield f"the window has {axis} 0"
        elif allowed_size < self.reach:
            padded_size = size + self.pad_before + self.pad_after
            yield f"the window spans {self.reach} cells in {axis}, but the padded input has only {padded_size}"

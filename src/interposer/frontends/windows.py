"""Sliding windows over images or volumes as lists per axis, and as the attributes of operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.core.types import DataType, Dim, TensorInfo, integer_range
from interposer.frontends.node import Layers
from interposer.ops.window import Window

__all__ = ["Windows", "lowest", "same_pads"]

_FINITE: Final = frozenset({DataType.FLOAT32, DataType.FLOAT64})
_LETTERS: Final = {2: "yx", 3: "zyx"}
_BEFORE: Final = {2: ("top", "left"), 3: ("front", "top", "left")}
_AFTER: Final = {2: ("bottom", "right"), 3: ("back", "bottom", "right")}
_SIZES: Final = {2: ("height", "width"), 3: ("depth", "height", "width")}
_MOST_WINDOWS: Final = 1 << 16


class Windows(NamedTuple):
    """The window of a convolution or pooling operator: each attribute has one number per spatial axis, in order.

    `before` and `after` are the pads at the start and at the end of each axis.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def axes(self) -> int:
        """The number of spatial axes."""
        return len(self.kernel)

    def with_height(self) -> Windows:
        """Return windows along one axis as windows over images of height 1; others are returned unchanged."""
        if self.axes != 1:
            return self
        return Windows(*((first, *column) for first, column in zip((1, 1, 1, 0, 0), self, strict=True)))

    def along(self) -> list[Window]:
        """Return the window along each spatial axis."""
        return [Window(*column) for column in zip(*self, strict=True)]

    def clipped(self, image: Sequence[int]) -> Windows:
        """Return the windows without the elements beyond the padded image, if one window is larger than it.

        `image` has the size along each axis. This is the only window along an axis if the number of windows is rounded
        up. It is larger by less than its stride; else there is no window.
        """
        columns = [_clipped(window, size) for window, size in zip(self.along(), image, strict=True)]
        kernel, strides = (tuple(column[part] for column in columns) for part in (0, 1))
        return self._replace(kernel=kernel, strides=strides)

    def miss(self, image: Sequence[int]) -> bool:
        """Return True if a window may contain nothing but padding; `image` has the size along each axis.

        An unknown size counts as one for which such a window exists, if the window is dilated.
        """
        return any(_misses(window, size) for window, size in zip(self.along(), image, strict=True))

    def enclosed(self, image: Sequence[int], *, rounded_up: bool) -> Windows:
        """Return the windows with end padding up to the end of the last window along each axis, `rounded_up` or not.

        `image` has the size along each axis. An unknown size leaves the padding as it is.
        """
        columns = zip(self.along(), image, strict=True)
        return self._replace(after=tuple(_end_padding(window, size, rounded_up) for window, size in columns))

    def unpadded(self) -> Windows:
        """Return the windows without padding."""
        no_pads = (0,) * self.axes
        return self._replace(before=no_pads, after=no_pads)

    def sizes(self) -> dict[str, Any]:
        """Return the window's sizes by the names of a pooling operator's attributes, such as ``pool_height``."""
        return {f"pool_{name}": size for name, size in zip(_SIZES[self.axes], self.kernel, strict=True)}

    def pooling(self) -> dict[str, Any]:
        """Return sizes, pads, strides and dilations by the names of a pooling operator's attributes."""
        return {**self.sizes(), **self.pads(), **self.steps()}

    def pads(self) -> dict[str, Any]:
        """Return the pads by the names of an operator's attributes, such as ``pad_top``."""
        names = (*_BEFORE[self.axes], *_AFTER[self.axes])
        return {f"pad_{name}": pad for name, pad in zip(names, self.before + self.after, strict=True)}

    def steps(self) -> dict[str, Any]:
        """Return strides and dilations by the names of an operator's attributes, such as ``stride_x``."""
        letters = _LETTERS[self.axes]
        steps = {f"stride_{letter}": stride for letter, stride in zip(letters, self.strides, strict=True)}
        return steps | {f"dilation_{letter}": gap for letter, gap in zip(letters, self.dilations, strict=True)}

    def lists(self) -> dict[str, Any]:
        """Return all attributes for operators with any number of axes: window_shape, strides, dilations and pad_list.

        Each is a tuple with one entry per axis; an entry of ``pad_list`` is a pair (before, after).
        """
        return {
            "window_shape": self.kernel,
            "strides": self.strides,
            "dilations": self.dilations,
            "pad_list": tuple(zip(self.before, self.after, strict=True)),
        }


def same_pads(node: Layers, window: Window, size: int) -> tuple[int, int]:
    """Return the pads for the padding scheme SAME along an axis of an image; refuse the node if its size is unknown."""
    pads = window.same_pads(size)
    if pads is None:
        node.open_shape("its pads depend on the size of the image, which is not known")
    return pads


def lowest(info: TensorInfo) -> float:
    """Return the value that does not affect a maximum of a tensor: the lowest one of its type, or minus infinity."""
    if info.quantization is not None:
        return (integer_range(info.dtype)[0] - info.zero_point) * info.scale
    if info.dtype.is_integer:
        return integer_range(info.dtype)[0]
    return float(np.finfo(info.dtype.numpy).min) if info.dtype in _FINITE else -math.inf


def _misses(window: Window, size: int) -> bool:
    if isinstance(size, Dim):
        return window.dilation > 1 and window.pad_before + window.pad_after > 0
    if min(window.size, window.stride, window.dilation) < 1:
        return False
    places = window.places_rounded_up(size)
    if places < 1 or (places - 1) * window.stride - window.pad_before >= size:
        return places > 0
    windows_before = min(places, -(-window.pad_before // window.stride))  # windows that begin before the image
    some = min(
        windows_before, window.dilation
    )  # where the others have their first element in the image recurs among these
    if some > _MOST_WINDOWS:
        return True
    starts = np.arange(some) * window.stride - window.pad_before
    skipped = -(starts // window.dilation)
    return bool(((skipped >= window.size) | (starts + skipped * window.dilation >= size)).any())


def _end_padding(window: Window, size: int, rounded_up: bool) -> int:
    if isinstance(size, Dim) or min(window.size, window.stride) < 1:
        return window.pad_after
    places = window.places_rounded_up(size) if rounded_up else window.places(size)
    return max(window.pad_after if not rounded_up else 0, window.pad_after_for(size, places))


def _clipped(window: Window, size: int) -> Window:
    padded = size + window.pad_before + window.pad_after
    if isinstance(size, Dim) or padded < 1 or not 0 < window.reach - padded < window.stride:
        return window
    return window._replace(size=(padded - 1) // window.dilation + 1, stride=padded)

"""Sliding windows over images: as SAME or VALID if equivalent, else as VALID on a padded image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from interposer.core.types import Dim
from interposer.ops.window import Window
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor

__all__ = ["Sliding", "options", "padded", "sliding"]

SAME, VALID = 0, 1
_NAMES: Final = ("d", "h", "w")


class Sliding(NamedTuple):
    """How an operator with windows is padded: by the padding scheme `padding` (SAME or VALID), or by a PAD before it.

    `pairs` has the cells (before, after) that the PAD adds along each spatial axis.
    """

    padding: int
    pairs: tuple[tuple[int, int], ...]

    @property
    def adds(self) -> bool:
        """True if a PAD must add cells before the operator."""
        return any(map(any, self.pairs))


def sliding(windows: Sequence[Window], sizes: Sequence[int], counts: Sequence[int]) -> Sliding:
    """Return how to pad an image so that `windows` have `counts` positions along each spatial axis.

    `sizes` are the sizes of the image. SAME is used if it gives exactly the windows' pads.
    """
    pads = [_needed(*axis) for axis in zip(windows, sizes, counts, strict=True)]
    no_pads = ((0, 0),) * len(windows)
    if not any(map(any, pads)):
        return Sliding(VALID, no_pads)
    if all(pair == window.same_pads(size) for pair, window, size in zip(pads, windows, sizes, strict=True)):
        return Sliding(SAME, no_pads)
    return Sliding(VALID, tuple(pads))


def _needed(window: Window, size: int, count: int) -> tuple[int, int]:
    """Return the pads (before, after) along an axis, without cells at the end that no window covers.

    `size` is the size of the image and `count` the number of window positions. The pads stay unchanged if one is
    unknown.
    """
    if isinstance(size, Dim) or isinstance(count, Dim):
        return window.pad_before, window.pad_after
    return window.pad_before, window.pad_after_for(size, count)


def padded(draft: Draft, x: Tensor, padding: Sliding, fill: float | None = None) -> Tensor:
    """Return an image or a volume (channels last) padded with the cells in `padding`.

    The new elements are zeros, or `fill`, which for a quantized tensor is a quantized value.
    """
    return draft.pad(x, [(0, 0), *padding.pairs, (0, 0)], fill)


def options(windows: Sequence[Window], padding: Sliding, *, dilations: bool = True) -> dict[str, Any]:
    """Return the operator's options by name: the padding scheme, strides, and dilations unless excluded."""
    fields: dict[str, Any] = {"padding": padding.padding}
    for name, window in zip(_NAMES[-len(windows) :], windows, strict=True):
        fields[f"stride_{name}"] = window.stride
        if dilations:
            fields[f"dilation_{name}_factor"] = window.dilation
    return fields

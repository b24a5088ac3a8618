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


def sliding(windows: Sequence[Window], sizes: Sequence[int], places: Sequence[int]) -> Sliding:
    """Return how to pad an image so that `windows` have `places` positions along each spatial axis.

    `sizes` are the sizes of the image. SAME is used if it gives exactly the windows' pads.
    """
    pairs = [_needed(*item) for item in zip(windows, sizes, places, strict=True)]
    none = ((0, 0),) * len(windows)
    if not any(map(any, pairs)):
        return Sliding(VALID, none)
    if all(pair == window.same_pads(size) for pair, window, size in zip(pairs, windows, sizes, strict=True)):
        return Sliding(SAME, none)
    return Sliding(VALID, tuple(pairs))


def _needed(window: Window, size: int, places: int) -> tuple[int, int]:
    """Return the pads (before, after) along an axis, without cells at the end that no window covers.

    `size` is the size of the image and `places` the number of window positions. The pads stay unchanged if one is
    unknown.
    """
    if isinstance(size, Dim) or isinstance(places, Dim):
        return window.pad_before, window.pad_after
    return window.pad_before, window.pad_after_for(size, places)


def padded(draft: Draft, x: Tensor, result: Sliding, value: float | None = None) -> Tensor:
    """Return an image or a volume (channels last) padded with the cells in `result`.

    The new elements are zeros, or `value`, which for a quantized tensor is a quantized value.
    """
    return draft.pad(x, [(0, 0), *result.pairs, (0, 0)], value)


def options(windows: Sequence[Window], result: Sliding, *, dilations: bool = True) -> dict[str, Any]:
    """Return the operator's options by name: padding (from `result`), strides, and dilations unless excluded."""
    created: dict[str, Any] = {"padding": result.padding}
    for name, window in zip(_NAMES[-len(windows) :], windows, strict=True):
        created[f"stride_{name}"] = window.stride
        if dilations:
            created[f"dilation_{name}_factor"] = window.dilation
    return created

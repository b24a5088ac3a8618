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
    """The padding option of the operator, and the cells to pad before it along each axis of the image."""

    padding: int
    pairs: tuple[tuple[int, int], ...]

    @property
    def adds(self) -> bool:
        """True if cells must be padded."""
        return any(map(any, self.pairs))


def sliding(windows: Sequence[Window], sizes: Sequence[int], places: Sequence[int]) -> Sliding:
    """Return the padding for windows over an image of `sizes` that have `places` positions along each axis."""
    pairs = [_needed(*item) for item in zip(windows, sizes, places, strict=True)]
    none = ((0, 0),) * len(windows)
    if not any(map(any, pairs)):
        return Sliding(VALID, none)
    if all(pair == window.same_pads(size) for pair, window, size in zip(pairs, windows, sizes, strict=True)):
        return Sliding(SAME, none)
    return Sliding(VALID, tuple(pairs))


def _needed(window: Window, size: int, places: int) -> tuple[int, int]:
    """Return the pads, without cells at the end that no window covers."""
    if isinstance(size, Dim) or isinstance(places, Dim):
        return window.pad_before, window.pad_after
    return window.pad_before, window.pad_after_for(size, places)


def padded(draft: Draft, x: Tensor, result: Sliding, value: float | None = None) -> Tensor:
    """Return an image or a volume (channels last) with its padding: zeros, or `value` as it is stored."""
    return draft.pad(x, [(0, 0), *result.pairs, (0, 0)], value)


def options(windows: Sequence[Window], result: Sliding, *, dilations: bool = True) -> dict[str, Any]:
    """Return the stride, dilation and padding options of the operator."""
    created: dict[str, Any] = {"padding": result.padding}
    for name, window in zip(_NAMES[-len(windows) :], windows, strict=True):
        created[f"stride_{name}"] = window.stride
        if dilations:
            created[f"dilation_{name}_factor"] = window.dilation
    return created

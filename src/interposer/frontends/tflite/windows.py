"""Strides and padding of operators that slide a window over an image; the file says SAME or VALID, layers how much."""

from __future__ import annotations

from typing import Any, Final

from interposer.frontends.tflite.node import Node
from interposer.ops.window import Window
from interposer.types import DataLayout, Dim

__all__ = ["sliding"]

SAME, VALID = 0, 1
_ALONG: Final = (("height", "y", "top", "bottom"), ("width", "x", "left", "right"))


def sliding(
    node: Node, image: tuple[int, ...], window: tuple[int, ...], dilation: tuple[int, int] = (1, 1)
) -> dict[str, Any]:
    """The attributes for a window (height, width) that slides over an image (height, width)."""
    found: dict[str, Any] = {"data_layout": DataLayout.NHWC}
    strides = node.options["stride_h"], node.options["stride_w"]
    for (axis, letter, before, after), extent, size, stride, gap in zip(
        _ALONG, image, window, strides, dilation, strict=True
    ):
        if stride < 1 or gap < 1:
            node.fail(f"stride {stride} and dilation {gap} along the {axis}; expected at least 1")
        pads = _padding(node, extent, Window(size, stride, gap, 0, 0), axis)
        found |= {f"stride_{letter}": stride, f"pad_{before}": pads[0], f"pad_{after}": pads[1]}
    return found


def _padding(node: Node, extent: int, window: Window, axis: str) -> tuple[int, int]:
    """SAME adds so much that there is a place for every `stride` cells, the odd one behind."""
    padding = node.options["padding"]
    if padding not in {SAME, VALID}:
        node.fail(f"padding {padding} is not known; expected {SAME} (SAME) or {VALID} (VALID)")
    if padding == VALID:
        return 0, 0
    if window.stride == 1:
        total = window.reach - 1
    elif isinstance(extent, Dim):
        node.fail(f"the padding depends on the {axis}, which is not known; give load(..., shapes={{...}})")
    else:
        total = max(0, (-(-extent // window.stride) - 1) * window.stride + window.reach - extent)
    return total // 2, total - total // 2

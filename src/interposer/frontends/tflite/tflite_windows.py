"""Strides and padding of sliding windows over images; SAME and VALID are translated to explicit pads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from interposer.core.types import DataLayout
from interposer.frontends.tflite.node import Node
from interposer.ops.window import Window

__all__ = ["sliding"]

SAME, VALID = 0, 1
_ALONG: Final = (
    ("depth", "d", "z", "front", "back"),
    ("height", "h", "y", "top", "bottom"),
    ("width", "w", "x", "left", "right"),
)


def sliding(node: Node, image: Sequence[int], window: Sequence[int]) -> dict[str, Any]:
    """Return the attributes of a layer whose `window` slides over an `image`: layout, strides, dilations and pads.

    `image` and `window` are sizes as (height, width) or (depth, height, width). The attributes are from the node's
    options.
    """
    attributes: dict[str, Any] = {"data_layout": DataLayout.NHWC if len(image) == 2 else DataLayout.NDHWC}
    axes = _ALONG[-len(image) :]
    for (axis, short, letter, before, after), dimension, size in zip(axes, image, window, strict=True):
        stride, dilation = node.options[f"stride_{short}"], node.options.get(f"dilation_{short}_factor", 1)
        if stride < 1 or dilation < 1:
            node.fail(f"stride {stride} and dilation {dilation} along the {axis}; expected at least 1")
        pads = _padding(node, dimension, Window(size, stride, dilation, 0, 0), axis)
        attributes |= {f"stride_{letter}": stride, f"dilation_{letter}": dilation}
        attributes |= {f"pad_{before}": pads[0], f"pad_{after}": pads[1]}
    return attributes


def _padding(node: Node, size: int, window: Window, axis: str) -> tuple[int, int]:
    """Return the pads before and after an axis for the padding scheme of the node, SAME or VALID.

    `size` is the size of the image along the axis, and `axis` the name of the axis in messages.
    """
    padding = node.options["padding"]
    if padding not in {SAME, VALID}:
        node.fail(f"padding {padding} is not known; expected {SAME} (SAME) or {VALID} (VALID)")
    if padding == VALID:
        return 0, 0
    pads = window.same_pads(size)
    if pads is None:
        node.open_shape(f"the padding depends on the {axis}, which is not known")
    return pads

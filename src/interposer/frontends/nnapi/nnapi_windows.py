"""Strides and padding of sliding windows over images: explicit pads, or a padding scheme."""

from __future__ import annotations

from typing import Any, Final

from interposer.core.types import DataLayout
from interposer.frontends.nnapi.node import Node
from interposer.ops.window import Window

__all__ = ["Sizes", "dilations", "image_sizes", "positive", "sizes_of", "sliding"]

SAME, VALID = 1, 2
Sizes = tuple[int, ...]
_ALONG: Final = (("height", "y", "top", "bottom"), ("width", "x", "left", "right"))


def image_sizes(node: Node, layout: DataLayout) -> Sizes:
    """Return (height, width) of the first input, an image in this layout."""
    return sizes_of(node.value(0, rank=4).known.shape, layout)


def sizes_of(shape: Sizes, layout: DataLayout) -> Sizes:
    """Return (height, width) from the shape of an image in this layout."""
    h, w, _ = layout.axes()
    return shape[h], shape[w]


def dilations(node: Node, first: int) -> Sizes:
    """Return the dilations along (height, width) in inputs `first` and `first` + 1; both are 1 if they are omitted.

    The document has the dilation along the width first.
    """
    if node.operand(first) is None and node.operand(first + 1) is None:
        return 1, 1
    return positive(node, first + 1, "the dilation"), positive(node, first, "the dilation")


def sliding(
    node: Node, first: int, explicit: bool, image: Sizes, window: Sizes, dilation: Sizes = (1, 1)
) -> dict[str, Any]:
    """Return the attributes for strides and pads of a layer whose window slides over an image.

    From input number `first` on, the operation has four pads (left, right, top, bottom) if `explicit`, else one padding
    scheme, and then the strides along width and height. `image`, `window` and `dilation` are pairs (height, width).
    """
    strides = _strides(node, first + (4 if explicit else 1))
    if explicit:
        left, right, top, bottom = (_pad(node, first + number) for number in range(4))
        pads = [(top, bottom), (left, right)]
    else:
        scheme = _scheme(node, first)
        sizes = zip(image, window, strides, dilation, strict=True)
        pads = [(0, 0) if scheme == VALID else _same(node, *along) for along in sizes]
    window_attributes: dict[str, Any] = {}
    for (_, letter, first_side, second_side), stride, pair in zip(_ALONG, strides, pads, strict=True):
        window_attributes |= {f"stride_{letter}": stride, f"pad_{first_side}": pair[0], f"pad_{second_side}": pair[1]}
    return window_attributes


def _strides(node: Node, first: int) -> Sizes:
    return positive(node, first + 1, "the stride"), positive(node, first, "the stride")


def positive(node: Node, index: int, title: str) -> int:
    """Return a constant integer input; fail if it is less than 1. `title` names the input in the message."""
    number = node.integer_of(index, title)
    if number < 1:
        node.fail(f"{title} (input {index}) is {number}; expected at least 1")
    return number


def _pad(node: Node, index: int) -> int:
    padding = node.integer_of(index, "the padding")
    if padding < 0:
        node.fail(f"the padding (input {index}) is {padding}; expected 0 or more")
    return padding


def _scheme(node: Node, index: int) -> int:
    scheme = node.integer_of(index, "the padding scheme")
    if scheme not in {SAME, VALID}:
        node.fail(f"the padding scheme (input {index}) is {scheme}; expected {SAME} (SAME) or {VALID} (VALID)")
    return scheme


def _same(node: Node, dimension: int, size: int, stride: int, dilation: int) -> tuple[int, int]:
    """Return the pads before and after an axis for the padding scheme SAME.

    Args:
        node: the operation; it is refused if `dimension` is unknown.
        dimension: the size of the image along the axis.
        size: the size of the window along the axis.
        stride: the distance between windows.
        dilation: the distance between the elements of a window.
    """
    pads = Window(size, stride, dilation, 0, 0).same_pads(dimension)
    if pads is None:
        node.fail("the padding depends on the size of the image, which is not known; give build(..., shapes={...})")
    return pads

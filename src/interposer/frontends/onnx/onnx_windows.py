"""Sliding windows of ONNX nodes over images or volumes: kernel, strides, pads and dilations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interposer.core.errors import ParseError
from interposer.frontends.onnx.node import Node
from interposer.frontends.reshaping import reshaped
from interposer.frontends.windows import Windows, same_pads
from interposer.ir.graph import Value

__all__ = ["Windows", "as_image", "image_shape", "windows", "windows_along"]

_LARGEST: Final = 2**31 - 1


def windows(node: Node, kernel: Sequence[int], image: Sequence[int]) -> Windows:
    """Return the windows of a node, from its attributes for strides, dilations and pads.

    `kernel` has the sizes of the window, and `image` those of the input, along 1 to 3 spatial axes. A single spatial
    axis becomes the width of an image of height 1.

    Raises:
        ParseError: lists have the wrong length, or numbers are invalid.
        UnsupportedFormError: there are not 1 to 3 spatial axes, or pads depend on unknown dimensions.
    """
    axes = len(image)
    if axes not in (1, 2, 3):
        node.unsupported(f"its input has {axes} spatial axes; 1 to 3 are supported")
    return windows_along(node, kernel, image).with_height()


def windows_along(node: Node, kernel: Sequence[int], image: Sequence[int]) -> Windows:
    """Return the windows of a node like `windows`, but for any number of spatial axes and without adding an axis."""
    axes = len(image)
    strides, dilations = node.integers("strides", [1] * axes), node.integers("dilations", [1] * axes)
    pads = node.integers("pads", [0] * (2 * axes))
    lists_by_name = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    for name, numbers in lists_by_name.items():
        if len(numbers) != (2 * axes if name == "pads" else axes) or not all(0 <= n <= _LARGEST for n in numbers):
            raise ParseError(f"{name} is {list(numbers)}; its input has {axes} spatial axes")
    return _auto_padded(node, Windows(tuple(kernel), strides, dilations, pads[:axes], pads[axes:]), image)


def _auto_padded(node: Node, unpadded: Windows, image: Sequence[int]) -> Windows:
    mode = node.text("auto_pad", "NOTSET")
    if mode in {"NOTSET", ""}:
        return unpadded
    if mode == "VALID":
        zeros = (0,) * len(image)
        return unpadded._replace(before=zeros, after=zeros)
    if mode not in {"SAME_UPPER", "SAME_LOWER"}:
        raise ParseError(f"auto_pad is {mode!r}; expected NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    pads = [same_pads(node, *window_and_size) for window_and_size in zip(unpadded.along(), image, strict=True)]
    smaller_pads, greater_pads = tuple(pair[0] for pair in pads), tuple(pair[1] for pair in pads)
    is_upper = mode == "SAME_UPPER"
    return unpadded._replace(
        before=smaller_pads if is_upper else greater_pads, after=greater_pads if is_upper else smaller_pads
    )


def image_shape(shape: Sequence[int]) -> list[int]:
    """Return a shape (batch, channels, sizes) with a height of 1 inserted if there is only one size, the width."""
    return [*shape[:2], 1, *shape[2:]] if len(shape) == 3 else list(shape)


def as_image(node: Node, value: Value) -> Value:
    """Return a tensor of rank 3, data or weights, reshaped to an image of height 1; others are returned unchanged."""
    shape = value.known.shape
    return value if len(shape) != 3 else reshaped(node, value, image_shape(shape), 2)

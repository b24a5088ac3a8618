"""Sliding windows of ONNX nodes over images or volumes: kernel, strides, pads and dilations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from interposer.core.errors import ParseError
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.shaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.window import Window

__all__ = ["Windows", "as_image", "image_shape", "windows", "windows_along"]

_LARGEST: Final = 2**31 - 1
_LETTERS: Final = {2: "yx", 3: "zyx"}
_BEFORE: Final = {2: ("top", "left"), 3: ("front", "top", "left")}
_AFTER: Final = {2: ("bottom", "right"), 3: ("back", "bottom", "right")}
_SIZES: Final = {2: ("height", "width"), 3: ("depth", "height", "width")}


class Windows(NamedTuple):
    """The window of a convolution or pooling node: each attribute has one number per spatial axis, in order.

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

    def along(self) -> list[Window]:
        """Return the window along each spatial axis."""
        return [Window(*column) for column in zip(*self, strict=True)]

    def sizes(self) -> dict[str, Any]:
        """Return the window's sizes by the names of a pooling operator's attributes, such as ``pool_height``."""
        return {f"pool_{name}": size for name, size in zip(_SIZES[self.axes], self.kernel, strict=True)}

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
    result = windows_along(node, kernel, image)
    return result if axes > 1 else Windows(*((1 if i < 3 else 0, *part) for i, part in enumerate(result)))


def windows_along(node: Node, kernel: Sequence[int], image: Sequence[int]) -> Windows:
    """Return the windows of a node like `windows`, but for any number of spatial axes and without adding an axis."""
    axes = len(image)
    strides, dilations = node.integers("strides", [1] * axes), node.integers("dilations", [1] * axes)
    pads = node.integers("pads", [0] * (2 * axes))
    lists = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    for name, numbers in lists.items():
        if len(numbers) != (2 * axes if name == "pads" else axes) or not all(0 <= n <= _LARGEST for n in numbers):
            raise ParseError(f"{name} is {list(numbers)}; its input has {axes} spatial axes")
    return _auto_padded(node, Windows(tuple(kernel), strides, dilations, pads[:axes], pads[axes:]), image)


def _auto_padded(node: Node, value: Windows, image: Sequence[int]) -> Windows:
    mode = node.text("auto_pad", "NOTSET")
    if mode in {"NOTSET", ""}:
        return value
    if mode == "VALID":
        nothing = (0,) * len(image)
        return value._replace(before=nothing, after=nothing)
    if mode not in {"SAME_UPPER", "SAME_LOWER"}:
        raise ParseError(f"auto_pad is {mode!r}; expected NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    pads = [_same_pads(node, *column) for column in zip(value.along(), image, strict=True)]
    smaller, greater = tuple(pair[0] for pair in pads), tuple(pair[1] for pair in pads)
    upper = mode == "SAME_UPPER"
    return value._replace(before=smaller if upper else greater, after=greater if upper else smaller)


def _same_pads(node: Node, window: Window, size: int) -> tuple[int, int]:
    pads = window.same_pads(size)
    if pads is None:
        node.open_shape("its pads depend on the size of the image, which is not known")
    return pads


def image_shape(shape: Sequence[int]) -> list[int]:
    """Return a shape (batch, channels, sizes) with a height of 1 inserted if there is only one size, the width."""
    return [*shape[:2], 1, *shape[2:]] if len(shape) == 3 else list(shape)


def as_image(node: Node, value: Value) -> Value:
    """Return a tensor of rank 3, data or weights, reshaped to an image of height 1; others are returned unchanged."""
    shape = value.known.shape
    return value if len(shape) != 3 else reshaped(node, value, image_shape(shape))

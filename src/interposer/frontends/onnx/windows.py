"""How a window slides over an image: kernel, strides, pads and dilations, with one spatial axis or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from interposer.errors import ParseError
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.shaping import reshaped
from interposer.ir.graph import Value
from interposer.types import Dim

__all__ = ["Windows", "as_image", "image_shape", "windows"]

_LARGEST = 2**31 - 1


class Windows(NamedTuple):
    """For each of the two axes of an image, height first: what the attributes of a node say."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def pads(self) -> dict[str, Any]:
        """The pads as attributes of an operator."""
        return {
            "pad_top": self.before[0],
            "pad_left": self.before[1],
            "pad_bottom": self.after[0],
            "pad_right": self.after[1],
        }

    def steps(self) -> dict[str, Any]:
        """Strides and dilations as attributes of an operator."""
        return {
            "stride_y": self.strides[0],
            "stride_x": self.strides[1],
            "dilation_y": self.dilations[0],
            "dilation_x": self.dilations[1],
        }


def windows(node: Node, kernel: Sequence[int], image: Sequence[int]) -> Windows:
    """The windows of a node on an image whose spatial extents are `image`.

    Raises:
        ParseError: lists of the wrong length, or numbers that cannot be meant.
        UnsupportedFormError: other than one or two spatial axes, or pads that depend on unknown extents.
    """
    axes = len(image)
    if axes not in (1, 2):
        node.unsupported(f"its input has {axes} spatial axes; 1 and 2 are supported")
    strides, dilations = node.integers("strides", [1] * axes), node.integers("dilations", [1] * axes)
    pads = node.integers("pads", [0] * (2 * axes))
    lists = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    for name, numbers in lists.items():
        if len(numbers) != (2 * axes if name == "pads" else axes) or not all(0 <= n <= _LARGEST for n in numbers):
            raise ParseError(f"{name} is {list(numbers)}; its input has {axes} spatial axes")
    found = Windows(tuple(kernel), strides, dilations, pads[:axes], pads[axes:])
    found = _auto_padded(node, found, image)
    return found if axes == 2 else Windows(*((1 if i < 3 else 0, *part) for i, part in enumerate(found)))


def _auto_padded(node: Node, given: Windows, image: Sequence[int]) -> Windows:
    mode = node.text("auto_pad", "NOTSET")
    if mode in {"NOTSET", ""}:
        return given
    if mode == "VALID":
        nothing = (0,) * len(image)
        return given._replace(before=nothing, after=nothing)
    if mode not in {"SAME_UPPER", "SAME_LOWER"}:
        raise ParseError(f"auto_pad is {mode!r}; expected NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    columns = zip(image, given.kernel, given.strides, given.dilations, strict=True)
    totals = [_same_pads(node, *column) for column in columns]
    smaller, greater = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
    upper = mode == "SAME_UPPER"
    return given._replace(before=smaller if upper else greater, after=greater if upper else smaller)


def _same_pads(node: Node, extent: int, size: int, stride: int, dilation: int) -> int:
    """What must be added so that there are as many places as the extent has strides."""
    reach = (size - 1) * dilation + 1
    if stride == 1:
        return max(0, reach - 1)
    if isinstance(extent, Dim) or stride == 0:
        node.unsupported("its pads depend on the size of the image, which is not known; give it with shapes=")
    places = -(-extent // stride)
    return max(0, (places - 1) * stride + reach - extent)


def image_shape(shape: Sequence[int]) -> list[int]:
    """The shape of an image, where one with a single spatial axis gets a height of 1."""
    return [*shape[:2], 1, *shape[2:]] if len(shape) == 3 else list(shape)


def as_image(node: Node, value: Value) -> Value:
    """An image with a single spatial axis (or weights for one) as one of height 1."""
    shape = value.known.shape
    return value if len(shape) != 3 else reshaped(node, value, image_shape(shape))

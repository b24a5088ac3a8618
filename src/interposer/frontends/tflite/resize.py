"""TFLite converters for image resizing."""

from __future__ import annotations

from interposer.core.types import DataLayout
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.resize import Resize, ResizeMethod

__all__: list[str] = []


@operator("RESIZE_BILINEAR", options=True)
def resize_bilinear(node: Node) -> Value:
    """Convert RESIZE_BILINEAR: interpolate between the four nearest pixels."""
    return _resize(node, ResizeMethod.BILINEAR)


@operator("RESIZE_NEAREST_NEIGHBOR", options=True)
def resize_nearest(node: Node) -> Value:
    """Convert RESIZE_NEAREST_NEIGHBOR."""
    return _resize(node, ResizeMethod.NEAREST_NEIGHBOR)


def _resize(node: Node, method: ResizeMethod) -> Value:
    size = node.integers_of(1, "the size")
    if len(size) != 2:
        node.fail(f"the size is {size}; expected height and width")
    corners, centers = node.options["align_corners"], node.options["half_pixel_centers"]
    return node.result(Resize(size[1], size[0], method, DataLayout.NHWC, corners, centers), node.value(0, rank=4))

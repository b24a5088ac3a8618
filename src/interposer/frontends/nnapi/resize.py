"""NNAPI converters for image resizing."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.types import Dim
from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.nnapi_windows import image_sizes, positive
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value
from interposer.ops.resize import Resize, ResizeMethod

__all__: list[str] = []

_METHODS: Final = {
    "RESIZE_BILINEAR": ResizeMethod.BILINEAR,
    "RESIZE_NEAREST_NEIGHBOR": ResizeMethod.NEAREST_NEIGHBOR,
}


@operator(*_METHODS, inputs=(3, 6))
def resize(node: Node) -> list[Value]:
    """Convert RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR.

    The width and the height of the result are integers, or scale factors if they are floats.
    """
    layout = node.layout(3)
    height, width = image_sizes(node, layout)
    op = Resize(
        target_width=_target(node, 1, width),
        target_height=_target(node, 2, height),
        method=_METHODS[node.operation.name],
        data_layout=layout,
        align_corners=node.flag_of(4, "whether to align corners", False),
        half_pixel_centers=node.flag_of(5, "whether pixels have centers", False),
    )
    return node.results(op, node.value(0))


def _target(node: Node, index: int, size: int) -> int:
    if not node.is_of(index, "FLOAT32", "FLOAT16"):
        return positive(node, index, "the size")
    factor = node.number_of(index, "the factor")
    if isinstance(size, Dim):
        node.fail("the size is a factor on that of the image, which is not known; give build(..., shapes={...})")
    if not (factor > 0 and np.isfinite(factor)):
        node.fail(f"the factor (input {index}) is {factor}; expected a positive number")
    return int(np.floor(np.float32(size) * np.float32(factor)))

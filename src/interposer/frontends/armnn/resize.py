"""Converters of layers that resize images."""

from __future__ import annotations

from interposer.formats.armnn.schema import RESIZE_METHODS
from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.ir.graph import Value
from interposer.ops.resize import Resize, ResizeMethod

__all__: list[str] = []


@layer("Resize")
def resize(node: Node) -> list[Value]:
    """Convert Resize."""
    return node.results(_op(node, node.member("method", RESIZE_METHODS, ResizeMethod)), node.value(0))


@layer("ResizeBilinear")
def resize_bilinear(node: Node) -> list[Value]:
    """Convert ResizeBilinear, which older releases have instead of Resize."""
    return node.results(_op(node, ResizeMethod.BILINEAR), node.value(0))


def _op(node: Node, method: ResizeMethod) -> Resize:
    fields = node.descriptor
    return Resize(
        target_width=fields["targetWidth"],
        target_height=fields["targetHeight"],
        method=method,
        data_layout=node.layout(),
        align_corners=fields["alignCorners"],
        half_pixel_centers=fields["halfPixelCenters"],
    )

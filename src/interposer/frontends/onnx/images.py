"""Image files."""

from __future__ import annotations

from interposer.core.errors import ParseError
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.ir.graph import Value
from interposer.ops.images import ImageDecoder, PixelFormat

__all__: list[str] = []


@operator("ImageDecoder", since=20)
def image_decoder(node: Node) -> Value:
    """The size of the image is in the file."""
    given, formats = node.text("pixel_format", "RGB"), {one.value: one for one in PixelFormat}
    if given not in formats:
        raise ParseError(f"its pixel_format is {given!r}; expected {', '.join(formats)}")
    return node.add(ImageDecoder(formats[given]), node.value(0))

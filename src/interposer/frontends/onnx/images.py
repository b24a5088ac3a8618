"""The ONNX converter for image decoding."""

from __future__ import annotations

from interposer.core.errors import ParseError
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.ir.graph import Value
from interposer.ops.images import ImageDecoder, PixelFormat

__all__: list[str] = []


@operator("ImageDecoder", since=20)
def image_decoder(node: Node) -> Value:
    """Convert ImageDecoder; the size of the result is only known from the encoded data."""
    pixel_format, formats = (
        node.text("pixel_format", "RGB"),
        {known_format.value: known_format for known_format in PixelFormat},
    )
    if pixel_format not in formats:
        raise ParseError(f"its pixel_format is {pixel_format!r}; expected {', '.join(formats)}")
    return node.result(ImageDecoder(formats[pixel_format]), node.value(0))

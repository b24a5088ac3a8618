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
    value, formats = node.text("pixel_format", "RGB"), {item.value: item for item in PixelFormat}
    if value not in formats:
        raise ParseError(f"its pixel_format is {value!r}; expected {', '.join(formats)}")
    return node.result(ImageDecoder(formats[value]), node.value(0))

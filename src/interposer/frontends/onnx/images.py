"""ONNX converters for decoding and sampling images."""

from __future__ import annotations

from typing import Final

from interposer.core.errors import ParseError
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.ir.graph import Value
from interposer.ops.grid import AffineGrid, GridPadding, GridSample, GridSampleMode
from interposer.ops.images import ImageDecoder, PixelFormat

__all__ = ["sampled"]


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


# --- grid -------------------------------------------------------------------------------------------------------------


_MODES: Final = {
    "bilinear": GridSampleMode.LINEAR,
    "linear": GridSampleMode.LINEAR,
    "nearest": GridSampleMode.NEAREST,
    "bicubic": GridSampleMode.CUBIC,
    "cubic": GridSampleMode.CUBIC,
}
_PADDINGS: Final = {
    "zeros": GridPadding.ZEROS,
    "border": GridPadding.BORDER,
    "reflection": GridPadding.REFLECTION,
}


@operator("GridSample", since=16)
def grid_sample(node: Node) -> Value:
    """Convert GridSample; before opset 20, its modes had the names for two axes (bilinear, bicubic)."""
    return sampled(node, "linear")


def sampled(node: Node, default: str) -> Value:
    """Return the result of a GridSample node, whose mode is `default` if it has none."""
    mode, padding = node.text("mode", default), node.text("padding_mode", "zeros")
    if mode not in _MODES or padding not in _PADDINGS:
        raise ParseError(f"its mode is {mode!r} and its padding_mode {padding!r}")
    op = GridSample(_MODES[mode], _PADDINGS[padding], node.flag("align_corners"))
    return node.result(op, node.value(0), node.value(1))


@operator("AffineGrid", since=20)
def affine_grid(node: Node) -> Value:
    """Convert AffineGrid; the operand size is the shape of the whole sampled result, batch and channels included."""
    size = node.integers_of(1, "size")
    return node.result(AffineGrid(size[2:], node.flag("align_corners")), node.value(0))

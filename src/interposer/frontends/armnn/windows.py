"""The windows of convolutions and poolings: pads, strides and dilations in descriptors."""

from __future__ import annotations

from typing import Any, Final

from interposer.frontends.armnn.node import Node

__all__ = ["pads", "window"]

_NAMES: Final = {
    "padLeft": "pad_left",
    "padRight": "pad_right",
    "padTop": "pad_top",
    "padBottom": "pad_bottom",
    "padFront": "pad_front",
    "padBack": "pad_back",
    "strideX": "stride_x",
    "strideY": "stride_y",
    "strideZ": "stride_z",
    "dilationX": "dilation_x",
    "dilationY": "dilation_y",
    "dilationZ": "dilation_z",
}


def window(node: Node) -> dict[str, Any]:
    """Return the pads, strides and dilations of a layer's descriptor as attributes of an operator."""
    return {_NAMES[field]: value for field, value in node.descriptor.items() if field in _NAMES}


def pads(node: Node) -> dict[str, Any]:
    """Return the pads of a layer's descriptor as attributes of an operator."""
    return {name: value for name, value in window(node).items() if name.startswith("pad_")}

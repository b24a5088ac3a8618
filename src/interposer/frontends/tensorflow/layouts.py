"""The layouts that the attribute data_format names."""

from __future__ import annotations

from typing import Final

from interposer.core.types import DataLayout
from interposer.frontends.tensorflow.node import Node

__all__ = ["layout_of"]

_LAYOUTS: Final = {
    "NHWC": DataLayout.NHWC,
    "NCHW": DataLayout.NCHW,
    "NDHWC": DataLayout.NDHWC,
    "NCDHW": DataLayout.NCDHW,
}


def layout_of(node: Node, axes: int = 2) -> DataLayout:
    """Return the layout that the attribute data_format names, for images or volumes with this number of axes."""
    default = "NHWC" if axes == 2 else "NDHWC"
    name = node.text("data_format", default) or default
    if len(name) != axes + 2 or name not in _LAYOUTS:
        node.unsupported(f"its data_format is {name!r}")
    return _LAYOUTS[name]

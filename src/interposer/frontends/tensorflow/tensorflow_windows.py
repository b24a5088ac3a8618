"""Sliding windows of TensorFlow's nodes: sizes, strides, dilations and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from interposer.core.errors import ParseError
from interposer.core.types import DataLayout
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.windows import Windows, same_pads
from interposer.ir.graph import Value
from interposer.ops.window import Window

__all__ = ["attributes", "layout_of", "sliding", "spatial_axes", "spatial_sizes", "window_size"]

_LARGEST: Final = 2**31 - 1


def spatial_axes(layout: DataLayout) -> tuple[int, ...]:
    """Return the positions of the spatial axes in a layout of images or volumes."""
    count = 2 if layout in {DataLayout.NHWC, DataLayout.NCHW} else 3
    first_axis = 1 if layout.channels_last else 2
    return tuple(range(first_axis, first_axis + count))


def spatial_sizes(node: Node, value: Value, layout: DataLayout) -> tuple[int, ...]:
    """Return the spatial dimensions of an image or volume; `ParseError` if it has another rank."""
    axes = spatial_axes(layout)
    if value.known.rank != len(axes) + 2:
        raise ParseError(f"its input has the shape {value.known.shape}; expected rank {len(axes) + 2}")
    return tuple(value.known.shape[axis] for axis in axes)


def sliding(
    node: Node,
    image: Sequence[int],
    kernel: Sequence[int],
    layout: DataLayout,
    strides: Sequence[int] | None = None,
) -> Windows:
    """Return the windows of a node over an image with these spatial sizes.

    Strides (unless they are given), dilations and padding are from the node's attributes, which have an entry for every
    axis of the layout.
    """
    axes = spatial_axes(layout)
    all_strides = node.integers("strides") if strides is None else tuple(strides)
    spatial_strides = _along(node, "strides", all_strides, axes)
    dilations = _along(node, "dilations", node.integers("dilations", [1] * (len(axes) + 2)), axes)
    if any(not 0 <= size <= _LARGEST for size in kernel):
        raise ParseError(f"its window has the size {list(kernel)}")
    windows = [
        Window(size, stride, dilation, 0, 0)
        for size, stride, dilation in zip(kernel, spatial_strides, dilations, strict=True)
    ]
    pads = _pads(node, image, windows, axes)
    return Windows(
        tuple(kernel), spatial_strides, dilations, tuple(pad[0] for pad in pads), tuple(pad[1] for pad in pads)
    )


def _along(node: Node, name: str, entries: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """Return the entries of a list for the spatial axes; those of batch and channels must be 1."""
    if len(entries) != len(axes) + 2 or not all(1 <= entry <= _LARGEST for entry in entries):
        raise ParseError(f"its {name} are {list(entries)}; expected {len(axes) + 2} numbers of 1 or more")
    if any(entry != 1 for axis, entry in enumerate(entries) if axis not in axes):
        node.unsupported(f"its {name} are {list(entries)}, with a window along the batch or the channels")
    return tuple(entries[axis] for axis in axes)


def _pads(node: Node, image: Sequence[int], windows: Sequence[Window], axes: Sequence[int]) -> list[tuple[int, int]]:
    padding = node.text("padding")
    if padding == "VALID":
        return [(0, 0)] * len(axes)
    if padding == "SAME":
        return [same_pads(node, window, size) for window, size in zip(windows, image, strict=True)]
    if padding != "EXPLICIT":
        raise ParseError(f"its padding is {padding!r}; expected SAME, VALID or EXPLICIT")
    pads = node.integers("explicit_paddings")
    if len(pads) != 2 * (len(axes) + 2) or not all(0 <= pad <= _LARGEST for pad in pads):
        raise ParseError(f"its explicit_paddings are {list(pads)}; expected {2 * (len(axes) + 2)} numbers")
    return [(pads[2 * axis], pads[2 * axis + 1]) for axis in axes]


def window_size(node: Node, values: Sequence[int], layout: DataLayout) -> tuple[int, ...]:
    """Return the entries of a window's size, as an attribute or operand lists it, for the spatial axes."""
    return _along(node, "ksize", values, spatial_axes(layout))


def attributes(windows: Windows, layout: DataLayout) -> dict[str, Any]:
    """Return pads, strides, dilations and layout by the names of an operator's attributes."""
    return {**windows.pads(), **windows.steps(), "data_layout": layout}


# --- layouts ----------------------------------------------------------------------------------------------------------


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

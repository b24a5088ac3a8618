"""Converters of poolings."""

from __future__ import annotations

from typing import Any, Final

from interposer.formats.armnn.schema import PADDING_METHODS, POOLINGS, ROUNDINGS
from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.frontends.armnn.windows import window
from interposer.ir.graph import Value
from interposer.ops.pooling import OutputShapeRounding, PaddingMethod, Pooling2d, PoolingAlgorithm
from interposer.ops.pooling3d import Pooling3d

__all__: list[str] = []

_AXES: Final = {
    "H": ("y", "pool_height", "pad_top", "pad_bottom"),
    "W": ("x", "pool_width", "pad_left", "pad_right"),
    "D": ("z", "pool_depth", "pad_front", "pad_back"),
}


@layer("Pooling2d")
def pooling(node: Node) -> list[Value]:
    """Convert Pooling2d."""
    layout = node.layout()
    return node.results(Pooling2d(**_attributes(node, layout.name), data_layout=layout), node.value(0))


@layer("Pooling3d")
def pooling_3d(node: Node) -> list[Value]:
    """Convert Pooling3d."""
    layout = node.layout(of=("NDHWC", "NCDHW"))
    return node.results(Pooling3d(**_attributes(node, layout.name), data_layout=layout), node.value(0))


def _attributes(node: Node, layout: str) -> dict[str, Any]:
    """Return the attributes that poolings of two and three axes have.

    Strides of 0 stand for a single window at the start of each axis.
    """
    fields = node.descriptor
    attributes = window(node) | {
        "pool_type": node.member("poolType", POOLINGS, PoolingAlgorithm),
        "output_shape_rounding": node.member("outputShapeRounding", ROUNDINGS, OutputShapeRounding),
        "padding_method": node.member("paddingMethod", PADDING_METHODS, PaddingMethod),
        "pool_width": fields["poolWidth"],
        "pool_height": fields["poolHeight"],
    }
    attributes |= {"pool_depth": fields["poolDepth"]} if "poolDepth" in fields else {}
    strides = {axis: attributes[f"stride_{_AXES[axis][0]}"] for axis in layout if axis in _AXES}
    for axis in strides:
        if not attributes[_AXES[axis][1]]:
            node.fail(f"{_AXES[axis][1]} is 0; expected a positive size")
    if not any(strides.values()):
        attributes |= _single_window(node, layout, attributes)
    return attributes


def _single_window(node: Node, layout: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """Return strides that reach beyond the image, with which there is one window along each axis."""
    sizes = dict(zip(layout, node.shape(node.value(0)), strict=True))
    result: dict[str, Any] = {"output_shape_rounding": OutputShapeRounding.FLOOR}
    for axis, (name, size, before, after) in _AXES.items():
        if axis in layout:
            room = sizes[axis] + attributes[before] + attributes[after] - attributes[size]
            result[f"stride_{name}"] = max(1, room + 1)
    return result

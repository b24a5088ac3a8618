"""Sliding windows of convolution and pooling layers in Caffe's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interposer.frontends.caffe.node import Node
from interposer.frontends.caffe.proto import Message
from interposer.frontends.windows import Windows

__all__ = ["windows"]

_LARGEST: Final = 2**31 - 1


def windows(node: Node, parameters: Message, axes: int) -> Windows:
    """Return the window of a layer over `axes` spatial axes.

    A size is given for all axes at once, for each axis, or for images in fields such as ``kernel_h``. Both ends of an
    axis have the same pad.
    """
    kernel = _sizes(node, parameters, "kernel_size", ("kernel_h", "kernel_w"), axes, None)
    strides = _sizes(node, parameters, "stride", ("stride_h", "stride_w"), axes, 1)
    pads = _sizes(node, parameters, "pad", ("pad_h", "pad_w"), axes, 0)
    dilations = _sizes(node, parameters, *_dilation(parameters), axes, 1)
    if (
        min(kernel) < 1
        or min(strides) < 1
        or min(dilations) < 1
        or max(*kernel, *strides, *pads, *dilations) > _LARGEST
    ):
        node.fail(f"it has the window {list(kernel)}, strides {list(strides)} and dilations {list(dilations)}")
    return Windows(kernel, strides, dilations, pads, pads)


def _dilation(parameters: Message) -> tuple[str, tuple[str, ...]]:
    """Return the fields with the dilations: ``hole`` in DeepLab's version of Caffe, else ``dilation``."""
    holes = ("hole_h", "hole_w")
    names = {field.name for field, _ in parameters.ListFields()}
    return ("hole", holes if names.intersection(holes) else ()) if names & {"hole", *holes} else ("dilation", ())


def _sizes(
    node: Node, parameters: Message, name: str, each: Sequence[str], axes: int, default: int | None
) -> tuple[int, ...]:
    """Return a size for each spatial axis: the fields `each` if they are set, else the field `name`, else `default`."""
    if any(parameters.HasField(field) for field in each):
        if axes != 2:
            node.fail(f"{each[0]} and {each[1]} are for images, but it has {axes} spatial axes")
        return tuple(getattr(parameters, field) if parameters.HasField(field) else default or 0 for field in each)
    values = list(getattr(parameters, name, ()))
    if not values and default is None:
        node.fail(f"it has no {name}")
    if len(values) not in (0, 1, axes):
        node.fail(f"{name} has {len(values)} numbers; it has {axes} spatial axes")
    return tuple(values * (axes if len(values) == 1 else 1) or [default or 0] * axes)

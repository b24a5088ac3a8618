"""Sliding windows over images and volumes as attributes of ONNX operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interposer.ops.window import Window

__all__ = ["attributes", "kernel_attributes"]


def attributes(windows: Sequence[Window]) -> dict[str, Any]:
    """Return the attributes strides, dilations and pads of an ONNX node with these windows; None for default values."""
    strides, dilations = [w.stride for w in windows], [w.dilation for w in windows]
    pads = [w.pad_before for w in windows] + [w.pad_after for w in windows]
    return {
        "strides": strides if any(n != 1 for n in strides) else None,
        "dilations": dilations if any(n != 1 for n in dilations) else None,
        "pads": pads if any(pads) else None,
    }


def kernel_attributes(windows: Sequence[Window]) -> dict[str, Any]:
    """Return the attributes kernel_shape, strides, dilations and pads of an ONNX node; None for default values."""
    return {"kernel_shape": [w.size for w in windows], **attributes(windows)}

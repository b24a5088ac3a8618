"""Growers of pooling and resizing of images and volumes."""

from __future__ import annotations

from typing import Any

from interposer.core.types import DataLayout
from interposer.ir.graph import Value
from interposer.ops import (
    LpPooling,
    MaxPoolingWithIndices,
    MaxUnpooling,
    OutputShapeRounding,
    PaddingMethod,
    Pooling2d,
    Pooling3d,
    PoolingAlgorithm,
    Resize,
    ResizeMethod,
)
from interposer.ops.window import Window
from interposer.testing.drawing import Draw
from interposer.testing.random_networks.growers import grower
from interposer.testing.random_networks.growth import Growth, Skipped
from interposer.testing.random_networks.random_windows import image, layout_for, slid

__all__ = ["pooling_op", "resize_op"]

_FLOAT = ("float",)


def pooling_op(growth: Growth, x: Value, layout: DataLayout | None = None) -> Pooling2d:
    """Draw a 2D pooling of the image `x`: max, average or L2, over windows or over the whole image."""
    draw, layout = growth.draw, layout or layout_for(growth)
    attributes = _common(draw) | {"data_layout": layout}
    if draw.chance(1, 5):
        return Pooling2d(**attributes)
    h, w, _ = layout.axes()
    rows, columns = _pooled(slid(draw, x.known.shape[h])), _pooled(slid(draw, x.known.shape[w]))
    return Pooling2d(**attributes, **_moving(rows, columns))


def _common(draw: Draw) -> dict[str, Any]:
    return {
        "pool_type": draw.weighted(tuple(PoolingAlgorithm), (3, 3, 1)),
        "padding_method": draw.one_of(tuple(PaddingMethod)),
        "output_shape_rounding": draw.one_of(tuple(OutputShapeRounding)),
    }


def _moving(rows: Window, columns: Window) -> dict[str, Any]:
    return {
        "pool_height": rows.size, "stride_y": rows.stride, "dilation_y": rows.dilation,
        "pad_top": rows.pad_before, "pad_bottom": rows.pad_after,
        "pool_width": columns.size, "stride_x": columns.stride, "dilation_x": columns.dilation,
        "pad_left": columns.pad_before, "pad_right": columns.pad_after,
    }  # fmt: skip


def _pooled(window: Window) -> Window:
    """Return the window with padding smaller than the dilated window, as every model format demands."""
    limit = window.reach - 1
    return window._replace(pad_before=min(window.pad_before, limit), pad_after=min(window.pad_after, limit))


@grower(8, Pooling2d, kinds=_FLOAT)
def _pooling(growth: Growth, value: Value) -> None:
    x = image(growth, value)
    growth.add(pooling_op(growth, x), x)


@grower(3, Pooling3d, kinds=_FLOAT)
def _pooling_of_a_volume(growth: Growth, value: Value) -> None:
    draw, x = growth.draw, image(growth, value, 5)
    layout = draw.one_of((DataLayout.NDHWC, DataLayout.NCDHW))
    attributes = _common(draw) | {"data_layout": layout}
    if draw.chance(1, 5):
        growth.add(Pooling3d(**attributes), x)
        return
    first_axis = 1 if layout.channels_last else 2
    depth, rows, columns = (_pooled(slid(draw, size)) for size in x.known.shape[first_axis : first_axis + 3])
    attributes_z: dict[str, Any] = {"pool_depth": depth.size, "stride_z": depth.stride, "dilation_z": depth.dilation,
            "pad_front": depth.pad_before, "pad_back": depth.pad_after}  # fmt: skip
    growth.add(Pooling3d(**attributes, **attributes_z, **_moving(rows, columns)), x)


@grower(2, LpPooling, MaxPoolingWithIndices, MaxUnpooling, kinds=_FLOAT)
def _pooling_of_any_rank(growth: Growth, value: Value) -> None:
    draw = growth.draw
    x = image(growth, value, draw.weighted((3, 4, 5), (2, 4, 1)))
    windows = [_pooled(slid(draw, size)) for size in x.known.shape[2:]]
    attributes: dict[str, Any] = {
        "window_shape": tuple(window.size for window in windows),
        "strides": tuple(window.stride for window in windows),
        "dilations": tuple(window.dilation for window in windows),
        "pad_list": tuple((window.pad_before, window.pad_after) for window in windows),
        "output_shape_rounding": draw.one_of(tuple(OutputShapeRounding)),
    }
    if growth.choice((LpPooling, MaxPoolingWithIndices), lambda op: op) is LpPooling:
        growth.add(LpPooling(**attributes, p=draw.integer(1, 3)), x)
        return
    pooled = growth.add(MaxPoolingWithIndices(**attributes, column_major=draw.chance(1, 4)), x)
    has_maxima = all(window.dilation == 1 for window in windows) and not growth.with_special
    if has_maxima and 0 not in x.known.shape and draw.chance(1, 2):
        growth.add(MaxUnpooling(tuple(x.known.shape[2:])), pooled, pooled.producer.outputs[1])


def resize_op(growth: Growth, x: Value) -> Resize:
    """Draw a resize of the image `x` to a larger or smaller one; raise `Skipped` if the image is empty."""
    draw, layout = growth.draw, layout_for(growth)
    h, w, _ = layout.axes()
    shape = x.known.shape
    if shape[h] == 0 or shape[w] == 0:
        raise Skipped
    scale = draw.one_of((None, None, (2, 2), (2, 1), (3, 2), (1, 4)))
    sizes = (draw.size(65), draw.size(65)) if scale is None else (shape[h] * scale[0], shape[w] * scale[1])
    alignment = draw.weighted(((False, False), (True, False), (False, True)), (2, 1, 2))
    return Resize(
        target_height=sizes[0], target_width=sizes[1], method=draw.one_of(tuple(ResizeMethod)), data_layout=layout,
        align_corners=alignment[0], half_pixel_centers=alignment[1],
    )  # fmt: skip


@grower(6, Resize, kinds=_FLOAT)
def _resize(growth: Growth, value: Value) -> None:
    x = image(growth, value)
    growth.add(resize_op(growth, x), x)

"""ONNX converters for operators that select: TopK, OneHot, NonZero, boxes and regions of interest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataType, differ
from interposer.frontends.axes import checked_axis
from interposer.frontends.elementwise import ADD, EQUAL, LESS
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.reshaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.choice import TopK
from interposer.ops.detection import NonMaxSuppression
from interposer.ops.dynamic import DynamicTopK
from interposer.ops.elementwise import Where
from interposer.ops.embedding import OneHot
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Slice, Splitter, Stack
from interposer.ops.regions import RoiAlign, RoiAlignMode, RoiPooling
from interposer.ops.reshape import Fill
from interposer.ops.selection import Compress, NonZero, Unique
from interposer.ops.sequence import CumSum

__all__: list[str] = []

_LARGEST_POOL: Final = 2**15
_ROI_MODES: Final = {"avg": RoiAlignMode.AVERAGE, "max": RoiAlignMode.MAX}
_ROI_COORDINATES: Final = {"half_pixel": True, "output_half_pixel": False}


@operator("TopK")
def top_k_by_attribute(node: Node) -> Sequence[Value]:
    """Convert TopK with k as an attribute (before opset 10)."""
    return _top_k(node, node.integer("k"))


@operator("TopK", since=10)
def top_k(node: Node) -> Sequence[Value]:
    """Convert TopK; the results are always sorted best first, whatever the attribute sorted says."""
    if node.is_computed(1):
        op = DynamicTopK(node.integer("axis", -1), node.flag("largest", True), DataType.INT64)
        return node.results(op, node.value(0), node.value(1))
    return _top_k(node, int(node.number_of(1, "k")))


def _top_k(node: Node, k: int) -> Sequence[Value]:
    info, axis = node.info(0), node.integer("axis", -1)
    size = info.shape[checked_axis(axis, info.rank)] if info.is_ranked else k
    if k > size:
        node.out_of_range(f"k is {k}, but axis {axis} has only {size} elements", k, (0, size))
    op = TopK(k, axis, node.flag("largest", True), DataType.INT64)
    return node.results(op, node.value(0))


@operator("OneHot", since=9)
def one_hot(node: Node) -> Value:
    """Convert OneHot; negative indices count from the end since opset 11."""
    if any(map(node.is_from_data, (node.value(1), node.value(2)))):
        return _one_hot_at_run_time(node)
    indices, values = node.value(0), node.array(2, "values").reshape(-1)
    if values.size != 2 or values.dtype.kind == "O":
        node.unsupported(f"its values are {values.dtype}{list(values.shape)}; two numbers are supported")
    if indices.known.dtype.is_float:
        indices = node.step(Cast(DataType.INT64), indices)
    off_value, on_value = values.astype(float).tolist()
    op = OneHot(
        depth=int(node.number_of(1, "depth")),
        axis=node.integer("axis", -1),
        on_value=on_value,
        off_value=off_value,
        dtype=DataType.of(values.dtype),
        from_end=node.version >= 11,
    )
    return node.result(op, indices)


def _one_hot_at_run_time(node: Node) -> Value:
    """Return the one-hot vectors of a depth or of values that are computed, by comparison with all indices."""
    indices = node.step(Cast(DataType.INT64), node.value(0))
    depth = node.step(Cast(DataType.INT64), reshaped(node, node.value(1), []))
    zero = node.constant(np.array(0, np.int64))
    if node.version >= 11:
        indices = node.step(Where(), node.step(LESS, indices, zero), node.step(ADD, indices, depth), indices)
    axis = checked_axis(node.integer("axis", -1), indices.known.rank + 1, "the result")
    line = [-1 if i == axis else 1 for i in range(indices.known.rank + 1)]
    ones = node.step(Fill(1.0, DataType.INT64), reshaped(node, depth, [1]))  # refuses a negative depth
    every_index = reshaped(node, node.step(CumSum(axis=0, exclusive=True), ones), line)
    off_value, on_value = node.steps(Splitter(0, (1, 1)), reshaped(node, node.value(2), [2]))
    is_on = node.step(EQUAL, node.step(Stack(axis), indices), every_index)
    return node.result(Where(), is_on, on_value, off_value)


@operator("NonMaxSuppression", since=10)
def non_max_suppression(node: Node) -> Value:
    """Convert NonMaxSuppression; without max_output_boxes_per_class, no boxes are selected."""
    op = NonMaxSuppression(
        max_output_boxes_per_class=max(0, int(_scalar(node, 2, "max_output_boxes_per_class") or 0)),
        iou_threshold=_scalar(node, 3, "iou_threshold") or 0.0,
        score_threshold=_scalar(node, 4, "score_threshold"),
        center_point_box=node.flag("center_point_box"),
    )
    return node.result(op, node.value(0), node.value(1))


def _scalar(node: Node, index: int, title: str) -> float | None:
    return float(node.number_of(index, title)) if node.has(index) else None


@operator("RoiAlign", since=10)
def roi_align_of_whole_cells(node: Node) -> Value:
    """Convert RoiAlign before opset 16, in which ROI coordinates have no half-pixel offset."""
    return _roi_align(node, half_pixel=False)


@operator("RoiAlign", since=16)
def roi_align(node: Node) -> Value:
    """Convert RoiAlign, with a half-pixel offset if coordinate_transformation_mode says so."""
    coordinates = node.text("coordinate_transformation_mode", "half_pixel")
    if coordinates not in _ROI_COORDINATES:
        raise ParseError(f"its coordinate_transformation_mode is {coordinates!r}")
    return _roi_align(node, half_pixel=_ROI_COORDINATES[coordinates])


@operator("MaxRoiPool")
def max_roi_pool(node: Node) -> Value:
    """Convert MaxRoiPool; the first column of the regions is the image that each region belongs to."""
    shape, scale, regions = node.integers("pooled_shape"), node.number("spatial_scale", 1.0), node.value(1)
    if len(shape) != 2 or not all(0 < size <= _LARGEST_POOL for size in shape) or not 0 < scale < float("inf"):
        raise ParseError(f"its pooled_shape is {list(shape)} and its spatial_scale {scale:g}")
    if regions.known.rank != 2 or differ(regions.known.shape[1], 5):
        raise ParseError(f"its regions have shape {regions.known.shape}; expected five columns")
    images = reshaped(node, node.step(Slice((0, 0), (-1, 1)), regions), [-1])
    boxes = node.step(Slice((0, 1), (-1, 4)), regions)
    op = RoiPooling(output_height=shape[0], output_width=shape[1], height_stride=1 / scale, width_stride=1 / scale)
    return node.result(op, node.value(0), boxes, node.step(Cast(DataType.INT32), images))


def _roi_align(node: Node, half_pixel: bool) -> Value:
    mode, scale, ratio = node.text("mode", "avg"), node.number("spatial_scale", 1.0), node.integer("sampling_ratio", 0)
    if mode not in _ROI_MODES or scale <= 0:
        raise ParseError(f"its mode is {mode!r} and its spatial_scale {scale:g}")
    op = RoiAlign(
        output_height=node.integer("output_height", 1),
        output_width=node.integer("output_width", 1),
        height_stride=1 / scale,
        width_stride=1 / scale,
        height_sampling_ratio=ratio,
        width_sampling_ratio=ratio,
        mode=_ROI_MODES[mode],
        half_pixel=half_pixel,
    )
    return node.result(op, node.value(0), node.value(1), node.value(2))


# --- selection --------------------------------------------------------------------------------------------------------


@operator("NonZero", since=9)
def non_zero(node: Node) -> Value:
    """Convert NonZero: a row of indices for each axis; a scalar counts as a tensor of one element."""
    x = node.value(0)
    return node.result(NonZero(), reshaped(node, x, [1]) if x.known.shape == () else x)


@operator("Compress", since=9)
def compress(node: Node) -> Value:
    """Convert Compress; without an axis, the input is flattened."""
    return node.result(Compress(_axis(node)), node.value(0), node.value(1))


@operator("Unique", since=11)
def unique(node: Node) -> Sequence[Value]:
    """Convert Unique; the result is sorted by default."""
    return node.results(Unique(_axis(node), node.flag("sorted", True)), node.value(0))


def _axis(node: Node) -> int | None:
    return node.integer("axis") if node.has_attribute("axis") else None

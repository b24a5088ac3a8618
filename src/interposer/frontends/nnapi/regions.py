"""NNAPI converters for operators on regions of images."""

from __future__ import annotations

from typing import Any

from interposer.core.types import DataLayout
from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.nnapi_windows import positive
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value
from interposer.ops.regions import HeatmapMaxKeypoint, RoiAlign, RoiPooling

__all__: list[str] = []


@operator("ROI_ALIGN", inputs=10)
def roi_align(node: Node) -> list[Value]:
    """Convert ROI_ALIGN; the default number of samples per bin follows from the size of the region."""
    rows, columns = node.integer_of(7, "the rows of samples"), node.integer_of(8, "the columns of samples")
    op = RoiAlign(**_bins(node, node.layout(9)), height_sampling_ratio=rows, width_sampling_ratio=columns)
    return node.results(op, *(node.value(index) for index in range(3)))


@operator("ROI_POOLING", inputs=8)
def roi_pooling(node: Node) -> list[Value]:
    """Convert ROI_POOLING: the maximum of each bin."""
    return node.results(RoiPooling(**_bins(node, node.layout(7))), *(node.value(index) for index in range(3)))


def _bins(node: Node, layout: DataLayout) -> dict[str, Any]:
    return {
        "output_height": positive(node, 3, "the height"),
        "output_width": positive(node, 4, "the width"),
        "height_stride": node.number_of(5, "the stride along the height"),
        "width_stride": node.number_of(6, "the stride along the width"),
        "data_layout": layout,
    }


@operator("HEATMAP_MAX_KEYPOINT", inputs=3)
def heatmap_max_keypoint(node: Node) -> list[Value]:
    """Convert HEATMAP_MAX_KEYPOINT, with a heatmap for every keypoint of every box."""
    return node.results(HeatmapMaxKeypoint(node.layout(2)), node.value(0), node.value(1))

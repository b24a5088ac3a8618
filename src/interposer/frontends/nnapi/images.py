"""NNAPI converters for operators on images, and on boxes, which are (x1, y1, x2, y2) unless stated otherwise."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from interposer.core.types import DataLayout, DataType, Dim
from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.nnapi_windows import image_sizes, positive
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value
from interposer.ops.detection import (
    AxisAlignedBboxTransform,
    BoxWithNmsLimit,
    DetectionPostProcess,
    DetectionRules,
    GenerateProposals,
    NmsKernel,
)
from interposer.ops.regions import HeatmapMaxKeypoint, RoiAlign, RoiPooling
from interposer.ops.resize import Resize, ResizeMethod

__all__: list[str] = []

_KERNELS: Final = {member.value: member for member in NmsKernel}


@operator("AXIS_ALIGNED_BBOX_TRANSFORM", inputs=4)
def transform(node: Node) -> list[Value]:
    """Convert AXIS_ALIGNED_BBOX_TRANSFORM; the inputs are boxes, deltas, batch indices and image sizes."""
    return node.results(AxisAlignedBboxTransform(), *(node.value(index) for index in range(4)))


@operator("BOX_WITH_NMS_LIMIT", inputs=9)
def box_with_nms_limit(node: Node) -> list[Value]:
    """Convert BOX_WITH_NMS_LIMIT; sigma is only used by the Gaussian kernel."""
    number = node.integer_of(5, "the kernel")
    kernel = _KERNELS.get(number) or node.fail(f"the kernel (input 5) is {number}; expected 0 to 2")
    sigma = node.number_of(7, "sigma")
    op = BoxWithNmsLimit(
        score_threshold=node.number_of(3, "the score threshold"),
        max_detections=node.integer_of(4, "the most detections"),
        nms_kernel=kernel,
        iou_threshold=node.number_of(6, "the threshold of overlaps"),
        sigma=sigma if kernel is NmsKernel.GAUSSIAN else 1.0,
        nms_score_threshold=node.number_of(8, "the score threshold of suppression"),
    )
    return node.results(op, node.value(0), node.value(1), node.value(2))


@operator("GENERATE_PROPOSALS", inputs=11)
def generate_proposals(node: Node) -> list[Value]:
    """Convert GENERATE_PROPOSALS; the inputs are scores, deltas, anchors and image sizes."""
    op = GenerateProposals(
        height_stride=node.number_of(4, "the stride along the height"),
        width_stride=node.number_of(5, "the stride along the width"),
        pre_nms_max=node.integer_of(6, "the most boxes before suppression"),
        post_nms_max=node.integer_of(7, "the most boxes after suppression"),
        iou_threshold=node.number_of(8, "the threshold of overlaps"),
        min_size=node.number_of(9, "the least size"),
        data_layout=node.layout(10),
    )
    return node.results(op, *(node.value(index) for index in range(4)))


@operator("DETECTION_POSTPROCESSING", inputs=14)
def detection_postprocessing(node: Node) -> list[Value]:
    """Convert DETECTION_POSTPROCESSING; scores precede boxes, and class 0 is the background."""
    regular = node.flag_of(7, "whether to suppress by classes")
    scales = {f"scale_{letter}": node.number_of(3 + number, "a scale") for number, letter in enumerate("yxhw")}
    scores, encodings, anchors = node.value(0, rank=3), node.value(1), node.value(2)
    if isinstance(scores.known.shape[2], Dim):
        node.fail(f"input 0 has shape {scores.known.shape}; the number of classes must be known")
    op = DetectionPostProcess(
        max_detections=positive(node, 8, "the most detections"),
        num_classes=scores.known.shape[2] - 1,
        max_classes_per_detection=1 if regular else positive(node, 9, "the most classes of a detection"),
        detections_per_class=positive(node, 10, "the most detections of a class") if regular else 1,
        nms_score_threshold=node.number_of(11, "the score threshold"),
        nms_iou_threshold=node.number_of(12, "the threshold of overlaps"),
        use_regular_nms=regular,
        rules=DetectionRules.NNAPI,
        background_in_classes=node.flag_of(13, "whether the background is a class"),
        label_dtype=DataType.INT32,
        **scales,
    )
    boxes, classes, box_scores, count = node.layer(op, encodings, scores, anchors, output_numbers=(1, 2, 0, 3))
    return [box_scores, boxes, classes, count]


# --- regions ----------------------------------------------------------------------------------------------------------


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


# --- resize -----------------------------------------------------------------------------------------------------------


_METHODS: Final = {
    "RESIZE_BILINEAR": ResizeMethod.BILINEAR,
    "RESIZE_NEAREST_NEIGHBOR": ResizeMethod.NEAREST_NEIGHBOR,
}


@operator(*_METHODS, inputs=(3, 6))
def resize(node: Node) -> list[Value]:
    """Convert RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR.

    The width and the height of the result are integers, or scale factors if they are floats.
    """
    layout = node.layout(3)
    height, width = image_sizes(node, layout)
    op = Resize(
        target_width=_target(node, 1, width),
        target_height=_target(node, 2, height),
        method=_METHODS[node.operation.name],
        data_layout=layout,
        align_corners=node.flag_of(4, "whether to align corners", False),
        half_pixel_centers=node.flag_of(5, "whether pixels have centers", False),
    )
    return node.results(op, node.value(0))


def _target(node: Node, index: int, size: int) -> int:
    if not node.is_of(index, "FLOAT32", "FLOAT16"):
        return positive(node, index, "the size")
    factor = node.number_of(index, "the factor")
    if isinstance(size, Dim):
        node.fail("the size is a factor on that of the image, which is not known; give build(..., shapes={...})")
    if not (factor > 0 and np.isfinite(factor)):
        node.fail(f"the factor (input {index}) is {factor}; expected a positive number")
    return int(np.floor(np.float32(size) * np.float32(factor)))

"""TFLite converters for image resizing and object detection."""

from __future__ import annotations

from interposer.core.types import DataLayout, DataType, Dim
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.detection import DetectionPostProcess, PaddedNonMaxSuppression
from interposer.ops.resize import Resize, ResizeMethod

__all__: list[str] = []


@operator("NON_MAX_SUPPRESSION_V4")
def hard_suppression(node: Node) -> list[Value]:
    """Convert NON_MAX_SUPPRESSION_V4; the scores of the selected boxes are not among its outputs."""
    if len(node.output_infos) != 2:
        node.fail(f"it has {len(node.output_infos)} outputs; expected 2")
    indices, _, count = node.steps(PaddedNonMaxSuppression(), *(node.value(i) for i in range(5)), None)
    return [indices, count]


@operator("NON_MAX_SUPPRESSION_V5")
def soft_suppression(node: Node) -> list[Value]:
    """Convert NON_MAX_SUPPRESSION_V5, whose last input is the width of the soft suppression."""
    return node.results(PaddedNonMaxSuppression(), *(node.value(i) for i in range(6)))


@operator("TFLite_Detection_PostProcess", custom=True)
def detection_post_process(node: Node) -> list[Value]:
    """Convert TFLite_Detection_PostProcess; quantized boxes, scores and anchors are dequantized."""
    encodings, scores, anchors = (_floats(node, index) for index in range(3))
    classes = node.option("num_classes", int)
    columns = scores.known.shape[-1]
    if not isinstance(columns, Dim) and columns not in (classes, classes + 1):
        node.fail(f"input 1 has {columns} classes; expected {classes}, or {classes + 1} with the background")
    op = DetectionPostProcess(
        max_detections=node.option("max_detections", int),
        num_classes=classes,
        max_classes_per_detection=node.option("max_classes_per_detection", int),
        detections_per_class=node.option("detections_per_class", int, 100),
        nms_score_threshold=node.option("nms_score_threshold", float),
        nms_iou_threshold=node.option("nms_iou_threshold", float),
        use_regular_nms=node.option("use_regular_nms", bool, False),
        scale_x=node.option("x_scale", float),
        scale_y=node.option("y_scale", float),
        scale_w=node.option("w_scale", float),
        scale_h=node.option("h_scale", float),
    )
    return node.results(op, encodings, scores, anchors)


def _floats(node: Node, index: int) -> Value:
    operand = node.value(index)
    return node.dequantized(index, DataType.FLOAT32) if operand.known.is_quantized else operand


# --- resize -----------------------------------------------------------------------------------------------------------


@operator("RESIZE_BILINEAR", options=True)
def resize_bilinear(node: Node) -> Value:
    """Convert RESIZE_BILINEAR: interpolate between the four nearest pixels."""
    return _resize(node, ResizeMethod.BILINEAR)


@operator("RESIZE_NEAREST_NEIGHBOR", options=True)
def resize_nearest(node: Node) -> Value:
    """Convert RESIZE_NEAREST_NEIGHBOR."""
    return _resize(node, ResizeMethod.NEAREST_NEIGHBOR)


def _resize(node: Node, method: ResizeMethod) -> Value:
    size = node.integers_of(1, "the size")
    if len(size) != 2:
        node.fail(f"the size is {size}; expected height and width")
    corners, centers = node.options["align_corners"], node.options["half_pixel_centers"]
    return node.result(Resize(size[1], size[0], method, DataLayout.NHWC, corners, centers), node.value(0, rank=4))

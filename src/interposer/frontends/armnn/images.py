"""Converters of layers on images: Resize and DetectionPostProcess."""

from __future__ import annotations

from interposer.core.types import DataType
from interposer.formats.armnn.schema import RESIZE_METHODS
from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.ir.graph import Value
from interposer.ops.detection import DetectionPostProcess, DetectionRules
from interposer.ops.quantization import Dequantize, Quantize
from interposer.ops.resize import Resize, ResizeMethod

__all__: list[str] = []


@layer("DetectionPostProcess")
def detection(node: Node) -> list[Value]:
    """Convert DetectionPostProcess, whose anchors are a constant of the layer."""
    fields = node.descriptor
    op = DetectionPostProcess(
        max_detections=fields["maxDetections"],
        num_classes=fields["numClasses"],
        max_classes_per_detection=fields["maxClassesPerDetection"],
        detections_per_class=fields["detectionsPerClass"],
        nms_score_threshold=float(fields["nmsScoreThreshold"]),
        nms_iou_threshold=float(fields["nmsIouThreshold"]),
        use_regular_nms=fields["useRegularNms"],
        scale_x=float(fields["scaleX"]),
        scale_y=float(fields["scaleY"]),
        scale_w=float(fields["scaleW"]),
        scale_h=float(fields["scaleH"]),
        rules=DetectionRules.ARMNN,
    )
    anchors = node.stored("anchors")
    if anchors is None:
        node.fail("it has no anchors")
    return node.results(op, node.value(0), node.value(1), anchors)


# --- resize -----------------------------------------------------------------------------------------------------------


@layer("Resize")
def resize(node: Node) -> list[Value]:
    """Convert Resize."""
    return _resized(node, _op(node, node.member("method", RESIZE_METHODS, ResizeMethod)))


@layer("ResizeBilinear")
def resize_bilinear(node: Node) -> list[Value]:
    """Convert ResizeBilinear, which older releases have instead of Resize."""
    return _resized(node, _op(node, ResizeMethod.BILINEAR))


def _resized(node: Node, op: Resize) -> list[Value]:
    """Return the resized image; pixels of 16 bits are interpolated as floats, like in Arm NN's reference.

    The integer arithmetic of TFLite has weights in steps of 1/1024, which is up to 32 steps off for 16 bits.
    """
    x = node.value(0)
    if op.method is not ResizeMethod.BILINEAR or x.known.dtype is not DataType.INT16 or not x.known.is_quantized:
        return node.results(op, x)
    return node.results(Quantize(x.known.dtype), node.step(op, node.step(Dequantize(), x)))


def _op(node: Node, method: ResizeMethod) -> Resize:
    fields = node.descriptor
    return Resize(
        target_width=fields["targetWidth"],
        target_height=fields["targetHeight"],
        method=method,
        data_layout=node.layout(),
        align_corners=fields["alignCorners"],
        half_pixel_centers=fields["halfPixelCenters"],
    )

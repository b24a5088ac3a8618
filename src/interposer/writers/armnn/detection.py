"""The Arm NN writer for DetectionPostProcess."""

from __future__ import annotations

from interposer.core.types import DataType
from interposer.ops.detection import DetectionPostProcess, DetectionRules
from interposer.writers.armnn.armnn_layer_writers import writer
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []


@writer(DetectionPostProcess)
def detection(draft: Draft, op: DetectionPostProcess) -> list[Tensor]:
    """Write DetectionPostProcess for one image, whose first class is the background.

    TFLite's rules are written as Arm NN's own, which exclude more boxes where many of them overlap.
    """
    if op.rules is DetectionRules.NNAPI or op.background_in_classes or op.label_dtype is not DataType.FLOAT32:
        refuse("it follows other rules than those of Arm NN")
    boxes, scores = draft.info(0).shape, draft.info(1).shape
    if int(boxes[0]) != 1 or int(boxes[2]) != 4 or int(scores[2]) != op.num_classes + 1:
        refuse(
            f"its inputs have the shapes {boxes} and {scores}; Arm NN needs [1, N, 4] and [1, N, {op.num_classes + 1}]"
        )
    fields = {
        "maxDetections": op.max_detections,
        "maxClassesPerDetection": op.max_classes_per_detection,
        "detectionsPerClass": op.detections_per_class,
        "nmsScoreThreshold": op.nms_score_threshold,
        "nmsIouThreshold": op.nms_iou_threshold,
        "numClasses": op.num_classes,
        "useRegularNms": op.use_regular_nms,
        "scaleX": op.scale_x,
        "scaleY": op.scale_y,
        "scaleW": op.scale_w,
        "scaleH": op.scale_h,
    }
    anchors = {"anchors": draft.stored(draft.operand(2), "anchors")}
    return draft.finals(
        "DetectionPostProcess", draft.operand(0), draft.operand(1), descriptor=fields, constants=anchors
    )

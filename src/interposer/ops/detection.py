"""Operators for object detection, which select and transform the boxes that a network proposes.

A box is four numbers, (x1, y1, x2, y2) unless the operator documents another order. The overlap of two boxes is their
intersection over union (IoU). Non-maximum suppression (NMS) selects the box with the best score, drops the boxes that
overlap it too much, and repeats this with the remaining boxes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role, Trait
from interposer.core.types import UNKNOWN, DataLayout, DataType, TensorInfo, differ
from interposer.ops.named_sizes import dimension_problems

__all__ = [
    "AxisAlignedBboxTransform",
    "BoxCode",
    "BoxWithNmsLimit",
    "DetectionOutput",
    "DetectionPostProcess",
    "DetectionRules",
    "GenerateProposals",
    "NmsKernel",
    "NonMaxSuppression",
    "PaddedNonMaxSuppression",
]

_IMAGES: Final = (DataLayout.NCHW, DataLayout.NHWC)
_INT32: Final = (DataType.INT32,)
_FLOAT32: Final = (DataType.FLOAT32,)


class NmsKernel(Enum):
    """How non-maximum suppression reduces the score of a box for every better box that was selected.

    The score is multiplied by a function of the overlap of both boxes, their intersection over union.
    """

    HARD = 0
    """1 below the threshold, else 0."""
    LINEAR = 1
    """1 below the threshold, else 1 - overlap."""
    GAUSSIAN = 2
    """exp(-overlap**2 / sigma)."""


class DetectionRules(Enum):
    """The implementation that `DetectionPostProcess` follows where those of TFLite, NNAPI and Arm NN differ."""

    TFLITE = "tflite"
    """TFLite: a score equal to its threshold counts, an overlap equal to its threshold does not suppress, every box has
    ``max_classes_per_detection`` rows, and the boxes are counted."""
    NNAPI = "nnapi"
    """NNAPI: a score equal to its threshold does not count, an overlap equal to its threshold suppresses, a box has
    at most as many rows as there are classes, and the rows are counted."""
    ARMNN = "armnn"
    """Arm NN's reference backend: like TFLite, but a box that was suppressed suppresses other boxes, too."""


def _box_problems(info: TensorInfo, name: str) -> Iterator[str]:
    if differ(info.shape[1], 4):
        yield f"{name} has shape {info.shape}; expected 4 numbers for each"


def _classes_of_boxes_problems(info: TensorInfo, name: str) -> Iterator[str]:
    if info.shape[1] % 4 or info.shape[1] == 0:
        yield f"{name} has shape {info.shape}; expected 4 numbers for each class"


def _image_problems(image_info: TensorInfo) -> Iterator[str]:
    if differ(image_info.shape[1], 2):
        yield f"image_info has shape {image_info.shape}; expected height and width for each image"


def _comparison_operations(boxes: TensorInfo | None, rounds: int = 1) -> int:
    """Return the number of operations for comparing every box with every other box, `rounds` times.

    `boxes` is the info of a tensor with four numbers for each box; None counts as no boxes.
    """
    box_count = int(boxes.num_elements) // 4 if boxes is not None else 0
    return 16 * rounds * box_count * box_count


@op(traits=Trait.DISCONTINUOUS)
class DetectionPostProcess(Op):
    """Decode boxes relative to anchors, and select the best ones by non-maximum suppression.

    A box (ymin, xmin, ymax, xmax) has its center at ``encoding / scale * anchor size + anchor center`` and the size
    ``exp(encoding / scale) * anchor size``.

    Regular suppression processes every class independently and keeps the ``max_detections`` best results of all
    classes. Fast suppression uses only the best class of every box and keeps ``max_detections`` boxes. It returns each
    box with its ``max_classes_per_detection`` best classes, one row per class. Unused rows are 0. A box that was
    suppressed does not suppress other boxes, except with Arm NN's ``rules``.

    Shapes:
        box_encodings: (B, N, E), of which the first 4 are (y, x, h, w)
        scores: (B, N, C), with C = num_classes, or num_classes + 1 where class 0 is the background
        anchors: (N, 4), (y center, x center, h, w)
        boxes: (B, D, 4), where D = max_detections * max_classes_per_detection
        classes: (B, D)
        box_scores: (B, D)
        num_detections: (B,)

    Example:
        >>> anchors = [[0.5, 0.5, 1.0, 1.0], [0.5, 0.5, 1.0, 0.75], [2.0, 2.0, 1.0, 1.0]]
        >>> encodings, scores = [[[0.0] * 4] * 3], [[[0.0, 0.25, 0.5], [0.0, 0.5, 0.75], [0.0, 0.5, 0.25]]]
        >>> op = DetectionPostProcess(max_detections=3, num_classes=2)
        >>> boxes, classes, box_scores, num_detections = compute(op, encodings, scores, anchors)
        >>> boxes.tolist()
        [[[0.0, 0.125, 1.0, 0.875], [1.5, 1.5, 2.5, 2.5], [0.0, 0.0, 0.0, 0.0]]]
        >>> classes.tolist(), box_scores.tolist(), num_detections.tolist()
        ([[1.0, 0.0, 0.0]], [[0.75, 0.5, 0.0]], [2.0])

    Source:
        TFLite custom operator TFLite_Detection_PostProcess; NNAPI DETECTION_POSTPROCESSING (which gives scores first);
        Arm NN DetectionPostProcessDescriptor.
    """

    box_encodings = operand(rank=3)
    scores = operand(rank=3)
    anchors = operand(role=Role.PARAMETER, rank=2)
    boxes = result(rank=3)
    classes = result(rank=2)
    box_scores = result(rank=2)
    num_detections = result(rank=1)

    max_detections: int = attribute(ge=1, doc="Maximum number of boxes that are returned.")
    num_classes: int = attribute(ge=1, doc="Number of classes without the background.")
    max_classes_per_detection: int = attribute(
        default=1, ge=1, doc="Number of classes that fast suppression returns for each box."
    )
    detections_per_class: int = attribute(
        default=1, ge=1, doc="Maximum number of boxes per class in regular suppression."
    )
    nms_score_threshold: float = attribute(default=0.0, doc="Boxes with a lower score are ignored.")
    nms_iou_threshold: float = attribute(
        default=0.5, ge=0, doc="A box with a larger overlap (IoU) with a better box is suppressed."
    )
    use_regular_nms: bool = attribute(default=False, doc="Use regular suppression, for every class independently.")
    scale_x: float = attribute(default=1.0, gt=0, doc="Divisor of the encoded x of a center.")
    scale_y: float = attribute(default=1.0, gt=0, doc="Divisor of the encoded y of a center.")
    scale_w: float = attribute(default=1.0, gt=0, doc="Divisor of the encoded width.")
    scale_h: float = attribute(default=1.0, gt=0, doc="Divisor of the encoded height.")
    rules: DetectionRules = attribute(
        default=DetectionRules.TFLITE, doc="The implementation to follow in boundary cases."
    )
    background_in_classes: bool = attribute(default=False, doc="Number the classes from 1; the background is 0.")
    label_dtype: DataType = attribute(
        default=DataType.FLOAT32, choices=(DataType.FLOAT32, DataType.INT32), doc="The type of classes and counts."
    )

    def check(self, box_encodings: TensorInfo, scores: TensorInfo, anchors: TensorInfo) -> Iterator[str]:
        infos = {"box_encodings": box_encodings, "scores": scores, "anchors": anchors}
        yield from dimension_problems(infos, {"box_encodings": "BNE", "scores": "BNC", "anchors": "NA"})
        if box_encodings.shape[2] < 4 and differ(box_encodings.shape[2], 4):
            yield f"box_encodings has shape {box_encodings.shape}; expected at least 4 numbers for each box"
        yield from _box_problems(anchors, "anchors")
        if differ(scores.shape[2], self.num_classes) and differ(scores.shape[2], self.num_classes + 1):
            allowed_text = f"num_classes = {self.num_classes}, or one more with the background"
            yield f"scores has {scores.shape[2]} classes; expected {allowed_text}"

    def infer(self, box_encodings: TensorInfo, scores: TensorInfo, anchors: TensorInfo) -> tuple[TensorInfo, ...]:
        batch, rows = box_encodings.shape[0], self.max_detections * self.max_classes_per_detection
        float_type = box_encodings.dtype if box_encodings.dtype.is_float else DataType.FLOAT32
        return (
            TensorInfo((batch, rows, 4), float_type),
            TensorInfo((batch, rows), self.label_dtype),
            TensorInfo((batch, rows), float_type),
            TensorInfo((batch,), self.label_dtype),
        )

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return _comparison_operations(inputs[2], self.num_classes if self.use_regular_nms else 1)


@op(traits=Trait.DISCONTINUOUS)
class NonMaxSuppression(Op):
    """Select the best boxes of every class and image; boxes that overlap a better selected box are dropped.

    Boxes are (y1, x1, y2, x2), any two opposite corners, or with ``center_point_box`` (x center, y center, width,
    height).

    Shapes:
        boxes: (B, N, 4)
        scores: (B, C, N)
        selected_indices: (K, 3), each (image, class, box); grouped by image and class, best boxes first

    Example:
        >>> boxes = [[[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.75], [0.0, 2.0, 1.0, 3.0]]]
        >>> op = NonMaxSuppression(max_output_boxes_per_class=3, iou_threshold=0.5)
        >>> compute(op, boxes, scores=[[[0.5, 0.75, 0.25]]]).tolist()
        [[0, 0, 1], [0, 0, 2]]

    Source:
        ONNX NonMaxSuppression-11.
    """

    boxes = operand(rank=3)
    scores = operand(rank=3, same_dtype_as="boxes")
    selected_indices = result(rank=2, dtypes=[DataType.INT64], dynamic=True)

    max_output_boxes_per_class: int = attribute(
        default=0, ge=0, doc="Maximum number of boxes of each class; 0 selects none."
    )
    iou_threshold: float = attribute(
        default=0.0, ge=0, le=1, doc="A box with a larger overlap (IoU) with a better box is dropped."
    )
    score_threshold: float | None = attribute(
        default=None, doc="Only boxes with a higher score are considered; None means all."
    )
    center_point_box: bool = attribute(default=False, doc="Boxes are (x center, y center, width, height).")

    def check(self, boxes: TensorInfo, scores: TensorInfo) -> Iterator[str]:
        yield from dimension_problems({"boxes": boxes, "scores": scores}, {"boxes": "BNA", "scores": "BCN"})
        if differ(boxes.shape[2], 4):
            yield f"boxes has shape {boxes.shape}; expected 4 numbers for each"

    def infer(self, boxes: TensorInfo, scores: TensorInfo) -> TensorInfo:
        return TensorInfo((0 if self.max_output_boxes_per_class == 0 else UNKNOWN, 3), DataType.INT64)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        scores = inputs[1]
        assert scores is not None
        return 16 * int(scores.num_elements) * scores.shape[2]


class BoxCode(Enum):
    """What the four numbers of a location say about a box, relative to a prior box."""

    CORNER = 1
    """Offsets of the corners (x1, y1, x2, y2)."""
    CENTER_SIZE = 2
    """Offset of the center, and logarithm of the size, both relative to the prior box's size."""
    CORNER_SIZE = 3
    """Offsets of the corners, relative to the prior box's size."""


@op(traits=Trait.DISCONTINUOUS)
class DetectionOutput(Op):
    """Decode boxes relative to prior boxes, select the best ones of each class, and list them (the end of SSD).

    A box is decoded from four numbers, each multiplied by a variance of the prior box, unless
    ``variance_encoded_in_target``. Of each class but the background, the ``top_k`` boxes with the best scores above
    ``confidence_threshold`` are considered, and those that overlap a better one by more than ``nms_threshold`` are
    dropped. The ``keep_top_k`` best of all classes remain. An image without any has no row; if no image has one, there
    is a row of -1 for each image, which starts with the image's number.

    Shapes:
        locations: (N, P * 4), or (N, P * num_classes * 4) without ``share_location``
        confidences: (N, P * num_classes)
        priors: (1 or N, 2, P * 4), the boxes (x1, y1, x2, y2) and their variances
        detections: (1, 1, K, 7), each (image, class, score, x1, y1, x2, y2); ordered by image, class and falling score

    Example:
        >>> priors = [[[0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 1.0, 1.0], [0.5] * 8]]
        >>> op = DetectionOutput(num_classes=2, nms_threshold=0.5, confidence_threshold=0.5)
        >>> compute(op, [[0.5, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0]], [[0.25, 0.75, 0.75, 0.25]], priors).tolist()
        [[[[0.0, 1.0, 0.75, 0.25, 0.25, 0.75, 0.75]]]]

    Source:
        DetectionOutput of Caffe for SSD; OpenVINO DetectionOutput-8.
    """

    locations = operand(rank=2)
    confidences = operand(rank=2, same_dtype_as="locations")
    priors = operand(role=Role.PARAMETER, rank=3, same_dtype_as="locations")
    detections = result(rank=4, dtype_of="locations", dynamic=True)

    num_classes: int = attribute(ge=1, doc="Number of classes, with the background.")
    share_location: bool = attribute(default=True, doc="All classes have the same boxes.")
    background_label: int = attribute(default=0, doc="The class of the background; -1 if there is none.")
    code: BoxCode = attribute(default=BoxCode.CORNER, doc="What the numbers of a location say about a box.")
    variance_encoded_in_target: bool = attribute(default=False, doc="Locations contain the variances already.")
    confidence_threshold: float | None = attribute(
        default=None, doc="Only boxes with a higher score are considered; None means all."
    )
    nms_threshold: float = attribute(
        default=0.3, ge=0, doc="A box with a larger overlap (IoU) with a better box is dropped."
    )
    top_k: int = attribute(default=-1, ge=-1, doc="Number of boxes of a class that are considered; -1 means all.")
    keep_top_k: int = attribute(default=-1, ge=-1, doc="Number of results for each image; -1 means all.")

    def check(self, locations: TensorInfo, confidences: TensorInfo, priors: TensorInfo) -> Iterator[str]:
        boxes = priors.shape[2] // 4
        location_size = boxes * 4 * (1 if self.share_location else self.num_classes)
        if differ(priors.shape[1], 2) or differ(priors.shape[2], boxes * 4):
            yield f"priors has shape {priors.shape}; expected 2 rows of 4 numbers for each box"
        if differ(locations.shape[1], location_size):
            yield f"locations has shape {locations.shape}; expected {location_size} numbers for each image"
        if differ(confidences.shape[1], boxes * self.num_classes):
            yield f"confidences has shape {confidences.shape}; expected {boxes * self.num_classes} for each image"
        if differ(confidences.shape[0], locations.shape[0]):
            yield f"confidences has shape {confidences.shape}, and locations {locations.shape}; expected one batch"
        if differ(priors.shape[0], 1) and differ(priors.shape[0], locations.shape[0]):
            yield f"priors has shape {priors.shape}; expected a batch of 1, or that of locations, {locations.shape}"

    def infer(self, locations: TensorInfo, confidences: TensorInfo, priors: TensorInfo) -> TensorInfo:
        return TensorInfo((1, 1, UNKNOWN, 7), locations.dtype)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        confidences = inputs[1]
        assert confidences is not None
        return 64 * int(confidences.num_elements)


@op(traits=Trait.DISCONTINUOUS)
class PaddedNonMaxSuppression(Op):
    """Select the best boxes of one image by hard or soft suppression, and fill the results up with zeros.

    Boxes are (y1, x1, y2, x2), any two opposite corners. Only boxes with a score above ``score_threshold`` are
    considered. A box whose overlap (IoU) with a better selected box is at least ``iou_threshold`` is dropped. With
    ``soft_nms_sigma`` above 0, each smaller overlap multiplies the score by ``exp(-IoU**2 / (2 * soft_nms_sigma))``.

    Shapes:
        boxes: (N, 4)
        scores: (N,)
        max_output_size: (), K
        iou_threshold, score_threshold, soft_nms_sigma: ()
        selected_indices: (K,)
        selected_scores: (K,), reduced by soft suppression
        num_selected: ()

    Example:
        >>> boxes = [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.75], [0.0, 2.0, 1.0, 3.0]]
        >>> operands = {"max_output_size": 3, "iou_threshold": 0.5, "score_threshold": 0.0}
        >>> chosen = compute(PaddedNonMaxSuppression(), boxes, [0.5, 0.75, 0.25], **operands)
        >>> [result.tolist() for result in chosen]
        [[1, 2, 0], [0.75, 0.25, 0.0], 2]

    Source:
        TFLite NON_MAX_SUPPRESSION_V4, NON_MAX_SUPPRESSION_V5.
    """

    boxes = operand(rank=2, dtypes=_FLOAT32)
    scores = operand(rank=1, dtypes=_FLOAT32)
    max_output_size = operand(role=Role.SIZES, rank=(0, 1), dtypes=_INT32)
    iou_threshold = operand(role=Role.PARAMETER, rank=(0, 1), dtypes=_FLOAT32)
    score_threshold = operand(role=Role.PARAMETER, rank=(0, 1), dtypes=_FLOAT32)
    soft_nms_sigma = operand(role=Role.PARAMETER, rank=(0, 1), dtypes=_FLOAT32, optional=True)
    selected_indices = result(rank=1, dtypes=_INT32, dynamic=True)
    selected_scores = result(rank=1, dtypes=_FLOAT32, dynamic=True)
    num_selected = result(rank=0, dtypes=_INT32)

    def check(self, boxes: TensorInfo, scores: TensorInfo, max_output_size: TensorInfo, *numbers: Any) -> Iterator[str]:
        yield from dimension_problems({"boxes": boxes, "scores": scores}, {"boxes": "NA", "scores": "N"})
        yield from _box_problems(boxes, "boxes")
        names = ("max_output_size", "iou_threshold", "score_threshold", "soft_nms_sigma")
        for name, info in zip(names, (max_output_size, *numbers), strict=True):
            if info is not None and differ(info.num_elements, 1):
                yield f"{name} has shape {info.shape}; expected one number"
        if max_output_size.constant is not None and (max_output_size.constant < 0).any():
            yield f"max_output_size is {max_output_size.constant.item()}; expected 0 or more"

    def infer(
        self, boxes: TensorInfo, scores: TensorInfo, max_output_size: TensorInfo, *_: Any
    ) -> tuple[TensorInfo, ...]:
        max_size = max_output_size.constant
        count = UNKNOWN if max_size is None else int(max_size.reshape(-1)[0])
        indices, selected_scores = TensorInfo((count,), DataType.INT32), TensorInfo((count,), DataType.FLOAT32)
        return indices, selected_scores, TensorInfo((), DataType.INT32)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return _comparison_operations(inputs[0])


@op(traits=Trait.DISCONTINUOUS)
class BoxWithNmsLimit(Op):
    """Keep the best boxes of every class but class 0 (the background) by soft or hard non-maximum suppression.

    Every image and every class is processed independently. Of the boxes whose score is above ``score_threshold``, the
    best one is selected, and the scores of the others are multiplied as ``nms_kernel`` specifies. A box whose score
    falls below ``nms_score_threshold`` is dropped. At most ``max_detections`` results of an image are returned, ordered
    by class, then by score.

    Shapes:
        scores: (N, C)
        boxes: (N, C * 4)
        batches: (N,), the image that each box belongs to; boxes of one image are contiguous
        box_scores: (K,)
        kept_boxes: (K, 4)
        classes: (K,)
        kept_batches: (K,)

    Example:
        >>> scores = [[0.5, 0.5], [0.25, 0.75], [0.75, 0.25]]
        >>> boxes = [[0.0, 0.0, 1.0, 1.0] * 2, [0.0, 0.0, 1.0, 0.75] * 2, [2.0, 0.0, 3.0, 1.0] * 2]
        >>> op = BoxWithNmsLimit(score_threshold=0.125, nms_score_threshold=0.125)
        >>> box_scores, kept_boxes, classes, kept_batches = compute(op, scores, boxes, batches=[0, 0, 0])
        >>> box_scores.tolist(), kept_boxes.tolist(), classes.tolist()
        ([0.75, 0.25], [[0.0, 0.0, 1.0, 0.75], [2.0, 0.0, 3.0, 1.0]], [1, 1])

    Source:
        NNAPI BOX_WITH_NMS_LIMIT.
    """

    scores = operand(rank=2)
    boxes = operand(rank=2)
    batches = operand(role=Role.INDICES, rank=1, dtypes=_INT32)
    box_scores = result(rank=1, dtype_of="scores", dynamic=True)
    kept_boxes = result(rank=2, dtype_of="boxes", dynamic=True)
    classes = result(rank=1, dtypes=_INT32, dynamic=True)
    kept_batches = result(rank=1, dtypes=_INT32, dynamic=True)

    score_threshold: float = attribute(default=0.0, doc="Only boxes with a higher score are considered.")
    max_detections: int = attribute(default=-1, doc="Maximum number of results of each image; negative: no limit.")
    nms_kernel: NmsKernel = attribute(default=NmsKernel.HARD, doc="How the overlap reduces the score of the worse box.")
    iou_threshold: float = attribute(
        default=0.5, doc="Minimum overlap (IoU) that reduces a score; not used by GAUSSIAN."
    )
    sigma: float = attribute(default=1.0, gt=0, doc="The width of the Gaussian kernel.")
    nms_score_threshold: float = attribute(default=0.0, doc="A box whose reduced score is below this is dropped.")

    def check(self, scores: TensorInfo, boxes: TensorInfo, batches: TensorInfo) -> Iterator[str]:
        infos = {"scores": scores, "boxes": boxes, "batches": batches}
        yield from dimension_problems(infos, {"scores": "NC", "boxes": "NA", "batches": "N"})
        if scores.shape[1] < 2:
            yield f"scores has {scores.shape[1]} classes; expected the background and at least one more"
        if differ(boxes.shape[1], scores.shape[1] * 4):
            yield f"boxes has shape {boxes.shape}; expected 4 numbers for each of {scores.shape[1]} classes"

    def infer(self, scores: TensorInfo, boxes: TensorInfo, batches: TensorInfo) -> tuple[TensorInfo, ...]:
        labels = TensorInfo((UNKNOWN,), DataType.INT32)
        return scores.with_shape((UNKNOWN,)), boxes.with_shape((UNKNOWN, 4)), labels, labels

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        scores = inputs[0]
        assert scores is not None
        return 16 * int(scores.num_elements) * scores.shape[0]


@op
class AxisAlignedBboxTransform(Op):
    """Shift and scale boxes, separately for each class, and clip them to their image.

    Deltas are (dx, dy, dw, dh): the center moves by ``dx * width`` and ``dy * height``, and the size is multiplied by
    ``exp(dw)`` and ``exp(dh)``.

    Shapes:
        boxes: (N, 4)
        deltas: (N, C * 4)
        batches: (N,), the image that each box belongs to
        image_info: (B, 2), height and width of each image
        output: (N, C * 4)

    Example:
        >>> boxes, image_info = [[0.0, 0.0, 4.0, 2.0], [2.0, 2.0, 4.0, 4.0]], [[5.0, 5.0]]
        >>> deltas = [[0.5, 0.0, 0.0, 0.0], [0.0, 0.0, np.log(2.0), 0.0]]
        >>> compute(AxisAlignedBboxTransform(), boxes, deltas, [0, 0], image_info).round(3).tolist()
        [[2.0, 0.0, 5.0, 2.0], [1.0, 2.0, 5.0, 4.0]]

    Source:
        NNAPI AXIS_ALIGNED_BBOX_TRANSFORM.
    """

    boxes = operand(rank=2)
    deltas = operand(rank=2)
    batches = operand(role=Role.INDICES, rank=1, dtypes=_INT32)
    image_info = operand(role=Role.PARAMETER, rank=2)
    output = result(rank=2, dtype_of="boxes")

    def check(
        self, boxes: TensorInfo, deltas: TensorInfo, batches: TensorInfo, image_info: TensorInfo
    ) -> Iterator[str]:
        infos = {"boxes": boxes, "deltas": deltas, "batches": batches}
        yield from dimension_problems(infos, {"boxes": "NA", "deltas": "ND", "batches": "N"})
        yield from _box_problems(boxes, "boxes")
        yield from _classes_of_boxes_problems(deltas, "deltas")
        yield from _image_problems(image_info)

    def infer(self, boxes: TensorInfo, deltas: TensorInfo, batches: TensorInfo, image_info: TensorInfo) -> TensorInfo:
        return boxes.with_shape(deltas.shape)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return 8 * int(outputs[0].num_elements)


@op(traits=Trait.DISCONTINUOUS)
class GenerateProposals(Op):
    """Propose boxes: place anchors over an image, transform them by deltas, and select by non-maximum suppression.

    An anchor is placed at every cell of the network's result, shifted by the cell's position times the strides. It is
    transformed like in `AxisAlignedBboxTransform`. The ``pre_nms_max`` best boxes are considered. Boxes that do not
    exceed ``min_size`` in both directions, or whose center is outside the image, are dropped.

    Shapes (NHWC; NCHW in brackets):
        scores: (B, H, W, A) [(B, A, H, W)]
        deltas: (B, H, W, A * 4) [(B, A * 4, H, W)]
        anchors: (A, 4)
        image_info: (B, 2), height and width of each image
        box_scores: (K,)
        boxes: (K, 4)
        batches: (K,), the image that each box belongs to

    Example:
        >>> op = GenerateProposals(width_stride=8.0, data_layout=DataLayout.NHWC)
        >>> scores, deltas = [[[[0.25], [0.75]]]], [[[[0.0] * 4] * 2]]
        >>> proposals = compute(op, scores, deltas, anchors=[[0.0, 0.0, 4.0, 4.0]], image_info=[[16.0, 16.0]])
        >>> [result.tolist() for result in proposals]
        [[0.75, 0.25], [[8.0, 0.0, 12.0, 4.0], [0.0, 0.0, 4.0, 4.0]], [0, 0]]

    Source:
        NNAPI GENERATE_PROPOSALS.
    """

    scores = operand(rank=4)
    deltas = operand(rank=4)
    anchors = operand(role=Role.PARAMETER, rank=2)
    image_info = operand(role=Role.PARAMETER, rank=2)
    box_scores = result(rank=1, dtype_of="scores", dynamic=True)
    boxes = result(rank=2, dtype_of="image_info", dynamic=True)
    batches = result(rank=1, dtypes=_INT32, dynamic=True)

    height_stride: float = attribute(default=1.0, gt=0, doc="Number of image rows per row of the scores.")
    width_stride: float = attribute(default=1.0, gt=0, doc="Number of image columns per column of the scores.")
    pre_nms_max: int = attribute(default=-1, doc="Maximum number of boxes before suppression; 0 or less: no limit.")
    post_nms_max: int = attribute(
        default=-1, doc="Maximum number of boxes of each image after suppression; 0 or less: no limit."
    )
    iou_threshold: float = attribute(default=0.5, doc="Minimum overlap (IoU) at which the worse box is dropped.")
    min_size: float = attribute(default=0.0, doc="The size that a box must exceed in both directions.")
    data_layout: DataLayout = attribute(
        default=DataLayout.NCHW, choices=_IMAGES, doc="The layout of scores and deltas."
    )

    def check(
        self, scores: TensorInfo, deltas: TensorInfo, anchors: TensorInfo, image_info: TensorInfo
    ) -> Iterator[str]:
        infos = {"scores": scores, "deltas": deltas, "anchors": anchors, "image_info": image_info}
        axis_letters = {"scores": "BHWA", "deltas": "BHWD"}
        if self.data_layout is DataLayout.NCHW:
            axis_letters = {"scores": "BAHW", "deltas": "BDHW"}
        yield from dimension_problems(infos, axis_letters | {"anchors": "AE", "image_info": "BI"})
        yield from _box_problems(anchors, "anchors")
        yield from _image_problems(image_info)
        channel_axis = self.data_layout.axes().channels
        anchor_count = scores.shape[channel_axis]
        if differ(deltas.shape[channel_axis], anchor_count * 4):
            yield f"deltas has shape {deltas.shape}; expected 4 numbers for each of {anchor_count} anchors"

    def infer(
        self, scores: TensorInfo, deltas: TensorInfo, anchors: TensorInfo, image_info: TensorInfo
    ) -> tuple[TensorInfo, ...]:
        batches = TensorInfo((UNKNOWN,), DataType.INT32)
        return scores.with_shape((UNKNOWN,)), image_info.with_shape((UNKNOWN, 4)), batches

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return _comparison_operations(inputs[1])

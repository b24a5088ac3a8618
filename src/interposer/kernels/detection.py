"""Kernels of the detection operators. They compute in float32, and in float64 for float64 inputs.

`DetectionPostProcess` decodes boxes in float64, and rounds centers and sizes before it adds them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from interposer.core.room import check_room
from interposer.core.types import Array, DataType
from interposer.kernels.boxes import (
    REALS,
    REALS_OF_FEW_BITS,
    best_boxes,
    check_boxes,
    check_images,
    isolated_boxes,
    moved,
    reals_only,
    soft_lowering,
    stored,
    take_greedily,
)
from interposer.kernels.layout import to_nhwc
from interposer.kernels.operand_values import checked_count
from interposer.kernels.real import WIDE_FLOATS, real
from interposer.kernels.reference import kernel
from interposer.kernels.suppression import Suppression
from interposer.kernels.table import KernelInfo
from interposer.ops.detection import (
    AxisAlignedBboxTransform,
    BoxCode,
    BoxWithNmsLimit,
    DetectionOutput,
    DetectionPostProcess,
    DetectionRules,
    GenerateProposals,
    NonMaxSuppression,
    PaddedNonMaxSuppression,
)

__all__: list[str] = []


# --- detections relative to anchors -----------------------------------------------------------------------------------


@kernel(DetectionPostProcess, dtypes={"box_encodings": REALS_OF_FEW_BITS, "*": REALS}, when=reals_only)
def detection_post_process(
    op: DetectionPostProcess, encodings: Array, scores: Array, anchors: Array, *, info: KernelInfo
) -> tuple[Array, ...]:
    """Compute `DetectionPostProcess` for each image; return boxes, classes, scores and numbers of detections.

    Boxes are decoded in float64.
    """
    decoded_boxes = _decoded(op, real(encodings, info.at(0)), real(anchors, info.at(2)))
    images = zip(decoded_boxes, real(scores, info.at(1)), strict=True)
    detections = [_Detections(op).of(boxes, classes) for boxes, classes in images]
    if not detections:
        return tuple(np.empty(tuple(output.shape), output.dtype.numpy) for output in info.outputs)
    return tuple(np.stack(arrays) for arrays in zip(*detections, strict=True))


def _decoded(op: DetectionPostProcess, encodings: Array, anchors: Array) -> Array:
    anchor_centers, anchor_sizes = np.split(anchors.astype(np.float64), 2, axis=1)
    offsets, log_sizes = encodings[..., :2].astype(np.float64), encodings[..., 2:4].astype(np.float64)
    centers = (offsets / (op.scale_y, op.scale_x) * anchor_sizes + anchor_centers).astype(encodings.dtype)
    half_sizes = (np.exp(log_sizes / (op.scale_h, op.scale_w)) * anchor_sizes / 2).astype(encodings.dtype)
    return np.concatenate([centers - half_sizes, centers + half_sizes], axis=-1)


class _Detections:
    """Selects the detections of one image for `DetectionPostProcess`, and collects them in arrays."""

    def __init__(self, op: DetectionPostProcess) -> None:
        self.op = op
        rows = op.max_detections * op.max_classes_per_detection
        self.boxes, self.scores, self.classes = np.zeros((rows, 4)), np.zeros(rows), np.zeros(rows)

    def of(self, boxes: Array, scores: Array) -> tuple[Array, ...]:
        """Return boxes, classes, scores and number of the image's detections.

        They are selected from decoded boxes (N, 4) with scores (N, C).
        """
        scores = scores[:, scores.shape[1] - self.op.num_classes :]
        count = self._regular(boxes, scores) if self.op.use_regular_nms else self._fast(boxes, scores)
        return self.boxes, self.classes, self.scores, np.array(count)

    def _regular(self, boxes: Array, scores: Array) -> int:
        class_and_box_pairs = [
            (score_class, box)
            for score_class in range(self.op.num_classes)
            for box in self._best(boxes, scores[:, score_class], self.op.detections_per_class)
        ]
        class_and_box_pairs.sort(key=lambda pair: -scores[pair[1], pair[0]])
        class_and_box_pairs = class_and_box_pairs[: self.op.max_detections]
        for row, (score_class, box) in enumerate(class_and_box_pairs):
            self._put(row, boxes[box], score_class, scores[box, score_class])
        return len(class_and_box_pairs)

    def _fast(self, boxes: Array, scores: Array) -> int:
        class_count = min(self.op.max_classes_per_detection, self.op.num_classes)
        is_nnapi = self.op.rules is DetectionRules.NNAPI
        rows_per_box = class_count if is_nnapi else self.op.max_classes_per_detection
        chosen_boxes = self._best(boxes, scores.max(axis=1, initial=-np.inf), self.op.max_detections)
        for position, box in enumerate(chosen_boxes):
            for rank, score_class in enumerate(np.argsort(-scores[box], kind="stable")[:class_count]):
                self._put(position * rows_per_box + rank, boxes[box], int(score_class), scores[box, score_class])
        return len(chosen_boxes) * class_count if is_nnapi else len(chosen_boxes)

    def _best(self, boxes: Array, scores: Array, limit: int) -> list[int]:
        min_score, max_overlap = self.op.nms_score_threshold, self.op.nms_iou_threshold
        if self.op.rules is not DetectionRules.NNAPI:
            suppress = best_boxes if self.op.rules is DetectionRules.TFLITE else isolated_boxes
            return suppress(boxes, scores, np.flatnonzero(scores >= min_score), limit, max_overlap)
        candidates = np.flatnonzero(scores > min_score).tolist()
        return take_greedily(boxes, scores, candidates, limit, lambda _, overlap: overlap >= max_overlap)

    def _put(self, row: int, box: Array, score_class: int, score: float) -> None:
        self.boxes[row], self.scores[row] = box, score
        self.classes[row] = score_class + self.op.background_in_classes


# --- suppression ------------------------------------------------------------------------------------------------------


@kernel(NonMaxSuppression, dtypes=WIDE_FLOATS)
def non_max_suppression(op: NonMaxSuppression, boxes: Array, scores: Array, *, info: KernelInfo) -> Array:
    """Compute `NonMaxSuppression`; return the (image, class, box) indices of the selected boxes, (K, 3).

    The corners of each box are sorted first.
    """
    corners = _corners(op, real(boxes, info.at(0)))
    chosen = [
        (image, class_index, box)
        for image, classes in enumerate(real(scores, info.at(1)))
        for class_index, class_scores in enumerate(classes)
        for box in best_boxes(
            corners[image], class_scores, _candidates(op, class_scores), op.max_output_boxes_per_class, op.iou_threshold
        )
    ]
    return np.array(chosen, np.int64).reshape(-1, 3)


def _corners(op: NonMaxSuppression, boxes: Array) -> Array:
    a, b = boxes[..., :2], boxes[..., 2:]
    if op.center_point_box:
        return np.concatenate([a - b / 2, a + b / 2], axis=-1)
    return np.concatenate([np.minimum(a, b), np.maximum(a, b)], axis=-1)


@kernel(PaddedNonMaxSuppression)
def padded_suppression(
    op: PaddedNonMaxSuppression,
    boxes: Array,
    scores: Array,
    max_output_size: Array,
    iou_threshold: Array,
    score_threshold: Array,
    soft_nms_sigma: Array | None,
) -> tuple[Array, Array, Array]:
    """Compute `PaddedNonMaxSuppression`; the corners of each box are sorted first."""
    limit = checked_count("max_output_size", max_output_size)
    check_room((limit,), 2 * np.dtype(np.int32).itemsize)
    sigma = 0.0 if soft_nms_sigma is None else float(soft_nms_sigma.reshape(-1)[0])
    thresholds = iou_threshold.reshape(-1)[0], score_threshold.reshape(-1)[0]
    corners = np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], axis=1)
    candidates = Suppression(corners, *thresholds, sigma).selected(scores, limit)
    indices, selected_scores = np.zeros(limit, np.int32), np.zeros(limit, np.float32)
    indices[: len(candidates)] = [candidate.box for candidate in candidates]
    selected_scores[: len(candidates)] = [candidate.score for candidate in candidates]
    return indices, selected_scores, np.array(len(candidates), np.int32)


def _candidates(op: NonMaxSuppression, scores: Array) -> Array:
    lowest = -np.inf if op.score_threshold is None else op.score_threshold
    return np.flatnonzero(scores > lowest)


# --- detections relative to prior boxes -------------------------------------------------------------------------------


@kernel(DetectionOutput, dtypes=WIDE_FLOATS)
def detection_output(
    op: DetectionOutput, locations: Array, confidences: Array, priors: Array, *, info: KernelInfo
) -> Array:
    """Compute `DetectionOutput`; return a row (image, class, score, box) for each selected box, (1, 1, K, 7)."""
    batch, classes = len(locations), op.num_classes
    prior_boxes = real(priors, info.at(2)).reshape(len(priors), 2, -1, 1, 4)
    encoded_boxes = real(locations, info.at(0)).reshape(batch, prior_boxes.shape[2], -1, 4)
    boxes = np.broadcast_to(
        _prior_decoded(op, encoded_boxes, prior_boxes), (batch, prior_boxes.shape[2], encoded_boxes.shape[2], 4)
    )
    scores = real(confidences, info.at(1)).reshape(batch, -1, classes)
    rows = [row for image in range(batch) for row in _image_rows(op, image, boxes[image], scores[image])]
    if not rows:
        rows = [(image, *[-1] * 6) for image in range(batch)]
    return stored(np.array(rows, np.float64).reshape(1, 1, -1, 7), info.outputs[0])


def _prior_decoded(op: DetectionOutput, encoded_boxes: Array, priors: Array) -> Array:
    """Return the boxes (x1, y1, x2, y2) that locations describe relative to prior boxes with variances."""
    prior_boxes, variances = priors[:, 0], priors[:, 1]
    offsets = encoded_boxes if op.variance_encoded_in_target else encoded_boxes * variances
    if op.code is BoxCode.CORNER:
        return np.asarray(prior_boxes + offsets)
    sizes = prior_boxes[..., 2:] - prior_boxes[..., :2]
    if op.code is BoxCode.CORNER_SIZE:
        return np.asarray(prior_boxes + offsets * np.concatenate([sizes, sizes], axis=-1))
    centers = offsets[..., :2] * sizes + (prior_boxes[..., :2] + prior_boxes[..., 2:]) / 2
    half_sizes = np.exp(offsets[..., 2:]) * sizes / 2
    return np.concatenate([centers - half_sizes, centers + half_sizes], axis=-1)


def _image_rows(op: DetectionOutput, image: int, boxes: Array, scores: Array) -> list[tuple[float, ...]]:
    """Return the rows for the boxes that are selected in one image, from boxes (P, 1 or C, 4) and scores (P, C)."""
    chosen = [
        (label, box)
        for label in range(op.num_classes)
        if label != op.background_label
        for box in _selected(op, boxes[:, label if boxes.shape[1] > 1 else 0], scores[:, label])
    ]
    if 0 <= op.keep_top_k < len(chosen):
        order = np.argsort([-scores[box, label] for label, box in chosen], kind="stable")[: op.keep_top_k]
        chosen = [chosen[index] for index in sorted(order)]
    labeled_boxes = ((label, box, boxes[box, label if boxes.shape[1] > 1 else 0]) for label, box in chosen)
    return [(image, label, scores[box, label], *coordinates) for label, box, coordinates in labeled_boxes]


def _selected(op: DetectionOutput, boxes: Array, scores: Array) -> list[int]:
    """Return the boxes of a class that are selected, in order of falling score."""
    lowest = -np.inf if op.confidence_threshold is None else op.confidence_threshold
    candidates = np.flatnonzero(scores > lowest)
    if 0 <= op.top_k < len(candidates):
        candidates = np.sort(candidates[np.argsort(-scores[candidates], kind="stable")[: op.top_k]])
    return best_boxes(boxes, scores, candidates, len(candidates), op.nms_threshold)


@kernel(BoxWithNmsLimit, dtypes={"scores": REALS_OF_FEW_BITS, "*": REALS}, when=reals_only)
def box_with_nms_limit(
    op: BoxWithNmsLimit, scores: Array, boxes: Array, batches: Array, *, info: KernelInfo
) -> tuple[Array, ...]:
    """Compute `BoxWithNmsLimit`; return the scores, boxes, classes and image indices of the selected boxes.

    Boxes are returned unchanged, while suppression may have reduced the scores.
    """
    real_scores, classes = real(scores, info.at(0)).copy(), scores.shape[1]
    corners = real(boxes, info.at(1)).reshape(-1, classes, 4)
    chosen = [pair for rows in _images(batches) for pair in _best_pairs(op, real_scores, corners, rows)]
    rows, columns = np.array(chosen, np.int64).reshape(-1, 2).T
    chosen_boxes = boxes.reshape(-1, classes, 4)[rows, columns]
    return stored(real_scores[rows, columns], info.outputs[0]), chosen_boxes, columns, batches[rows]


def _images(batches: Array) -> Iterator[Array]:
    """Yield for each image the indices of its boxes, which are contiguous in `batches`, the image of every box."""
    borders = np.flatnonzero(np.diff(batches)) + 1
    yield from np.split(np.arange(len(batches)), borders) if len(batches) else ()


def _best_pairs(op: BoxWithNmsLimit, scores: Array, boxes: Array, rows: Array) -> list[tuple[int, int]]:
    """Return the (box, class) pairs that `BoxWithNmsLimit` selects in one image, by class, then by falling score.

    Scores (N, C) and boxes (N, C, 4) are those of all images. `rows` are the indices of the image's boxes, and the box
    of a pair is one of them. Suppression reduces elements of `scores` in place.
    """
    pairs: list[tuple[int, int]] = []
    limit = None if op.max_detections < 0 else op.max_detections
    for column in range(1, scores.shape[1]):
        class_boxes, candidates = boxes[:, column], rows[scores[rows, column] > op.score_threshold]
        check_boxes(class_boxes[candidates], f"class {column}")
        class_scores = scores[:, column]
        lower_scores = soft_lowering(op.nms_kernel, class_scores, op.iou_threshold, op.sigma, op.nms_score_threshold)
        pairs += [
            (row, column) for row in take_greedily(class_boxes, class_scores, candidates.tolist(), limit, lower_scores)
        ]
    best_first = sorted(pairs, key=lambda pair: -scores[pair])
    return sorted(best_first[:limit], key=lambda pair: pair[1])


# --- proposals --------------------------------------------------------------------------------------------------------


@kernel(AxisAlignedBboxTransform, dtypes={"boxes": WIDE_FLOATS | {DataType.UINT16}, "*": REALS}, when=reals_only)
def axis_aligned_bbox_transform(
    op: AxisAlignedBboxTransform, boxes: Array, deltas: Array, batches: Array, image_info: Array, *, info: KernelInfo
) -> Array:
    """Compute `AxisAlignedBboxTransform` for all classes at once."""
    check_images(batches, len(image_info))
    class_deltas = real(deltas, info.at(1)).reshape(len(boxes), deltas.shape[1] // 4, 4)
    transformed_boxes = moved(real(boxes, info.at(0)), class_deltas, real(image_info, info.at(3))[batches])
    return stored(transformed_boxes.reshape(deltas.shape), info.output)


@kernel(GenerateProposals, dtypes={"scores": REALS_OF_FEW_BITS, "*": REALS}, when=reals_only)
def generate_proposals(
    op: GenerateProposals, scores: Array, deltas: Array, anchors: Array, image_info: Array, *, info: KernelInfo
) -> tuple[Array, ...]:
    """Compute `GenerateProposals`: transform all anchors of all images, then select for each image.

    Return the scores, the boxes and the image index of the selected boxes.
    """
    score_maps = to_nhwc(real(scores, info.at(0)), op.data_layout)
    shifted_anchors, image_sizes = (
        _shifted_anchors(op, real(anchors, info.at(2)), *score_maps.shape[1:3]),
        real(image_info, info.at(3)),
    )
    images, anchor_count = len(score_maps), len(shifted_anchors)
    flat_deltas = to_nhwc(real(deltas, info.at(1)), op.data_layout).reshape(images * anchor_count, 1, 4)
    boxes = moved(np.tile(shifted_anchors, (images, 1)), flat_deltas, image_sizes.repeat(anchor_count, axis=0)).reshape(
        images, anchor_count, 4
    )
    flat_scores = score_maps.reshape(images, anchor_count)
    pairs = [
        (image, box)
        for image in range(images)
        for box in _proposed(op, boxes[image], flat_scores[image], image_sizes[image])
    ]
    batches, chosen = np.array(pairs, np.int64).reshape(-1, 2).T
    chosen_rows = flat_scores[batches, chosen], boxes[batches, chosen]
    return stored(chosen_rows[0], info.outputs[0]), stored(chosen_rows[1], info.outputs[1]), batches


def _shifted_anchors(op: GenerateProposals, anchors: Array, height: int, width: int) -> Array:
    """Return the anchors (A, 4) shifted to every cell of a feature map, as (height * width * A, 4).

    Like the scores, they are ordered by row, column and anchor.
    """
    y, x = (np.arange(height) * op.height_stride)[:, np.newaxis], np.arange(width) * op.width_stride
    corners = np.stack(np.broadcast_arrays(x, y), axis=-1).astype(anchors.dtype)
    shifts = np.concatenate([corners, corners], axis=-1)[:, :, np.newaxis]
    shifted: Array = (anchors + shifts).reshape(-1, 4)
    return shifted


def _proposed(op: GenerateProposals, boxes: Array, scores: Array, image_size: Array) -> list[int]:
    """Return the positions of the selected boxes of one image, in the order of their selection.

    The boxes (N, 4) have these scores (N,); `image_size` is the height and width of the image.
    """
    candidates = np.arange(len(scores))
    if 0 < op.pre_nms_max < len(scores):
        candidates = np.argsort(-scores, kind="stable")[: op.pre_nms_max]
    low_corners, high_corners = boxes[candidates, :2], boxes[candidates, 2:]
    sizes, centers = high_corners - low_corners, low_corners + (high_corners - low_corners) / 2
    is_valid = (sizes > op.min_size) & (centers < image_size[::-1])
    limit = op.post_nms_max if op.post_nms_max > 0 else None
    valid_candidates = candidates[is_valid.all(axis=1)].tolist()
    return take_greedily(boxes, scores, valid_candidates, limit, lambda _, overlap: overlap >= op.iou_threshold)

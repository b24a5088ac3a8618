"""TensorFlow converters for the selection of boxes in object detectors."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataType
from interposer.frontends.elementwise import GREATER
from interposer.frontends.reshaping import final_reshape, reshaped
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.choice import TopK
from interposer.ops.detection import NonMaxSuppression
from interposer.ops.dynamic import DynamicSlice
from interposer.ops.elementwise import Where
from interposer.ops.gather import Gather, GatherNd
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat, Slice, Stack, Transpose
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.reshape import Shape

__all__: list[str] = []

_MOST_IMAGES: Final = 64
_MOST: Final = 1 << 16
"""The largest number of boxes that are selected if the limit is computed at run time."""


@operator("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3")
def non_max_suppression(node: Node) -> Value:
    """Convert NonMaxSuppression: the indices of the selected boxes, best ones first."""
    return node.result(Cast(DataType.INT32), _selected(node))


@operator("NonMaxSuppressionV4", outputs=("selected_indices", "valid_outputs"))
def padded_non_max_suppression(node: Node) -> list[Value]:
    """Convert NonMaxSuppressionV4, which also counts the selected boxes, and may pad the indices with zeros."""
    selected_boxes = node.step(Cast(DataType.INT32), _selected(node))
    count_vector = node.step(Shape(DataType.INT32), selected_boxes)
    num_selected = final_reshape(node, count_vector, [])
    if not node.flag("pad_to_max_output_size", False):
        return [selected_boxes, num_selected]
    return [_padded(node, selected_boxes, node.integer_of(2, "max_output_size")), num_selected]


@operator("NonMaxSuppressionV5", outputs=("selected_indices", "selected_scores", "valid_outputs"))
def scored_non_max_suppression(node: Node) -> list[Value]:
    """Convert NonMaxSuppressionV5 without a soft threshold, which returns the scores too."""
    if node.number_of(5, "soft_nms_sigma") != 0:
        node.unsupported("its soft_nms_sigma is not 0")
    selected_boxes = node.step(Cast(DataType.INT32), _selected(node))
    scores = node.step(Gather(0), node.value(1), selected_boxes)
    num_selected = final_reshape(node, node.step(Shape(DataType.INT32), selected_boxes), [])
    if node.flag("pad_to_max_output_size", False):
        max_boxes = node.integer_of(2, "max_output_size")
        selected_boxes, scores = _padded(node, selected_boxes, max_boxes), _padded(node, scores, max_boxes)
    return [selected_boxes, scores, num_selected]


def _selected(node: Node) -> Value:
    """Return the indices of the selected boxes as int64; the operands are boxes, scores and three thresholds."""
    boxes, scores = node.value(0), node.value(1)
    is_limit_computed = node.is_unknown(node.value(2))
    max_boxes = _MOST if is_limit_computed else node.integer_of(2, "max_output_size")
    if boxes.known.rank != 2 or scores.known.rank != 1:
        raise ParseError(f"its boxes have the shape {boxes.known.shape} and its scores {scores.known.shape}")
    has_attributes = node.kind == "NonMaxSuppression"
    iou_threshold = node.number("iou_threshold", 0.5) if has_attributes else node.number_of(3, "iou_threshold")
    score_threshold = node.number_of(4, "score_threshold") if node.num_inputs > 4 else None
    op = NonMaxSuppression(
        max(0, max_boxes),
        iou_threshold,
        None if score_threshold is None or np.isneginf(score_threshold) else score_threshold,
    )
    selected_boxes = node.step(op, reshaped(node, boxes, [1, -1, 4]), reshaped(node, scores, [1, 1, -1]))
    indices = reshaped(node, node.step(Slice((0, 2), (-1, 1)), selected_boxes), [-1])
    if not is_limit_computed:
        return indices
    end = reshaped(node, node.cast(node.value(2), DataType.INT64), [1])
    return node.step(DynamicSlice((0,)), indices, node.constant(np.zeros(1, np.int64)), end)


def _padded(node: Node, vector: Value, count: int) -> Value:
    """Return the first `count` elements of a vector with zeros appended."""
    zeros = node.constant(np.zeros(count, vector.known.dtype.numpy))
    return node.result(Slice((0,), (count,)), node.step(Concat(0), vector, zeros))


@operator(
    "CombinedNonMaxSuppression", outputs=("nmsed_boxes", "nmsed_scores", "nmsed_classes", "valid_detections")
)  # fmt: skip
def combined_non_max_suppression(node: Node) -> list[Value]:
    """Convert CombinedNonMaxSuppression for boxes that all classes share, one image after the other."""
    boxes, scores = node.info(0).shape, node.info(1).shape
    if len(boxes) != 4 or len(scores) != 3:
        raise ParseError(f"its boxes have the shape {boxes} and its scores {scores}")
    if boxes[2] != 1:
        node.unsupported("every class has boxes of its own")
    images, classes = node.known(boxes[0], "batch size"), node.known(scores[2], "number of classes")
    if not 0 < images <= _MOST_IMAGES:
        node.unsupported(f"it has {images} images; 1 to {_MOST_IMAGES} are supported")
    max_per_class, max_total = node.integer_of(2, "max_output_size_per_class"), node.integer_of(3, "max_total_size")
    if max_per_class < 0 or not 0 < max_total <= _MOST:
        raise ParseError(f"it selects {max_per_class} boxes of each class, and {max_total} of all")
    if node.flag("pad_per_class", False):
        max_total = min(max_total, max_per_class * classes)
    results_per_image = [_best(node, image, max_per_class, max_total) for image in range(images)]
    return [node.result(Stack(0), *tensors) for tensors in zip(*results_per_image, strict=True)]


def _best(node: Node, image: int, max_per_class: int, max_total: int) -> list[Value]:
    """Return boxes, scores and classes of the best boxes of an image, padded with zeros, and their number."""
    boxes = reshaped(node, node.step(Slice((image, 0, 0, 0), (1, -1, -1, -1)), node.value(0)), [1, -1, 4])
    scores = node.step(Transpose((0, 2, 1)), node.step(Slice((image, 0, 0), (1, -1, -1)), node.value(1)))
    iou_threshold, score_threshold = node.number_of(4, "iou_threshold"), node.number_of(5, "score_threshold")
    selected_boxes = node.step(NonMaxSuppression(max_per_class, iou_threshold, score_threshold), boxes, scores)
    dtype = scores.known.dtype.numpy
    padding = node.constant(np.full(max_total, -np.inf, dtype))
    padded_scores = node.step(Concat(0), node.step(GatherNd(), scores, selected_boxes), padding)
    best_scores, ranks = node.steps(TopK(max_total), padded_scores)
    padded = node.step(Concat(0), selected_boxes, node.constant(np.full((max_total, 3), 0, np.int64)))
    picked_rows = node.step(Gather(0), padded, ranks)
    is_valid = node.step(GREATER, best_scores, node.scalar_like(-np.inf, best_scores))
    boxes_of_best = node.step(
        Gather(0), reshaped(node, boxes, [-1, 4]), reshaped(node, _column(node, picked_rows, 2), [-1])
    )
    if node.flag("clip_boxes", True):
        boxes_of_best = node.step(Activation(ActivationFunction.BOUNDED_RELU, 1.0, 0.0), boxes_of_best)
    zero = node.scalar_like(0, best_scores)
    classes = node.step(Cast(scores.known.dtype), reshaped(node, _column(node, picked_rows, 1), [-1]))
    num_valid = node.step(Reduce(operation=ReduceOperation.SUM), node.step(Cast(DataType.INT32), is_valid))
    return [
        node.step(Where(), reshaped(node, is_valid, [max_total, 1]), boxes_of_best, zero),
        node.step(Where(), is_valid, best_scores, zero),
        node.step(Where(), is_valid, classes, zero),
        num_valid,
    ]


def _column(node: Node, table: Value, index: int) -> Value:
    return node.step(Slice((0, index), (-1, 1)), table)

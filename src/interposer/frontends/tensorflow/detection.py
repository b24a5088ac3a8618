"""TensorFlow converters for the selection of boxes in object detectors."""

from __future__ import annotations

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataType
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.shaping import final_reshape, reshaped
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.detection import NonMaxSuppression
from interposer.ops.gather import Gather
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat, Slice
from interposer.ops.reshape import Shape

__all__: list[str] = []


@operator("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3")
def non_max_suppression(node: Node) -> Value:
    """Convert NonMaxSuppression: the indices of the selected boxes, best ones first."""
    return node.add(Cast(DataType.INT32), _selected(node))


@operator("NonMaxSuppressionV4", outputs=("selected_indices", "valid_outputs"))
def padded_non_max_suppression(node: Node) -> list[Value]:
    """Convert NonMaxSuppressionV4, which also counts the selected boxes, and may pad the indices with zeros."""
    selected = node.step(Cast(DataType.INT32), _selected(node))
    count = node.step(Shape(DataType.INT32), selected)
    number = final_reshape(node, count, [])
    if not node.flag("pad_to_max_output_size", False):
        return [selected, number]
    return [_padded(node, selected, node.integer_of(2, "max_output_size")), number]


@operator("NonMaxSuppressionV5", outputs=("selected_indices", "selected_scores", "valid_outputs"))
def scored_non_max_suppression(node: Node) -> list[Value]:
    """Convert NonMaxSuppressionV5 without a soft threshold, which returns the scores too."""
    if node.number_of(5, "soft_nms_sigma") != 0:
        node.unsupported("its soft_nms_sigma is not 0")
    selected = node.step(Cast(DataType.INT32), _selected(node))
    scores = node.step(Gather(0), node.value(1), selected)
    number = final_reshape(node, node.step(Shape(DataType.INT32), selected), [])
    if node.flag("pad_to_max_output_size", False):
        most = node.integer_of(2, "max_output_size")
        selected, scores = _padded(node, selected, most), _padded(node, scores, most)
    return [selected, scores, number]


def _selected(node: Node) -> Value:
    """Return the indices of the selected boxes as int64; the operands are boxes, scores and three thresholds."""
    boxes, scores, most = node.value(0), node.value(1), node.integer_of(2, "max_output_size")
    if boxes.known.rank != 2 or scores.known.rank != 1:
        raise ParseError(f"its boxes have the shape {boxes.known.shape} and its scores {scores.known.shape}")
    first = node.kind == "NonMaxSuppression"
    overlap = node.number("iou_threshold", 0.5) if first else node.number_of(3, "iou_threshold")
    score = node.number_of(4, "score_threshold") if node.num_inputs > 4 else None
    op = NonMaxSuppression(max(0, most), overlap, None if score is None or np.isneginf(score) else score)
    chosen = node.step(op, reshaped(node, boxes, [1, -1, 4]), reshaped(node, scores, [1, 1, -1]))
    return reshaped(node, node.step(Slice((0, 2), (-1, 1)), chosen), [-1])


def _padded(node: Node, value: Value, count: int) -> Value:
    """Return the first `count` elements of a vector with zeros appended."""
    zeros = node.constant(np.zeros(count, value.known.dtype.numpy))
    return node.add(Slice((0,), (count,)), node.step(Concat(0), value, zeros))

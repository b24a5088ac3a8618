"""Soft non-maximum suppression with padded results."""

from __future__ import annotations

import numpy as np
import pytest

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import DataType, TensorInfo
from interposer.kernels import compute
from interposer.kernels.suppression import Candidate, CandidateHeap
from interposer.ops import PaddedNonMaxSuppression

BOXES = np.float32([[0, 0, 1, 1], [0, 0, 1, 0.75], [0, 2, 1, 3]])
SCORES = np.float32([0.5, 0.75, 0.25])


def selected(count=3, iou=0.5, score=0.0, sigma=None, boxes=BOXES, scores=SCORES):
    numbers = [np.int32(count), np.float32(iou), np.float32(score), None if sigma is None else np.float32(sigma)]
    indices, remaining, number = compute(PaddedNonMaxSuppression(), boxes, scores, *numbers)
    return indices.tolist(), remaining.astype(float).round(4).tolist(), int(number)


def test_a_box_that_overlaps_a_better_one_is_dropped():
    assert selected() == ([1, 2, 0], [0.75, 0.25, 0], 2)
    assert selected(iou=0.9) == ([1, 0, 2], [0.75, 0.5, 0.25], 3)


def test_soft_suppression_reduces_scores_by_the_overlap():
    reduced = round(float(0.5 * np.exp(-(0.75**2))), 4)
    assert selected(iou=1, sigma=0.5) == ([1, 0, 2], [0.75, reduced, 0.25], 3)


def test_scores_up_to_the_threshold_are_not_considered():
    assert selected(score=0.25) == ([1, 0, 0], [0.75, 0, 0], 1)
    assert selected(score=0.75) == ([0, 0, 0], [0, 0, 0], 0)


def test_corners_may_be_in_any_order():
    assert selected(boxes=BOXES[:, [2, 3, 0, 1]]) == selected()


def test_no_more_boxes_are_selected_than_requested():
    assert selected(count=1) == ([1], [0.75], 1)
    assert selected(count=0) == ([], [], 0)


def test_the_number_of_results_is_known_if_it_is_constant():
    infos = [TensorInfo((9, 4)), TensorInfo((9,)), *(TensorInfo((), kind) for kind in ("int32", "float32", "float32"))]
    unknown = PaddedNonMaxSuppression().infer_infos(*infos, None)
    infos[2] = infos[2].with_constant(np.array(5, np.int32))
    known = PaddedNonMaxSuppression().infer_infos(*infos, None)
    assert [info.shape.is_concrete for info in unknown] == [False, False, True]
    assert known[0] == TensorInfo((5,), DataType.INT32)


def test_a_negative_number_of_results_is_refused():
    with pytest.raises(InvalidArgumentError, match="max_output_size is -1; expected 0 or more"):
        selected(count=-1)


def test_a_heap_gives_candidates_by_falling_scores():
    heap, scores = CandidateHeap(), np.random.RandomState(0).rand(50).astype(np.float32)
    for box, score in enumerate(scores):
        heap.push(Candidate(score, box))
    assert [heap.pop().box for _ in scores] == np.argsort(-scores).tolist()
    assert len(heap) == 0

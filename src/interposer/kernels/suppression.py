"""Soft non-maximum suppression as TFLite computes it, which also determines the order of boxes with equal scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from interposer.core.types import Array
from interposer.kernels.boxes import overlaps

__all__ = ["Candidate", "CandidateHeap", "Suppression"]


class Candidate(NamedTuple):
    """A box that may still be selected; boxes that were selected before number `begin` have reduced its score."""

    score: np.float32
    box: int
    begin: int = 0


class CandidateHeap:
    """A binary heap, whose root is a candidate with the greatest score.

    The rules by which candidates move are those of the C++ standard library's heap, so that equal scores are taken in
    the same order.
    """

    def __init__(self) -> None:
        self._candidates: list[Candidate] = []

    def __len__(self) -> int:
        return len(self._candidates)

    def push(self, candidate: Candidate) -> None:
        """Add a candidate: it rises while its parent has a lower score."""
        self._candidates.append(candidate)
        self._rise(len(self._candidates) - 1)

    def pop(self) -> Candidate:
        """Remove and return the root.

        The greater child of each gap moves up, the last one of equal children. The last candidate fills the gap.
        """
        heap, root = self._candidates, self._candidates[0]
        last_candidate = heap.pop()
        if heap:
            gap = self._sink()
            heap[gap] = last_candidate
            self._rise(gap)
        return root

    def _sink(self) -> int:
        gap, heap = 0, self._candidates
        while 2 * gap + 1 < len(heap):
            child = min(2 * gap + 2, len(heap) - 1)
            if heap[child].score < heap[2 * gap + 1].score:
                child = 2 * gap + 1
            heap[gap] = heap[child]
            gap = child
        return gap

    def _rise(self, position: int) -> None:
        heap, candidate = self._candidates, self._candidates[position]
        while position and heap[(position - 1) // 2].score < candidate.score:
            heap[position] = heap[(position - 1) // 2]
            position = (position - 1) // 2
        heap[position] = candidate


class Suppression(NamedTuple):
    """Boxes (N, 4) whose first corners are less than their second ones, and the thresholds of the suppression."""

    boxes: Array
    iou_threshold: float
    score_threshold: float
    sigma: float

    def selected(self, scores: Array, limit: int) -> list[Candidate]:
        """Return up to `limit` selected candidates with their reduced scores."""
        heap = CandidateHeap()
        for box in np.flatnonzero(scores > self.score_threshold).tolist():
            heap.push(Candidate(scores[box], box))
        limit, chosen_candidates = min(limit, len(heap)), list[Candidate]()
        while len(heap) and len(chosen_candidates) < limit:
            candidate = heap.pop()
            reduced_score = self._reduced(candidate, chosen_candidates)
            if reduced_score is not None and reduced_score == candidate.score:
                chosen_candidates.append(candidate)
            if reduced_score is not None and reduced_score > self.score_threshold:
                begin = len(chosen_candidates) - (1 if reduced_score == candidate.score else 0)
                heap.push(Candidate(reduced_score, candidate.box, begin))
        return chosen_candidates

    def _reduced(self, candidate: Candidate, chosen_candidates: list[Candidate]) -> np.float32 | None:
        """Return the candidate's score after suppression by the newly selected boxes; None if it is dropped."""
        score, boxes = candidate.score, self.boxes
        other_boxes = [chosen_candidate.box for chosen_candidate in chosen_candidates[candidate.begin :]][::-1]
        ratios = overlaps(boxes[candidate.box], boxes[other_boxes]) if other_boxes else ()
        for ratio in ratios:
            if ratio >= self.iou_threshold:
                return None
            if self.sigma > 0:
                score = np.float32(score * np.exp(np.float32(-0.5 / self.sigma) * ratio * ratio))
            if score <= self.score_threshold:
                break
        return score

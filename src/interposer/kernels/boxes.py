"""Box arithmetic: overlaps, non-maximum suppression and transformation.

A box is two opposite corners, (x1, y1, x2, y2) or (y1, x1, y2, x2). Numbers are float32, or float64 for float64 inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from interposer.core.errors import InvalidValueError
from interposer.core.types import QUANTIZABLE, Array, DataType, TensorInfo
from interposer.kernels.operand_values import check_range
from interposer.kernels.real import WIDE_FLOATS, store
from interposer.kernels.table import KernelInfo
from interposer.ops.detection import NmsKernel

__all__ = [
    "REALS",
    "REALS_OF_FEW_BITS",
    "Lower",
    "best_boxes",
    "check_boxes",
    "check_images",
    "isolated_boxes",
    "moved",
    "overlaps",
    "reals_only",
    "soft_lowering",
    "stored",
    "take_greedily",
]

REALS: Final = WIDE_FLOATS | QUANTIZABLE
REALS_OF_FEW_BITS: Final = WIDE_FLOATS | {DataType.INT8, DataType.UINT8}

Lower = Callable[[Array, Array], Array]
"""A function of indices of boxes and their overlaps with a selected box; returns which boxes are dropped.

It may also reduce the scores of the boxes.
"""


def reals_only(_: object, info: KernelInfo) -> str | None:
    """Return why an operand is refused: it has integers without a scale, and is not the tensor of image indices."""
    for name, tensor in zip(info.names, info.inputs, strict=False):
        if tensor is not None and tensor.dtype.is_integer and name != "batches" and not tensor.is_quantized:
            return f"{name} is {tensor.dtype} and not quantized; takes floats, or integers with a scale"
    return None


def stored(values: Array, info: TensorInfo) -> Array:
    """Return float values as a new array, quantized or converted to the type of `info`, whose shape is not used."""
    array = np.empty(values.shape, info.dtype.numpy)
    store(values, info, array)
    return array


def check_images(batches: Array, count: int) -> None:
    """Raise `InvalidValueError` if `batches` has an image index that is not from 0 to `count` - 1."""
    check_range("batches", batches, 0, count - 1)


def check_boxes(boxes: Array, name: str) -> None:
    """Raise `InvalidValueError` if a box (..., 4) ends before it begins; `name` is the operand's in the message."""
    invalid_indices = np.argwhere((boxes[..., 0] > boxes[..., 2]) | (boxes[..., 1] > boxes[..., 3]))
    if len(invalid_indices):
        index = tuple(invalid_indices[0].tolist())
        coordinates = ", ".join(f"{coordinate:g}" for coordinate in boxes[index])
        reason = f"{name} has ({coordinates}) at {list(index)}, which ends before it begins"
        raise InvalidValueError(reason, operand=name, position=index, value=boxes[index].tolist())


def overlaps(box: Array, others: Array) -> Array:
    """Return the intersection over union of a box (4,) with each of the others (N, 4); 0 for boxes without area."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    width, height = np.maximum(high - low, 0).T
    intersection = width * height
    union = _area(box) + _area(others) - intersection
    ratios: Array = intersection / np.where(union > 0, union, 1)
    return ratios


def _area(boxes: Array) -> Array:
    area: Array = (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
    return area


def best_boxes(boxes: Array, scores: Array, candidates: Array, limit: int, threshold: float) -> list[int]:
    """Return up to `limit` candidates in order of falling score, without those that overlap a better one too much.

    Candidates are positions in `boxes` (N, 4) and `scores` (N,). Two boxes overlap too much if their intersection over
    union exceeds the threshold. Among equal scores, the candidate with the lower position comes first.
    """
    remaining_boxes = candidates[np.argsort(-scores[candidates], kind="stable")]
    chosen_boxes: list[int] = []
    while remaining_boxes.size and len(chosen_boxes) < limit:
        best, lower_scored = remaining_boxes[0], remaining_boxes[1:]
        chosen_boxes.append(int(best))
        remaining_boxes = lower_scored[overlaps(boxes[best], boxes[lower_scored]) <= threshold]
    return chosen_boxes


def isolated_boxes(boxes: Array, scores: Array, candidates: Array, limit: int, threshold: float) -> list[int]:
    """Return up to `limit` candidates in order of falling score, without those that overlap any better one too much.

    It is like `best_boxes`, except that a box that is left out also excludes others.
    """
    ranked = candidates[np.argsort(-scores[candidates], kind="stable")]
    is_excluded = np.zeros(ranked.size, bool)
    chosen_boxes: list[int] = []
    for rank, best in enumerate(ranked):
        if len(chosen_boxes) >= limit:
            break
        if not is_excluded[rank]:
            chosen_boxes.append(int(best))
        is_excluded[rank + 1 :] |= overlaps(boxes[best], boxes[ranked[rank + 1 :]]) > threshold
    return chosen_boxes


def take_greedily(boxes: Array, scores: Array, candidates: Iterable[int], limit: int | None, lower: Lower) -> list[int]:
    """Return up to `limit` candidates (None: all) in the order in which NNAPI's reference selects them.

    Candidates are positions in `boxes` (N, 4) and `scores` (N,). After each selection, `lower` reduces the scores of
    the remaining candidates or drops them. Among equal scores, the candidate that is first in the list wins. The order
    of that list changes as in the reference: the first candidate moves to the position of the selected one, and the
    last one to the position of a dropped one.
    """
    remaining_boxes = list(candidates)
    chosen_boxes: list[int] = []
    while remaining_boxes and (limit is None or len(chosen_boxes) < limit):
        best_position = int(np.argmax(scores[remaining_boxes]))
        remaining_boxes[0], remaining_boxes[best_position] = remaining_boxes[best_position], remaining_boxes[0]
        box, lower_scored = boxes[remaining_boxes[0]], np.array(remaining_boxes[1:], np.int64)
        chosen_boxes.append(remaining_boxes[0])
        remaining_boxes = _without(remaining_boxes[1:], lower(lower_scored, overlaps(box, boxes[lower_scored])))
    return chosen_boxes


def _without(candidates: list[int], is_dropped: Sequence[bool] | Array) -> list[int]:
    """Remove the items whose flag in `is_dropped` is True, and return the list.

    The last item moves to each position that becomes free.
    """
    drop_flags = list(is_dropped)
    position = 0
    while position < len(candidates):
        if not drop_flags[position]:
            position += 1
            continue
        last_candidate, last_flag = candidates.pop(), drop_flags.pop()
        if position < len(candidates):
            candidates[position], drop_flags[position] = last_candidate, last_flag
    return candidates


def soft_lowering(kernel: NmsKernel, scores: Array, threshold: float, sigma: float, lowest: float) -> Lower:
    """Return a function for `take_greedily` that reduces the scores of overlapping boxes and drops low ones.

    It multiplies elements of `scores` in place by the factor that the kernel gives for the overlap: HARD and LINEAR use
    `threshold`, GAUSSIAN uses `sigma`. Boxes whose score is then below `lowest` are dropped.
    """

    def lower(box_indices: Array, overlap: Array) -> Array:
        factors = {
            NmsKernel.HARD: lambda: np.where(overlap < threshold, 1, 0),
            NmsKernel.LINEAR: lambda: np.where(overlap < threshold, 1, 1 - overlap),
            NmsKernel.GAUSSIAN: lambda: np.exp(-overlap * overlap / sigma),
        }
        scores[box_indices] *= factors[kernel]()
        is_dropped: Array = scores[box_indices] < lowest
        return is_dropped

    return lower


def moved(boxes: Array, deltas: Array, sizes: Array) -> Array:
    """Shift and scale boxes (N, 4) by deltas (N, C, 4), and clip the results (N, C, 4) to their images.

    Deltas are (dx, dy, dw, dh) as in `AxisAlignedBboxTransform`; sizes (N, 2) are the height and width of each box's
    image.
    """
    check_boxes(boxes, "boxes")
    low_corners, high_corners = boxes[:, np.newaxis, :2], boxes[:, np.newaxis, 2:]
    size = high_corners - low_corners
    center = (low_corners + high_corners) / 2 + deltas[..., :2] * size
    half_sizes = np.exp(deltas[..., 2:]) * size / 2
    image_sizes = sizes[:, np.newaxis, ::-1]
    clipped = [np.clip(corners, 0, image_sizes) for corners in (center - half_sizes, center + half_sizes)]
    return np.concatenate(clipped, axis=-1)

"""Box arithmetic: overlaps, non-maximum suppression and transformation.

A box is two opposite corners, (x1, y1, x2, y2) or (y1, x1, y2, x2). Numbers are float32, or float64 for float64 inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import FLOATS, QUANTIZABLE, Array, TensorInfo
from interposer.kernels.real import store
from interposer.kernels.table import KernelInfo
from interposer.ops.detection import NmsKernel

__all__ = [
    "REALS",
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

REALS: Final = FLOATS | QUANTIZABLE

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
    """Raise `InvalidArgumentError` if `batches` has an image index that is not from 0 to `count` - 1."""
    wrong = batches[(batches < 0) | (batches >= count)]
    if wrong.size:
        raise InvalidArgumentError(f"batches has {wrong[0]}, but there are only {count} images")


def check_boxes(boxes: Array, name: str) -> None:
    """Raise `InvalidArgumentError` if a box (..., 4) ends before it begins; `name` is the operand's in the message."""
    wrong = np.argwhere((boxes[..., 0] > boxes[..., 2]) | (boxes[..., 1] > boxes[..., 3]))
    if len(wrong):
        index = tuple(wrong[0].tolist())
        shown = ", ".join(f"{number:g}" for number in boxes[index])
        raise InvalidArgumentError(f"{name} has ({shown}) at {list(index)}, which ends before it begins")


def overlaps(box: Array, others: Array) -> Array:
    """Return the intersection over union of a box (4,) with each of the others (N, 4); 0 for boxes without area."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    width, height = np.maximum(high - low, 0).T
    intersection = width * height
    union = _area(box) + _area(others) - intersection
    shares: Array = intersection / np.where(union > 0, union, 1)
    return shares


def _area(boxes: Array) -> Array:
    area: Array = (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
    return area


def best_boxes(boxes: Array, scores: Array, candidates: Array, limit: int, threshold: float) -> list[int]:
    """Return up to `limit` candidates in order of falling score, without those that overlap a better one too much.

    Candidates are positions in `boxes` (N, 4) and `scores` (N,). Two boxes overlap too much if their intersection over
    union exceeds the threshold. Among equal scores, the candidate with the lower position comes first.
    """
    left = candidates[np.argsort(-scores[candidates], kind="stable")]
    taken: list[int] = []
    while left.size and len(taken) < limit:
        best, rest = left[0], left[1:]
        taken.append(int(best))
        left = rest[overlaps(boxes[best], boxes[rest]) <= threshold]
    return taken


def isolated_boxes(boxes: Array, scores: Array, candidates: Array, limit: int, threshold: float) -> list[int]:
    """Return up to `limit` candidates in order of falling score, without those that overlap any better one too much.

    It is like `best_boxes`, except that a box that is left out also excludes others.
    """
    left = candidates[np.argsort(-scores[candidates], kind="stable")]
    excluded = np.zeros(left.size, bool)
    taken: list[int] = []
    for place, best in enumerate(left):
        if len(taken) >= limit:
            break
        if not excluded[place]:
            taken.append(int(best))
        excluded[place + 1 :] |= overlaps(boxes[best], boxes[left[place + 1 :]]) > threshold
    return taken


def take_greedily(boxes: Array, scores: Array, candidates: Iterable[int], limit: int | None, lower: Lower) -> list[int]:
    """Return up to `limit` candidates (None: all) in the order in which NNAPI's reference selects them.

    Candidates are positions in `boxes` (N, 4) and `scores` (N,). After each selection, `lower` reduces the scores of
    the remaining candidates or drops them. Among equal scores, the candidate that is first in the list wins. The order
    of that list changes as in the reference: the first candidate moves to the position of the selected one, and the
    last one to the position of a dropped one.
    """
    left = list(candidates)
    taken: list[int] = []
    while left and (limit is None or len(taken) < limit):
        best = int(np.argmax(scores[left]))
        left[0], left[best] = left[best], left[0]
        box, rest = boxes[left[0]], np.array(left[1:], np.int64)
        taken.append(left[0])
        left = _without(left[1:], lower(rest, overlaps(box, boxes[rest])))
    return taken


def _without(items: list[int], dropped: Sequence[bool] | Array) -> list[int]:
    """Remove the items whose flag in `dropped` is True, and return the list.

    The last item moves to each position that becomes free.
    """
    flags = list(dropped)
    place = 0
    while place < len(items):
        if not flags[place]:
            place += 1
            continue
        last, flag = items.pop(), flags.pop()
        if place < len(items):
            items[place], flags[place] = last, flag
    return items


def soft_lowering(kernel: NmsKernel, scores: Array, threshold: float, sigma: float, lowest: float) -> Lower:
    """Return a function for `take_greedily` that reduces the scores of overlapping boxes and drops low ones.

    It multiplies elements of `scores` in place by the factor that the kernel gives for the overlap: HARD and LINEAR use
    `threshold`, GAUSSIAN uses `sigma`. Boxes whose score is then below `lowest` are dropped.
    """

    def lower(rest: Array, overlap: Array) -> Array:
        factors = {
            NmsKernel.HARD: lambda: np.where(overlap < threshold, 1, 0),
            NmsKernel.LINEAR: lambda: np.where(overlap < threshold, 1, 1 - overlap),
            NmsKernel.GAUSSIAN: lambda: np.exp(-overlap * overlap / sigma),
        }
        scores[rest] *= factors[kernel]()
        dropped: Array = scores[rest] < lowest
        return dropped

    return lower


def moved(boxes: Array, deltas: Array, sizes: Array) -> Array:
    """Shift and scale boxes (N, 4) by deltas (N, C, 4), and clip the results (N, C, 4) to their images.

    Deltas are (dx, dy, dw, dh) as in `AxisAlignedBboxTransform`; sizes (N, 2) are the height and width of each box's
    image.
    """
    check_boxes(boxes, "boxes")
    corner, end = boxes[:, np.newaxis, :2], boxes[:, np.newaxis, 2:]
    size = end - corner
    center = (corner + end) / 2 + deltas[..., :2] * size
    half = np.exp(deltas[..., 2:]) * size / 2
    borders = sizes[:, np.newaxis, ::-1]
    clipped = [np.clip(edge, 0, borders) for edge in (center - half, center + half)]
    return np.concatenate(clipped, axis=-1)

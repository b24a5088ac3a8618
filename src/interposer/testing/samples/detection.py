"""Samples of the detection operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from interposer.core.types import Array, DataLayout, DataType, Quantization, TensorInfo
from interposer.ops import (
    AxisAlignedBboxTransform,
    BoxCode,
    BoxWithNmsLimit,
    DetectionOutput,
    DetectionPostProcess,
    DetectionRules,
    GenerateProposals,
    NmsKernel,
    NonMaxSuppression,
    PaddedNonMaxSuppression,
)
from interposer.testing.drawing import Draw
from interposer.testing.sample import Given, Sample, of, samples
from interposer.testing.samples.common import FLOATS

__all__ = ["EIGHTHS", "boxes_in", "quantized_as"]

QUANTIZATIONS: Final = {
    DataType.UINT8: (Quantization(1 / 256), Quantization(1 / 64, 128)),
    DataType.INT8: (Quantization(1 / 256, -128), Quantization(1 / 64, 0)),
}
"""The types of quantized scores and deltas, with a quantization for each of both."""
EIGHTHS: Final = Quantization(0.125)
"""The quantization of image coordinates in NNAPI."""


def boxes_in(draw: Draw, count: int, dimension: float = 30.0) -> Array:
    """Return random boxes in an image of size `dimension`; their corners are multiples of 1/8."""
    corner, size = draw.uniform((count, 2), 0, dimension * 2 / 3), draw.uniform((count, 2), 2, dimension / 3)
    boxes: Array = np.round(np.concatenate([corner, corner + size], axis=1) * 8) / 8
    return boxes


def _bell(draw: Draw, shape: Sequence[int], deviation: float) -> Array:
    """Return sums of four uniform random numbers, which are nearly normally distributed."""
    reach = deviation * 3**0.5 / 2
    total: Array = draw.uniform((4, *shape), -reach, reach).sum(axis=0)
    return total


def _order(draw: Draw, shape: Sequence[int]) -> Array:
    """Return the integers from 0 on in random order."""
    return np.reshape(draw.order(int(np.prod(shape))), shape)


def quantized_as(values: Array, dtype: DataType, quantization: Quantization | None = None) -> Given:
    """Return an operand with these float values, converted to `dtype` or quantized with `quantization`."""
    if quantization is None:
        return of(values, dtype)
    limits = np.iinfo(dtype.numpy)
    quantized_values = np.clip(np.rint(values / quantization.scale) + quantization.zero_point, limits.min, limits.max)
    return Given(TensorInfo(values.shape, dtype, quantization), quantized_values.astype(dtype.numpy))


@samples(DetectionPostProcess)
def detections() -> Iterator[Sample]:
    """Yield DetectionPostProcess samples.

    They cover fast and regular suppression, for every option, from float and from quantized inputs.
    """
    draw = Draw("detections")
    encodings, anchors = _bell(draw, (2, 12, 5), 1.0), draw.uniform((12, 4), 0.2, 1.0)
    scores = _order(draw, (2, 12, 4)) / 96
    for rules in DetectionRules:
        for name, options in _option_sets().items():
            op = DetectionPostProcess(5, **options, nms_iou_threshold=0.4, rules=rules, scale_x=10.0, scale_h=5.0)
            title = f"{name}-{rules.name.lower()}"
            for dtype in FLOATS:
                yield Sample(op, [of(x, dtype) for x in (encodings, scores, anchors)], name=f"{title}-{dtype}")
            for dtype, (of_scores, of_deltas) in QUANTIZATIONS.items():
                operands = [quantized_as(encodings, dtype, of_deltas), quantized_as(scores, dtype, of_scores)]
                yield Sample(op, [*operands, quantized_as(anchors, dtype, of_deltas)], name=f"{title}-{dtype}")


def _option_sets() -> dict[str, dict[str, Any]]:
    labels = {"label_dtype": DataType.INT32, "background_in_classes": True}
    return {
        "fast": {"num_classes": 3, "max_classes_per_detection": 2},
        "fast-without-background": {"num_classes": 4, "max_classes_per_detection": 6},
        "regular": {"num_classes": 3, "use_regular_nms": True, "detections_per_class": 3, "nms_score_threshold": 0.3},
        "labels": {"num_classes": 3, **labels},
    }


@samples(NonMaxSuppression)
def suppression() -> Iterator[Sample]:
    """Yield NonMaxSuppression samples.

    They cover boxes as corners and as centers, with each threshold, for several classes and images.
    """
    draw = Draw("suppression")
    boxes = boxes_in(draw, 2 * 10).reshape(2, 10, 4)
    scores = _order(draw, (2, 3, 10)) / 64
    option_sets: dict[str, dict[str, Any]] = {
        "nothing": {},
        "some": {"max_output_boxes_per_class": 3, "iou_threshold": 0.2},
        "all": {"max_output_boxes_per_class": 20, "iou_threshold": 1.0},
        "scores": {"max_output_boxes_per_class": 20, "iou_threshold": 0.3, "score_threshold": 0.5},
        "centers": {"max_output_boxes_per_class": 5, "iou_threshold": 0.3, "center_point_box": True},
    }
    for name, options in option_sets.items():
        for dtype in FLOATS:
            yield Sample(NonMaxSuppression(**options), [of(boxes, dtype), of(scores, dtype)], name=f"{name}-{dtype}")


@samples(NonMaxSuppression)
def worked_suppression() -> Iterator[Sample]:
    """Yield a worked NonMaxSuppression example.

    Of two groups of overlapping boxes and a single box, the best of each is selected.
    """
    boxes = of([[[0, y, 1, y + 1] for y in (0, 0.1, -0.1, 10, 10.1, 100)]])
    scores = of([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3]]])
    expected = np.array([[0, 0, 3], [0, 0, 0], [0, 0, 5]])
    op = NonMaxSuppression(max_output_boxes_per_class=3, iou_threshold=0.5)
    yield Sample(op, [boxes, scores], name="worked", expected=[expected])


@samples(PaddedNonMaxSuppression)
def padded_suppression() -> Iterator[Sample]:
    """Yield PaddedNonMaxSuppression samples: hard and soft, with a known and a computed number of results."""
    draw = Draw("padded suppression")
    boxes, scores = of(boxes_in(draw, 12)), of(_order(draw, (12,)) / 16)
    for sigma in (None, 0.0, 0.5):
        for limit in (0, 5, 20):
            for constant in (False, True):
                thresholds = [of(threshold) for threshold in (0.3, 0.1)] + [None if sigma is None else of(sigma)]
                count = of(limit, DataType.INT32, constant=constant)
                name = f"{sigma}-{limit}-{'constant' if constant else 'computed'}"
                yield Sample(PaddedNonMaxSuppression(), [boxes, scores, count, *thresholds], name=name)


@samples(DetectionOutput)
def detection_outputs() -> Iterator[Sample]:
    """Yield DetectionOutput samples.

    They cover every code of boxes, boxes for each class, limits before and after suppression, priors for each image,
    and results without a box.
    """
    draw = Draw("detection outputs")
    priors = np.stack([boxes_in(draw, 2 * 9, 1.0).reshape(2, 36), np.full((2, 36), 0.25)], axis=1)
    scores = _order(draw, (2, 9, 3)).reshape(2, 27) / 54
    option_sets: dict[str, dict[str, Any]] = {
        "all": {"background_label": -1},
        "limits": {"top_k": 5, "keep_top_k": 4, "confidence_threshold": 0.25},
        "classes": {"share_location": False, "nms_threshold": 0.5},
        "encoded": {"variance_encoded_in_target": True, "keep_top_k": 3},
        "nothing": {"confidence_threshold": 2.0},
    }
    for name, options in option_sets.items():
        location_count = 36 if options.get("share_location", True) else 108
        locations = _bell(draw, (2, location_count), 0.3)
        for code in BoxCode:
            op = DetectionOutput(num_classes=3, code=code, **options)
            for index, dtype in enumerate(FLOATS):
                operands = [of(x, dtype) for x in (locations, scores, priors[: 1 + index % 2])]
                yield Sample(op, operands, name=f"{name}-{code.name.lower()}-{dtype}")


@samples(DetectionOutput)
def worked_detection_output() -> Iterator[Sample]:
    """Yield a worked DetectionOutput example: of two equal boxes, the one with the better score."""
    priors = of([[[0.0, 0.0, 0.5, 0.5, 0.0, 0.0, 0.5, 0.5], [0.5] * 8]])
    op = DetectionOutput(num_classes=2, code=BoxCode.CENTER_SIZE, confidence_threshold=0.1)
    expected = np.array([[[[0, 1, 0.75, 0.125, 0, 0.625, 0.5]]]], np.float32)
    operands = [of([[0.5, 0, 0, 0, 0.5, 0, 0, 0]]), of([[0.5, 0.5, 0.25, 0.75]]), priors]
    yield Sample(op, operands, name="worked", expected=[expected])


@samples(BoxWithNmsLimit)
def limits() -> Iterator[Sample]:
    """Yield BoxWithNmsLimit samples: every kernel of suppression, with and without limits, for boxes of two images."""
    draw = Draw("limits")
    boxes = boxes_in(draw, 12 * 3, 20.0).reshape(12, 12)
    scores = (_order(draw, (12, 3)) + 1) / 40
    for kernel in NmsKernel:
        for limit in (-1, 4):
            op = BoxWithNmsLimit(0.1, limit, kernel, iou_threshold=0.3, sigma=0.5, nms_score_threshold=0.05)
            yield from _of_all_types(op, f"{kernel.name.lower()}-{limit}", scores, boxes)
    selects_nothing = BoxWithNmsLimit(score_threshold=2.0)
    yield from _of_all_types(selects_nothing, "nothing", scores, boxes)


def _of_all_types(op: BoxWithNmsLimit, name: str, scores: Array, boxes: Array) -> Iterator[Sample]:
    batches = of([0] * 7 + [3] * 5, DataType.INT32)
    for dtype in FLOATS:
        yield Sample(op, [of(scores, dtype), of(boxes, dtype), batches], name=f"{name}-{dtype}")
    for dtype, (quantization, _) in QUANTIZATIONS.items():
        operands = [quantized_as(scores, dtype, quantization), quantized_as(boxes, DataType.UINT16, EIGHTHS), batches]
        yield Sample(op, operands, name=f"{name}-{dtype}")


@samples(AxisAlignedBboxTransform)
def transforms() -> Iterator[Sample]:
    """Yield AxisAlignedBboxTransform samples.

    They cover boxes of two images for three classes; some exceed their image and are clipped.
    """
    draw = Draw("transforms")
    boxes, deltas = boxes_in(draw, 6), _bell(draw, (6, 12), 0.5)
    batches, sizes = of([0, 1, 1, 0, 0, 1], DataType.INT32), np.array([[20.0, 30], [32, 16]])
    op = AxisAlignedBboxTransform()
    for dtype in FLOATS:
        yield Sample(op, [of(boxes, dtype), of(deltas, dtype), batches, of(sizes, dtype)], name=str(dtype))
    for dtype, (_, quantization) in QUANTIZATIONS.items():
        quantized_boxes = [quantized_as(x, DataType.UINT16, EIGHTHS) for x in (boxes, sizes)]
        yield Sample(
            op,
            [quantized_boxes[0], quantized_as(deltas, dtype, quantization), batches, quantized_boxes[1]],
            name=str(dtype),
        )


@samples(GenerateProposals)
def proposals() -> Iterator[Sample]:
    """Yield GenerateProposals samples: both layouts, with limits before and after suppression."""
    draw = Draw("proposals")
    scores, deltas = _order(draw, (2, 3, 4, 2)) / 48, _bell(draw, (2, 3, 4, 8), 0.3)
    anchors, sizes = np.array([[-4.0, -4, 4, 4], [-2, -6, 2, 6]]), np.array([[24.0, 32], [20, 28]])
    for pre_limit, post_limit in ((-1, -1), (10, 3)):
        for layout in (DataLayout.NHWC, DataLayout.NCHW):
            op = GenerateProposals(8.0, 8.0, pre_limit, post_limit, iou_threshold=0.2, min_size=1.0, data_layout=layout)
            arrays = [x if layout is DataLayout.NHWC else np.moveaxis(x, 3, 1) for x in (scores, deltas)]
            yield from _proposed(op, f"{pre_limit}-{post_limit}-{layout}", [*arrays, anchors, sizes])


def _proposed(op: GenerateProposals, name: str, arrays: Sequence[Array]) -> Iterator[Sample]:
    for dtype in FLOATS:
        yield Sample(op, [of(x, dtype) for x in arrays], name=f"{name}-{dtype}")
    scores, deltas, anchors, sizes = arrays
    for dtype, (of_scores, of_deltas) in QUANTIZATIONS.items():
        operands = [quantized_as(scores, dtype, of_scores), quantized_as(deltas, dtype, of_deltas)]
        operands += [quantized_as(anchors, DataType.INT16, EIGHTHS), quantized_as(sizes, DataType.UINT16, EIGHTHS)]
        yield Sample(op, operands, name=f"{name}-{dtype}")

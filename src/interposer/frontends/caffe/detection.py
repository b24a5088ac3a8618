"""Caffe converters for the layers of SSD, the single shot detector."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from interposer.frontends.caffe.caffe_converters import layer
from interposer.frontends.caffe.node import Node
from interposer.frontends.caffe.proto import Message
from interposer.frontends.caffe.schema import ENUMS
from interposer.ir.graph import Value
from interposer.ops.detection import BoxCode, DetectionOutput

__all__: list[str] = []

_CODES: Final = {number: BoxCode[name] for name, number in ENUMS["CodeType"].items()}


@layer("PriorBox")
def prior_boxes(node: Node) -> Value:
    """Convert PriorBox to a constant: boxes of several sizes and aspect ratios around every pixel of a feature map.

    The first bottom is the feature map, the second the image. The result has the boxes in fractions of the image, and
    their variances, as an array (1, 2, boxes * 4).
    """
    if node.num_inputs != 2:
        node.fail(f"it has {node.num_inputs} bottoms; expected a feature map and an image")
    parameters = node.parameters("prior_box_param")
    rows, columns = node.shape(node.value(0))[2:]
    height, width = _image(parameters, *node.shape(node.value(1))[2:])
    step_y, step_x = _steps(parameters, height / rows, width / columns)
    sizes = np.array(list(_sizes(node, parameters)), np.float64).reshape(-1, 2) / 2
    y = (np.arange(rows) + parameters.offset) * step_y
    x = (np.arange(columns) + parameters.offset) * step_x
    center = np.stack(np.broadcast_arrays(x[None, :], y[:, None]), axis=-1)[:, :, None, :]
    boxes = np.concatenate([center - sizes, center + sizes], axis=-1) / [width, height, width, height]
    boxes = np.clip(boxes, 0, 1) if parameters.clip else boxes
    variances = np.broadcast_to(_variances(node, parameters), boxes.shape)
    return node.constant(np.stack([boxes.ravel(), variances.ravel()])[None].astype(np.float32))


def _image(parameters: Message, height: int, width: int) -> tuple[int, int]:
    if parameters.img_size:
        return parameters.img_size, parameters.img_size
    return parameters.img_h or height, parameters.img_w or width


def _steps(parameters: Message, y: float, x: float) -> tuple[float, float]:
    if parameters.step:
        return parameters.step, parameters.step
    return parameters.step_h or y, parameters.step_w or x


def _sizes(node: Node, parameters: Message) -> Iterator[tuple[float, float]]:
    """Yield width and height of the boxes around a pixel, in Caffe's order."""
    least_sizes, most_sizes = list(parameters.min_size), list(parameters.max_size)
    if not least_sizes or (most_sizes and len(most_sizes) != len(least_sizes)) or min(least_sizes) <= 0:
        node.fail(f"min_size is {least_sizes} and max_size {most_sizes}; expected positive sizes, and as many of both")
    for least_size, most_size in itertools.zip_longest(least_sizes, most_sizes):
        yield least_size, least_size
        if most_size is not None:
            yield math.sqrt(least_size * most_size), math.sqrt(least_size * most_size)
        for ratio in _ratios(node, parameters):
            yield least_size * math.sqrt(ratio), least_size / math.sqrt(ratio)


def _ratios(node: Node, parameters: Message) -> list[float]:
    """Return the aspect ratios other than 1, each followed by its inverse if they are flipped, without duplicates."""
    ratios = [1.0]
    for ratio in parameters.aspect_ratio:
        if ratio <= 0:
            node.fail(f"an aspect ratio is {ratio}; expected positive numbers")
        if all(abs(ratio - known_ratio) >= 1e-6 for known_ratio in ratios):
            ratios += [ratio, 1 / ratio] if parameters.flip else [ratio]
    return ratios[1:]


def _variances(node: Node, parameters: Message) -> list[float]:
    values = list(parameters.variance) or [0.1]
    if len(values) not in (1, 4):
        node.fail(f"it has {len(values)} variances; expected 1 or 4")
    return values


@layer("DetectionOutput")
def detection_output(node: Node) -> Value:
    """Convert DetectionOutput; adaptive suppression, an ``eta`` other than 1, is refused."""
    if node.num_inputs != 3:
        node.fail(f"it has {node.num_inputs} bottoms; expected locations, confidences and priors")
    parameters = node.parameters("detection_output_param")
    suppression = parameters.nms_param
    if suppression.eta != 1:
        node.fail(f"eta is {suppression.eta}: adaptive suppression is not supported; expected 1")
    op = DetectionOutput(
        num_classes=parameters.num_classes,
        share_location=parameters.share_location,
        background_label=parameters.background_label_id,
        code=_CODES[parameters.code_type],
        variance_encoded_in_target=parameters.variance_encoded_in_target,
        confidence_threshold=parameters.confidence_threshold if parameters.HasField("confidence_threshold") else None,
        nms_threshold=suppression.nms_threshold,
        top_k=suppression.top_k if suppression.HasField("top_k") else -1,
        keep_top_k=parameters.keep_top_k,
    )
    locations, confidences, priors = node.values()
    rows = [node.reshaped(value, (node.shape(value)[0], -1)) for value in (locations, confidences)]
    return node.result(op, *rows, priors)

"""Layers of detectors with two stages give on CpuAcc what the reference gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import InvalidValueError
from interposer.core.types import Array, DataLayout, Quantization
from interposer.ops import (
    AxisAlignedBboxTransform,
    BoxWithNmsLimit,
    DetectionOutput,
    GenerateProposals,
    HeatmapMaxKeypoint,
    PaddedNonMaxSuppression,
    RoiPooling,
)
from interposer.ops.detection import BoxCode, NmsKernel
from tests.backends.cpuacc.single import network_of, outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

RNG = np.random.default_rng(6)


def boxes(*shape: int) -> Array:
    """Return boxes (..., 4) of two ordered corners within 100 x 100 pixels."""
    low = RNG.uniform(0, 70, (*shape, 2))
    return np.concatenate([low, low + RNG.uniform(1, 30, (*shape, 2))], -1).astype(np.float32)


def scores(*shape: int) -> Array:
    """Return scores, some of which are equal."""
    return (RNG.integers(0, 50, shape) / 50).astype(np.float32)


def assert_near(op: Any, *arrays: Array | None, threads: int = 1, **options: Any) -> None:
    for result, expected in zip(*outcomes(*network_of(op, arrays, **options), threads), strict=True):
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kernel", list(NmsKernel))
@pytest.mark.parametrize("limit", [-1, 0, 9])
def test_boxes_of_classes_with_limits(kernel: NmsKernel, limit: int) -> None:
    op = BoxWithNmsLimit(
        score_threshold=0.2, max_detections=limit, nms_kernel=kernel, iou_threshold=0.3, nms_score_threshold=0.1
    )
    batches = np.repeat([0, 2, 1], [20, 1, 39]).astype(np.int32)
    assert_near(op, scores(60, 4), boxes(60, 4).reshape(60, 16), batches)


@pytest.mark.parametrize("layout", [DataLayout.NHWC, DataLayout.NCHW])
@pytest.mark.parametrize(("before", "after"), [(-1, -1), (40, 7)])
def test_proposals_from_anchors(layout: DataLayout, before: int, after: int) -> None:
    op = GenerateProposals(
        height_stride=8.0, width_stride=9.0, pre_nms_max=before, post_nms_max=after, iou_threshold=0.4, min_size=3.0,
        data_layout=layout,
    )  # fmt: skip
    maps = [scores(2, 5, 6, 3), RNG.normal(0, 0.3, (2, 5, 6, 12)).astype(np.float32)]
    if layout is DataLayout.NCHW:
        maps = [np.ascontiguousarray(np.moveaxis(array, 3, 1)) for array in maps]
    assert_near(op, *maps, boxes(3) / 2, np.array([[60, 50], [30, 80]], np.float32))


def test_boxes_that_are_moved() -> None:
    deltas, batches = RNG.normal(0, 0.3, (7, 12)).astype(np.float32), np.array([0, 0, 1, 2, 2, 2, 1], np.int32)
    sizes = np.array([[60, 50], [100, 80], [40, 90]], np.float32)
    assert_near(AxisAlignedBboxTransform(), boxes(7), deltas, batches, sizes)


@pytest.mark.parametrize("code", list(BoxCode))
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("keep", [-1, 5])
def test_boxes_relative_to_prior_boxes(code: BoxCode, share: bool, keep: int) -> None:
    op = DetectionOutput(
        num_classes=3, share_location=share, code=code, confidence_threshold=0.3, nms_threshold=0.4, top_k=20,
        keep_top_k=keep,
    )  # fmt: skip
    priors = np.stack([boxes(50).reshape(200) / 100, np.full(200, 0.1, np.float32)])[np.newaxis]
    locations = RNG.normal(0, 1, (2, 50 * (1 if share else 3) * 4)).astype(np.float32)
    assert_near(op, locations, scores(2, 150), priors)
    assert_near(op, locations, np.zeros((2, 150), np.float32), priors)


@pytest.mark.parametrize("sigma", [None, 0.0, 0.7])
@pytest.mark.parametrize("limit", [0, 6, 200])
def test_soft_suppression(sigma: float | None, limit: int) -> None:
    numbers = [np.array(limit, np.int32), np.float32(0.4), np.float32(0.25)]
    soft = None if sigma is None else np.float32(sigma)
    assert_near(PaddedNonMaxSuppression(), boxes(80), scores(80), *numbers, soft)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_maxima_of_regions(dtype: type) -> None:
    op = RoiPooling(output_height=3, output_width=2, height_stride=4.0, width_stride=5.0, data_layout=DataLayout.NHWC)
    image, batches = RNG.integers(0, 200, (2, 25, 20, 5)).astype(dtype), RNG.integers(0, 2, 9).astype(np.int32)
    quantizations = {} if dtype is np.float32 else {0: Quantization(0.5, 7)}
    assert_near(op, image, boxes(9), batches, threads=2, quantizations=quantizations)


def test_keypoints_of_heatmaps() -> None:
    maps = RNG.uniform(0, 1, (3, 6, 6, 4)).astype(np.float32)
    assert_near(HeatmapMaxKeypoint(data_layout=DataLayout.NHWC), maps, boxes(3))


@pytest.mark.parametrize(
    ("op", "arrays"),
    [
        (AxisAlignedBboxTransform(), [boxes(2), np.zeros((2, 4), np.float32), [0, 3], np.ones((3, 2), np.float32)]),
        (BoxWithNmsLimit(), [np.ones((2, 2), np.float32), -boxes(2, 2).reshape(2, 8), [0, 0]]),
        (RoiPooling(output_height=1, output_width=1), [np.ones((1, 1, 4, 4), np.float32), boxes(1), [-1]]),
    ],
)
def test_images_and_boxes_that_do_not_exist_are_refused(op: Any, arrays: list[Any]) -> None:
    network, given = network_of(
        op, [array if isinstance(array, np.ndarray) else np.array(array, np.int32) for array in arrays]
    )
    with ip.load(network, ["CpuAcc"]) as model, pytest.raises(InvalidValueError):
        model.run(given)

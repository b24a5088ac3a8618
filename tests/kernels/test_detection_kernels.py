"""The kernels of the operators on boxes and regions: worked examples, properties, and results of TFLite."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.codec import array_from_plain
from interposer.core.errors import InvalidArgumentError, InvalidValueError
from interposer.core.schema import Op
from interposer.core.types import DataLayout, Quantization, TensorInfo
from interposer.kernels import evaluate
from interposer.kernels.boxes import best_boxes, overlaps, take_greedily
from interposer.ops import (
    AxisAlignedBboxTransform,
    BoxWithNmsLimit,
    DetectionPostProcess,
    DetectionRules,
    GenerateProposals,
    HeatmapMaxKeypoint,
    NmsKernel,
    NonMaxSuppression,
    RoiAlign,
    RoiAlignMode,
    RoiPooling,
)

NHWC = DataLayout.NHWC
FROM_TFLITE = json.loads(gzip.decompress(Path(__file__).with_name("tflite_detection.json.gz").read_bytes()))


def run(op, *arrays, quantized=(), results=()):
    """Return all results on arrays, the first of which have these quantizations; results have their declared ones."""
    arrays = [np.asarray(x, np.float32) if np.asarray(x).dtype.kind == "f" else np.asarray(x) for x in arrays]
    quantizations = [*quantized, *[None] * (len(arrays) - len(quantized))]
    infos = [TensorInfo(x.shape, x.dtype, q) for x, q in zip(arrays, quantizations, strict=True)]
    assert op.violations(*infos) == []
    outputs = list(op.infer_infos(*infos))
    for i, q in enumerate(results):
        outputs[i] = outputs[i].with_quantization(q)
    return evaluate(op, arrays, infos, outputs)


def int32(*values):
    return np.array(values, np.int32)


# --- overlapping ------------------------------------------------------------------------------------------------------


def test_boxes_overlap_by_their_intersection_over_their_union():
    boxes = np.float32([[0, 0, 2, 2], [1, 0, 3, 2], [2, 0, 4, 2], [0, 0, 1, 1], [1, 1, 1, 2]])
    np.testing.assert_allclose(overlaps(np.float32([0, 0, 2, 2]), boxes), [1, 1 / 3, 0, 1 / 4, 0])


some_boxes = st.lists(st.tuples(*[st.integers(0, 8)] * 4), min_size=1, max_size=12).map(
    lambda rows: np.sort(np.float32(rows).reshape(-1, 2, 2), axis=1).reshape(-1, 4)
)


@given(some_boxes, st.data())
@settings(max_examples=50, deadline=None)
def test_what_is_kept_overlaps_little_and_what_is_dropped_overlaps_something_better(boxes, data):
    scores = np.float32(data.draw(st.lists(st.integers(0, 4), min_size=len(boxes), max_size=len(boxes))))
    everything = np.arange(len(boxes))
    greedy = take_greedily(boxes, scores, everything.tolist(), None, lambda _, overlap: overlap > 0.4)
    for kept in (best_boxes(boxes, scores, everything, len(boxes), 0.4), greedy):
        assert list(scores[kept]) == sorted(scores[kept], reverse=True)
        for place, box in enumerate(kept):
            assert (overlaps(boxes[box], boxes[kept[place + 1 :]]) <= 0.4).all()
        for box in set(everything.tolist()) - set(kept):
            better = [item for item in kept if scores[item] >= scores[box]]
            assert (overlaps(boxes[box], boxes[better]) > 0.4).any()


def test_of_equal_scores_the_first_goes_first():
    apart = np.float32([[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]])
    assert best_boxes(apart, np.float32([1, 2, 1]), np.arange(3), 3, 0.5) == [1, 0, 2]


def test_taking_greedily_exchanges_the_best_candidate_with_the_first_one():
    """So the order of equal scores is not that of the candidates: an effect of the original that tests can see."""
    apart = np.float32([[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]])
    assert take_greedily(apart, np.float32([1, 1, 2]), range(3), None, lambda _, overlap: overlap > 0) == [2, 1, 0]


# --- detections -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", FROM_TFLITE, ids=lambda case: case["name"])
def test_detections_are_those_of_tflite_bit_for_bit(case):
    arrays = [array_from_plain(expected) for expected in case["arrays"]]
    result = run(Op.from_plain(case["op"]), *arrays)
    for array, expected in zip(result, case["expected"], strict=True):
        np.testing.assert_array_equal(array, array_from_plain(expected))


def in_a_row(*places):
    """Boxes of size 2 around places on a line, as encodings relative to anchors of size 1 at 0."""
    return np.float32([[[x, 0, np.log(2), np.log(2)] for x in places]])


ANCHORS = np.tile(np.float32([0, 0, 1, 1]), (3, 1))


def test_a_box_that_was_dropped_drops_no_others():
    """The middle one overlaps both of the others by a third, which overlap by nothing."""
    op = DetectionPostProcess(max_detections=3, num_classes=1, nms_iou_threshold=0.3)
    boxes, _, scores, count = run(op, in_a_row(0, 1, 2), [[[0.9], [0.8], [0.7]]], ANCHORS)
    assert count == [2]
    assert scores.tolist() == [[np.float32(0.9), np.float32(0.7), 0]]
    np.testing.assert_allclose(boxes[0], [[-1, -1, 1, 1], [1, -1, 3, 1], [0, 0, 0, 0]])


def test_fast_detections_have_their_best_classes_in_rows_of_their_own():
    scores = np.float32([[[0.1, 0.3, 0.2], [0.6, 0.4, 0.5], [0, 0, 0]]])
    op = DetectionPostProcess(max_detections=2, num_classes=3, max_classes_per_detection=2, nms_score_threshold=0.1)
    boxes, classes, result, count = run(op, in_a_row(0, 10, 20), scores, ANCHORS)
    assert classes.tolist() == [[0, 2, 1, 2]]
    np.testing.assert_array_equal(result, np.float32([[0.6, 0.5, 0.3, 0.2]]))
    np.testing.assert_allclose(boxes[0, :, 0], [9, 9, -1, -1])
    assert count == [2]


def test_regular_detections_are_the_best_of_every_class():
    scores = np.float32([[[0, 0.9, 0.2], [0, 0.8, 0.7], [0, 0.3, 0.6]]])
    op = DetectionPostProcess(max_detections=3, num_classes=2, detections_per_class=2, use_regular_nms=True)
    _, classes, result, count = run(op, in_a_row(0, 10, 20), scores, ANCHORS)
    assert classes.tolist() == [[0, 0, 1]]
    np.testing.assert_array_equal(result, np.float32([[0.9, 0.8, 0.7]]))
    assert count == [3]


def test_the_two_originals_differ_on_the_borders():
    """Half of the score, half of an overlap; boxes are counted, or rows."""
    encodings, scores = in_a_row(0, 0, 10), np.float32([[[1, 0.5], [0.75, 0.25], [0.5, 0.5]]])
    encodings[0, 1, 2] = 0  # half as high as the first one
    common = {"max_detections": 3, "num_classes": 2, "max_classes_per_detection": 2, "nms_score_threshold": 0.5}
    tflite = run(DetectionPostProcess(**common, rules=DetectionRules.TFLITE), encodings, scores, ANCHORS)
    nnapi = run(DetectionPostProcess(**common, rules=DetectionRules.NNAPI), encodings, scores, ANCHORS)
    assert tflite[2].tolist() == [[1, 0.5, 0.75, 0.25, 0.5, 0.5]]
    assert tflite[3] == [3]
    assert nnapi[2].tolist() == [[1, 0.5, 0, 0, 0, 0]]
    assert nnapi[3] == [2]


def test_classes_may_count_the_background():
    op = DetectionPostProcess(max_detections=1, num_classes=1, background_in_classes=True)
    assert run(op, in_a_row(0, 10, 20), [[[9, 0.9], [9, 0.8], [9, 0.7]]], ANCHORS)[1] == [[1]]


# --- suppression ------------------------------------------------------------------------------------------------------

STACKED = np.float32(
    [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]]
)
SCORES = np.float32([0.9, 0.75, 0.6, 0.95, 0.5, 0.3])


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"max_output_boxes_per_class": 3, "iou_threshold": 0.5}, [3, 0, 5]),
        ({"max_output_boxes_per_class": 2, "iou_threshold": 0.5}, [3, 0]),
        ({"max_output_boxes_per_class": 9, "iou_threshold": 0.5, "score_threshold": 0.4}, [3, 0]),
        ({"max_output_boxes_per_class": 9, "iou_threshold": 1.0, "score_threshold": 0.5}, [3, 0, 1, 2]),
        ({"iou_threshold": 0.5}, []),
    ],
)
def test_selected_are_the_best_boxes_that_overlap_little(attributes, expected):
    [result] = run(NonMaxSuppression(**attributes), STACKED[np.newaxis], SCORES[np.newaxis, np.newaxis])
    assert result.tolist() == [[0, 0, box] for box in expected]
    assert result.dtype == np.int64


def test_corners_may_be_given_in_any_order_and_boxes_by_their_centers():
    op = NonMaxSuppression(max_output_boxes_per_class=3, iou_threshold=0.5)
    turned = STACKED[:, [2, 1, 0, 3]]
    centers = np.concatenate([(STACKED[:, :2] + STACKED[:, 2:]) / 2, STACKED[:, 2:] - STACKED[:, :2]], axis=1)
    for boxes, how in ((turned, op), (centers, op.replace(center_point_box=True))):
        [result] = run(how, boxes[np.newaxis], SCORES[np.newaxis, np.newaxis])
        assert result[:, 2].tolist() == [3, 0, 5]


def test_every_class_of_every_image_is_suppressed_by_itself():
    scores = np.stack([SCORES, SCORES[::-1]])
    op = NonMaxSuppression(max_output_boxes_per_class=1, iou_threshold=0.5)
    [result] = run(op, np.stack([STACKED, STACKED]), np.stack([scores, scores[::-1]]))
    assert result.tolist() == [[0, 0, 3], [0, 1, 2], [1, 0, 2], [1, 1, 3]]


def limited(op, scores, boxes, batches):
    classes = np.float32(scores).shape[1]
    every = np.tile(np.float32(boxes), classes)
    return [result.tolist() for result in run(op, scores, every, int32(*batches))]


LINE = [[0, 0, 10, 10], [0, 2, 10, 12], [0, 5, 10, 15]]


def test_a_hard_limit_drops_what_overlaps():
    op = BoxWithNmsLimit(iou_threshold=0.4, nms_score_threshold=0.1)
    scores, boxes, classes, batches = limited(op, [[0.2, 0.8], [0.4, 0.6], [0.5, 0.5]], LINE, [0, 0, 0])
    np.testing.assert_allclose(scores, [0.8, 0.5])
    assert (boxes, classes, batches) == ([LINE[0], LINE[2]], [1, 1], [0, 0])


@pytest.mark.parametrize(
    ("kernel", "lowered"),
    [
        (NmsKernel.LINEAR, [0.8, 0.5, 0.6 * (1 - 2 / 3) * (1 - 7 / 13)]),
        (NmsKernel.GAUSSIAN, [0.8, 0.5 * np.exp(-1 / 9), 0.6 * np.exp(-4 / 9) * np.exp(-49 / 169)]),
    ],
)
def test_a_soft_limit_lowers_the_scores_of_what_overlaps(kernel, lowered):
    op = BoxWithNmsLimit(iou_threshold=0.4, nms_kernel=kernel, nms_score_threshold=0.01)
    scores, boxes, *_ = limited(op, [[0.2, 0.8], [0.4, 0.6], [0.5, 0.5]], LINE, [0, 0, 0])
    np.testing.assert_allclose(scores, lowered, rtol=1e-6)
    assert boxes == [LINE[0], LINE[2], LINE[1]]


def test_a_limit_holds_for_every_image_over_all_classes():
    far = [[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]]
    op = BoxWithNmsLimit(score_threshold=0.1, max_detections=2)
    scores, _, classes, batches = limited(op, [[0, 0.9, 0.3], [0, 0.2, 0.8], [0, 0.7, 0.1]], far, [4, 4, 9])
    np.testing.assert_allclose(scores, [0.9, 0.8, 0.7])
    assert (classes, batches) == ([1, 2, 1], [4, 4, 9])


def test_a_limit_that_nothing_reaches_gives_nothing():
    result = limited(BoxWithNmsLimit(score_threshold=2.0), [[0, 0.9]], [[0, 0, 1, 1]], [0])
    assert result == [[], [], [], []]
    assert limited(BoxWithNmsLimit(), np.zeros((0, 2)), np.zeros((0, 4)), []) == [[], [], [], []]


def test_a_box_that_ends_before_it_begins_is_named():
    with pytest.raises(InvalidArgumentError) as caught:
        limited(BoxWithNmsLimit(), [[0, 0.9]], [[3, 0, 1, 1]], [0])
    assert str(caught.value) == "class 1 has (3, 0, 1, 1) at [0], which ends before it begins"


# --- transforming -----------------------------------------------------------------------------------------------------


def test_boxes_are_moved_stretched_and_clipped():
    op = AxisAlignedBboxTransform()
    deltas = [[0.5, 0, 0, np.log(2), -1, -1, 0, 0]]
    [result] = run(op, [[10.0, 10, 20, 30]], deltas, int32(1), [[9.0, 9], [45, 100]])
    np.testing.assert_allclose(result, [[15, 0, 25, 40, 0, 0, 10, 10]], rtol=1e-6)


def test_where_there_are_no_boxes_there_is_nothing_to_do():
    nothing = np.zeros((0, 4))
    assert run(AxisAlignedBboxTransform(), nothing, np.zeros((0, 8)), int32(), [[9.0, 9]])[0].shape == (0, 8)
    detections = run(DetectionPostProcess(3, 2), nothing[np.newaxis], np.zeros((1, 0, 3)), nothing)
    assert [detection.shape for detection in detections] == [(1, 3, 4), (1, 3), (1, 3), (1,)]
    cells = np.zeros((1, 0, 2, 3)), np.zeros((1, 0, 2, 12))
    proposals = run(GenerateProposals(data_layout=NHWC), *cells, np.zeros((3, 4)), np.zeros((1, 2)))
    assert [proposal.shape for proposal in proposals] == [(0,), (0, 4), (0,)]


def test_a_box_of_an_image_that_is_not_there_is_named():
    with pytest.raises(InvalidValueError) as caught:
        run(AxisAlignedBboxTransform(), [[0.0, 0, 1, 1]], np.zeros((1, 4)), int32(2), [[9.0, 9]])
    assert str(caught.value) == "batches has 2 at [0]; expected 0 to 0"


def test_quantized_boxes_are_transformed_as_the_real_numbers_that_they_are():
    q, deltas = Quantization(0.125), Quantization(0.05, 128)
    [result] = run(
        AxisAlignedBboxTransform(), np.uint16([[80, 80, 160, 240]]), np.uint8([[138, 128, 128, 128]]), int32(0),
        np.uint16([[800, 800]]), quantized=[q, deltas, None, q], results=[q],
    )  # fmt: skip
    assert result.tolist() == [[120, 80, 200, 240]]


def test_proposals_are_anchors_at_every_cell_that_were_transformed():
    scores, deltas = np.float32([[[[0.9], [0.6]], [[0.7], [0.8]]]]), np.zeros((1, 2, 2, 4), np.float32)
    op = GenerateProposals(10.0, 20.0, iou_threshold=0.5, data_layout=NHWC)
    result = run(op, scores, deltas, [[0.0, 0, 5, 5]], [[100.0, 100]])
    np.testing.assert_array_equal(result[0], np.float32([0.9, 0.8, 0.7, 0.6]))
    assert result[1].tolist() == [[0, 0, 5, 5], [20, 10, 25, 15], [0, 10, 5, 15], [20, 0, 25, 5]]
    assert result[2].tolist() == [0, 0, 0, 0]


def test_proposals_are_the_same_in_both_layouts():
    generator = np.random.default_rng(0)
    scores, deltas = generator.random((2, 3, 4, 2)), generator.normal(0, 0.1, (2, 3, 4, 8))
    operands = [[0.0, 0, 5, 5], [1, 1, 3, 9]], [[30.0, 40], [20, 20]]
    op = GenerateProposals(4.0, 5.0, pre_nms_max=20, post_nms_max=5, iou_threshold=0.3, min_size=1.0, data_layout=NHWC)
    last = run(op, scores, deltas, *operands)
    first = run(
        op.replace(data_layout=DataLayout.NCHW), np.moveaxis(scores, 3, 1), np.moveaxis(deltas, 3, 1), *operands
    )
    for a, b in zip(last, first, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (np.bincount(last[2]) <= 5).all()


def test_proposals_that_are_too_small_or_outside_do_not_count():
    scores = np.float32([[[[0.9, 0.8, 0.7]]]])
    anchors = [[0.0, 0, 2, 9], [0, 0, 9, 9], [15, 0, 40, 9]]
    op = GenerateProposals(min_size=2.0, data_layout=NHWC)
    result = run(op, scores, np.zeros((1, 1, 1, 12), np.float32), anchors, [[20.0, 15]])
    assert result[1].tolist() == [[0, 0, 9, 9]]


# --- regions ----------------------------------------------------------------------------------------------------------

IMAGE = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)


@pytest.mark.parametrize(
    ("op", "region", "expected"),
    [
        (RoiAlign(2, 2), [0, 0, 2, 2], [[2.5, 3.5], [6.5, 7.5]]),
        (RoiAlign(1, 1, half_pixel=True), [0, 0, 4, 4], [[7.5]]),
        (RoiAlign(1, 1, 2.0, 2.0), [0, 0, 2, 2], [[2.5]]),
        (RoiAlign(1, 1), [2, 2, 2, 2], [[12.5]]),
        (RoiAlign(1, 2), [3, 3, 5, 4], [[15, 0]]),
        (RoiAlign(1, 1, mode=RoiAlignMode.MAX, half_pixel=True), [0.5, 0.5, 2.5, 2.5], [[2.5]]),
        (RoiPooling(2, 2), [0, 0, 3, 3], [[5, 7], [13, 15]]),
        (RoiPooling(1, 2), [0, 0, 2, 1], [[5, 6]]),
        (RoiPooling(1, 1), [3, 1, 0, 0], [[7]]),
        (RoiPooling(1, 1, 2.0, 2.0), [2, 2, 2, 2], [[5]]),
        (RoiPooling(2, 1), [0, 3, 0, 4], [[12], [0]]),
    ],
)
def test_a_region_is_cut_out(op, region, expected):
    [result] = run(op, IMAGE, [np.float32(region)], int32(0))
    np.testing.assert_allclose(result[0, 0], expected, rtol=1e-6)


def test_a_pixel_that_is_no_number_spoils_only_the_means_that_it_has_a_part_in():
    image = IMAGE.copy()
    image[..., 3, 3] = np.nan
    op = RoiAlign(2, 2, height_sampling_ratio=1, width_sampling_ratio=1)
    [result] = run(op, image, np.float32([[0, 0, 4, 4]]), int32(0))
    assert np.isnan(result[0, 0]).tolist() == [[False, False], [False, True]]


@pytest.mark.parametrize("kind", [RoiAlign, RoiPooling])
def test_both_layouts_give_the_same_regions(kind):
    generator = np.random.default_rng(0)
    x, regions = generator.random((3, 2, 5, 6)), [[0.0, 0, 5, 4], [1, 1, 2, 3], [2.3, 0.4, 5.5, 4.5]]
    [first] = run(kind(2, 3), x, regions, int32(0, 2, 1))
    [last] = run(kind(2, 3, data_layout=NHWC), np.moveaxis(x, 1, 3), regions, int32(0, 2, 1))
    np.testing.assert_array_equal(np.moveaxis(last, 3, 1), first)


def test_quantized_regions_are_those_of_the_real_numbers():
    q, places = Quantization(0.5, 10), Quantization(0.125)
    codes, regions = (IMAGE * 2 + 10).astype(np.uint8), np.uint16([[0, 0, 16, 16], [0, 0, 32, 32]])
    for op, expected in ((RoiAlign(1, 1), [5, 9.5]), (RoiPooling(1, 1), [10, 15])):
        [result] = run(op, codes, regions, int32(0, 0), quantized=[q, places])
        np.testing.assert_array_equal((result.ravel() - 10.0) / 2, expected)


@pytest.mark.parametrize("kind", [RoiAlign, RoiPooling])
def test_regions_may_have_a_scale_of_their_own(kind):
    codes, region = (IMAGE * 2 + 10).astype(np.uint8), np.float32([[0, 0, 0, 0]])
    [same] = run(kind(1, 1), codes, region, int32(0), quantized=[Quantization(0.5, 10)])
    [finer] = run(
        kind(1, 1), codes, region, int32(0), quantized=[Quantization(0.5, 10)], results=[Quantization(0.25, 3)]
    )
    np.testing.assert_allclose((finer - 3.0) / 4, (same - 10.0) / 2, atol=0.25)


@pytest.mark.parametrize("kind", [RoiAlign, RoiPooling])
def test_there_may_be_no_regions_but_none_of_images_that_are_not_there(kind):
    [result] = run(kind(2, 2), IMAGE, np.zeros((0, 4)), int32())
    assert result.shape == (0, 1, 2, 2)
    with pytest.raises(InvalidValueError, match=r"^batches has -1 at \[0\]; expected 0 to 0$"):
        run(kind(2, 2), IMAGE, np.zeros((1, 4)), int32(-1))


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("end", [np.nan, np.inf])
def test_a_region_without_an_end_cannot_be_sampled(end, ratio):
    with pytest.raises(InvalidArgumentError, match=f"regions has one from 0 to {end} cells, which cannot be sampled"):
        run(RoiAlign(1, 1, height_sampling_ratio=ratio, width_sampling_ratio=ratio), IMAGE, [[0, 0, end, 2]], int32(0))


def test_a_region_of_any_size_can_be_sampled_at_some_points_only():
    region = [[0, 0, 1e30, 1]]
    [result] = run(RoiAlign(1, 1, height_sampling_ratio=1, width_sampling_ratio=1), IMAGE, region, int32(0))
    assert result.tolist() == [[[[0]]]]
    with pytest.raises(InvalidArgumentError, match=r"from 0 to 1e\+30 cells, which cannot be sampled"):
        run(RoiAlign(1, 1), IMAGE, region, int32(0))


def paraboloid(x, y, size=6):
    """A heatmap whose quadratic function is known: its maximum, 3, is at (x, y)."""
    j, i = np.meshgrid(np.arange(size), np.arange(size))
    return (3 - (j - x) ** 2 - 2 * (i - y) ** 2)[np.newaxis, :, :, np.newaxis]


@given(st.floats(0.6, 4.4), st.floats(0.6, 4.4))
@settings(max_examples=30, deadline=None)
def test_the_maximum_is_found_between_the_cells(x, y):
    scores, keypoints = run(HeatmapMaxKeypoint(NHWC), paraboloid(x, y), [[10.0, 20, 22, 50]])
    np.testing.assert_allclose(scores, [[3]], rtol=1e-4)
    np.testing.assert_allclose(keypoints, [[[10 + (x + 0.5) * 2, 20 + (y + 0.5) * 5]]], rtol=1e-3)


def test_where_all_is_flat_the_maximum_is_the_first_cell():
    scores, keypoints = run(HeatmapMaxKeypoint(NHWC), np.full((1, 4, 4, 2), 7.0), [[0.0, 0, 8, 4]])
    assert scores.tolist() == [[7, 7]]
    assert keypoints.tolist() == [[[1, 0.5], [1, 0.5]]]

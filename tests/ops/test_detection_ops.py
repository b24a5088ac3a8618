"""Shapes and errors of the operators on boxes and regions."""

import pytest

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import UNKNOWN, DataLayout, DataType, Quantization, TensorInfo
from interposer.ops import (
    AxisAlignedBboxTransform,
    BoxWithNmsLimit,
    DetectionPostProcess,
    GenerateProposals,
    HeatmapMaxKeypoint,
    NonMaxSuppression,
    RoiAlign,
    RoiPooling,
)

NHWC = DataLayout.NHWC
F16, I32, U8, U16 = DataType.FLOAT16, DataType.INT32, DataType.UINT8, DataType.UINT16


def info(*shape, dtype=DataType.FLOAT32, quantization=None):
    return TensorInfo(shape, dtype, quantization)


def test_detections_have_a_row_for_every_class_of_every_box():
    op = DetectionPostProcess(max_detections=10, num_classes=4, max_classes_per_detection=3)
    operands = info(1, 50, 4), info(1, 50, 5), info(50, 4)
    assert op.violations(*operands) == []
    assert [str(infer_info) for infer_info in op.infer_infos(*operands)] == [
        "float32[1, 30, 4]",
        "float32[1, 30]",
        "float32[1, 30]",
        "float32[1]",
    ]


def test_labels_of_detections_are_integers_where_that_is_asked_for():
    op = DetectionPostProcess(max_detections=2, num_classes=4, label_dtype=I32)
    inferred = op.infer_infos(info(3, 5, 7, dtype=F16), info(3, 5, 4, dtype=F16), info(5, 4, dtype=F16))
    assert [output.dtype for output in inferred] == [F16, I32, F16, I32]


def test_detections_from_codes_are_real_numbers():
    q = Quantization(0.1)
    op = DetectionPostProcess(max_detections=2, num_classes=4)
    inferred = op.infer_infos(
        info(1, 5, 4, dtype=U8, quantization=q), info(1, 5, 4, dtype=U8, quantization=q), info(5, 4)
    )
    assert str(inferred[0]) == "float32[1, 2, 4]"


@pytest.mark.parametrize(
    ("operands", "fault"),
    [
        (
            (info(1, 5, 4), info(1, 6, 5), info(5, 4)),
            "scores (B, N, C) has shape [1, 6, 5] and box_encodings (B, N, E) [1, 5, 4]; N must be the same",
        ),
        (
            (info(1, 5, 3), info(1, 5, 5), info(5, 4)),
            "box_encodings has shape [1, 5, 3]; expected at least 4 numbers for each box",
        ),
        ((info(1, 5, 4), info(1, 5, 5), info(5, 5)), "anchors has shape [5, 5]; expected 4 numbers for each"),
        (
            (info(1, 5, 4), info(1, 5, 9), info(5, 4)),
            "scores has 9 classes; expected num_classes = 4, or one more with the background",
        ),
    ],
)
def test_detections_name_what_does_not_fit(operands, fault):
    assert DetectionPostProcess(max_detections=2, num_classes=4).violations(*operands) == [fault]


def test_detections_need_scales_above_zero():
    with pytest.raises(InvalidArgumentError, match="scale_x is 0.0; expected > 0"):
        DetectionPostProcess(max_detections=2, num_classes=4, scale_x=0.0)


def test_how_many_boxes_are_selected_is_only_known_where_none_can_be():
    operands = info(1, 5, 4), info(1, 3, 5)
    assert NonMaxSuppression(max_output_boxes_per_class=2).infer_infos(*operands)[0].shape == (UNKNOWN, 3)
    assert NonMaxSuppression().infer_infos(*operands)[0] == info(0, 3, dtype=DataType.INT64)
    assert NonMaxSuppression().violations(info(1, 5, 3), info(1, 3, 5)) == [
        "boxes has shape [1, 5, 3]; expected 4 numbers for each"
    ]


def test_boxes_of_a_limit_keep_their_types_and_scales():
    q8, q16 = Quantization(1 / 256), Quantization(0.125)
    scores, boxes = info(5, 3, dtype=U8, quantization=q8), info(5, 12, dtype=U16, quantization=q16)
    inferred = BoxWithNmsLimit().infer_infos(scores, boxes, info(5, dtype=I32))
    assert [str(output) for output in inferred] == [
        "uint8[?] q(0.00390625, 0)",
        "uint16[?, 4] q(0.125, 0)",
        "int32[?]",
        "int32[?]",
    ]


@pytest.mark.parametrize(
    ("scores", "boxes", "fault"),
    [
        (info(5, 1), info(5, 4), "scores has 1 classes; expected the background and at least one more"),
        (info(5, 3), info(5, 8), "boxes has shape [5, 8]; expected 4 numbers for each of 3 classes"),
        (info(4, 3), info(5, 12), "boxes (N, A) has shape [5, 12] and scores (N, C) [4, 3]; N must be the same"),
    ],
)
def test_a_limit_names_what_does_not_fit(scores, boxes, fault):
    assert fault in BoxWithNmsLimit().violations(scores, boxes, info(5, dtype=I32))


def test_boxes_are_transformed_for_every_class():
    op, batches = AxisAlignedBboxTransform(), info(5, dtype=I32)
    assert op.infer_infos(info(5, 4), info(5, 12), batches, info(2, 2)) == (info(5, 12),)
    assert op.violations(info(5, 4), info(5, 10), batches, info(2, 3)) == [
        "deltas has shape [5, 10]; expected 4 numbers for each class",
        "image_info has shape [2, 3]; expected height and width for each image",
    ]


@pytest.mark.parametrize(
    ("op", "scores", "deltas"),
    [
        (GenerateProposals(), info(2, 3, 4, 5), info(2, 12, 4, 5)),
        (GenerateProposals(data_layout=NHWC), info(2, 4, 5, 3), info(2, 4, 5, 12)),
    ],
)
def test_proposals_come_from_anchors_at_every_cell(op, scores, deltas):
    assert op.violations(scores, deltas, info(3, 4), info(2, 2)) == []
    inferred = op.infer_infos(scores, deltas, info(3, 4), info(2, 2, dtype=F16))
    assert [str(output) for output in inferred] == ["float32[?]", "float16[?, 4]", "int32[?]"]
    assert op.violations(scores, scores, info(3, 4), info(2, 2)) == [
        f"deltas has shape {scores.shape}; expected 4 numbers for each of 3 anchors"
    ]


@pytest.mark.parametrize("kind", [RoiAlign, RoiPooling])
def test_every_region_becomes_an_image_of_one_size(kind):
    regions, batches = info(7, 4), info(7, dtype=I32)
    assert kind(2, 3).infer_infos(info(1, 5, 8, 9), regions, batches) == (info(7, 5, 2, 3),)
    assert kind(2, 3, data_layout=NHWC).infer_infos(info(1, 8, 9, 5), regions, batches) == (info(7, 2, 3, 5),)
    [late] = kind(2, 3).infer_infos(info(1, 5, 8, 9), info(None, 4), info(None, dtype=I32))
    assert late.shape == (UNKNOWN, 5, 2, 3)


def test_the_cost_of_regions_is_that_of_all_samples_in_their_bins():
    op = RoiAlign(2, 3, height_sampling_ratio=2, width_sampling_ratio=4)
    operands = info(1, 5, 8, 9), info(7, 4), info(7, dtype=I32)
    results, elements = op.infer_infos(*operands), 5 * 8 * 9
    assert op.operations(operands, results) == 8 * (2 * 4) * (7 * 5 * 2 * 3) + 7 * elements


def test_regions_name_what_does_not_fit():
    op = RoiAlign(2, 3)
    assert op.violations(info(1, 5, 8, 9), info(7, 5), info(6, dtype=I32)) == [
        "batches (R) has shape [6] and regions (R, A) [7, 5]; R must be the same",
        "regions has shape [7, 5]; expected (x1, y1, x2, y2) for each",
    ]
    assert op.violations(info(1, 5, 0, 9), info(7, 4), info(7, dtype=I32)) == [
        "input has shape [1, 5, 0, 9]; expected images of height and width 1 or more"
    ]


def test_keypoints_are_points_of_every_heatmap():
    op = HeatmapMaxKeypoint(NHWC)
    assert op.infer_infos(info(5, 4, 4, 3), info(5, 4)) == (info(5, 3), info(5, 3, 2))
    assert op.violations(info(5, 4, 3, 3), info(5, 4)) == [
        "heatmaps are 4 cells high and 3 wide; expected squares of size 2 or more"
    ]
    assert op.violations(info(5, 1, 1, 3), info(5, 4)) == [
        "heatmaps are 1 cells high and 1 wide; expected squares of size 2 or more"
    ]
    assert op.violations(info(5, 4, 4, 3), info(4, 4)) == [
        "boxes has shape [4, 4]; expected 4 numbers for each of 5 heatmaps"
    ]

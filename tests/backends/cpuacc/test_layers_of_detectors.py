"""Layers of detectors and segmenters give what the reference gives, for sizes beyond those of the conformance kit."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataLayout, DataType, Quantization, TensorInfo
from interposer.ops import (
    BatchToSpaceNd,
    DeformableConvolution2d,
    DetectionPostProcess,
    LpPooling,
    MaxPoolingWithIndices,
    MaxUnpooling,
    NonZero,
    SpaceToBatchNd,
)
from interposer.ops.detection import DetectionRules
from tests.backends.cpuacc.single import outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

RNG = np.random.default_rng(11)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def assert_same(results: list[list[Array]]) -> None:
    for result, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("rules", [DetectionRules.TFLITE, DetectionRules.ARMNN])
@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize("quantization", [None, Quantization(1 / 32, 3)])
def test_detections(rules: DetectionRules, regular: bool, quantization: Quantization | None) -> None:
    network, boxes, classes = ip.Network("detections"), 700, 12
    anchors = np.concatenate([RNG.uniform(0, 1, (boxes, 2)), RNG.uniform(0.1, 0.4, (boxes, 2))], 1).astype(np.float32)
    dtype = DataType.FLOAT32 if quantization is None else DataType.UINT8
    shapes = [(2, boxes, 4), (2, boxes, classes + 1)]
    layers = [network.add_input_layer(n, TensorInfo(shape, dtype, quantization)) for n, shape in enumerate(shapes)]
    op = DetectionPostProcess(
        max_detections=30, num_classes=classes, max_classes_per_detection=2, detections_per_class=7,
        nms_score_threshold=0.3, nms_iou_threshold=0.5, use_regular_nms=regular, scale_x=10.0, scale_y=10.0,
        scale_w=5.0, scale_h=5.0, rules=rules,
    )  # fmt: skip
    layer = network.add_layer(op, *layers, network.add_constant_layer(anchors))
    for n, output in enumerate(layer.outputs):
        network.add_output_layer(n, output)
    if quantization is None:
        arrays = [floats(*shapes[0]), RNG.uniform(0, 1, shapes[1]).astype(np.float32)]
    else:
        arrays = [RNG.integers(0, 256, shape).astype(np.uint8) for shape in shapes]
    assert_same(outcomes(network, arrays))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("column_major", [False, True])
def test_maxima_with_their_indices_and_back(threads: int, column_major: bool) -> None:
    network = ip.Network("pooling")
    x = network.add_input_layer(0, TensorInfo((2, 5, 21, 30)))
    op = MaxPoolingWithIndices(
        window_shape=(3, 2), strides=(2, 2), pad_list=((1, 1), (0, 1)), column_major=column_major
    )
    pooled = network.add_layer(op, x)
    network.add_output_layer(0, pooled.outputs[0])
    network.add_output_layer(1, pooled.outputs[1])
    if not column_major:
        unpooled = network.add_layer(MaxUnpooling(extents=(21, 30)), *pooled.outputs)
        network.add_output_layer(2, unpooled.outputs[0])
    assert_same(outcomes(network, [RNG.integers(0, 9, (2, 5, 21, 30)).astype(np.float32)], threads))


@pytest.mark.parametrize("p", [1, 2, 3])
def test_norms_of_windows(p: int) -> None:
    network = ip.Network("norms")
    x = network.add_input_layer(0, TensorInfo((2, 5, 21, 30)))
    op = LpPooling(window_shape=(3, 2), strides=(2, 1), dilations=(1, 3), pad_list=((1, 1), (0, 1)), p=p)
    network.add_output_layer(0, network.add_layer(op, x))
    result, expected = outcomes(network, [floats(2, 5, 21, 30)])
    np.testing.assert_allclose(result[0], expected[0], rtol=1e-6)


def test_blocks_of_batches() -> None:
    network = ip.Network("blocks")
    x = network.add_input_layer(0, TensorInfo((2, 13, 18, 5), DataType.INT8, Quantization(0.5, 7)))
    blocks = network.add_layer(
        SpaceToBatchNd(block_shape=(3, 4), pad_list=((1, 4), (0, 2)), data_layout=DataLayout.NHWC), x
    )
    image = network.add_layer(
        BatchToSpaceNd(block_shape=(3, 4), crops=((2, 1), (3, 0)), data_layout=DataLayout.NHWC), blocks
    )
    network.add_output_layer(0, blocks)
    network.add_output_layer(1, image)
    assert_same(outcomes(network, [RNG.integers(-128, 128, (2, 13, 18, 5)).astype(np.int8)]))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("groups", "offset_groups"), [(1, 1), (2, 3)])
def test_deformable_convolutions(threads: int, groups: int, offset_groups: int) -> None:
    network = ip.Network("deformable")
    x = network.add_input_layer(0, TensorInfo((2, 12, 9, 11)))
    offset = network.add_input_layer(1, TensorInfo((2, offset_groups * 18, 5, 11)))
    mask = network.add_input_layer(2, TensorInfo((2, offset_groups * 9, 5, 11)))
    weights = network.add_constant_layer(floats(34, 12 // groups, 3, 3))
    op = DeformableConvolution2d(
        pad_left=1, pad_right=1, pad_top=1, pad_bottom=1, stride_y=2, groups=groups, offset_groups=offset_groups
    )
    layer = network.add_layer(op, x, weights, offset, network.add_constant_layer(floats(34)), mask)
    network.add_output_layer(0, layer)
    arrays = [floats(2, 12, 9, 11), 3 * floats(2, offset_groups * 18, 5, 11), floats(2, offset_groups * 9, 5, 11)]
    result, expected = outcomes(network, arrays, threads)
    np.testing.assert_allclose(result[0], expected[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_places_of_numbers_that_are_not_zero(density: float) -> None:
    network = ip.Network("places")
    network.add_output_layer(0, network.add_layer(NonZero(), network.add_input_layer(0, TensorInfo((7, 1, 33)))))
    array = np.where(RNG.uniform(0, 1, (7, 1, 33)) < density, 1.0, -0.0).astype(np.float32)
    assert_same(outcomes(network, [array]))

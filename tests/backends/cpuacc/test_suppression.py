"""CpuAcc on non-maximum suppression, whose number of results depends on the data: the results of the reference."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer import TensorInfo
from interposer.core.types import DataType
from interposer.ops import Comparison, ComparisonOperation, Constant, Gather, NonMaxSuppression, NonZero, Reshape
from tests.backends.cpuacc.single import outcomes, reference_results

pytestmark = pytest.mark.usefixtures("shared_cpuacc")


def arrays_of(images, classes, boxes, dtype=np.float32, seed=0):
    random = np.random.default_rng(seed)
    places = random.integers(0, 64, (images, boxes, 4)) / 8
    return places.astype(dtype), (random.integers(0, 40, (images, classes, boxes)) / 64).astype(dtype)


def network_of(op, arrays):
    network = ip.Network("suppression")
    inputs = [network.add_input_layer(n, TensorInfo(a.shape, DataType.of(a.dtype))) for n, a in enumerate(arrays)]
    network.add_output_layer(0, network.add_layer(op, *inputs, name="nms").output)
    return network


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize(
    "op",
    [
        NonMaxSuppression(max_output_boxes_per_class=5, iou_threshold=0.3),
        NonMaxSuppression(max_output_boxes_per_class=2**40, iou_threshold=0.5, score_threshold=0.25),
        NonMaxSuppression(max_output_boxes_per_class=20, iou_threshold=0.1, center_point_box=True),
        NonMaxSuppression(max_output_boxes_per_class=20, iou_threshold=0.5, score_threshold=2.0),
        NonMaxSuppression(),
    ],
    ids=["few", "all", "centers", "none above the threshold", "no results"],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_selected_boxes_are_those_of_the_reference(op, dtype, threads):
    arrays = arrays_of(2, 3, 70, dtype)
    [result], [expected] = outcomes(network_of(op, arrays), arrays, threads)
    assert result.dtype == np.int64
    assert result.tolist() == expected.tolist()


@pytest.mark.parametrize("shape", [(0, 3, 5), (2, 0, 5), (2, 3, 0), (1, 1, 1)])
def test_images_classes_and_boxes_may_be_missing(shape):
    op = NonMaxSuppression(max_output_boxes_per_class=5, iou_threshold=0.3)
    arrays = arrays_of(*shape)
    [result], [expected] = outcomes(network_of(op, arrays), arrays)
    assert (result.shape, result.tolist()) == (expected.shape, expected.tolist())


def test_the_number_of_results_may_change_from_run_to_run():
    op = NonMaxSuppression(max_output_boxes_per_class=50, iou_threshold=0.3, score_threshold=0.25)
    boxes, scores = arrays_of(1, 2, 60)
    network = network_of(op, (boxes, scores))
    model = ip.load(network, ["CpuAcc"])
    for factor in (1, 0, 0.5, 1):
        scaled = scores * np.float32(factor)
        [expected] = reference_results(network, [boxes, scaled])
        [result] = model.run([boxes, scaled])
        assert result.tolist() == expected.tolist()


def test_boxes_whose_number_the_data_determines_are_selected_by_another_backend():
    [boxes], [[scores]] = arrays_of(1, 1, 50)
    network = ip.Network("suppression")
    inputs = [network.add_input_layer(n, TensorInfo(a.shape)).output for n, a in enumerate((boxes, scores))]
    limit = network.add_layer(Constant(np.array(0.25, np.float32))).output
    above = network.add_layer(Comparison(ComparisonOperation.GREATER), inputs[1], limit).output
    places = network.add_layer(Reshape((-1,)), network.add_layer(NonZero(), above).output).output
    shapes = ((1, -1, 4), (1, 1, -1))
    operands = [
        network.add_layer(Reshape(shape), network.add_layer(Gather(0), value, places).output).output
        for shape, value in zip(shapes, inputs, strict=True)
    ]
    op = NonMaxSuppression(max_output_boxes_per_class=100, iou_threshold=0.5)
    network.add_output_layer(0, network.add_layer(op, *operands, name="nms").output)
    [expected], [result] = (ip.load(network, ids).run([boxes, scores]) for ids in (["CpuRef"], ["CpuAcc", "CpuRef"]))
    assert len(expected) > 5
    assert result.tolist() == expected.tolist()

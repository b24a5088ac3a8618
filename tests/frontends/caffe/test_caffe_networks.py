"""Whole Caffe networks give the results of OpenCV's dnn module, and survive conversion to ONNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.frontends import caffe
from interposer.types import Array
from tests.frontends.caffe.build import outputs_of_opencv, random_array
from tests.frontends.caffe.networks import NETWORKS, weights_of_network


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_agrees_with_opencv(name: str) -> None:
    pytest.importorskip("cv2", reason="OpenCV is not installed")
    net = NETWORKS[name]()
    weights = weights_of_network(net)
    network = caffe.load(net.text.encode(), weights=weights)
    image = random_array(name, tuple(network.graph.inputs[0].output.known.shape))
    [expected] = outputs_of_opencv(net.text, weights, {"data": image}, [net.name])
    for backends in (["CpuRef"], None):
        result = ip.load(network, backends)(image)
        assert result.size == expected.size
        np.testing.assert_allclose(rows_of(result), rows_of(expected), rtol=1e-3, atol=1e-4)


def rows_of(result: Array) -> Array:
    """Return the numbers of a result; of detections the rows by score, as OpenCV does not order them by class."""
    if result.shape[-1:] != (7,):
        return result.ravel()
    rows = result.reshape(-1, 7)
    return np.asarray(rows[np.argsort(-rows[:, 2], kind="stable")])


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "ssd"])
def test_a_network_survives_conversion_to_onnx(name: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("interposer.writers.onnx", reason="the package onnx is not installed")
    net = NETWORKS[name]()
    network = caffe.load(net.text.encode(), weights=weights_of_network(net))
    image = random_array(name, tuple(network.graph.inputs[0].output.known.shape))
    onnx.save(network, tmp_path / "net.onnx")
    results = [ip.load(source, ["CpuRef"])(image) for source in (network, tmp_path / "net.onnx")]
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-6)


def test_batch_norm_and_scale_are_merged_into_convolutions() -> None:
    net = NETWORKS["mobilenet"]()
    model = ip.load(net.text.encode(), ["CpuRef"], weights=weights_of_network(net))
    assert {type(layer.op).__name__ for layer in model.optimized.graph if layer.inputs} == {
        "Activation", "Convolution2d", "DepthwiseConvolution2d", "Output", "Pooling2d", "Softmax",
    }  # fmt: skip

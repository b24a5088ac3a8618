"""What only LiteRT has: sets of kernels, TensorFlow Lite's own integers, and errors that name layers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer import Quantization, TensorInfo
from interposer.core.errors import ExecutionError, UnsupportedLayerError
from interposer.core.types import DataLayout
from interposer.frontends import onnx
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    DepthwiseConvolution2d,
    Division,
    TransposeConvolution2d,
)
from tests.backends.engines.adapters import engine_class, runtime_with_engines
from tests.backends.engines.test_engines import golden, needs_models, options_for, small_network

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
pytestmark = pytest.mark.skipif(
    engine_class("LiteRt").unavailable() is not None, reason="ai-edge-litert or the package tflite is not installed"
)


@pytest.fixture
def runtime():
    with runtime_with_engines() as created:
        yield created


@needs_models
@pytest.mark.parametrize("name", ["ad01_int8", "kws_ref_model", "mobilenet_v1_0.25_128_quant", "vww_96_int8"])
def test_the_reference_kernels_give_the_integers_of_the_reference(runtime, name):
    network, value, expected = golden(name, 1)
    options = options_for("LiteRt", kernels="reference")
    [result] = ip.load(network, ["LiteRt"], runtime=runtime, options=options).run(value)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("kernels", ["xnnpack", "builtin", "reference"])
def test_every_set_of_kernels_can_be_chosen(runtime, kernels):
    options = options_for("LiteRt", kernels=kernels)
    assert ip.load(small_network(), ["LiteRt"], runtime=runtime, options=options)


@pytest.mark.needs_cpuref
def test_a_network_of_onnx_runs_whole(runtime):
    pytest.importorskip("onnx")
    network = onnx.load(DIGITS)
    model = ip.load(network, ["LiteRt"], runtime=runtime)
    assert len({placement.runs_in for placement in model.optimized.placements}) == 1
    x = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
    [result] = model.run([x])
    [expected] = ip.load(network, ["CpuRef"], runtime=runtime).run([x])
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def _refusal(runtime, network) -> str:
    with pytest.raises(UnsupportedLayerError) as caught:
        ip.optimize(network, ["LiteRt"], runtime.device_spec)
    return str(caught.value)


def test_what_tflite_cannot_express_is_the_reason_of_a_refusal(runtime):
    network = ip.Network("divided")
    a, b = (network.add_input_layer(number, TensorInfo((3,), "int32")) for number in range(2))
    network.add_output_layer(0, network.add_layer(Division(), a, b, name="quotient"))
    assert "LiteRt says: it may divide integers by 0, which TFLite refuses while running" in _refusal(runtime, network)


def test_tensors_without_elements_and_rough_functions_are_refused(runtime):
    network = ip.Network("empty")
    x = network.add_input_layer(0, TensorInfo((0, 3)))
    network.add_output_layer(0, network.add_layer(Addition(), x, x, name="sum"))
    assert "it has an empty tensor, which LiteRT's kernels do not support" in _refusal(runtime, network)
    network = ip.Network("rough")
    x = network.add_input_layer(0, TensorInfo((3,), "int16", Quantization(2.0**-12)))
    network.add_output_layer(0, network.add_layer(Activation(ActivationFunction.SIGMOID), x, name="share"))
    assert "SIGMOID of int16 is several steps off, except with kernels='reference'" in _refusal(runtime, network)


def test_an_error_while_running_names_the_layer(runtime):
    network = ip.Network("picked")
    table = network.add_input_layer(0, TensorInfo((3, 2)), name="table")
    places = network.add_input_layer(1, TensorInfo((2,), "int32"), name="places")
    network.add_output_layer(0, network.add_embedding_lookup_layer(places, table, name="rows"), name="y")
    model = ip.load(network, ["LiteRt"], runtime=runtime)
    message = re.escape("layer 'rows' (EmbeddingLookup) cannot use its inputs: lookups has 7 at [1]; expected 0 to 2")
    with pytest.raises(ExecutionError, match=message):
        model.run([np.zeros((3, 2), np.float32), np.int32([0, 7])])
    [result] = model.run([np.float32([[1, 2], [3, 4], [5, 6]]), np.int32([2, 0])])
    assert result.tolist() == [[5, 6], [1, 2]]


def convolution(op, weights):
    network = ip.Network("convolution")
    x = network.add_input_layer(
        0, TensorInfo((1, 4, 4, 2), weights.dtype, weights.quantization and Quantization(0.5, 3))
    )
    layer = network.add_layer(op, x, network.add_input_layer(1, weights), name="layer")
    network.add_output_layer(0, layer)
    return network


@pytest.mark.parametrize(
    ("op", "weights", "reason"),
    [
        (
            DepthwiseConvolution2d(data_layout=DataLayout.NHWC), TensorInfo((1, 2, 2, 2)),
            "LiteRT crashes if weights of a depthwise convolution are no constant, except with kernels='reference'",
        ),
        (
            TransposeConvolution2d(data_layout=DataLayout.NHWC), TensorInfo((3, 2, 2, 2), "int8", Quantization(0.5, 1)),
            "LiteRT ignores the zero point of int8 weights; expected 0",
        ),
    ],
    ids=["crash", "zero-point"],
)  # fmt: skip
def test_weights_with_which_its_kernels_are_wrong_are_refused(runtime, op, weights, reason):
    network = convolution(op, weights)
    with pytest.raises(UnsupportedLayerError, match=reason):
        ip.optimize(network, ["LiteRt"], runtime.device_spec)

"""What only ONNX Runtime has: execution providers, and exact integers."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import UnsupportedLayerError
from tests.backends.engines.adapters import engine_class, runtime_with_engines
from tests.backends.engines.test_engines import golden, needs_models, options_for, small_network

pytestmark = pytest.mark.skipif(
    engine_class("OnnxRuntime").unavailable() is not None, reason="ONNX Runtime or the package onnx is not installed"
)


LOADS = """
import os, sys
seen = []
sys.addaudithook(lambda event, args: seen.append(os.environ.get("ORT_DISABLE_TELEMETRY"))
                 if event == "import" and args[0] == "onnxruntime" else None)
import numpy, interposer
network = interposer.Network("net")
x = network.add_input_layer(0, interposer.TensorInfo((2,)), name="x")
network.add_output_layer(0, network.add_addition_layer(x, x), name="y")
interposer.load(network, ["OnnxRuntime"]).run([numpy.ones(2, numpy.float32)])
print(set(seen))
"""


@pytest.mark.parametrize(("given", "seen"), [(None, "1"), ("0", "0")])
def test_the_telemetry_is_off_before_the_package_is_imported_unless_it_is_asked_for(given, seen):
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment |= {} if given is None else {"ORT_DISABLE_TELEMETRY": given}
    done = subprocess.run([sys.executable, "-c", LOADS], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str({seen})


@pytest.fixture
def runtime():
    with runtime_with_engines() as created:
        yield created


def test_a_provider_that_is_not_there_is_a_refusal_that_names_the_nearest(runtime):
    options = options_for("OnnxRuntime", provider="CpuExecutionProvider")
    with pytest.raises(UnsupportedLayerError, match="has no 'CpuExecutionProvider'; did you mean 'CPUExecutionProvid"):
        ip.optimize(small_network(), ["OnnxRuntime"], runtime.device_spec, options)


def needs_a_provider_that_takes_no_layers():
    onnxruntime = pytest.importorskip("onnxruntime")
    is_telling = hasattr(onnxruntime.InferenceSession, "get_provider_graph_assignment_info")
    if not is_telling or "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime does not say which provider takes what, or has only one provider")


def test_an_explanation_says_what_a_provider_leaves_to_the_processor(runtime):
    needs_a_provider_that_takes_no_layers()
    network = ip.Network("many")
    x = network.add_input_layer(0, ip.TensorInfo((2,)), name="x")
    value = x
    for number in range(7):
        value = network.add_addition_layer(value, x, name=f"block/add{number}")
    network.add_output_layer(0, value, name="y")
    options = options_for("OnnxRuntime", provider="AzureExecutionProvider")
    model = ip.load(network, ["OnnxRuntime"], runtime=runtime, options=options)
    assert (
        "  OnnxRuntime: AzureExecutionProvider runs 0 of 7 nodes; CPUExecutionProvider runs the rest, of "
        "'block/add0', 'block/add1', 'block/add2', 'block/add3', 'block/add4' and 2 more\n"
    ) in str(model.explain())
    np.testing.assert_array_equal(model.run([np.ones(2, np.float32)])[0], [8, 8])


def test_an_explanation_says_nothing_of_the_provider_that_takes_everything(runtime):
    model = ip.load(small_network(), ["OnnxRuntime"], runtime=runtime)
    assert model.explain().remarks == ()


@needs_models
@pytest.mark.parametrize("name", ["ad01_int8", "kws_ref_model", "pretrainedResnet_quant"])
def test_exact_gives_the_integers_of_the_reference(runtime, name):
    network, value, expected = golden(name, 1)
    options = options_for("OnnxRuntime", exact=True)
    [result] = ip.load(network, ["OnnxRuntime"], runtime=runtime, options=options).run(value)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("level", ["all", "extended", "basic", "disabled"])
def test_every_level_of_optimization_can_be_chosen(runtime, level):
    options = options_for("OnnxRuntime", graph_optimization=level)
    assert ip.load(small_network(), ["OnnxRuntime"], runtime=runtime, options=options)


NOT_ROUNDED = {
    "a product with dequantized weights": """
        %x = Input : int16[1, 2] q(0.000244140625, 0)
        %weights = Constant(value=int8[2, 1]{-93, 0}, quantization=q([0.01], [0], axis=1))
        %y = FullyConnected %x, %weights : int16[1, 1] q(0.0009765625, 0) declared
        Output %y as "result"
    """,
    "a convolution between quantized layers": """
        %x = Input : int8[1, 1, 2, 2] q(0.075581394135952, 1)
        %floats = Dequantize %x : float32[1, 1, 2, 2]
        %weights = Constant(value=float32[1, 1, 1, 2]{1.0, 0.3333})
        %bias = Constant(value=float32[1]{-0.84008145}) : float32[1]
        %y = Convolution2d %floats, %weights, %bias : float32[1, 1, 2, 1]
        %quantized = Quantize(dtype=int8) %y : int8[1, 1, 2, 1] q(0.04798386991024017, -28) declared
        Output %y as "result"
        Output(binding_id=1) %quantized as "integers"
    """,
}  # fmt: skip


@pytest.mark.parametrize("layers", NOT_ROUNDED.values(), ids=NOT_ROUNDED.keys())
def test_no_optimizer_rounds_operands_to_8_bits(runtime, layers):
    network = ip.Network.parse(f'graph "net" {{{layers}}}')
    [info] = [layer.output.known for layer in network.graph.inputs]
    largest = np.iinfo(info.dtype.numpy).max
    x = np.linspace(largest / 3, largest, info.num_elements).reshape(info.shape).astype(info.dtype.numpy)
    result, expected = (
        ip.load(network, [backend], runtime=runtime).run([x])[0].astype(float) for backend in ("OnnxRuntime", "CpuRef")
    )
    np.testing.assert_allclose(result, expected, rtol=1e-5)

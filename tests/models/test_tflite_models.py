"""Whole TFLite models by the reference kernels, against what TFLite's own reference kernels gave."""

from pathlib import Path

import numpy as np
import pytest

from interposer.frontends import tflite
from tests.evaluation import run_network
from tests.parameters import one_in

MODELS = Path(__file__).parents[3] / "shared" / "models"
CASES = range(4)

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason=f"no real models in {MODELS.parent.name}/{MODELS.name}")

QUANTIZED = [
    "ad01_int8",
    "kws_ref_model",
    "mobilenet_v1_0.25_128_quant",
    "mobilenet_v2_1.0_224_quant",
    "pretrainedResnet_quant",
    "str_ww_ref_model",
    "vww_96_int8",
]
FLOATS = ["ad01_fp32", "pretrainedResnet", "vww_96_float"]
DYNAMIC_RANGE = "kws_ref_model_float32"  # TFLite quantizes activations on the fly, here its weights are dequantized


def outputs_and_golden(name: str, case: int) -> list[tuple[np.ndarray, np.ndarray]]:
    network = tflite.load(MODELS / f"{name}.tflite")
    with np.load(MODELS / f"{name}.golden.npz") as golden:
        feeds = {layer.name: golden[f"case{case}_input{i}"] for i, layer in network.inputs.items()}
        expected = [golden[f"case{case}_output{i}_reference"] for i in network.outputs]
    result = run_network(network, feeds)
    return [(result[layer.name], array) for layer, array in zip(network.outputs.values(), expected, strict=True)]


@pytest.mark.parametrize("case", one_in(2, CASES))
@pytest.mark.parametrize("name", QUANTIZED)
def test_a_quantized_model_gives_what_tflite_gives_bit_for_bit(name, case):
    for result, expected in outputs_and_golden(name, case):
        np.testing.assert_array_equal(result, expected, strict=True)


@pytest.mark.parametrize("case", one_in(2, CASES))
@pytest.mark.parametrize("name", FLOATS)
def test_a_float_model_agrees_with_tflite_to_the_last_digits(name, case):
    for result, expected in outputs_and_golden(name, case):
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("case", one_in(2, CASES))
def test_a_dynamic_range_quantized_model_agrees_with_tflite_within_a_hundredth(case):
    for result, expected in outputs_and_golden(DYNAMIC_RANGE, case):
        np.testing.assert_allclose(result, expected, rtol=0, atol=0.01)


def test_every_model_with_golden_outputs_is_tested():
    names = {path.name.removesuffix(".golden.npz") for path in MODELS.glob("*.golden.npz")}
    assert names == {*QUANTIZED, *FLOATS, DYNAMIC_RANGE}

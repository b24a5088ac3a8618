"""Cross-layer equalization: the float network stays the same, and weights with one scale lose less."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer import Network, TensorInfo
from interposer.cli.main import main
from interposer.core.types import DataLayout
from interposer.ops import Activation, Convolution2d, DepthwiseConvolution2d
from interposer.ops.activation import ActivationFunction
from interposer.quantization.equalization import equalize

pytestmark = pytest.mark.needs_cpuref
RELU = Activation(ActivationFunction.RELU)


def chain(layout: DataLayout = DataLayout.NHWC, *, bias: bool = True, between: Activation | None = RELU) -> Network:
    """Return a convolution, a depthwise one with two results for each channel, and another convolution.

    The output channels of the first two have weights of very different sizes.
    """
    random = np.random.default_rng(7)
    last = layout is DataLayout.NHWC
    network = Network("chain")
    value = network.add_input_layer(0, TensorInfo((1, 6, 6, 3) if last else (1, 3, 6, 6)), name="x")
    for name, inputs, outputs in (("first", 3, 4), ("second", 4, 8), ("third", 8, 5)):
        sizes = 10.0 ** random.uniform(-2, 2, outputs) if name != "third" else np.ones(outputs)
        if name == "second":
            shape, along, op = (1, 3, 3, outputs), (1, 1, 1, -1), DepthwiseConvolution2d(data_layout=layout)
        else:
            shape = (outputs, 1, 1, inputs) if last else (outputs, inputs, 1, 1)
            along, op = (-1, 1, 1, 1), Convolution2d(data_layout=layout)
        weights = (random.standard_normal(shape) * sizes.reshape(along)).astype(np.float32)
        operands = [network.add_constant_layer(weights, name=f"{name}:weights")]
        if bias:
            array = (random.standard_normal(outputs) * sizes).astype(np.float32)
            operands.append(network.add_constant_layer(array, name=f"{name}:bias"))
        value = network.add_layer(op, value, *operands, name=name)
        if between is not None and name != "third":
            value = network.add_layer(between, value, name=f"{name}:between")
    network.add_output_layer(0, value, name="y")
    return network


def data(network: Network) -> np.ndarray:
    shape = tuple(network.graph.inputs[0].output.known.shape)
    return np.random.default_rng(3).standard_normal((16, *shape[1:])).astype(np.float32)


def results(network: Network) -> list[np.ndarray]:
    with ip.load(network, ["CpuRef"]) as model:
        return [model.run([sample[None]])[0] for sample in data(network)]


def spread(network: Network, name: str, axis: int) -> float:
    """Return the ratio of the largest to the least range of a channel of weights."""
    weights = np.abs(network.graph.layer(f"{name}:weights").op.value)
    ranges = weights.max(axis=tuple(item for item in range(4) if item != axis))
    return float(ranges.max() / ranges.min())


@pytest.mark.parametrize("layout", [DataLayout.NHWC, DataLayout.NCHW])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("between", [RELU, None])
def test_the_results_stay_the_same_bit_by_bit_and_the_ranges_become_similar(layout, bias, between):
    network = chain(layout, bias=bias, between=between)
    before, first = results(network), spread(network, "first", 0)
    assert equalize(network) == 2
    assert all(np.array_equal(*pair) for pair in zip(results(network), before, strict=True))
    assert spread(network, "first", 0) < first / 10
    network.validate()
    assert {layer.name for layer in network} == {layer.name for layer in chain(layout, bias=bias, between=between)}


@pytest.mark.parametrize(
    "between",
    [Activation(ActivationFunction.BOUNDED_RELU, 6.0, 0.0), Activation(ActivationFunction.TANH, 1.0, 1.0)],
)
def test_layers_with_another_function_between_them_stay_as_they_are(between):
    network = chain(between=between)
    assert equalize(network) == 0
    assert network.text() == chain(between=between).text()


def test_values_and_weights_that_something_else_reads_stay_as_they_are():
    network = chain(between=None)
    network.add_output_layer(1, network.graph.layer("first").output, name="inner")
    shared = network.graph.layer("third:weights").output
    network.add_output_layer(2, shared, name="weights")
    assert equalize(network) == 0


def test_one_scale_for_all_weights_loses_less_after_equalization():
    network = chain()
    ratio = {}
    for on in (False, True):
        quantized = ip.quantize(network, data(network), per_channel=False, equalize=on)
        ratio[on] = quantized.report.outputs[0].snr
    assert ratio[True] > ratio[False] + 3


def test_the_command_has_an_option(tmp_path, capsys):
    network = chain()
    (tmp_path / "net.txt").write_text(network.text())
    np.save(tmp_path / "data.npy", data(network))
    words = ["quantize", str(tmp_path / "net.txt"), "-o", str(tmp_path / "out.txt"), "--data"]
    assert main([*words, str(tmp_path / "data.npy"), "--no-per-channel", "--equalize"]) == 0
    assert (tmp_path / "out.txt").exists()

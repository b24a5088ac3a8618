"""Options for declared shapes: nothing inferred, and additional dimensions of 1."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer import Network, OptimizerOptions, Quantization, TensorInfo, optimize
from interposer.core.errors import InvalidArgumentError, InvalidNetworkError
from interposer.ops import Addition, Softmax, Splitter

pytestmark = pytest.mark.needs_cpuref

VALIDATE = OptimizerOptions(shape_inference="validate")
EXPANDED = OptimizerOptions(allow_expanded_dims=True)
BOTH = OptimizerOptions(allow_expanded_dims=True, shape_inference="validate")
X = np.float32([[1, 2, 3, 4]])


def softmax(declared: TensorInfo | None) -> Network:
    network = Network("net")
    x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    shares = network.add_layer(Softmax(), x, name="shares", outputs=[declared])
    network.add_output_layer(0, shares, name="y")
    return network


def run(network: Network, options: OptimizerOptions) -> np.ndarray:
    return ip.load(network, backends=["CpuRef"], options=options)(X)


@pytest.mark.parametrize("options", [OptimizerOptions(), VALIDATE, EXPANDED, BOTH])
def test_declared_shapes_that_are_as_inferred_are_accepted(options):
    assert run(softmax(TensorInfo((1, 4))), options).shape == (1, 4)


def test_without_inference_every_shape_must_be_declared():
    network = softmax(None)
    halves = network.add_layer(Splitter(axis=1, sizes=(2, 2)), network.inputs[0], name="halves", outputs=[None, None])
    open_shape = TensorInfo(("n", 2))
    network.add_output_layer(1, network.add_layer(Addition(), *halves.outputs, name="sum", outputs=open_shape))
    with pytest.raises(InvalidNetworkError) as error:
        optimize(network, ["CpuRef"], options=VALIDATE)
    none = "has no declared shape, and shape_inference='validate' infers none; declare it with outputs=[...]"
    assert error.value.problems == (
        f"layer 'shares' (Softmax): its output {none}",
        f"layer 'halves' (Splitter): its output 0 {none}",
        f"layer 'halves' (Splitter): its output 1 {none}",
        "layer 'sum' (Addition): its output is declared as float32[n, 2]; shape_inference='validate' needs every "
        "dimension",
    )


@pytest.mark.parametrize("options", [OptimizerOptions(), VALIDATE, EXPANDED, BOTH])
def test_a_declared_shape_that_contradicts_the_layer_is_an_error(options):
    with pytest.raises(InvalidNetworkError) as error:
        optimize(softmax(TensorInfo((1, 5))), ["CpuRef"], options=options)
    text = "layer 'shares' (Softmax): its output is declared with shape [1, 5], but it gives [1, 4]"
    assert error.value.problems == (text,)


@pytest.mark.parametrize("shape", [(4,), (1, 1, 4), (4, 1), (1, 4, 1, 1)])
@pytest.mark.parametrize("options", [EXPANDED, BOTH])
def test_declared_shapes_may_have_more_or_fewer_dimensions_of_1(shape, options):
    network = softmax(TensorInfo(shape))
    result = run(network, options)
    assert result.shape == shape
    np.testing.assert_array_equal(result.reshape(1, 4), run(softmax(None), OptimizerOptions()))
    assert [layer.name for layer in network] == ["x", "shares", "y"], "the network itself is not changed"


def test_layers_after_an_expanded_tensor_see_the_declared_shape():
    network = softmax(TensorInfo((4, 1)))
    column = network.graph.layer("shares")
    network.add_output_layer(1, network.add_layer(Addition(), column, column, name="sum", outputs=TensorInfo((4,))))
    model = ip.load(network, backends=["CpuRef"], options=EXPANDED)
    assert [array.shape for array in model.run([X])] == [(4, 1), (4,)]


def test_expanded_tensors_keep_their_quantization():
    network, q = Network("net"), Quantization(0.5, 3)
    x = network.add_input_layer(0, TensorInfo((4,), "uint8", q), name="x")
    network.add_output_layer(0, network.add_layer(Addition(), x, x, outputs=TensorInfo((1, 4), "uint8", q)))
    optimized = optimize(network, ["CpuRef"], options=EXPANDED)
    assert str(optimized.outputs[0].values[0].info) == "uint8[1, 4] q(0.5, 3)"


def test_without_the_option_additional_dimensions_are_errors():
    with pytest.raises(InvalidNetworkError) as error:
        optimize(softmax(TensorInfo((4,))), ["CpuRef"])
    text = "layer 'shares' (Softmax): its output is declared with shape [4], but it gives [1, 4]"
    assert error.value.problems == (text,)


def test_networks_with_errors_are_reported_as_without_the_option():
    network = softmax(TensorInfo((4,)))
    network.add_output_layer(1, network.add_layer(Addition(), network.inputs[0], name="sum"))
    with pytest.raises(InvalidNetworkError) as error:
        optimize(network, ["CpuRef"], options=EXPANDED)
    assert error.value.problems[0] == "layer 'sum' (Addition): b is not connected"


def test_wrong_options_are_refused():
    with pytest.raises(InvalidArgumentError, match="^shape_inference is 'infer' or 'validate', not 'guess'$"):
        OptimizerOptions(shape_inference="guess")
    with pytest.raises(InvalidArgumentError, match="^allow_expanded_dims must be True or False, not 1$"):
        OptimizerOptions(allow_expanded_dims=1)

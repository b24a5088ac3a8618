"""What only Torch has: parts as modules that are traced, and errors of runs with the layer's name."""

from __future__ import annotations

import re

import numpy as np
import pytest

import interposer as ip
from interposer import Network, OptimizerOptions, Quantization, TensorInfo
from interposer.backends.engines.torch import table
from interposer.core.errors import ExecutionError, culprit
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    Constant,
    FullyConnected,
    Gather,
    PreCompiled,
    Reshape,
    Subtraction,
)
from tests.backends.engines.adapters import runtime_with_engines

pytest.importorskip("torch")


@pytest.fixture
def runtime():
    with runtime_with_engines() as created:
        yield created


def _module(network: Network, runtime: ip.Runtime):
    optimized = ip.optimize(network, ["Torch"], runtime.device_spec, OptimizerOptions(rewrite=False))
    [part] = [layer.op.object for layer in optimized.graph if isinstance(layer.op, PreCompiled)]
    return part.module


def _constant(network: Network, array):
    return network.add_layer(Constant(array))


def _dense() -> tuple[Network, np.ndarray]:
    network = Network("dense")
    weights = np.random.default_rng(0).standard_normal((32, 16), np.float32)
    x = network.add_input_layer(0, TensorInfo((4, 16)), name="x")
    product = network.add_layer(FullyConnected(transpose_weight_matrix=True), x, _constant(network, weights), name="fc")
    network.add_output_layer(0, network.add_layer(Activation(ActivationFunction.RELU), product, name="relu"))
    return network, weights


def test_a_part_is_one_module_with_the_functions_of_its_layers(runtime):
    import torch

    module = _module(_dense()[0], runtime)
    assert isinstance(module, torch.fx.GraphModule)
    assert [node.meta["layer"] for node in module.graph.nodes if node.op == "call_function"] == ["fc", "relu"]
    assert "torch.relu" in module.code


def test_weights_are_buffers_of_the_module_in_the_networks_memory(runtime):
    network, weights = _dense()
    [buffer] = _module(network, runtime).buffers()
    [constant] = [layer.op.value for layer in network.graph if isinstance(layer.op, Constant)]
    assert buffer.data_ptr() == constant.ctypes.data
    np.testing.assert_array_equal(buffer.numpy(), weights)


def test_what_depends_on_constants_alone_is_computed_once(runtime):
    network = Network("folded")
    x = network.add_input_layer(0, TensorInfo((3,)), name="x")
    item, two = (_constant(network, np.full(3, number, np.float32)) for number in (1.0, 2.0))
    known = network.add_layer(Addition(), item, two, name="known")
    network.add_output_layer(0, network.add_layer(Addition(), x, known, name="sum"))
    module = _module(network, runtime)
    assert [buffer.tolist() for buffer in module.buffers()] == [[3.0, 3.0, 3.0]]


def test_codes_between_quantized_layers_are_made_only_where_something_reads_them(runtime):
    network, quantization = Network("quantized"), Quantization(0.5, 3)
    info = TensorInfo((2, 3), "int8", quantization)
    x = network.add_input_layer(0, info, name="x")
    first = network.add_layer(Activation(ActivationFunction.RELU), x, name="first", outputs=[info])
    moved = network.add_layer(Reshape((3, 2)), first, name="moved")
    last = network.add_layer(Activation(ActivationFunction.TANH), moved, name="last", outputs=[info.with_shape((3, 2))])
    network.add_output_layer(0, last)
    nodes = [node for node in _module(network, runtime).graph.nodes if node.target == "to"]
    assert [(node.meta["layer"], str(node.args[1])) for node in nodes] == [
        ("first", "torch.float32"),
        ("last", "torch.int8"),
    ]


def test_an_error_of_a_run_names_the_layer(runtime):
    network = Network("picked")
    x = network.add_input_layer(0, TensorInfo((3, 2)), name="x")
    indices = network.add_input_layer(1, TensorInfo((2,), "int32"), name="indices")
    network.add_output_layer(0, network.add_layer(Gather(), x, indices, name="pick"))
    model = ip.load(network, ["Torch"], runtime=runtime)
    message = re.escape("layer 'pick' (Gather) cannot use its inputs: indices has 9 at [1]; expected -3 to 2")
    with pytest.raises(ExecutionError, match=message):
        model.run([np.zeros((3, 2), np.float32), np.array([0, 9], np.int32)])


def test_an_error_that_does_not_come_again_is_told_as_it_is(runtime):
    model = ip.load(_dense()[0], ["Torch"], runtime=runtime, fallback=False)
    [part] = [layer.op.object for layer in model.optimized.graph if isinstance(layer.op, PreCompiled)]

    def fail_once(*tensors):
        part._forward = part.module.forward
        raise RuntimeError("not enough memory just now")

    part._forward = fail_once
    x = np.zeros((4, 16), np.float32)
    with pytest.raises(ExecutionError, match="not enough memory just now") as raised:
        model.run([x])
    assert culprit(raised.value) == "Torch"
    np.testing.assert_array_equal(model.run([x])[0], np.zeros((4, 32)))


def test_inputs_whose_names_differ_only_in_marks_are_kept_apart(runtime):
    network = Network("marks")
    first, second = (network.add_input_layer(i, TensorInfo((2,)), name=name) for i, name in enumerate(["a.b", "a_b"]))
    network.add_output_layer(0, network.add_layer(Subtraction(), first, second, name="minus"))
    model = ip.load(network, ["Torch"], runtime=runtime, fallback=False)
    result = model.run([np.array([5, 7], np.float32), np.array([1, 2], np.float32)])
    np.testing.assert_array_equal(result[0], [4, 5])


@pytest.mark.needs_cpuref
def test_only_the_layer_that_cannot_be_traced_is_refused(runtime, monkeypatch):
    branching = table._TABLE["Activation"]._replace(make=lambda op, layer: lambda x: x if x.sum() > 0 else -x)
    monkeypatch.setitem(table._TABLE, "Activation", branching)
    optimized = ip.optimize(_dense()[0], ["Torch", "CpuRef"], runtime.device_spec, OptimizerOptions(rewrite=False))
    assert {placement.layer: placement.backend for placement in optimized.placements} == {
        "fc": "Torch",
        "relu": "CpuRef",
    }

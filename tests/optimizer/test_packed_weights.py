"""Weights of matrix products stay quantized for backends that compute with them, and become floats for others."""

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Quantization, TensorInfo
from interposer.ops import Addition, BatchMatMul, BlockDequantize, Dequantize, FullyConnected, Reshape
from interposer.optimizer import simplified

NOT_COMPUTED = ("Input", "Output", "Constant")


def network(*, product=None, size=64, several=False):
    """Return a network with int8 weights that have a scale for each block."""
    net = ip.Network("weights")
    x = net.add_input_layer(0, TensorInfo((2, size))).output
    codes = net.add_constant_layer(np.ones((size, size), np.int8))
    scales = net.add_constant_layer(np.ones((2, size), np.float32))
    weights = net.add_layer(BlockDequantize(size // 2, 0), codes, scales).output
    result = net.add_layer(product or BatchMatMul(), x, weights).output
    net.add_output_layer(0, result)
    if several:
        net.add_output_layer(1, net.add_layer(Addition(), weights, weights))
    return net


def kinds(net, *backends):
    graph = simplified(net, backends).graph
    return [layer.kind for layer in graph.topological() if layer.kind not in NOT_COMPUTED]


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("product", [BatchMatMul(), FullyConnected(), BatchMatMul(transpose_y=True)])
def test_the_reference_multiplies_with_floats(product):
    assert kinds(network(product=product), "CpuRef") == [type(product).__name__]


@pytest.mark.usefixtures("cpuacc")
@pytest.mark.parametrize("product", [BatchMatMul(), FullyConnected(), BatchMatMul(transpose_y=True)])
def test_cpuacc_multiplies_with_quantized_weights(product):
    assert kinds(network(product=product), "CpuAcc") == ["BlockDequantize", type(product).__name__]


@pytest.mark.needs_cpuref
@pytest.mark.usefixtures("cpuacc")
def test_the_first_backend_that_supports_the_product_decides():
    assert kinds(network(), "CpuRef", "CpuAcc") == ["BatchMatMul"]
    assert kinds(network(), "CpuAcc", "CpuRef") == ["BlockDequantize", "BatchMatMul"]


@pytest.mark.usefixtures("cpuacc")
def test_small_weights_and_weights_that_other_layers_read_become_floats():
    assert kinds(network(size=32), "CpuAcc") == ["BatchMatMul"]
    assert "BlockDequantize" not in kinds(network(several=True), "CpuAcc")


@pytest.mark.usefixtures("cpuacc")
def test_weights_with_a_scale_for_each_channel_stay_quantized():
    net = ip.Network("channels")
    x = net.add_input_layer(0, TensorInfo((2, 64))).output
    q = Quantization([0.5] * 64, axis=1)
    codes = net.add_constant_layer(np.ones((64, 64), np.int8), q)
    weights = net.add_layer(Dequantize(), codes).output
    product = net.add_layer(BatchMatMul(), x, weights).output
    net.add_output_layer(0, net.add_layer(Reshape((-1,)), product))
    assert kinds(net, "CpuAcc") == ["Dequantize", "BatchMatMul", "Reshape"]

"""The whole path in one short file: build a network, optimize it, explain it, run it, and compare it with NumPy."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import interposer as ip
from interposer.backend import Backend, KernelTable
from interposer.ops import ActivationFunction, FullyConnected
from interposer.types import DataType

F32 = NDArray[np.float32]
WEIGHTS = np.float32([[1, -1, 2], [0, 1, -2]])  # two outputs, three inputs
kernel = KernelTable()


@kernel(FullyConnected, dtypes={DataType.FLOAT32})
def fully_connected(op: FullyConnected, x: F32, weights: F32, bias: F32 | None) -> F32:
    product = x @ (weights.T if op.transpose_weight_matrix else weights)
    return product if bias is None else product + bias


class TinyBackend(Backend):
    """A backend of one operator."""

    id: ClassVar = "Tiny"
    kernels: ClassVar = kernel


@pytest.fixture
def runtime() -> ip.Runtime:
    """A runtime that knows the backend of this file beside those that are installed."""
    runtime = ip.Runtime()
    runtime.registry.register("Tiny", TinyBackend)
    return runtime


def network_by_hand() -> ip.Network:
    """Return the network of `by_numpy`: a product, a clamp and a softmax."""
    network = ip.Network("tiny")
    x = network.add_input_layer(0, ip.TensorInfo((1, 3)), name="x")
    weights = network.add_constant_layer(WEIGHTS, name="weights")
    product = network.add_fully_connected_layer(x, weights, transpose_weight_matrix=True, name="product")
    clamped = network.add_activation_layer(product, function=ActivationFunction.RELU, name="clamp")
    network.add_output_layer(0, network.add_softmax_layer(clamped, name="softmax"), name="y")
    return network


def by_numpy(x: F32) -> F32:
    exponentials = np.exp(np.maximum(x @ WEIGHTS.T, 0))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


@pytest.mark.needs_cpuref
def test_a_network_is_built_optimized_explained_and_run(runtime):
    optimized = ip.optimize(network_by_hand(), ["Tiny", "CpuRef"], runtime.device_spec)
    assert list(optimized.explain().summary()) == [
        "network 'tiny': 3 layers, no copies between backends",
        "  Tiny: 1 layer, refuses 2",
        "    [1] Activation (1): no kernel for Activation",
        "    [2] Softmax (1): no kernel for Softmax",
        "  CpuRef: 2 layers, could run 1 more",
        "  passed from Tiny to CpuRef without a copy (8 bytes): product",
    ]

    network_id = runtime.load_network(optimized)
    x = np.float32([[1, 2, 3]])
    outputs = runtime.enqueue_workload(network_id, {0: x})
    runtime.unload_network(network_id)
    np.testing.assert_allclose(outputs[0], by_numpy(x), rtol=1e-6)


@pytest.mark.needs_cpuref
def test_load_does_the_same_in_one_call(runtime):
    model = ip.load(network_by_hand(), backends=["Tiny", "CpuRef"], runtime=runtime)
    x = np.float32([[-1, 0, 1]])
    np.testing.assert_allclose(model(x=x), by_numpy(x), rtol=1e-6)


def test_without_another_backend_the_error_names_the_layers_that_nobody_runs(runtime):
    with pytest.raises(ip.InterposerError) as error:
        ip.optimize(network_by_hand(), ["Tiny"], runtime.device_spec)
    assert str(error.value).splitlines() == [
        "2 layers cannot be run",
        "no backend in ['Tiny'] can run layer 'clamp' (Activation)",
        "  input: float32[1, 2]",
        "  Tiny says: no kernel for Activation",
        "no backend in ['Tiny'] can run layer 'softmax' (Softmax)",
        "  input: float32[1, 2]",
        "  Tiny says: no kernel for Softmax",
    ]

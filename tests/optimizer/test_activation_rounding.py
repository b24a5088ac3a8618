"""The pass that removes the rounding of activations."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import interposer as ip
from interposer.backend import Backend, KernelTable
from interposer.ops import FullyConnected

F32 = NDArray[np.float32]
kernel = KernelTable()


@kernel(FullyConnected)
def fully_connected(op: FullyConnected, x: F32, weights: F32, bias: F32 | None) -> F32:
    return x @ weights


class Products(Backend):
    """A backend of products, which rounds no activations."""

    id: ClassVar = "Products"
    kernels: ClassVar = kernel


@pytest.fixture
def runtime() -> ip.Runtime:
    runtime = ip.Runtime()
    runtime.registry.register("Products", Products)
    return runtime


def hybrid() -> ip.Network:
    network = ip.Network("hybrid")
    rounded = network.add_dynamic_fake_quantization_layer(network.add_input_layer(0, ip.TensorInfo((1, 2))), axes=(1,))
    product = network.add_fully_connected_layer(rounded, network.add_constant_layer(np.eye(2, dtype=np.float32)))
    network.add_output_layer(0, product)
    return network


def kinds(optimized: ip.OptimizedNetwork) -> list[str]:
    return [layer.kind for layer in optimized.graph.topological() if layer.op.executable]


def test_the_rounding_stays_if_the_backend_of_the_product_supports_it(runtime):
    optimized = ip.optimize(hybrid(), ["CpuRef"], runtime.device_spec)
    assert kinds(optimized) == ["DynamicFakeQuantization", "FullyConnected"]


def test_the_rounding_is_removed_if_it_would_go_to_another_backend_than_the_product(runtime):
    optimized = ip.optimize(hybrid(), ["Products", "CpuRef"], runtime.device_spec)
    assert kinds(optimized) == ["FullyConnected"]


def test_the_rounding_can_be_turned_off(runtime):
    options = ip.OptimizerOptions(round_activations=False)
    assert kinds(ip.optimize(hybrid(), ["CpuRef"], runtime.device_spec, options=options)) == ["FullyConnected"]

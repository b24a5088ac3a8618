"""From a network to its result on the Custom backend alone, step by step."""

from __future__ import annotations

import numpy as np
from custom_backend import CustomBackend, CustomPreCompiledObject

from interposer import CreationOptions, Network, Runtime, TensorInfo, optimize
from interposer.ops import Addition, PreCompiled

A = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
B = np.arange(100, 1300, 100, dtype=np.float32).reshape(3, 4)


def addition_network() -> Network:
    """Return a network that adds two inputs of 3 by 4 floats."""
    info = TensorInfo((3, 4), "float32")
    network = Network("addition")
    first = network.add_input_layer(0, info, name="first")
    second = network.add_input_layer(1, info, name="second")
    added = network.add_layer(Addition(), first, second, name="sum")
    network.add_output_layer(0, added, name="output")
    return network


def test_a_network_of_one_addition_is_compiled_and_gives_the_sums() -> None:
    with Runtime() as runtime:
        optimized = optimize(addition_network(), ["Custom"], runtime.device_spec)
        compiled = [layer.op.object for layer in optimized.graph if isinstance(layer.op, PreCompiled)]

        network_id = runtime.load_network(optimized)
        output = np.zeros((3, 4), np.float32)
        runtime.enqueue_workload(network_id, {0: A, 1: B}, {0: output})

        np.testing.assert_array_equal(output.ravel(), [n + 100 * n for n in range(1, 13)])
        assert [type(item) for item in compiled] == [CustomPreCompiledObject]
        assert [item.runs for item in compiled] == [1]


def test_a_value_that_is_added_to_itself_goes_in_once() -> None:
    network = Network("twice")
    x = network.add_input_layer(0, TensorInfo((3, 4)))
    network.add_output_layer(0, network.add_layer(Addition(), x, x))
    with Runtime() as runtime:
        network_id = runtime.load_network(optimize(network, ["Custom"], runtime.device_spec))
        np.testing.assert_array_equal(runtime.enqueue_workload(network_id, {0: A})[0], 2 * A)


def test_a_constant_is_part_of_the_compiled_object() -> None:
    network = Network("more")
    x = network.add_input_layer(0, TensorInfo((3, 4)))
    network.add_output_layer(0, network.add_layer(Addition(), x, network.add_constant_layer(B)))
    with Runtime() as runtime:
        network_id = runtime.load_network(optimize(network, ["Custom"], runtime.device_spec))
        np.testing.assert_array_equal(runtime.enqueue_workload(network_id, {0: A})[0], A + B)


def test_tensors_that_do_not_live_together_share_a_block() -> None:
    network = Network("chain")
    value = network.add_input_layer(0, TensorInfo((3, 4)))
    for _ in range(6):
        value = network.add_layer(Addition(), value, value)
    network.add_output_layer(0, value)
    with Runtime() as runtime:
        network_id = runtime.load_network(optimize(network, ["Custom"], runtime.device_spec))
        np.testing.assert_array_equal(runtime.enqueue_workload(network_id, {0: A})[0], 64 * A)
        [manager] = runtime.registry.get("Custom").memory_managers
        assert manager.sizes == [48, 48]


def test_the_context_is_told_of_every_network_and_gets_its_options() -> None:
    with Runtime(CreationOptions(backend_options={"Custom": {"speed": 3}})) as runtime:
        backend = runtime.registry.get("Custom")
        assert isinstance(backend, CustomBackend)
        network_id = runtime.load_network(optimize(addition_network(), ["Custom"], runtime.device_spec))
        runtime.unload_network(network_id)
        [context] = backend.contexts
        assert context.options == {"speed": 3}
        assert context.calls == dict.fromkeys(
            ("before_load_network", "after_load_network", "before_unload_network", "after_unload_network"), 1
        )

"""What belongs to others is never written to: imports, constants, mapped files, results that were given out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import interposer as ip
from interposer import Network, OptimizerOptions, Runtime, TensorInfo, optimize
from interposer.core.constants import mapped, place_of
from interposer.core.errors import InvalidArgumentError
from interposer.ir.regions import places
from interposer.ops import Addition, Constant, Multiplication
from interposer.testing.oracle import reference_outputs
from interposer.testing.random_networks import RandomNetwork
from tests.devices import Sums
from tests.evaluation import run_network
from tests.graphs import random_networks

pytestmark = pytest.mark.needs_cpuref
OPTIONS = OptimizerOptions(rewrite=False)


def constants_of(network: Network) -> list[np.ndarray]:
    return [place.layer.op.value for place in places(network.graph) if isinstance(place.layer.op, Constant)]


def expected(network: Network, feeds: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    names = {layer.op.binding_id: layer.name for layer in network.graph.inputs}  # type: ignore[attr-defined]
    result = run_network(network, {names[key]: array for key, array in feeds.items()})
    return {layer.op.binding_id: result[layer.name] for layer in network.graph.outputs}  # type: ignore[attr-defined]


def turned(feeds: Mapping[int, np.ndarray], steps: int) -> dict[int, np.ndarray]:
    """The same elements in other places."""
    return {key: np.roll(array, steps) for key, array in feeds.items()}


def results_of(network: Network, feeds: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """What the reference kernels give; boxes and the like cannot be turned, so that such networks are not used."""
    try:
        return reference_outputs(network.graph, feeds)
    except InvalidArgumentError:
        reject()


@given(drawn=random_networks(max_layers=6, favoured=[Addition, Multiplication]), rewrite=st.booleans())
@settings(max_examples=40, deadline=None)
def test_runs_leave_imports_constants_and_earlier_results_as_they_are(drawn: RandomNetwork, rewrite: bool) -> None:
    network, feeds = drawn.network, [turned(drawn.feeds, steps) for steps in range(3)]
    requested = [results_of(network, feed) for feed in feeds]
    constants = [array.copy() for array in constants_of(network)]
    with Runtime() as runtime:
        optimized = optimize(network, ["CpuRef"], runtime.device_spec, OptimizerOptions(rewrite=rewrite))
        number = runtime.load_network(optimized)
        copies = {key: array.copy() for key, array in feeds[0].items()}
        inputs = runtime.import_inputs(number, copies)
        results = {key: np.full_like(array, 7) for key, array in requested[0].items()}
        writable = {
            key: array
            for key, array in results.items()
            if ("output", key) not in runtime.copy_reasons(number, None, results)
        }
        outputs = runtime.import_outputs(number, writable)
        plain = {key: array for key, array in results.items() if key not in writable}
        given_out = [
            runtime.enqueue_workload(number, None, plain or None, imported_inputs=inputs, imported_outputs=outputs),
            *(runtime.enqueue_workload(number, feed) for feed in feeds[1:]),
        ]
        for result, right in zip(given_out, requested, strict=True):
            for key, array in right.items():
                np.testing.assert_array_equal(result[key], array)
        for key, array in feeds[0].items():
            np.testing.assert_array_equal(copies[key], array)
    for array, before in zip(constants_of(network), constants, strict=True):
        np.testing.assert_array_equal(array, before)


@given(order=st.permutations(range(4)), length=st.integers(2, 5))
@settings(max_examples=25, deadline=None)
def test_chains_that_run_in_place_begin_and_end_in_memory_of_their_own(order: list[int], length: int) -> None:
    """Elementwise layers write over what they read, but for the input, the weights, and what goes out on the way."""
    network = Network("chain")
    info = TensorInfo((64,))
    sources = [network.add_input_layer(number, info) for number in range(2)]
    sources += [network.add_constant_layer(np.full(64, number, np.float32)) for number in (2, 3)]
    value, other, *_ = (sources[number] for number in order)
    for number in range(length):
        value = network.add_layer(Addition() if number % 2 else Multiplication(), value, other)
        network.add_output_layer(number, value)
    x = {number: np.full(64, number + 5, np.float32) for number in range(2)}
    with Runtime() as runtime:
        runtime.registry.register("Sums", Sums)
        loaded = runtime.load_network(optimize(network, ["Sums", "CpuRef"], runtime.device_spec, OPTIONS))
        inputs = runtime.import_inputs(loaded, x)
        results = {number: np.zeros(64, np.float32) for number in range(length)}
        outputs = runtime.import_outputs(loaded, results)
        for _ in range(2):
            runtime.enqueue_workload(loaded, imported_inputs=inputs, imported_outputs=outputs)
            for key, array in expected(network, x).items():
                np.testing.assert_array_equal(results[key], array)
        assert [array[0] for array in x.values()] == [5, 6]


def test_a_mapped_file_is_only_read(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(np.arange(64, dtype=np.float32).tobytes())
    weights = mapped(path).view(np.float32)
    network = Network("sum")
    x = network.add_input_layer(0, TensorInfo((64,)), name="x")
    both = network.add_layer(Addition(), network.add_constant_layer(weights), x)
    network.add_output_layer(0, network.add_layer(Multiplication(), both, both), name="y")
    assert place_of(constants_of(network)[0]) is not None
    with ip.load(network, ["CpuRef"]) as model:
        for number in range(2):
            [result] = model.run([np.full(64, number, np.float32)])
            np.testing.assert_array_equal(result, (np.arange(64) + number) ** 2)
        assert model.memory().mapped_constants == 256
    assert path.read_bytes() == np.arange(64, dtype=np.float32).tobytes()


def test_a_result_that_was_given_out_is_not_written_to_again() -> None:
    network = Network("double")
    x = network.add_input_layer(0, TensorInfo((64,)), name="x")
    network.add_output_layer(0, network.add_layer(Addition(), x, x), name="y")
    with ip.load(network, ["CpuRef"]) as model:
        earlier_results = [model.run([np.full(64, number, np.float32)])[0] for number in range(20)]
        views = [np.from_dlpack(item) for item in earlier_results]
        model.run([np.full(64, -1, np.float32)])
    assert [view[0] for view in views] == [2 * number for number in range(20)]

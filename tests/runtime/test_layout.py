"""Where tensors lie: in the caller's memory, in place, in pieces of each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import interposer as ip
from interposer import Network, OptimizerOptions, Runtime, TensorInfo, optimize
from interposer.backend.planner import problems
from interposer.ops import Activation, ActivationFunction, Addition, Concat, Multiplication, Splitter, Transpose
from interposer.runtime.loaded import LoadedNetwork
from tests.devices import Device

pytestmark = pytest.mark.needs_cpuref
PLAIN = OptimizerOptions(rewrite=False)
INFO = TensorInfo((1, 4, 8))
X = np.arange(32, dtype=np.float32).reshape(1, 4, 8)
RELU = Activation(ActivationFunction.RELU)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as new_runtime:
        new_runtime.registry.register("Device", Device)
        yield new_runtime


def loaded(network: Network, *backends: str, runtime: Runtime | None = None) -> LoadedNetwork:
    spec = runtime.device_spec if runtime is not None else None
    return LoadedNetwork(optimize(network, backends or ["CpuRef"], spec, PLAIN))


def planned(network: LoadedNetwork) -> int:
    [memory] = network.idle_memories
    return memory.planned_bytes


def run(network: LoadedNetwork, *arrays: np.ndarray) -> list[np.ndarray]:
    outputs = network.bindings.new_outputs()
    network.run(dict(enumerate(arrays)), outputs)
    return [outputs[key] for key in sorted(outputs)]


def test_a_single_layer_needs_no_memory_beside_the_callers() -> None:
    network = Network()
    x = network.add_input_layer(0, INFO)
    network.add_output_layer(0, network.add_layer(Addition(), x, x))
    loaded_network = loaded(network)
    assert planned(loaded_network) == 0
    np.testing.assert_array_equal(run(loaded_network, X)[0], 2 * X)


def test_a_chain_of_elementwise_layers_runs_in_place() -> None:
    network = Network()
    value = network.add_layer(Transpose((0, 2, 1)), network.add_input_layer(0, INFO))
    for _ in range(5):
        value = network.add_layer(RELU, value)
    network.add_output_layer(0, network.add_layer(Transpose((0, 2, 1)), value))
    loaded_network = loaded(network)
    assert planned(loaded_network) == X.nbytes
    np.testing.assert_array_equal(run(loaded_network, X - 9)[0], np.maximum(X - 9, 0))


def test_nothing_is_written_over_what_is_read_again_or_belongs_to_the_caller() -> None:
    network = Network()
    x = network.add_input_layer(0, INFO)
    first = network.add_layer(RELU, x)
    second = network.add_layer(Multiplication(), first, first)
    third = network.add_layer(Addition(), second, first)
    network.add_output_layer(0, second)
    network.add_output_layer(1, third)
    value = X.copy()
    result = run(loaded(network), value)
    np.testing.assert_array_equal(value, X)
    np.testing.assert_array_equal(result[0], X * X)
    np.testing.assert_array_equal(result[1], X * X + X)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_what_is_joined_is_computed_where_it_belongs(axis: int) -> None:
    network = Network()
    x = network.add_input_layer(0, INFO)
    parts = [network.add_layer(op, x, x) for op in (Addition(), Multiplication())]
    whole = network.add_layer(Concat(axis=axis), *parts, name="join")
    network.add_output_layer(0, network.add_layer(RELU, whole))
    loaded_network = loaded(network)
    assert "join" not in [name for name, _ in loaded_network.steps]
    assert planned(loaded_network) == 2 * X.nbytes
    np.testing.assert_array_equal(run(loaded_network, X)[0], np.concatenate([2 * X, X * X], axis))


def test_pieces_of_pieces_lie_in_one_tensor() -> None:
    network = Network()
    value = network.add_layer(RELU, network.add_input_layer(0, INFO))
    for _ in range(3):
        value = network.add_layer(Concat(axis=1), value, network.add_layer(RELU, value))
    network.add_output_layer(0, value)
    loaded_network = loaded(network)
    assert planned(loaded_network) == 0, "all of it is the caller's output"
    np.testing.assert_array_equal(run(loaded_network, X)[0], np.concatenate([X] * 8, 1))


def test_what_is_cut_is_not_copied() -> None:
    network = Network()
    x = network.add_layer(RELU, network.add_input_layer(0, INFO))
    cut = network.add_layer(Splitter(axis=2, sizes=(3, 5)), x, name="cut")
    network.add_output_layer(0, network.add_layer(Addition(), cut.outputs[0], cut.outputs[0]))
    network.add_output_layer(1, network.add_layer(RELU, cut.outputs[1]))
    loaded_network = loaded(network)
    assert "cut" not in [name for name, _ in loaded_network.steps]
    low, high = run(loaded_network, X)
    np.testing.assert_array_equal(low, 2 * X[..., :3])
    np.testing.assert_array_equal(high, X[..., 3:])


def test_outputs_are_written_where_the_caller_wants_them() -> None:
    network = Network()
    x = network.add_input_layer(0, INFO)
    network.add_output_layer(0, network.add_layer(Addition(), x, x))
    created, out = loaded(network), np.empty_like(X)
    seen = []
    created.set_debug_callback(lambda *_: seen.append(None))
    created.run({0: X}, {0: out})
    np.testing.assert_array_equal(out, 2 * X)


def test_an_output_that_overlaps_an_input_is_written_last() -> None:
    network = Network()
    x = network.add_input_layer(0, INFO)
    double = network.add_layer(Addition(), x, x)
    network.add_output_layer(0, network.add_layer(Multiplication(), double, x))
    array = X.copy()
    loaded(network).run({0: array}, {0: array})
    np.testing.assert_array_equal(array, 2 * X * X)


def test_arrays_with_gaps_are_copied() -> None:
    network = Network()
    x = network.add_input_layer(0, INFO)
    network.add_output_layer(0, network.add_layer(Addition(), x, x))
    wide = np.zeros((1, 4, 16), np.float32)
    wide[..., ::2] = X
    out = np.zeros((1, 4, 16), np.float32)
    loaded(network).run({0: wide[..., ::2]}, {0: out[..., ::2]})
    np.testing.assert_array_equal(out[..., ::2], 2 * X)
    assert not out[..., 1::2].any()


def test_an_array_that_cannot_be_written_to_is_read_where_it_lies() -> None:
    network = Network()
    network.add_output_layer(0, network.add_layer(RELU, network.add_input_layer(0, INFO)))
    array = X.copy()
    array.flags.writeable = False
    np.testing.assert_array_equal(run(loaded(network), array)[0], X)


def test_a_device_with_a_heap_of_its_own_gets_copies(runtime: Runtime) -> None:
    network = Network()
    x = network.add_input_layer(0, INFO)
    parts = [network.add_layer(RELU, x), network.add_layer(RELU, network.add_layer(Addition(), x, x))]
    network.add_output_layer(0, network.add_layer(Concat(axis=1), *parts))
    loaded_network = loaded(network, "Device", "CpuRef", runtime=runtime)
    np.testing.assert_array_equal(run(loaded_network, X - 5)[0], np.maximum(np.concatenate([X - 5, 2 * (X - 5)], 1), 0))


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Layers of all kinds that lie in place or in pieces, on tensors of a few shapes, some of them outputs."""
    network = Network()
    values = [network.add_input_layer(index, TensorInfo((2, 3, 4)), name=f"x{index}").output for index in range(2)]
    for _ in range(draw(st.integers(1, 14))):
        value = draw(st.sampled_from(values))
        like = [item for item in values if item.known.shape == value.known.shape]
        other, shape = draw(st.sampled_from(like)), value.known.shape
        kind = draw(st.sampled_from(["relu", "add", "join", "cut", "turn"]))
        if kind == "join" and shape.num_elements <= 200:
            values.append(network.add_layer(Concat(axis=draw(st.integers(0, 2))), value, other).output)
        elif kind == "cut" and any(dim > 1 for dim in shape):
            axis = next(i for i, dim in enumerate(shape) if dim > 1)
            values += network.add_layer(Splitter(axis=axis, sizes=(1, int(shape[axis]) - 1)), value).outputs
        elif kind == "turn":
            values.append(network.add_layer(Transpose((2, 0, 1)), value).output)
        else:
            layer = network.add_layer(RELU, value) if kind == "relu" else network.add_layer(Addition(), value, other)
            values.append(layer.output)
    for number, value in enumerate(draw(st.lists(st.sampled_from(values), min_size=1, max_size=4))):
        network.add_output_layer(number, value)
    return network


@settings(max_examples=150)
@given(networks())
def test_wherever_tensors_lie_the_answer_is_that_of_one_layer_after_the_other(network: Network) -> None:
    from tests.evaluation import run_network

    generator = np.random.default_rng(0)
    feeds = {f"x{index}": generator.normal(size=(2, 3, 4)).astype(np.float32) for index in range(2)}
    expected = run_network(network, feeds)
    loaded_network = loaded(network)
    for _ in range(2):
        result = run(loaded_network, *feeds.values())
        for layer in network.graph.outputs:
            np.testing.assert_array_equal(result[layer.op.binding_id], expected[layer.name])
    [memory] = loaded_network.idle_memories
    for manager in memory.managers.values():
        assert list(problems(manager.lifetimes, manager.plan)) == []


def test_a_model_tells_what_memory_it_has() -> None:
    network = Network()
    value = network.add_layer(Transpose((0, 2, 1)), network.add_input_layer(0, INFO, name="x"))
    weights = network.add_constant_layer(np.ones((8, 4), np.float32))
    network.add_output_layer(0, network.add_layer(Transpose((0, 2, 1)), network.add_layer(Addition(), value, weights)))
    with ip.load(network, ["CpuRef"], options=PLAIN) as model:
        model.run([X])
        memory = model.memory()
    assert memory.to_dict() == {
        "arenas": {"CpuRef": 128},
        "lower_bounds": {"CpuRef": 128},
        "working_memories": 1,
        "constants": 128,
        "mapped_constants": 0,
        "shared_constants": 0,
        "own_constants": 128,
        "parts": {},
        "unknown": [],
        "estimated": [],
        "peak": 256,
    }

"""States: tensors that a network keeps from one run to the next."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import interposer
from interposer import Network, TensorInfo
from interposer.core.errors import BindingError, DeadlineExceededError, InvalidArgumentError, RunCancelledError
from interposer.core.types import Quantization
from interposer.ir.states import states_of
from interposer.runtime import RunControl
from interposer.testing.oracle import Oracle
from interposer.writers import onnx
from tests.failing import Failing


def counter(start: float = 0.0) -> Network:
    """A network that adds its input to a state, and returns the sum."""
    network = Network("sum")
    x = network.add_input_layer(0, TensorInfo((2,)), name="x")
    total = network.add_state("total", TensorInfo((2,)), np.full(2, start, np.float32))
    result = network.add_addition_layer(total, x, name="add")
    network.set_state("total", result)
    network.add_output_layer(0, result, name="y")
    return network


@pytest.fixture(params=["CpuRef", "CpuAcc"])
def backends(request: pytest.FixtureRequest) -> list[str]:
    if request.param == "CpuAcc":
        request.getfixturevalue("cpuacc")
    return [request.param]


ONE = np.ones(2, np.float32)


def test_a_state_is_kept_from_call_to_call(backends: list[str]) -> None:
    with interposer.load(counter(1.0), backends=backends) as model:
        assert (list(model.inputs), list(model.outputs)) == (["x"], ["y"])
        assert [model.run([ONE])[0].tolist() for _ in range(3)] == [[2, 2], [3, 3], [4, 4]]
        assert model.state["total"].tolist() == [4, 4]
        model.reset_state()
        assert model.state["total"].tolist() == [1, 1]
        model.state = {"total": np.float32([5, 6])}
        assert model(x=ONE).tolist() == [6, 7]


def test_a_state_is_kept_over_all_ways_to_run(backends: list[str]) -> None:
    with interposer.load(counter(), backends=backends) as model:
        model.run([ONE])
        model.run([ONE], [np.zeros(2, np.float32)])
        model.run({"x": ONE})
        model.submit([ONE]).result()
        model.run([ONE], deadline=60.0)
        model.run([ONE], outputs=["y"])
        model.run([ONE], outputs=["add"])
        with model.bind([ONE]) as bound:
            bound()
            assert bound()[0].tolist() == [9, 9]
        assert model.state["total"].tolist() == [9, 9]


def test_measuring_does_not_change_states() -> None:
    with interposer.load(counter(), backends=["CpuRef"]) as model:
        model.run([ONE])
        model.explain(measure=True, budget_seconds=0.01)
        assert model.state["total"].tolist() == [1, 1]


def test_a_measured_placement_does_not_change_states() -> None:
    options = interposer.OptimizerOptions(budget_seconds=0.1)
    with interposer.load(counter(), backends=["auto"], options=options) as model:
        assert model.run([ONE])[0].tolist() == [1, 1]


def test_copies_and_pickles_of_a_model_start_with_the_initial_states() -> None:
    with interposer.load(counter(2.0), backends=["CpuRef"]) as model:
        model.run([ONE])
        with copy.copy(model) as other:
            assert other.state["total"].tolist() == [2, 2]
        with pickle.loads(pickle.dumps(model)) as other:
            assert other.run([ONE])[0].tolist() == [3, 3]
        assert model.state["total"].tolist() == [3, 3]


def test_calls_of_several_threads_take_turns(backends: list[str]) -> None:
    with interposer.load(counter(), backends=backends) as model:
        threads = [threading.Thread(target=lambda: [model.run([ONE]) for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert model.state["total"].tolist() == [200, 200]


def test_a_model_of_several_shapes_has_one_state() -> None:
    network = Network("rows")
    x = network.add_input_layer(0, TensorInfo((None, 2)), name="x")
    total = network.add_state("total", TensorInfo((2,)))
    added = network.add_addition_layer(total, network.add_reduce_layer(x, axis=(0,)))
    network.set_state("total", added)
    network.add_output_layer(0, added, name="y")
    with interposer.load(network, backends=["CpuRef"]) as model:
        assert model.state["total"].tolist() == [0, 0]
        model.run([np.ones((3, 2), np.float32)])
        assert model.run([np.ones((4, 2), np.float32)])[0].tolist() == [7, 7]


def test_a_working_memory_has_states_of_its_own() -> None:
    with interposer.Runtime() as runtime:
        number = runtime.load_network(interposer.optimize(counter(), ["CpuRef"]))
        with runtime.create_working_mem_handle(number) as first, runtime.create_working_mem_handle(number) as second:
            for memory in (first, first, second):
                runtime.execute(number, memory, {0: ONE})
            assert (first.state["total"].tolist(), second.state["total"].tolist()) == ([2, 2], [1, 1])
            assert runtime.state(number)["total"].tolist() == [0, 0]
            first.reset_state()
            second.state = {"total": [3, 4]}
            assert first.state["total"].tolist() == [0, 0]
            assert runtime.execute(number, second, {0: ONE})[0].tolist() == [4, 5]


def test_a_failing_run_leaves_the_states_as_they_were() -> None:
    network = Network("take")
    index = network.add_input_layer(0, TensorInfo((1,), "int32"), name="index")
    table = network.add_constant_layer(np.arange(3, dtype=np.float32))
    count = network.add_state("count", TensorInfo((1,)))
    added = network.add_addition_layer(count, network.add_constant_layer(np.float32([1])))
    network.set_state("count", added)
    network.add_output_layer(0, network.add_gather_layer(table, index), name="y")
    with interposer.load(network, backends=["CpuRef"]) as model:
        model.run([np.int32([2])])
        with pytest.raises(interposer.InterposerError):
            model.run([np.int32([7])])
        assert model.state["count"].tolist() == [1]


def test_states_stay_known_after_the_end_of_a_graph_that_is_freed() -> None:
    graph = counter(2.0).graph.clone()
    [state] = states_of(graph)
    graph.free_after_last_use()
    del graph
    assert state.info == TensorInfo((2,))
    np.testing.assert_array_equal(state.initial, np.full(2, 2, np.float32))


def test_quantized_states_start_with_their_zero_point() -> None:
    network = Network("quantized")
    x = network.add_state("x", TensorInfo((2,), "uint8", Quantization(0.5, 3)))
    y = network.add_state("y", TensorInfo((2, 2), "int8", Quantization([0.5, 1.0], [1, 2], axis=0)))
    network.add_output_layer(0, x)
    network.add_output_layer(1, y)
    with interposer.load(network, backends=["CpuRef"]) as model:
        assert [value.tolist() for value in model.run([])] == [[3, 3], [[1, 1], [2, 2]]]


def test_a_network_with_states_prints_parses_and_compares_equal() -> None:
    network = counter(1.0)
    assert Network.parse(network.text()).text() == network.text()
    assert pickle.loads(pickle.dumps(network)).text() == network.text()
    assert [state.name for state in network.states] == ["total"]
    assert counter(1.0).text() != counter(2.0).text()


def test_states_that_do_not_fit_are_refused() -> None:
    network = Network("states")
    network.add_state("a", TensorInfo((2,)))
    with pytest.raises(InvalidArgumentError, match="the network has a state 'a' already"):
        network.add_state("a", TensorInfo((2,)))
    with pytest.raises(InvalidArgumentError, match=r"the state 'b' is float32\[\?\]; expected a tensor of known shape"):
        network.add_state("b", TensorInfo((None,)))
    with pytest.raises(InvalidArgumentError, match=r"the initial value of the state 'b' is float32\[2\]; expected"):
        network.add_state("b", TensorInfo((3,)), np.zeros(2, np.float32))
    with pytest.raises(InvalidArgumentError, match="the network has no state 'aa'; did you mean 'a'?"):
        network.set_state("aa", network.add_constant_layer(np.float32([1, 2])))
    network.set_state("a", network.add_constant_layer(np.float32([1, 2, 3])))
    network.add_output_layer(0, network.add_constant_layer(np.float32([1])))
    with pytest.raises(interposer.InterposerError, match=r"the state 'a' is float32\[2\], but is set to float32\[3\]"):
        network.validate()


def test_values_of_states_that_do_not_fit_are_refused() -> None:
    with interposer.load(counter(), backends=["CpuRef"]) as model:
        with pytest.raises(BindingError, match="the model has no state 'totl'; did you mean 'total'?"):
            model.state = {"totl": ONE}
        with pytest.raises(
            BindingError, match=r"the value of the state 'total' is float32\[3\]; expected float32\[2\]"
        ):
            model.state = {"total": np.zeros(3, np.float32)}
        assert model.state["total"].tolist() == [0, 0]


def test_writers_refuse_states() -> None:
    with pytest.raises(interposer.InterposerError, match="files of ONNX have no states; make them inputs and outputs"):
        onnx.write(counter())


def test_a_state_apart_from_the_outputs_is_kept_in_direct_calls(cpuacc: None) -> None:
    network = counter()
    network.add_output_layer(1, network.add_multiplication_layer(network.outputs[0].values[0], network.inputs[0]))
    network.graph.erase(network.outputs[0])
    with interposer.load(network, backends=["CpuAcc"]) as model:
        feed = np.float32([2, 3])
        assert model.run([feed])[0].tolist() == [4, 9]
        assert model.run({"x": feed})[0].tolist() == [8, 18]
        target = np.zeros(2, np.float32)
        assert model.run([feed], [target])[0] is target
        assert target.tolist() == [12, 27]
        assert model.run([[2, 3]])[0].tolist() == [16, 36]
        with model.bind([feed]) as bound:
            assert bound()[0].tolist() == [20, 45]
        assert model.run(x=feed)[0].tolist() == [24, 54]
        model.reset_state()
        assert model.run([feed])[0].tolist() == [4, 9]
        model.state = {"total": [1, 1]}
        assert model.run([feed])[0].tolist() == [6, 12]
        with pytest.raises(BindingError):
            model.run([np.zeros(3, np.float32)])
        assert model.state["total"].tolist() == [3, 4]


def test_a_run_that_hangs_neither_changes_the_states_nor_keeps_them() -> None:
    waits, goes_on = threading.Event(), threading.Event()

    def hang() -> None:
        if not waits.is_set():
            waits.set()
            goes_on.wait(300)

    runtime = interposer.Runtime()
    runtime.registry.register("Hanging", lambda: Failing(Oracle, "Hanging", at=2, how=hang))
    with runtime, interposer.load(counter(), backends=["Hanging"], runtime=runtime, fallback=False) as model:
        model.run([ONE])
        with pytest.raises(DeadlineExceededError):
            model.run([ONE], deadline=0.5)
        assert model.state["total"].tolist() == [1, 1]
        assert model.run([ONE])[0].tolist() == [2, 2]
        goes_on.set()
        assert model.run([ONE])[0].tolist() == [3, 3]
        assert model.state["total"].tolist() == [3, 3]


def test_a_run_on_other_backends_after_a_failure_goes_on_with_the_states() -> None:
    runtime = interposer.Runtime()
    runtime.registry.register("Failing", lambda: Failing(Oracle, "Failing", at=3))
    with runtime, interposer.load(counter(), backends=["Failing", "CpuRef"], runtime=runtime) as model:
        assert [model.run([ONE])[0].tolist() for _ in range(4)] == [[1, 1], [2, 2], [3, 3], [4, 4]]
        assert [event.backend for event in model.events] == ["Failing"]


def test_a_run_that_is_cancelled_leaves_the_states_as_they_were() -> None:
    control = RunControl()
    control.cancel()
    with interposer.Runtime() as runtime:
        number = runtime.load_network(interposer.optimize(counter(), ["CpuRef"]))
        with pytest.raises(RunCancelledError):
            runtime.enqueue_workload(number, {0: ONE}, control=control)
        assert runtime.state(number)["total"].tolist() == [0, 0]
        runtime.set_state(number, {"total": ONE})
        assert runtime.enqueue_workload(number, {0: ONE})[0].tolist() == [2, 2]
        runtime.reset_state(number)
        assert runtime.state(number)["total"].tolist() == [0, 0]

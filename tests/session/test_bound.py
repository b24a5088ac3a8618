"""Models that are bound to arrays, and called again and again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

import interposer as ip
from interposer import Network, Runtime, TensorInfo
from interposer.backend import KernelTable
from interposer.core.errors import BindingError, ExecutionError, InvalidArgumentError, LoadError
from interposer.core.types import Array
from interposer.ops import Activation, ActivationFunction, Addition
from interposer.session import Model
from interposer.session.bound import BoundRun
from tests import devices
from tests.devices import FLOAT, Device, Sums
from tests.failing import Failing

X = np.arange(6, dtype=np.float32).reshape(2, 3)


tired = KernelTable()
runs: list[int] = []


@tired(Addition, dtypes=FLOAT)
def add(op: Addition, a: Array, b: Array, *, out: Array) -> None:
    """Adds, but in the fifth addition."""
    runs.append(1)
    if len(runs) == 5:
        raise RuntimeError("too tired")
    np.add(a, b, out=out)


class Tired(Sums):
    id: ClassVar = "Tired"
    kernels: ClassVar = tired


both = KernelTable()
both(Addition, dtypes=FLOAT)(devices.add)
both(Activation, dtypes=FLOAT)(devices.relu)


class Host(Sums):
    id: ClassVar = "Host"
    kernels: ClassVar = both


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    runs.clear()
    with Runtime() as runtime:
        for backend in (Sums, Device, Tired):
            runtime.registry.register(backend.id, backend)
        yield runtime


def calculation(*shape: int | str) -> Network:
    network = Network("calculation")
    a, b = (network.add_input_layer(number, TensorInfo(shape), name=name) for number, name in enumerate("ab"))
    both = network.add_layer(Addition(), a, b)
    network.add_output_layer(0, both, name="sum")
    network.add_output_layer(1, network.add_addition_layer(both, b), name="y")
    return network


@pytest.fixture
def model(runtime: Runtime) -> Model:
    return ip.load(calculation(2, 3), ["Sums"], runtime=runtime)


def test_each_call_reads_and_writes_the_same_arrays(model: Model) -> None:
    a = X.copy()
    with model.bind([a, X]) as call:
        assert not call.copies
        first = call()
        for _ in range(3):
            a += 1
            assert call() is first is call.outputs
            np.testing.assert_array_equal(first[0], a + X)
            np.testing.assert_array_equal(first[1], a + 2 * X)


def test_outputs_are_written_where_they_are_wanted(model: Model) -> None:
    total, y = np.zeros_like(X), bytearray(24)
    call = model.bind({"b": X, "a": X}, {"y": memoryview(y).cast("f", (2, 3)), "sum": total})
    assert np.shares_memory(call()[0], total)
    np.testing.assert_array_equal(np.frombuffer(y, np.float32).reshape(2, 3), 3 * X)


def test_what_a_backend_keeps_for_itself_is_copied_in_each_call(runtime: Runtime) -> None:
    network, a = Network("kept"), X.copy()
    x = network.add_input_layer(0, TensorInfo(X.shape), name="x")
    network.add_output_layer(0, network.add_activation_layer(x, function=ActivationFunction.RELU), name="y")
    call = ip.load(network, ["Device"], runtime=runtime).bind([a])
    assert call.copies
    for _ in range(2):
        a -= 1
        np.testing.assert_array_equal(call()[0], np.maximum(a, 0))


def test_shapes_that_are_open_are_those_of_the_arrays(runtime: Runtime) -> None:
    model = ip.load(calculation("rows", 3), ["Sums"], runtime=runtime)
    two, item = model.bind([X, X]), model.bind([X[:1], X[:1]])
    assert [result[0].shape for result in (two(), item(), two())] == [(2, 3), (1, 3), (2, 3)]


def test_what_does_not_fit_is_refused_at_once(model: Model) -> None:
    with pytest.raises(BindingError, match=r"1 inputs were given; the model has 2 \('a', 'b'\)"):
        model.bind([X])
    with pytest.raises(BindingError, match=r"input 'b' has shape \[1, 3\]; expected \[2, 3\]"):
        model.bind([X, X[:1]])
    with pytest.raises(BindingError, match="output 1"):
        model.bind([X, X], [X.copy(), X[:1].copy()])
    with pytest.raises(BindingError, match="no output 'sun'; did you mean 'sum'"):
        model.bind([X, X], {"sun": X})


def test_an_output_whose_shape_is_only_found_by_running_cannot_be_bound() -> None:
    network = Network("found")
    x = network.add_input_layer(0, TensorInfo([4]), name="x")
    network.add_output_layer(0, network.add_non_zero_layer(x), name="where")
    model = ip.load(network, ["CpuRef"])
    with pytest.raises(InvalidArgumentError, match="nothing can be bound to output 'where': its shape depends"):
        model.bind([np.zeros(4, np.float32)])


def test_what_is_closed_does_not_run(model: Model) -> None:
    call = model.bind([X, X])
    call()
    call.close()
    call.close()
    with pytest.raises(InvalidArgumentError, match="this bound run is closed; bind the model again"):
        call()
    other = model.bind([X, X])
    model.close()
    with pytest.raises(ExecutionError, match="the network 'calculation' was unloaded before the run began"):
        other()


def test_threads_have_one_each(model: Model) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        a = np.full_like(X, number)
        call = model.bind([a, X])
        for _ in range(200):
            a += 1
            if not np.array_equal(call()[1], a + 2 * X):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_call_whose_backend_fails_is_completed_elsewhere(runtime: Runtime) -> None:
    model = ip.load(calculation(2, 3), ["Tired", "Sums"], runtime=runtime, fallback=True)
    a = X.copy()
    call = model.bind([a, X])
    for _ in range(5):
        a += 1
        np.testing.assert_array_equal(call()[1], a + 2 * X)
    [event] = model.events
    assert (event.backend, list(model.optimized.backends)) == ("Tired", ["Sums"])


@pytest.mark.parametrize("device_last", [True, False])
def test_one_that_is_placed_where_only_some_tensors_may_stay_goes_on(device_last: bool, runtime: Runtime) -> None:
    network, a = Network("mixed"), X.copy()
    x = network.add_input_layer(0, TensorInfo(X.shape), name="x")
    if device_last:
        relu = network.add_activation_layer(network.add_addition_layer(x, x), function=ActivationFunction.RELU)
        network.add_output_layer(0, relu, name="y")
    else:
        relu = network.add_activation_layer(x, function=ActivationFunction.RELU)
        network.add_output_layer(0, network.add_addition_layer(relu, relu), name="y")
    runtime.registry.register("Brief", lambda: Failing(Host, "Brief", 5))
    model = ip.load(network, ["Brief", "Device", "Sums"], runtime=runtime)
    call = model.bind([a])
    assert not call.copies
    for _ in range(6):
        a += 1
        np.testing.assert_array_equal(call()[0], 2 * a)
    assert [event.backend for event in model.events] == ["Brief"]


def test_a_bound_model_goes_on_while_a_backend_is_replaced(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime.registry.register("Brief", lambda: Failing(Sums, "Brief"))
    model = ip.load(calculation(2, 3), ["Brief", "Sums"], runtime=runtime)
    plain = BoundRun._bound

    def late(self: BoundRun) -> Any:
        error = LoadError("out of sorts", backend="Brief")
        model._loaded.do_without(error, set())  # as another thread does whose run failed
        return plain(self)

    monkeypatch.setattr(BoundRun, "_bound", late)
    call = model.bind([X, X])
    monkeypatch.undo()
    model.run([X, X])
    for _ in range(2):
        np.testing.assert_array_equal(call()[0], 2 * X)
    assert [event.backend for event in model.events] == ["Brief"]


def test_a_call_that_fails_says_where(runtime: Runtime) -> None:
    model = ip.load(calculation(2, 3), ["Tired"], runtime=runtime)
    call = model.bind([X, X])
    for _ in range(2):
        call()
    with pytest.raises(ExecutionError, match="too tired"):
        call()
    np.testing.assert_array_equal(call()[0], 2 * X)

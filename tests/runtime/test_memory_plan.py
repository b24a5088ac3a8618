"""The lifetimes that handles get, and that no tensor is overwritten before it was read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer import Network, OptimizerOptions, Runtime, TensorInfo, optimize
from interposer.backend import ArrayHandle, Backend, KernelWorkloadFactory, MemoryManager, Options, WorkloadFactory
from interposer.core.errors import ExecutionError
from interposer.ops import Addition, Multiplication
from interposer.runtime.loaded import LoadedNetwork
from tests.devices import Sums, sums

INFO = TensorInfo((16,))
X = np.arange(16, dtype=np.float32)
OPTIONS = OptimizerOptions(rewrite=False)


class NoManager(Backend):
    """Its handles look after themselves."""

    id: ClassVar = "NoManager"
    kernels: ClassVar = sums

    def create_memory_manager(self) -> None:
        return None


class Logging(Backend):
    """Records the calls on its handles."""

    id: ClassVar = "Logging"
    kernels: ClassVar = sums
    log: ClassVar[list[str]] = []

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return LoggingFactory(self.kernels, memory_manager)


class LoggingHandle(ArrayHandle):
    def manage(self) -> None:
        super().manage()
        Logging.log.append(f"{self.info.shape} begins")

    def allocate(self) -> None:
        super().allocate()
        Logging.log.append(f"{self.info.shape} ends")


class LoggingFactory(KernelWorkloadFactory):
    def create_tensor_handle(self, info: TensorInfo) -> LoggingHandle:
        return LoggingHandle(info)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as new_runtime:
        for backend in (Sums, NoManager, Logging):
            new_runtime.registry.register(backend.id, backend)
        yield new_runtime


def run(runtime: Runtime, network: Network, backend: str, x: np.ndarray = X) -> list[np.ndarray]:
    network_id = runtime.load_network(optimize(network, [backend], runtime.device_spec, OPTIONS))
    result = runtime.enqueue_workload(network_id, dict.fromkeys(network.inputs, x))
    runtime.unload_network(network_id)
    return [result[key] for key in sorted(result)]


def early_output() -> Network:
    """The first output is also read by a layer, after which two more tensors are made."""
    network = Network()
    x = network.add_input_layer(0, INFO)
    first = network.add_layer(Addition(), x, x)
    network.add_output_layer(0, first)
    value = network.add_layer(Multiplication(), first, first)
    for _ in range(3):
        value = network.add_layer(Addition(), value, value)
    network.add_output_layer(1, value)
    return network


@pytest.mark.parametrize("backend", ["Sums", "NoManager"])
def test_an_output_keeps_its_data_until_the_caller_gets_it(runtime: Runtime, backend: str) -> None:
    early, late = run(runtime, early_output(), backend)
    np.testing.assert_array_equal(early, 2 * X)
    np.testing.assert_array_equal(late, 8 * (2 * X) ** 2)


def test_every_handle_is_told_once_of_its_beginning_and_its_end_in_running_order(runtime: Runtime) -> None:
    network = Network()
    row = network.add_input_layer(0, TensorInfo((1, 2)))
    column = network.add_input_layer(1, TensorInfo((3, 1)))
    table = network.add_layer(Addition(), row, column)
    wide = network.add_layer(Addition(), table, network.add_input_layer(2, TensorInfo((4, 1, 1))))
    network.add_layer(Addition(), row, row)
    network.add_output_layer(0, wide)
    Logging.log.clear()
    runtime.load_network(optimize(network, ["Logging"], runtime.device_spec, OPTIONS))
    assert Logging.log == [
        "[1, 2] begins",
        "[3, 1] begins",
        "[4, 1, 1] begins",
        "[3, 2] begins",
        "[3, 1] ends",
        "[4, 3, 2] begins",
        "[3, 2] ends",
        "[4, 1, 1] ends",
        "[1, 2] begins",
        "[1, 2] ends",
        "[1, 2] ends",
        "[4, 3, 2] ends",
    ]


@st.composite
def networks(draw: st.DrawFn) -> tuple[Network, list[np.ndarray]]:
    """A network of sums and products of tensors made before, some of them outputs, and what these should be."""
    network = Network()
    values, arrays, outputs = [network.add_input_layer(0, INFO)], [X], []
    for _ in range(draw(st.integers(1, 12))):
        a, b = draw(st.integers(0, len(values) - 1)), draw(st.integers(0, len(values) - 1))
        values.append(network.add_layer(Addition(), values[a], values[b]))
        arrays.append(arrays[a] + arrays[b])
        if draw(st.booleans()):
            network.add_output_layer(len(outputs), values[-1])
            outputs.append(arrays[-1])
    network.add_output_layer(len(outputs), values[0])
    return network, [*outputs, X]


@settings(max_examples=50, deadline=None)
@given(networks(), st.sampled_from(["Sums", "NoManager"]))
def test_no_tensor_is_spoilt_before_it_was_read(made: tuple[Network, list[np.ndarray]], backend: str) -> None:
    network, expected = made
    with Runtime() as runtime:
        runtime.registry.register("Sums", Sums)
        runtime.registry.register("NoManager", NoManager)
        for result, expected_output in zip(run(runtime, network, backend), expected, strict=True):
            np.testing.assert_array_equal(result, expected_output)


def test_a_run_that_waited_while_the_network_was_unloaded_does_not_take_memory_again(runtime: Runtime) -> None:
    loaded = LoadedNetwork(optimize(early_output(), ["Sums"], runtime.device_spec))
    outputs = loaded.bindings.new_outputs()
    loaded.run({0: X}, outputs)
    assert loaded.acquired
    loaded.release()
    with pytest.raises(ExecutionError) as caught:
        loaded.run({0: X}, outputs)
    assert str(caught.value) == "the network 'network' was unloaded before the run began"
    assert not loaded.acquired

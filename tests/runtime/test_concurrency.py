"""One network that many threads run, runs that are submitted, cancelled, late, or in memory of their own."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pytest

import interposer as ip
from interposer import MemoryDescriptor, Network, Runtime, TensorInfo, optimize
from interposer.backend import Backend, MemoryManager, Options, TensorHandle, Workload, WorkloadFactory, WorkloadInfo
from interposer.core.errors import (
    DeadlineExceededError,
    ExecutionError,
    InvalidArgumentError,
    RunCancelledError,
    UnknownNetworkError,
)
from interposer.ir.graph import Layer
from interposer.ops import Activation, ActivationFunction, Addition, Multiplication
from interposer.runtime.loaded import LoadedNetwork
from tests.devices import Device, Sums, sums

INFO = TensorInfo((8, 16))
X = np.arange(128, dtype=np.float32).reshape(8, 16)


def mixed() -> Network:
    """Sums on one backend, a ReLU on a device with a heap of its own, and a product: ReLU(x + 1) * x + 1."""
    network = Network("mixed")
    x = network.add_input_layer(0, INFO, name="x")
    item = network.add_constant_layer(np.ones((1, 16), np.float32))
    more = network.add_layer(Addition(), x, item)
    positive = network.add_layer(Activation(ActivationFunction.RELU), more)
    network.add_output_layer(0, network.add_layer(Addition(), network.add_layer(Multiplication(), positive, x), item))
    return network


def expected(x: np.ndarray) -> np.ndarray:
    return np.maximum(x + 1, 0) * x + 1


class Gate(Workload):
    """Waits until it is let through; counts who is inside at the same time."""

    def __init__(self, gates: Gates) -> None:
        self.gates = gates

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        gates = self.gates
        with gates.changed:
            gates.inside += 1
            gates.most = max(gates.most, gates.inside)
            gates.changed.notify_all()
        gates.open.wait(300)
        for handle in outputs:
            with handle.mapped() as array:
                array.fill(1)
        with gates.changed:
            gates.inside -= 1
            gates.changed.notify_all()


class OpenGate(Gate):
    concurrent = True


class GateFactory(WorkloadFactory):
    def __init__(self, gates: Gates, memory_manager: MemoryManager | None) -> None:
        super().__init__(memory_manager)
        self.gates = gates

    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        return self.gates.kind(self.gates)


class Gates(Backend):
    """A backend that hangs until somebody opens it."""

    id: ClassVar = "Gates"
    kernels: ClassVar = sums
    kind: ClassVar[type[Gate]] = Gate

    def __init__(self) -> None:
        self.open = threading.Event()
        self.changed = threading.Condition()
        self.inside = self.most = 0

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return GateFactory(self, memory_manager)

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.inside >= count, 300)


class OpenGates(Gates):
    id: ClassVar = "OpenGates"
    kind: ClassVar = OpenGate


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as new_runtime:
        for backend in (Sums, Device):
            new_runtime.registry.register(backend.id, backend)
        yield new_runtime


@pytest.fixture
def gates(runtime: Runtime) -> Iterator[Gates]:
    new_gates = Gates()
    runtime.registry.register("Gates", lambda: new_gates)
    yield new_gates
    new_gates.open.set()


def sum_network() -> Network:
    network = Network("sum")
    x = network.add_input_layer(0, INFO, name="x")
    network.add_output_layer(0, network.add_layer(Addition(), x, x, name="double"))
    return network


def load(runtime: Runtime, network: Network, *backends: str) -> int:
    return runtime.load_network(optimize(network, backends, runtime.device_spec))


def arrays(count: int) -> list[np.ndarray]:
    return [np.random.default_rng(seed).normal(size=(8, 16)).astype(np.float32) for seed in range(count)]


# --- many threads -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [40, pytest.param(10_000, marks=pytest.mark.slow)])
def test_sixteen_threads_run_one_network_while_others_load_and_unload(runtime: Runtime, rounds: int) -> None:
    network_id, wrong = load(runtime, mixed(), "Sums", "Device"), list[int]()
    done = threading.Event()

    def run(seed: int) -> None:
        x = np.random.default_rng(seed).normal(size=(8, 16)).astype(np.float32)
        for number in range(rounds):
            x[0, 0] = number
            if not np.array_equal(runtime.enqueue_workload(network_id, {0: x})[0], expected(x)):
                wrong.append(seed)

    def churn() -> None:
        while not done.is_set():
            other = load(runtime, sum_network(), "Sums")
            runtime.enqueue_workload(other, {0: X})
            runtime.unload_network(other)

    with ThreadPoolExecutor(18) as pool:
        churning = [pool.submit(churn) for _ in range(2)]
        for running in [pool.submit(run, seed) for seed in range(16)]:
            running.result()
        done.set()
        for item in churning:
            item.result()
    assert wrong == []


@pytest.mark.slow
def test_sixteen_threads_run_one_network_in_pythons_development_mode() -> None:
    test = f"{__file__}::test_sixteen_threads_run_one_network_while_others_load_and_unload[10000]"
    words = [sys.executable, "-X", "dev", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONDEVMODE": "1"}, capture_output=True, text=True, timeout=3000, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_workload_that_says_nothing_is_executed_by_one_thread_at_a_time(runtime: Runtime, gates: Gates) -> None:
    network_id = load(runtime, sum_network(), "Gates")
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(runtime.enqueue_workload, network_id, {0: X}) for _ in range(4)]
        gates.wait_for(1)
        time.sleep(0.05)
        gates.open.set()
        assert all(item.result()[0].all() for item in running)
    assert gates.most == 1


def test_a_workload_that_says_so_is_executed_by_many_threads_at_once(runtime: Runtime) -> None:
    gates = OpenGates()
    runtime.registry.register("OpenGates", lambda: gates)
    network_id = load(runtime, sum_network(), "OpenGates")
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(runtime.enqueue_workload, network_id, {0: X}) for _ in range(4)]
        gates.wait_for(4)
        gates.open.set()
        assert all(item.result()[0].all() for item in running)


def test_unloading_waits_for_runs_and_refuses_new_ones(runtime: Runtime, gates: Gates) -> None:
    network_id = load(runtime, sum_network(), "Gates")
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(runtime.enqueue_workload, network_id, {0: X})
        gates.wait_for(1)
        unloading = pool.submit(runtime.unload_network, network_id)
        while network_id in runtime.loaded_networks:
            time.sleep(0.001)
        with pytest.raises(UnknownNetworkError):
            runtime.enqueue_workload(network_id, {0: X})
        assert not unloading.done()
        gates.open.set()
        assert running.result()[0].all()
        unloading.result()


def test_another_network_is_loaded_while_one_that_runs_is_unloaded(runtime: Runtime, gates: Gates) -> None:
    network_id = load(runtime, sum_network(), "Gates")
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(runtime.enqueue_workload, network_id, {0: X})
        gates.wait_for(1)
        unloading = pool.submit(runtime.unload_network, network_id)
        other = load(runtime, mixed(), "Sums", "Device")
        np.testing.assert_array_equal(runtime.enqueue_workload(other, {0: X})[0], expected(X))
        gates.open.set()
        running.result()
        unloading.result()


# --- memory of one's own ----------------------------------------------------------------------------------------------


def test_a_working_memory_runs_its_network(runtime: Runtime) -> None:
    network_id = load(runtime, mixed(), "Sums", "Device")
    mine = runtime.create_working_mem_handle(network_id)
    out = np.empty((8, 16), np.float32)
    for x in arrays(3):
        assert runtime.execute(network_id, mine, {0: x}, {0: out})[0] is out
        np.testing.assert_array_equal(out, expected(x))
    assert mine.acquired
    mine.free()
    assert not mine.acquired
    np.testing.assert_array_equal(runtime.execute(network_id, mine, {0: X})[0], expected(X))


def test_a_working_memory_serves_one_run_at_a_time(runtime: Runtime, gates: Gates) -> None:
    network_id = load(runtime, sum_network(), "Gates")
    mine = runtime.create_working_mem_handle(network_id)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(runtime.execute, network_id, mine, {0: X})
        gates.wait_for(1)
        with pytest.raises(ExecutionError, match="this working memory is used by another run; make one for each"):
            runtime.execute(network_id, mine, {0: X})
        with pytest.raises(ExecutionError, match="it can be freed afterwards"):
            mine.free()
        gates.open.set()
        running.result()


def test_a_working_memory_of_another_network_is_refused(runtime: Runtime) -> None:
    first, second = (load(runtime, sum_network(), "Sums") for _ in range(2))
    mine = runtime.create_working_mem_handle(first)
    with pytest.raises(InvalidArgumentError, match="this working memory was not made for the network 'sum'"):
        runtime.execute(second, mine, {0: X})


# --- submitted, awaited, cancelled ------------------------------------------------------------------------------------


def test_what_is_submitted_gives_a_future(runtime: Runtime) -> None:
    network_id = load(runtime, mixed(), "Sums", "Device")
    value = arrays(20)
    for x, run in zip(value, [runtime.submit(network_id, {0: x}) for x in value], strict=True):
        np.testing.assert_array_equal(run.result()[0], expected(x))
    failing = runtime.submit(network_id, {0: X[:3]})
    assert "input 0 (x) has shape [3, 16]; expected [8, 16]" in str(failing.exception())


def test_a_model_is_awaited(runtime: Runtime) -> None:
    model = ip.load(mixed(), ["Sums", "Device"], runtime=runtime)
    value = arrays(5)

    async def all_of_them() -> list[list[np.ndarray]]:
        return await asyncio.gather(*(model.run_async([x]) for x in value))

    for x, [result] in zip(value, asyncio.run(all_of_them()), strict=True):
        np.testing.assert_array_equal(result, expected(x))


def chain(backend_layers: int = 2) -> Network:
    network = Network("chain")
    value = network.add_input_layer(0, INFO, name="x")
    for number in range(backend_layers):
        value = network.add_layer(Addition(), value, value, name=f"sum{number}")
    network.add_output_layer(0, value)
    return network


def test_a_run_that_has_begun_stops_before_its_next_layer_when_it_is_cancelled(runtime: Runtime, gates: Gates) -> None:
    network_id = load(runtime, chain(), "Gates")
    run = runtime.submit(network_id, {0: X})
    gates.wait_for(1)
    assert run.cancel() is False
    gates.open.set()
    with pytest.raises(RunCancelledError, match=r"the run was cancelled before layer 'sum1' \(Addition\)"):
        run.result()


def test_a_run_that_waits_for_a_thread_does_not_begin_when_it_is_cancelled(gates: Gates, runtime: Runtime) -> None:
    with Runtime(ip.CreationOptions(num_threads=1)) as single:
        single.registry.register("Gates", lambda: gates)
        network_id = load(single, chain(), "Gates")
        first, second = (single.submit(network_id, {0: X}) for _ in range(2))
        gates.wait_for(1)
        assert second.cancel() is True
        gates.open.set()
        assert first.result()[0].all()
        with pytest.raises(CancelledError):
            second.result()
    with pytest.raises(UnknownNetworkError):
        single.submit(network_id, {0: X})


# --- deadlines --------------------------------------------------------------------------------------------------------


def test_a_run_that_hangs_is_given_up_and_its_memory_left_alone_until_it_returns(runtime: Runtime) -> None:
    gates = OpenGates()
    runtime.registry.register("OpenGates", lambda: gates)
    network_id = load(runtime, chain(), "OpenGates")
    with pytest.raises(DeadlineExceededError) as caught:
        runtime.enqueue_workload(network_id, {0: X}, deadline=2)
    assert str(caught.value) == (
        "the run took longer than 2 seconds; it was at layer 'sum0' (Addition) on backend OpenGates"
    )
    assert (caught.value.layer, caught.value.backend) == ("sum0", "OpenGates")
    assert gates.inside == 1
    runtime.unload_network(network_id)
    gates.open.set()
    with gates.changed:
        assert gates.changed.wait_for(lambda: gates.inside == 0, 300)


def test_a_run_in_time_is_not_disturbed_by_its_deadline(runtime: Runtime) -> None:
    network_id = load(runtime, mixed(), "Sums", "Device")
    np.testing.assert_array_equal(runtime.enqueue_workload(network_id, {0: X}, deadline=60)[0], expected(X))


def test_what_goes_on_behind_its_deadline_leaves_the_arrays_of_the_caller_alone(runtime: Runtime) -> None:
    gates = OpenGates()
    runtime.registry.register("OpenGates", lambda: gates)
    network_id = load(runtime, chain(1), "OpenGates")
    target, before = np.zeros_like(X), set(threading.enumerate())
    with pytest.raises(DeadlineExceededError):
        runtime.enqueue_workload(network_id, {0: X}, {0: target}, deadline=2)
    late = set(threading.enumerate()) - before
    gates.open.set()
    for thread in late:
        thread.join(300)
    assert late
    assert not target.any()


def test_a_run_with_a_deadline_fills_the_arrays_of_the_caller(runtime: Runtime) -> None:
    network_id = load(runtime, mixed(), "Sums", "Device")
    target = np.zeros_like(X)
    result = runtime.enqueue_workload(network_id, {0: X}, {0: target}, deadline=60)
    assert result[0] is target
    np.testing.assert_array_equal(target, expected(X))


def test_a_model_completes_elsewhere_what_hangs(runtime: Runtime, gates: Gates) -> None:
    model = ip.load(chain(), ["Gates", "Sums"], runtime=runtime, fallback=True)
    [result] = model.run([X], deadline=0.2)
    np.testing.assert_array_equal(result, 4 * X)
    assert [event.backend for event in model.events] == ["Gates"]
    np.testing.assert_array_equal(model.run([X], deadline=60)[0], 4 * X)


def test_a_deadline_may_be_far_away(runtime: Runtime) -> None:
    network_id = load(runtime, mixed(), "Sums", "Device")
    np.testing.assert_array_equal(runtime.enqueue_workload(network_id, {0: X}, deadline=math.inf)[0], expected(X))


@pytest.mark.parametrize("deadline", [0, -1.0, math.nan, "1"])
def test_a_deadline_lies_ahead(runtime: Runtime, deadline: Any) -> None:
    network_id = load(runtime, chain(), "Sums")
    with pytest.raises(InvalidArgumentError, match="a deadline must be a number of seconds above 0, not "):
        runtime.enqueue_workload(network_id, {0: X}, deadline=deadline)


# --- what remains -----------------------------------------------------------------------------------------------------


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="only Linux reports the memory of a process")
@pytest.mark.parametrize("cycles", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_nothing_stays_behind_when_networks_are_loaded_run_and_unloaded(runtime: Runtime, cycles: int) -> None:
    optimized = optimize(mixed(), ["Sums", "Device"], runtime.device_spec)
    device = runtime.registry.get("Device")

    def cycle() -> None:
        network_id = runtime.load_network(optimized)
        runtime.enqueue_workload(network_id, {0: X})
        runtime.submit(network_id, {0: X}).result()
        fd = os.memfd_create("x")
        os.pwrite(fd, X.tobytes(), 0)
        imported = runtime.import_inputs(network_id, {0: MemoryDescriptor(fd, owned=True)})
        target = runtime.import_outputs(network_id, {0: np.empty_like(X)})
        runtime.enqueue_workload(network_id, imported_inputs=imported, imported_outputs=target)
        runtime.unload_network(network_id)
        device.heaps.clear()  # what it keeps for tests to look at
        device.notes.log.clear()

    for _ in range(max(100, cycles // 10)):
        cycle()
    gc.collect()
    before = resident(), len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(cycles):
        cycle()
    gc.collect()
    after = resident(), len(os.listdir("/proc/self/fd")), threading.active_count()
    assert after[1:] == before[1:]
    if cycles > 1000:  # in fewer, what the allocator keeps would count for much
        assert after[0] - before[0] <= 2 << 20


def test_a_loaded_network_has_as_many_memories_as_runs_went_side_by_side(runtime: Runtime) -> None:
    gates = OpenGates()
    runtime.registry.register("OpenGates", lambda: gates)
    loaded = LoadedNetwork(optimize(chain(), ["OpenGates"], runtime.device_spec))
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(loaded.run, {0: X}, loaded.bindings.new_outputs()) for _ in range(3)]
        gates.wait_for(3)
        gates.open.set()
        for item in running:
            item.result()
    assert len(loaded.idle_memories) == 3
    loaded.release()
    assert not loaded.acquired


def test_a_submitted_run_that_hangs_is_given_up_at_its_deadline(runtime: Runtime) -> None:
    gates = OpenGates()
    runtime.registry.register("OpenGates", lambda: gates)
    network_id = load(runtime, chain(), "OpenGates")
    late = "the run took longer than 1 seconds; it was at layer 'sum0'"
    with pytest.raises(DeadlineExceededError, match=late):
        runtime.submit(network_id, {0: X}, deadline=1).result()
    gates.open.set()
    assert runtime.submit(network_id, {0: X}, deadline=60).result()[0].all()


def test_the_deadline_of_a_submitted_run_includes_the_wait_for_a_thread(gates: Gates) -> None:
    with Runtime(ip.CreationOptions(num_threads=1)) as single:
        single.registry.register("Gates", lambda: gates)
        network_id = load(single, chain(), "Gates")
        first = single.submit(network_id, {0: X})
        gates.wait_for(1)
        far, near = (single.submit(network_id, {0: X}, deadline=seconds) for seconds in (60, 0.05))
        with pytest.raises(DeadlineExceededError) as caught:
            near.result(timeout=300)
        assert str(caught.value) == "the run took longer than 0.05 seconds; it waited for a free thread"
        gates.open.set()
        assert first.result()[0].all()
        assert far.result()[0].all()


def test_a_submitted_run_with_a_deadline_can_be_cancelled(runtime: Runtime, gates: Gates) -> None:
    network_id = load(runtime, chain(), "Gates")
    run = runtime.submit(network_id, {0: X}, deadline=600)
    gates.wait_for(1)
    assert run.cancel() is False
    gates.open.set()
    with pytest.raises(RunCancelledError, match="the run was cancelled before layer 'sum1'"):
        run.result()


@pytest.mark.parametrize("deadline", [0, -1.0, math.nan, "1"])
def test_the_deadline_of_a_submitted_run_lies_ahead(runtime: Runtime, deadline: Any) -> None:
    model = ip.load(mixed(), ["Sums", "Device"], runtime=runtime)
    with pytest.raises(InvalidArgumentError, match="a deadline must be a number of seconds above 0, not "):
        model.submit([X], deadline=deadline)


def test_an_awaited_run_has_a_deadline(runtime: Runtime) -> None:
    gates = OpenGates()
    runtime.registry.register("OpenGates", lambda: gates)
    model = ip.load(chain(), ["OpenGates"], runtime=runtime)
    try:
        with pytest.raises(DeadlineExceededError, match="the run took longer than 1 seconds"):
            asyncio.run(model.run_async([X], deadline=1))
    finally:
        gates.open.set()
    assert asyncio.run(model.run_async([X], deadline=60))[0].all()

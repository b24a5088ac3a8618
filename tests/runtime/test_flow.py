"""Branches on different backends run at the same time, and give what they give one after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer import Network, OptimizerOptions, Runtime, TensorInfo, optimize
from interposer.backend import Backend, MemoryManager, Options, TensorHandle, Workload, WorkloadFactory, WorkloadInfo
from interposer.core.errors import ExecutionError
from interposer.ir.graph import Layer
from interposer.ops import Addition, Multiplication
from interposer.runtime.flow import Flow, flow_of
from tests.devices import Sums

INFO = TensorInfo((4, 4))
X = np.arange(16, dtype=np.float32).reshape(4, 4)
PLAIN = OptimizerOptions(rewrite=False)


class Other(Sums):
    """The same again, with an arena of its own."""

    id: ClassVar = "Other"


class Meeting(Workload):
    """Waits for the workload of another backend that should run at the same time."""

    def __init__(self, barrier: threading.Barrier) -> None:
        self.barrier = barrier

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        self.barrier.wait(300)
        with outputs[0].mapped() as array:
            array.fill(1)


class MeetingFactory(WorkloadFactory):
    def __init__(self, barrier: threading.Barrier, memory_manager: MemoryManager | None) -> None:
        super().__init__(memory_manager)
        self.barrier = barrier

    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        return Meeting(self.barrier)


def meeting(name: str, barrier: threading.Barrier) -> type[Backend]:
    class Meets(Sums):
        id: ClassVar = name

        def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
            return MeetingFactory(barrier, memory_manager)

    return Meets


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as new_runtime:
        for backend in (Sums, Other):
            new_runtime.registry.register(backend.id, backend)
        yield new_runtime


def two_branches() -> Network:
    network = Network("branches")
    x = network.add_input_layer(0, INFO)
    left = network.add_layer(Addition(), x, x, name="left")
    right = network.add_layer(Multiplication(), x, x, name="right")
    network.add_output_layer(0, left)
    network.add_output_layer(1, right)
    return network


def load(runtime: Runtime, network: Network, hints: dict[str, str], *backends: str) -> int:
    options = OptimizerOptions(rewrite=False, hints=hints)
    return runtime.load_network(optimize(network, backends, runtime.device_spec, options))


def test_branches_on_two_backends_run_at_the_same_time(runtime: Runtime) -> None:
    barrier = threading.Barrier(2)
    for name in ("Here", "There"):
        runtime.registry.register(name, meeting(name, barrier))
    network_id = load(runtime, two_branches(), {"left": "Here", "right": "There"}, "Here", "There")
    result = runtime.enqueue_workload(network_id, {0: X})
    assert result[0].all() and result[1].all()


def test_what_fails_in_one_branch_is_raised_when_the_other_has_come_to_an_end(runtime: Runtime) -> None:
    barrier = threading.Barrier(3)  # nobody else comes
    for name in ("Here", "There"):
        runtime.registry.register(name, meeting(name, barrier))
    network_id = load(runtime, two_branches(), {"left": "Here", "right": "There"}, "Here", "There")
    barrier.abort()
    with pytest.raises(ExecutionError, match=r"failed on backend (There|Here): BrokenBarrierError"):
        runtime.enqueue_workload(network_id, {0: X})


def test_a_run_on_imports_is_prepared_for_branches_too(runtime: Runtime) -> None:
    barrier = threading.Barrier(2)
    for name in ("Here", "There"):
        runtime.registry.register(name, meeting(name, barrier))
    network_id = load(runtime, two_branches(), {"left": "Here", "right": "There"}, "Here", "There")
    outputs = {0: np.zeros((4, 4), np.float32), 1: np.zeros((4, 4), np.float32)}
    inputs = runtime.import_inputs(network_id, {0: X})
    run = runtime.prepare_run(network_id, inputs, runtime.import_outputs(network_id, outputs))
    assert run()
    assert outputs[0].all() and outputs[1].all()
    barrier.abort()
    with pytest.raises(
        ExecutionError, match=r"layer '(left|right)' .*failed on backend (There|Here): BrokenBarrierError"
    ):
        run()


def test_layers_that_wait_for_each_other_have_no_flow() -> None:
    network = Network()
    value = network.add_input_layer(0, INFO)
    for number in range(4):
        value = network.add_layer(Addition(), value, value)
        value.backend = "Sums" if number % 2 else "Other"
    network.add_output_layer(0, value)
    assert flow_of([layer for layer in network.graph if layer.backend]) is None


@settings(max_examples=100)
@given(st.lists(st.sets(st.integers(0, 30)), max_size=30))
def test_everything_is_done_once_and_after_what_it_waits_for(needed: list[set[int]]) -> None:
    before = [{other for other in needed[number] if other < number} for number in range(len(needed))]
    done: list[int] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        with lock:
            assert before[number] <= set(done)
            done.append(number)

    threads: list[threading.Thread] = []

    def help_with(task: object) -> None:
        threads.append(threading.Thread(target=task))  # type: ignore[arg-type]
        threads[-1].start()

    Flow(before, 3).run(work, help_with)
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(len(before)))


@st.composite
def placed(draw: st.DrawFn) -> tuple[Network, dict[str, str]]:
    """Sums and products, each on one of two backends that share nothing."""
    network, hints = Network(), dict[str, str]()
    values = [network.add_input_layer(0, INFO, name="x")]
    for number in range(draw(st.integers(2, 14))):
        operands = [draw(st.sampled_from(values)) for _ in range(2)]
        op = draw(st.sampled_from([Addition(), Multiplication()]))
        values.append(network.add_layer(op, *operands, name=f"layer{number}"))
        hints[f"layer{number}"] = draw(st.sampled_from(["Sums", "Other"]))
    for number, value in enumerate(values[-3:]):
        network.add_output_layer(number, value, name=f"y{number}")
    return network, hints


@settings(max_examples=60)
@given(placed())
def test_the_answer_does_not_depend_on_who_was_quicker(made: tuple[Network, dict[str, str]]) -> None:
    from tests.evaluation import run_network

    network, hints = made
    x = np.random.default_rng(0).uniform(0.5, 1.1, (4, 4)).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = run_network(network, {"x": x})
    with Runtime() as runtime:
        for backend in (Sums, Other):
            runtime.registry.register(backend.id, backend)
        network_id = load(runtime, network, hints, "Sums", "Other")
        for _ in range(5):
            result = runtime.enqueue_workload(network_id, {0: x})
            for layer in network.graph.outputs:
                np.testing.assert_array_equal(result[layer.op.binding_id], expected[layer.name])


def test_an_interrupt_just_before_a_layer_begins_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(passage: object, number: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("interposer.runtime.flow._FlowRun._do", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Flow([set(), {0}], 1).run(lambda number: None, lambda help: None)

"""Backends that fail: while they compile, in the fifth run, by hanging, by crashing. Every call gives the right answer.

Real backends fail here on the command of `tests.failing`: the reference, CpuAcc, and the engines that are
installed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import Network, OptimizerOptions, Runtime, TensorInfo
from interposer.backend import Backend
from interposer.backends.reference import ReferenceBackend
from interposer.core.errors import (
    DeadlineExceededError,
    ExecutionError,
    InvalidValueError,
    LoadError,
    UnsupportedLayerError,
)
from interposer.isolation import CRASHED, ENABLED_AGAIN, QUARANTINED, REPLACED
from interposer.kernels import value_checks
from interposer.ops import Activation, ActivationFunction
from interposer.session import default_runtime, fallback
from interposer.session.placement import Plan
from tests.backends.engines.adapters import PLACES, engine_class
from tests.failing import NEVER, Failing
from tests.isolating import needs_linux
from tests.parameters import one_in

pytestmark = [pytest.mark.needs_cpuref, pytest.mark.usefixtures("warm_python")]
X = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
RELU = ActivationFunction.RELU


def cpuacc_backend() -> Backend:
    return default_runtime().registry.get("CpuAcc")


@pytest.fixture(params=["CpuRef", "CpuAcc", *PLACES])
def inner(request: pytest.FixtureRequest) -> Callable[[], Backend]:
    """What makes a real backend."""
    if request.param == "CpuRef":
        return ReferenceBackend
    if request.param == "CpuAcc":
        request.getfixturevalue("cpuacc")
        return cpuacc_backend
    kind: Any = engine_class(request.param)
    if kind.unavailable() is not None:
        pytest.skip(kind.unavailable())
    function: Callable[[], Backend] = kind
    return function


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as runtime:
        yield runtime


def network() -> Network:
    network = Network("small")
    x = network.add_input_layer(0, TensorInfo((2, 64)), name="x")
    weights = network.add_constant_layer(np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32), name="w")
    dense = network.add_fully_connected_layer(x, weights, name="dense")
    relu = network.add_activation_layer(dense, function=RELU, name="relu")
    network.add_output_layer(0, network.add_softmax_layer(relu, name="soft"), name="y")
    return network


def wanted(x: Any = X) -> Any:
    product = np.maximum(x @ np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32), 0)
    powers = np.exp(product - product.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def near(found: Any, expected: Any = None) -> None:
    np.testing.assert_allclose(found, wanted() if expected is None else expected, rtol=1e-3, atol=1e-5)


def failing(runtime: Runtime, name: str, inner: Callable[[], Backend] = ReferenceBackend, **how: Any) -> Failing:
    backend = Failing(inner, name, **how)
    runtime.registry.register(name, lambda: backend)
    return backend


def happened(model: ip.Model) -> list[tuple[str, str]]:
    return [(event.backend, event.kind) for event in model.events]


def placed(model: ip.Model) -> dict[str, str]:
    return {placement.layer: placement.backend for placement in model.optimized.placements}


# --- each way to fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["compile", "workload", 5])
def test_one_that_raises_is_put_aside_and_every_answer_is_right(
    at: int | str, inner: Callable[[], Backend], runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    failing(runtime, "F", inner, at=at)
    with caplog.at_level(logging.WARNING, "interposer"):
        model = ip.load(network(), ["F", "CpuRef"], runtime=runtime)
        assert set(placed(model).values()) == {"F" if at == 5 else "CpuRef"}
        for _ in range(8):
            near(model.run([X])[0])
    assert set(placed(model).values()) == {"CpuRef"}
    assert happened(model) == [("F", REPLACED)]
    assert "ValueError: out of sorts" in model.events[0].text
    assert runtime.events == tuple(model.events)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


def test_one_that_hangs_is_put_aside_when_the_time_is_over(inner: Callable[[], Backend], runtime: Runtime) -> None:
    let_go = threading.Event()
    failing(runtime, "F", inner, at=5, how=let_go.wait)
    model = ip.load(network(), ["F", "CpuRef"], runtime=runtime, fallback=True)
    try:
        for _ in range(8):
            near(model.run([X], deadline=2.0)[0])
    finally:
        let_go.set()
    assert happened(model) == [("F", REPLACED)]
    assert "the run took longer than" in model.events[0].text


def test_a_submitted_run_that_hangs_is_repeated_without_the_backend(
    inner: Callable[[], Backend], runtime: Runtime
) -> None:
    let_go = threading.Event()
    failing(runtime, "F", inner, at=5, how=let_go.wait)
    model = ip.load(network(), ["F", "CpuRef"], runtime=runtime, fallback=True)
    try:
        for _ in range(8):
            near(model.submit([X], deadline=2.0).result()[0])
    finally:
        let_go.set()
    assert happened(model) == [("F", REPLACED)]


def test_a_late_run_is_an_error_without_leave_to_do_it_elsewhere(runtime: Runtime) -> None:
    let_go = threading.Event()
    failing(runtime, "F", at=1, how=let_go.wait)
    model = ip.load(network(), ["F", "CpuRef"], runtime=runtime)
    try:
        with pytest.raises(DeadlineExceededError, match="at layer 'dense' \\(FullyConnected\\) on backend F"):
            model.run([X], deadline=2.0)
    finally:
        let_go.set()
    assert happened(model) == []


@needs_linux
@pytest.mark.parametrize(("at", "how"), one_in(3, [(5, "segfault"), ("compile", "segfault"), (5, "native_sleep")]))
def test_one_in_a_process_of_its_own_may_crash_or_hang(at: int | str, how: str, inner: Callable[[], Backend]) -> None:
    isolation = ip.Isolation(max_restarts=0, deadline_seconds=3 if how == "native_sleep" else 120)
    with Runtime(ip.CreationOptions(isolate={"F": isolation})) as runtime:
        runtime.registry.register("F", partial(Failing, inner, "F", at, how))
        model = ip.load(network(), ["F", "CpuRef"], runtime=runtime)
        for _ in range(8):
            near(model.run([X])[0])
        assert set(placed(model).values()) == {"CpuRef"}
        kinds = [event.kind for event in runtime.events]
        assert kinds[:2] == [CRASHED, QUARANTINED]
        assert kinds[2:] in ([REPLACED], [])  # slow to answer, it may not even come to be asked


def test_two_fail_one_after_the_other(inner: Callable[[], Backend], runtime: Runtime) -> None:
    failing(runtime, "F", inner, at=3)
    failing(runtime, "G", inner, at=4)
    model = ip.load(network(), ["F", "G", "CpuRef"], runtime=runtime)
    for _ in range(12):
        near(model.run([X])[0])
    assert happened(model) == [("F", REPLACED), ("G", REPLACED)]


# --- every way to call ------------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[ip.Model], Any]] = {
    "run": lambda model: model.run([X]),
    "submit": lambda model: model.submit([X]).result(),
    "run_async": lambda model: asyncio.run(model.run_async([X])),
}


@pytest.mark.parametrize("how", CALLS)
def test_eight_threads_get_right_answers_while_two_backends_fail(how: str, runtime: Runtime) -> None:
    failing(runtime, "F", at=20)
    failing(runtime, "G", at=30)
    model = ip.load(network(), ["F", "G", "CpuRef"], runtime=runtime)
    together(lambda: near(CALLS[how](model)[0]))
    assert happened(model) == [("F", REPLACED), ("G", REPLACED)]


def test_what_is_not_ready_for_one_more_thread_is_done_without(runtime: Runtime) -> None:
    backend = failing(runtime, "F", how=lambda: time.sleep(0.01), at=1)
    model = ip.load(network(), ["F", "CpuRef"], runtime=runtime)
    backend.create_memory_manager = lambda: 1 / 0  # type: ignore[assignment,return-value]
    together(lambda: near(model.run([X])[0]))
    assert set(happened(model)) <= {("F", REPLACED)}


def together(call: Callable[[], None], threads: int = 8, calls: int = 20) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(calls):
                call()
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for item in running:
        item.start()
    for item in running:
        item.join()
    assert errors == []


def test_imported_tensors_are_used_on(inner: Callable[[], Backend], runtime: Runtime) -> None:
    failing(runtime, "F", inner, at=3)
    model = ip.load(network(), ["F", "CpuRef"], runtime=runtime)
    y = np.zeros((2, 32), np.float32)
    with model.import_inputs([X]) as inputs, model.import_outputs([y]) as outputs:
        for _ in range(8):
            y[:] = 0
            model.run(inputs, outputs)
            near(y)
    assert happened(model) == [("F", REPLACED)]


def test_a_working_memory_whose_run_failed_runs_again(inner: Callable[[], Backend], runtime: Runtime) -> None:
    backend = failing(runtime, "F", inner)
    network_id = runtime.load_network(ip.optimize(network(), ["F"], runtime.device_spec))
    working = runtime.create_working_mem_handle(network_id)
    backend.at = 1
    with pytest.raises(ExecutionError, match="on backend F: ValueError: out of sorts"):
        runtime.execute(network_id, working, {0: X})
    backend.at = NEVER
    near(runtime.execute(network_id, working, {0: X})[0])


def test_shapes_that_differ_from_call_to_call(inner: Callable[[], Backend], runtime: Runtime) -> None:
    network = Network("open")
    x = network.add_input_layer(0, TensorInfo((None, 64)), name="x")
    network.add_output_layer(0, network.add_softmax_layer(x, name="soft"))
    failing(runtime, "F", inner, at=5)
    model = ip.load(network, ["F", "CpuRef"], runtime=runtime)
    for number in range(9):
        rows = np.concatenate([X, X])[: 1 + number % 3]
        near(model.run([rows])[0], np.exp(rows) / np.exp(rows).sum(axis=-1, keepdims=True))
    assert happened(model) == [("F", REPLACED)]


@pytest.mark.parametrize("at", ["workload", 3, 7])
def test_shapes_that_are_only_known_while_running(at: int | str, runtime: Runtime) -> None:
    network = Network("late")
    x = network.add_input_layer(0, TensorInfo((6,)), name="x")
    places = network.add_non_zero_layer(network.add_activation_layer(x, function=RELU, name="relu"), name="places")
    numbers = network.add_cast_layer(places, dtype=ip.DataType.FLOAT32, name="numbers")
    network.add_output_layer(0, network.add_activation_layer(numbers, function=RELU, name="late"))
    backend = failing(runtime, "F")
    model = ip.load(network, ["F", "CpuRef"], runtime=runtime)
    backend.at = at
    for _ in range(5):
        assert model.run([[1, 0, 2, -3, 0, 5]])[0].tolist() == [[0, 2, 5]]
    assert happened(model) == [("F", REPLACED)]


def test_of_two_branches_the_one_that_hangs_is_blamed() -> None:
    network = Network("branches")
    x = network.add_input_layer(0, TensorInfo((4,)), name="x")
    left, right = network.add_activation_layer(x, function=RELU, name="left"), x
    for number in range(6):
        right = network.add_addition_layer(right, right, name=f"right {number}")
    network.add_output_layer(0, network.add_addition_layer(left, right, name="sum"))
    let_go = threading.Event()
    with Runtime(ip.CreationOptions(num_threads=2)) as runtime:
        failing(runtime, "F", at=1, how=let_go.wait, only=(Activation,))
        model = ip.load(network, ["F", "CpuRef"], runtime=runtime, fallback=True)
        assert model.run([[1, 2, 3, 4]], deadline=2.0)[0].tolist() == [65, 130, 195, 260]
        let_go.set()
        assert happened(model) == [("F", REPLACED)]


# --- plans ------------------------------------------------------------------------------------------------------------


def test_the_rest_of_a_plan_is_followed_without_the_backend_that_failed(runtime: Runtime) -> None:
    failing(runtime, "F", at=3)
    failing(runtime, "G")
    layers = {"soft": "CpuRef", "type:Activation": "G"}
    plan = Plan("small", ("F", "G", "CpuRef"), layers, measured={"mix": 4.0}, chosen="mix")
    model = ip.load(network(), plan=plan, runtime=runtime)
    assert placed(model) == {"dense": "F", "relu": "G", "soft": "CpuRef"}
    assert model.explain().to_dict()["times"]["whole_ms"] == 4.0
    for _ in range(6):
        near(model.run([X])[0])
    assert placed(model) == {"dense": "G", "relu": "G", "soft": "CpuRef"}
    assert happened(model) == [("F", REPLACED)]
    assert model.explain().to_dict()["times"]["whole_ms"] is None  # that was measured with F


def test_where_all_of_a_plan_fails_there_are_the_other_backends(runtime: Runtime) -> None:
    failing(runtime, "F", at=3)
    model = ip.load(network(), plan=Plan("small", ("F",), {}), runtime=runtime)
    for _ in range(6):
        near(model.run([X])[0])
    assert "F" not in placed(model).values()


@pytest.mark.parametrize("at", ["compile", 1, 20])
def test_one_that_fails_while_it_is_measured_or_later(
    at: int | str, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path))
    backend = failing(runtime, "F", at=at)
    options = OptimizerOptions(placement="measured", budget_seconds=0.3)
    model = ip.load(network(), ["F", "CpuRef"], runtime=runtime, options=options)
    for _ in range(50):
        near(model.run([X])[0])
    assert set(placed(model).values()) == {"CpuRef"}
    assert len(runtime.loaded_networks) == 1
    came_to_fail = at != 20 or backend.runs >= 20  # where there is little time, CpuRef is chosen after a few runs
    assert set(happened(model)) == ({("F", REPLACED)} if came_to_fail else set())


def test_one_that_hangs_while_it_is_measured_is_left_out(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("interposer.session.placement.measured._PATIENCE", 3.0)
    let_go = threading.Event()
    failing(runtime, "F", at=1, how=let_go.wait)
    options = OptimizerOptions(placement="measured", budget_seconds=0.3)
    model = ip.load(network(), ["F", "CpuRef"], runtime=runtime, options=options)
    let_go.set()
    near(model.run([X])[0])
    assert model.plan is not None
    assert "F" not in model.plan.measured
    assert "the run took longer than" in model.plan.failed["F"]


# --- nobody is left ---------------------------------------------------------------------------------------------------


def test_where_the_last_one_fails_the_error_has_the_reason_of_each(runtime: Runtime) -> None:
    failing(runtime, "F", at=1)
    failing(runtime, "G", at=1)
    model = ip.load(network(), ["F", "G"], runtime=runtime)
    with pytest.raises(ExecutionError) as caught:
        model.run([X])
    assert str(caught.value) == (
        "layer 'dense' (FullyConnected) failed on backend G: ValueError: out of sorts\n"
        "  F was disabled before: layer 'dense' (FullyConnected) failed on backend F: ValueError: out of sorts"
    )


def test_where_the_last_one_takes_no_layers_the_error_has_the_reason_of_each(runtime: Runtime) -> None:
    failing(runtime, "F", at="workload")
    failing(runtime, "G", only=(Activation,))
    with pytest.raises(UnsupportedLayerError) as caught:
        ip.load(network(), ["F", "G"], runtime=runtime)
    assert "G says: not its kind" in str(caught.value)
    assert str(caught.value).endswith(
        "F was disabled before: layer 'dense' (FullyConnected) got no workload on backend F: ValueError: out of sorts"
    )


def gather_network() -> Network:
    network = Network("gather")
    table = network.add_constant_layer(np.arange(6, dtype=np.float32).reshape(3, 2))
    index = network.add_input_layer(0, TensorInfo((2,), "int32"), name="i")
    network.add_output_layer(0, network.add_gather_layer(table, index, axis=0, name="gather"))
    return network


def test_inputs_on_which_all_fail_are_not_the_fault_of_any(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_checks, "_MOST_COST", 0)  # so that only the failure of the next backend shows the cause
    backend = failing(runtime, "F", at=1)
    model = ip.load(gather_network(), ["F", "CpuRef"], runtime=runtime)
    with pytest.raises(InvalidValueError, match=r"indices has 9 at \[1\]; expected -3 to 2"):
        model.run([np.int32([0, 9])])
    backend.at = NEVER
    assert model.run([np.int32([0, 2])])[0].tolist() == [[0, 1], [4, 5]]
    assert placed(model) == {"gather": "F"}
    assert happened(model) == [("F", REPLACED), ("F", ENABLED_AGAIN)]


def test_a_call_leaves_the_backends_disabled_that_another_call_has_disabled(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_checks, "_MOST_COST", 0)

    def fails_beside_another_call() -> None:
        model._loaded.do_without(LoadError("out of sorts", backend="F"), set())  # as a thread does whose run failed
        raise ValueError("out of sorts")

    failing(runtime, "F", at=1, how=fails_beside_another_call)
    model = ip.load(gather_network(), ["F", "CpuRef"], runtime=runtime)
    with pytest.raises(InvalidValueError, match="indices has 9"):
        model.run([np.int32([0, 9])])
    assert happened(model) == [("F", REPLACED)]
    assert placed(model) == {"gather": "CpuRef"}


def test_a_model_keeps_its_last_events(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "EVENTS", 3)
    monkeypatch.setattr(value_checks, "_MOST_COST", 0)
    backend = failing(runtime, "F", at=1)
    model = ip.load(gather_network(), ["F", "CpuRef"], runtime=runtime)
    bound = model.bind([np.int32([0, 9])])
    for call in (partial(model.run, [np.int32([0, 9])]), bound) * 2:
        with pytest.raises(InvalidValueError, match="indices has 9"):
            call()
    assert happened(model) == [("F", ENABLED_AGAIN), ("F", REPLACED), ("F", ENABLED_AGAIN)]
    backend.at = NEVER
    bound.inputs["i"][1] = 2
    assert bound()[0].tolist() == model.run([np.int32([0, 2])])[0].tolist() == [[0, 1], [4, 5]]


def test_without_leave_the_first_failure_is_an_error(runtime: Runtime) -> None:
    failing(runtime, "F", at=1)
    model = ip.load(network(), ["F", "CpuRef"], runtime=runtime, fallback=False)
    for _ in range(2):
        with pytest.raises(ExecutionError, match="out of sorts"):
            model.run([X])
    assert model.events == ()

"""Errors of a backend in a child process: each is an error here, and nothing is lost."""

from __future__ import annotations

import logging
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import BackendCrashedError, BackendUnavailableError, ExecutionError
from interposer.isolation import CRASHED, QUARANTINED, REPLACED, RESTARTED
from tests.faulty import PLACES
from tests.isolating import (
    X,
    expected,
    faulty_runtime,
    kill,
    limit_calls,
    needs_linux,
    no_trace_left,
    process_of,
    sums_and_relu,
)
from tests.parameters import one_in, slow_unless
from tests.sketchy import Corrupting, Falling

pytestmark = [needs_linux, pytest.mark.usefixtures("warm_python")]
BACKENDS = ["Faulty", "CpuRef"]
AT_THE_END = ("release", "before_unload", "after_unload")

DESCRIPTIONS = {
    "segfault": "was killed by SIGSEGV",
    "abort": "was killed by SIGABRT",
    "endless_loop": "did not answer within 3 s",
    "native_sleep": "did not answer within 3 s",
    "exit_process": "exited with status 7",
    "system_exit": "exited with status 1",
    "close_connection": "closed its connection",
    "write_garbage": "gave bytes that are no message: b'\\x00garbage\\xff\\x00garbag'",
}


HANGING = [how for how, reason in DESCRIPTIONS.items() if "did not answer" in reason]


def deadline(how: str) -> float:
    """The time limit of a call in seconds: that of a user, unless the backend hangs."""
    return 5 if how in HANGING else 120


IN_EVERY_RUN = ("segfault", "endless_loop", "exit_process", "write_garbage")


@pytest.mark.parametrize("how", slow_unless(IN_EVERY_RUN.__contains__, DESCRIPTIONS))
def test_a_fault_in_execute_is_an_error_that_tells_of_it(how: str) -> None:
    errors = {"where": "execute", "how": how}
    with faulty_runtime(errors, max_restarts=0) as runtime:
        model = ip.load(sums_and_relu(), BACKENDS, runtime=runtime, fallback=False)
        if how in HANGING:
            limit_calls(runtime, 3)
        with pytest.raises(ExecutionError) as caught:
            model.run([X])
        crash = caught.value.__cause__
        assert isinstance(crash, BackendCrashedError)
        assert (crash.backend, crash.reason) == ("Faulty", DESCRIPTIONS[how])
        assert crash.layer == "'first' (Addition)"
        assert f"the child process of backend 'Faulty' {DESCRIPTIONS[how]} during the run of layer 'first'" in str(
            crash
        )


def test_memory_that_runs_out_is_an_error_and_the_process_goes_on() -> None:
    errors = {"where": "execute", "how": "exhaust_memory"}
    with faulty_runtime(errors, memory_bytes=1 << 28) as runtime:
        model = ip.load(sums_and_relu(), BACKENDS, runtime=runtime, fallback=False)
        before = process_of(runtime)
        with pytest.raises(ExecutionError, match="MemoryError"):
            model.run([X])
        assert process_of(runtime) == before
        assert runtime.events == ()


def test_an_exception_is_an_error_as_without_isolation() -> None:
    errors = {"where": "execute", "how": "raise_error"}
    with faulty_runtime(errors) as runtime:
        model = ip.load(sums_and_relu(), BACKENDS, runtime=runtime, fallback=False)
        with pytest.raises(ExecutionError, match="ValueError: out of sorts"):
            model.run([X])
        assert runtime.events == ()


@pytest.mark.parametrize("how", ["segfault", pytest.param("native_sleep", marks=pytest.mark.slow)])
@pytest.mark.parametrize("compiles", [False, True], ids=["layers", "parts"])
def test_an_interrupted_run_is_completed_by_a_fresh_process(how: str, compiles: bool, tmp_path: Path) -> None:
    errors = {"where": "execute", "how": how, "folder": str(tmp_path), "compiles": compiles}
    with faulty_runtime(errors, deadline_seconds=deadline(how)) as runtime:
        model = ip.load(sums_and_relu(), BACKENDS, runtime=runtime)
        before = process_of(runtime)
        np.testing.assert_array_equal(model.run([X])[0], expected(X))
        np.testing.assert_array_equal(model.run([2 * X])[0], expected(2 * X))
        assert process_of(runtime) != before
        assert [event.kind for event in runtime.events] == [CRASHED, RESTARTED]


def test_what_ran_before_in_the_same_inference_is_run_again(tmp_path: Path) -> None:
    errors = {"where": "execute", "folder": str(tmp_path), "which": (1,)}
    with faulty_runtime(errors) as runtime:
        model = ip.load(sums_and_relu(), BACKENDS, runtime=runtime)
        np.testing.assert_array_equal(model.run([X])[0], expected(X))
        assert len(os.listdir(tmp_path)) == 4  # first, last that fails, and both again


@pytest.mark.parametrize("which", [0, 1])
def test_what_a_failing_process_overwrote_is_made_again(which: int, tmp_path: Path) -> None:
    network = ip.Network()
    x = network.add_input_layer(0, ip.TensorInfo((3,)), name="x")
    sum_ = network.add_addition_layer(x, x, name="sum")
    relu = network.add_activation_layer(sum_, function=ip.ops.ActivationFunction.RELU, name="relu")
    network.add_output_layer(0, network.add_addition_layer(sum_, relu, name="last"))
    with no_trace_left(), ip.Runtime(ip.CreationOptions(isolate="Corrupting")) as runtime:
        runtime.registry.register("Corrupting", partial(Corrupting, str(tmp_path), which))
        model = ip.load(network, ["Corrupting", "CpuRef"], runtime=runtime)
        assert model.run([[1, -2, 3]])[0].tolist() == [4, -4, 12]
        assert [event.kind for event in runtime.events] == [CRASHED, RESTARTED]


@pytest.mark.parametrize("which", one_in(2, range(4)))
def test_what_only_a_failing_process_had_is_made_again(which: int, tmp_path: Path) -> None:
    network = ip.Network()
    function = ip.ops.ActivationFunction.RELU
    x = network.add_input_layer(0, ip.TensorInfo((3,)), name="x")
    first = network.add_activation_layer(x, function=function, name="first")
    less = network.add_subtraction_layer(first, network.add_constant_layer(np.float32([2, 2, 2])), name="less")
    last = network.add_activation_layer(less, function=function, name="last")
    network.add_output_layer(0, last)
    with no_trace_left(), ip.Runtime(ip.CreationOptions(isolate="Falling")) as runtime:
        runtime.registry.register("Falling", partial(Falling, str(tmp_path), which))
        model = ip.load(network, ["Falling", "CpuRef"], runtime=runtime)
        for _ in range(2):
            assert model.run([[1, -2, 3]])[0].tolist() == [0, 0, 1]
        assert [event.kind for event in runtime.events] == [CRASHED, RESTARTED]


ONCE = [
    *[("segfault", place) for place in PLACES if place not in ("make", *AT_THE_END)],
    *[("native_sleep", place) for place in ("query", "optimize", "workload", "execute")],
]


@pytest.mark.parametrize(("how", "place"), one_in(4, ONCE))
def test_wherever_it_fails_once_the_network_runs_on_it(how: str, place: str, tmp_path: Path) -> None:
    errors = {"where": place, "how": how, "folder": str(tmp_path)}
    with faulty_runtime(errors, deadline_seconds=deadline(how)) as runtime:
        model = ip.load(sums_and_relu(), BACKENDS, runtime=runtime)
        np.testing.assert_array_equal(model.run([X])[0], expected(X))
        assert {event.kind for event in runtime.events} == {CRASHED, RESTARTED}
        assert model.optimized.graph.layer("first").backend == "Faulty"


@pytest.mark.parametrize("place", one_in(4, [place for place in PLACES if place != "make"]))
def test_wherever_it_fails_always_the_network_runs_on_the_next_backend(place: str) -> None:
    with faulty_runtime({"where": place}, max_restarts=0) as runtime:
        with ip.load(sums_and_relu(), BACKENDS, runtime=runtime, fallback=True) as model:
            np.testing.assert_array_equal(model.run([X])[0], expected(X))
        network = ip.load(sums_and_relu(), ["CpuRef"], runtime=runtime)
        np.testing.assert_array_equal(network.run([X])[0], expected(X))


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("segfault", "its child process was killed by SIGSEGV at the start"),
        ("native_sleep", "its child process did not answer within 1 s at the start"),
        ("raise_error", "in its child process: ValueError: out of sorts"),
    ],
)
def test_one_that_fails_when_it_is_made_is_not_available(how: str, reason: str) -> None:
    with faulty_runtime({"where": "make", "how": how}, start_seconds=1 if how == "native_sleep" else 30) as runtime:
        with pytest.raises(BackendUnavailableError) as caught:
            runtime.registry.get("Faulty")
        assert caught.value.reason == reason
        model = ip.load(sums_and_relu(), BACKENDS, runtime=runtime)
        np.testing.assert_array_equal(model.run([X])[0], expected(X))


def test_after_its_restarts_it_is_disabled_and_its_part_runs_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    with faulty_runtime({"where": "execute"}) as runtime:
        model = ip.load(sums_and_relu(), BACKENDS, runtime=runtime, fallback=True)
        with caplog.at_level(logging.WARNING, "interposer"):
            np.testing.assert_array_equal(model.run([X])[0], expected(X))
        kinds = [event.kind for event in runtime.events]
        assert kinds == [*[CRASHED, RESTARTED] * 3, CRASHED, QUARANTINED, REPLACED]
        assert [event.kind for event in model.events] == [REPLACED]
        assert [sum(kind in record.message for record in caplog.records) for kind in (QUARANTINED, REPLACED)] == [
            1,
            1,
        ]
        reason = "its child process failed 4 times; the last time it was killed by SIGSEGV"
        assert runtime.registry.reason_absent("Faulty") == reason
        assert [(item.id, item.reason) for item in model.optimized.absent] == []
        np.testing.assert_array_equal(model.run([3 * X])[0], expected(3 * X))


def test_without_leave_to_fall_back_the_error_is_raised_and_the_next_run_fails_at_once() -> None:
    with faulty_runtime({"where": "execute"}, max_restarts=1) as runtime:
        model = ip.load(sums_and_relu(), BACKENDS, runtime=runtime, fallback=False)
        with pytest.raises(ExecutionError, match="was killed by SIGSEGV"):
            model.run([X])
        with pytest.raises(ExecutionError, match="backend 'Faulty' is disabled: its child process failed 2 times"):
            model.run([X])


def test_a_call_that_always_fails_is_given_up_however_many_restarts_are_allowed() -> None:
    with faulty_runtime({"where": "execute"}, max_restarts=None) as runtime:
        model = ip.load(sums_and_relu(), BACKENDS, runtime=runtime, fallback=False)
        with pytest.raises(ExecutionError):
            model.run([X])
        assert [event.kind for event in runtime.events].count(CRASHED) == 4
        assert runtime.registry.reason_absent("Faulty") is None


def test_where_no_other_backend_is_left_the_error_is_raised() -> None:
    network = ip.Network()
    x = network.add_input_layer(0, ip.TensorInfo((2,)))
    network.add_output_layer(0, network.add_addition_layer(x, x))
    with faulty_runtime({"where": "execute"}, max_restarts=0) as runtime:
        model = ip.load(network, ["Faulty"], runtime=runtime, fallback=True)
        with pytest.raises(ExecutionError, match="SIGSEGV"):
            model.run([[1, 2]])


@pytest.mark.usefixtures("new_interpreter")
def test_a_process_that_is_killed_between_runs_is_replaced() -> None:
    with faulty_runtime() as runtime:
        model = ip.load(sums_and_relu(), BACKENDS, runtime=runtime)
        model.run([X])
        kill(runtime)
        np.testing.assert_array_equal(model.run([X])[0], expected(X))
        assert "was killed by SIGKILL, perhaps for want of memory" in runtime.events[0].text


def test_other_networks_of_the_backend_go_on_too(tmp_path: Path) -> None:
    errors = {"where": "execute", "folder": str(tmp_path), "which": (2,)}
    with faulty_runtime(errors) as runtime:
        item, other = (ip.load(sums_and_relu(), BACKENDS, runtime=runtime) for _ in range(2))
        for x in (X, 2 * X, 3 * X):
            np.testing.assert_array_equal(item.run([x])[0], expected(x))
            np.testing.assert_array_equal(other.run([x])[0], expected(x))
        assert [event.kind for event in runtime.events] == [CRASHED, RESTARTED]


def every_third(runtime: ip.Runtime, runs: int) -> int:
    """Run a network often, compare every answer, and give the number of restarts."""
    model = ip.load(sums_and_relu(), BACKENDS, runtime=runtime, fallback=True)
    for number in range(runs):
        x = X * number
        np.testing.assert_array_equal(model.run([x])[0], expected(x))
    return [event.kind for event in runtime.registry.events].count(RESTARTED)


@pytest.mark.parametrize("runs", [12, pytest.param(1000, marks=pytest.mark.slow)])
def test_with_restarts_without_end_every_answer_is_right(runs: int, tmp_path: Path) -> None:
    # Each run has two steps; after an error in the first, one step more is counted before the next error.
    errors = {"where": "execute", "folder": str(tmp_path), "which": range(2, 10**6, 7)}
    with faulty_runtime(errors, max_restarts=None) as runtime:
        assert every_third(runtime, runs) == pytest.approx(runs / 3, abs=2)


@pytest.mark.parametrize("runs", [12, pytest.param(1000, marks=pytest.mark.slow)])
def test_with_three_restarts_and_leave_to_fall_back_every_answer_is_right(runs: int, tmp_path: Path) -> None:
    errors = {"where": "execute", "folder": str(tmp_path), "which": range(2, 10**6, 7)}
    with faulty_runtime(errors) as runtime:
        assert every_third(runtime, runs) == 3
        assert [event.kind for event in runtime.events][-2:] == [QUARANTINED, REPLACED]

"""Events of backends in child processes: they cross the process border, and belong to the runs of the host."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import socket
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from time import perf_counter_ns

import numpy as np
import pytest

import interposer as ip
from interposer import Network, Runtime, TensorInfo
from interposer.isolation import events, profiling
from interposer.isolation.profiling import _Connection
from interposer.profiling import Category, Interval, Profile, Recording
from interposer.profiling.chrome import chrome_trace
from interposer.runtime import CreationOptions
from tests.counting import Counting, Selected
from tests.isolating import needs_linux

pytestmark = [needs_linux, pytest.mark.usefixtures("warm_python")]
X = np.ones((2, 3), np.float32)


def adding() -> Network:
    network = Network("adding")
    x = network.add_input_layer(0, TensorInfo((2, 3)), name="x")
    total = network.add_addition_layer(x, x, name="add")
    network.add_output_layer(0, network.add_multiplication_layer(total, total, name="mul"), name="y")
    return network


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime(CreationOptions(isolate=["Counting"])) as new_runtime:
        new_runtime.registry.register("Counting", Counting)
        yield new_runtime


@pytest.fixture
def model(runtime: Runtime) -> ip.Model:
    return ip.load(adding(), ["Counting"], runtime=runtime, fallback=False)


def of(recording: Recording, category: Category) -> list[Interval]:
    return [interval for interval in recording.intervals if interval.site.category is category]


def test_each_layer_has_the_time_and_the_thread_of_the_child(model: ip.Model) -> None:
    with ip.profile() as profile:
        for _ in range(3):
            model.run([X])
    recording = profile.recording
    layers = of(recording, Category.LAYER)
    assert [(interval.site.name, interval.run - layers[0].run) for interval in layers] == [
        (name, run) for run in range(3) for name in ("add", "mul")
    ]
    assert profile.lost == 0
    [key] = {interval.thread for interval in layers}
    thread = recording.foreign[key]
    assert thread.process != os.getpid()
    assert (thread.name, thread.process_name) == ("MainThread", "child process of Counting")
    runs = {interval.run: interval for interval in of(recording, Category.RUN)}
    for interval in layers:
        assert runs[interval.run].begin <= interval.begin <= interval.end <= runs[interval.run].end


def test_intervals_of_the_child_are_inside_of_their_layers_and_belong_to_their_runs(model: ip.Model) -> None:
    with ip.profile() as profile:
        for _ in range(3):
            model.run([X])
    recording = profile.recording
    kernels = of(recording, Category.KERNEL)
    assert Counter(interval.site.name for interval in kernels) == {"add call": 3, "add kernel": 3, "multiply call": 3}
    layers = {(interval.run, interval.site.name): interval for interval in of(recording, Category.LAYER)}
    for interval in kernels:
        layer = layers[interval.run, "mul" if interval.site.name == "multiply call" else "add"]
        assert layer.inference == interval.inference
        slack = 2_000_000 if interval.site.device else 0  # of the relation between the clocks
        assert layer.begin - slack <= interval.begin <= interval.end <= layer.end + slack
        assert interval.site.backend == "Counting"
    assert {
        (interval.site.name, interval.thread == 0, interval.site.bytes) for interval in kernels if interval.site.device
    } == {("add kernel", True, None)}
    multiplied = {interval.thread for interval in kernels if interval.site.name == "multiply call"}
    assert {recording.foreign[thread].process for thread in multiplied} == {
        recording.foreign[interval.thread].process for interval in layers.values()
    }
    assert multiplied.isdisjoint({interval.thread for interval in layers.values()})


def test_counters_of_the_child_have_the_numbers_units_and_values_of_the_runtime(
    model: ip.Model, runtime: Runtime
) -> None:
    with ip.profile() as profile:
        for _ in range(3):
            model.run([X])
    samples = [sample for sample in profile.recording.samples if sample.counter.name == "additions"]
    assert sum(sample.value for sample in samples) == 3
    assert samples[0].counter is runtime.profiling.counters[5]
    counter = samples[0].counter
    assert (counter.units, counter.backend, counter.device, counter.multiplier) == (
        "additions", "Counting", "unit 0", 0.5,
    )  # fmt: skip


def test_a_copy_that_waits_for_the_child_begins_when_the_wait_is_over(model: ip.Model) -> None:
    with ip.profile() as profile:
        model.run([X])
    recording = profile.recording
    [wait] = [interval for interval in recording.intervals if interval.site.name == "wait for Counting"]
    [given] = [interval for interval in recording.intervals if interval.site.name == "give out outputs"]
    assert max(interval.end for interval in of(recording, Category.LAYER)) <= wait.end <= given.begin


def test_nothing_crosses_the_border_when_nothing_records(model: ip.Model, runtime: Runtime) -> None:
    model.run([X])
    with ip.profile() as profile:
        pass
    assert of(profile.recording, Category.KERNEL) == of(profile.recording, Category.LAYER) == []


def test_a_profile_of_one_call_has_the_events_of_this_call_alone(model: ip.Model) -> None:
    first, second = ip.Profile(), ip.Profile()
    with ip.profile() as around:
        model.run([X], profile=first)
        model.run([X], profile=second)
    for profile in (first, second):
        assert [interval.site.name for interval in of(profile.recording, Category.LAYER)] == ["add", "mul"]
        assert len(of(profile.recording, Category.KERNEL)) == 3
    assert len(of(around.recording, Category.LAYER)) == 4


def test_the_profiler_of_a_network_has_the_steps_of_the_child(model: ip.Model, runtime: Runtime) -> None:
    [number] = runtime.loaded_networks
    profiler = runtime.get_profiler(number)
    profiler.enable_profiling(True)
    model.run([X])
    profiler.enable_profiling(False)
    assert "add call" in profiler.as_json()


def test_a_child_that_dies_loses_only_its_own_events_and_its_successor_is_recorded(
    model: ip.Model, runtime: Runtime
) -> None:
    with ip.profile() as profile:
        model.run([X], profile=ip.Profile())  # at its end, the child has sent all events
        os.kill(runtime.registry.get("Counting").supervisor.life.pid, signal.SIGKILL)
        model.run([X])
        model.run([X])
    recording = profile.recording
    names = [interval.site.name for interval in of(recording, Category.LAYER)]
    assert names == ["add", "mul"] * 3
    first, *_, last = of(recording, Category.RUN)
    processes = {
        run: {
            recording.foreign[interval.thread].process
            for interval in of(recording, Category.LAYER)
            if interval.run == run
        }
        for run in (first.run, last.run)
    }
    assert len(processes[first.run]) == len(processes[last.run]) == 1
    assert processes[first.run] != processes[last.run]


def test_a_child_of_many_events_loses_some_and_counts_them(model: ip.Model) -> None:
    many = X.copy()
    many[0, 0] = 1000
    with ip.profile() as profile:
        model.run([many])
    recorded = sum(interval.site.name == "many" for interval in profile.recording.intervals)
    assert recorded + profile.lost >= 200_000
    assert [interval.site.name for interval in of(profile.recording, Category.LAYER)] == ["add", "mul"]


def test_threads_of_the_child_are_in_a_process_of_their_own_in_a_chrome_trace(model: ip.Model) -> None:
    with ip.profile() as profile:
        model.run([X])
    events = json.loads(chrome_trace(profile.recording))["traceEvents"]
    [foreign] = {thread.process for thread in profile.recording.foreign.values()}
    assert {event["name"] for event in events if event.get("pid") == foreign and event["ph"] == "X"} == {
        "add", "mul", "add call", "multiply call",
    }  # fmt: skip
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert f"child process of Counting, {foreign}" in names


def test_two_runtimes_with_one_isolated_backend_record_each_event_once() -> None:
    with Runtime(CreationOptions(isolate=["Counting"])) as one, Runtime(CreationOptions(isolate=["Counting"])) as two:
        for runtime in (one, two):
            runtime.registry.register("Counting", Counting)
        models = [ip.load(adding(), ["Counting"], runtime=runtime) for runtime in (one, two)]
        with ip.profile() as profile:
            for model in models:
                model.run([X])
    assert len(of(profile.recording, Category.LAYER)) == 4
    assert len(of(profile.recording, Category.KERNEL)) == 6


def test_runs_on_several_threads_keep_their_own_events(model: ip.Model) -> None:
    with ip.profile() as profile:
        workers = [threading.Thread(target=lambda: [model.run([X]) for _ in range(5)]) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    layers = Counter((interval.run, interval.site.name) for interval in of(profile.recording, Category.LAYER))
    assert len(layers) == 30
    assert set(layers.values()) == {1}
    runs = {interval.run: interval for interval in of(profile.recording, Category.RUN)}
    for interval in [*of(profile.recording, Category.LAYER), *of(profile.recording, Category.KERNEL)]:
        assert interval.run in runs
        if not interval.site.device:
            assert runs[interval.run].begin <= interval.begin <= interval.end <= runs[interval.run].end


# --- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        b"nonsense" * 8,
        b"iprE\x04\x00\x00\x00\x07\x00\x00\x00" + b"1234567",
        b"iprE\x01\x00\x00\x00\x02\x00\x00\x00{}",
        b"iprE\x06\x00\x00\x00\x00\x00\x00\x00",
        b"iprE\x01\x00\x00\x00\x13\x00\x00\x00" + b'{"number":Infinity}',
    ],
)
def test_a_child_that_sends_nonsense_is_not_recorded_and_runs_go_on(
    damage: bytes, model: ip.Model, runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = socket.socketpair()
    with there, caplog.at_level(logging.WARNING, "interposer.profiling"):
        connection = _Connection("Counting", runtime.registry.get("Counting").supervisor.life, here, {})
        there.sendall(damage)
        while not connection.is_over:
            time.sleep(0.001)
    [result] = model.run([X])
    np.testing.assert_array_equal(result, 4 * X)
    assert any("events that make no sense" in record.getMessage() for record in caplog.records)


def test_a_profile_is_freed_after_its_block(model: ip.Model) -> None:
    profile = Profile()
    with profile:
        model.run([X])
    reference = weakref.ref(profile._recorder)
    del profile
    gc.collect()
    assert reference() is None


@pytest.mark.usefixtures("new_interpreter")
def test_a_child_that_stands_still_is_waited_for_once(
    model: ip.Model, runtime: Runtime, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = runtime.registry.get("Counting").supervisor.life.pid
    with caplog.at_level(logging.WARNING, "interposer.profiling"):
        with monkeypatch.context() as impatient, ip.profile():
            model.run([X])
            os.kill(pid, signal.SIGSTOP)
            impatient.setattr(profiling, "_PATIENCE", 0.1)
        os.kill(pid, signal.SIGCONT)
    assert [record.getMessage() for record in caplog.records] == [
        "the child process of backend Counting does not send its events in time"
    ]
    with ip.profile() as profile:
        model.run([X])
        model.run([X])
    assert len(of(profile.recording, Category.LAYER)) == 4
    assert runtime.registry.get("Counting").supervisor.stream._connection._clock is None  # both read the same clock


def test_a_clock_that_differs_from_the_hosts_is_related_to_it(model: ip.Model, runtime: Runtime) -> None:
    connection = runtime.registry.get("Counting").supervisor.stream._connection
    connection._correlate(perf_counter_ns(), perf_counter_ns() + 10**12)
    assert abs(connection._to_host(perf_counter_ns() + 10**12) - perf_counter_ns()) < 10**9


def test_messages_of_all_lengths_arrive_whole() -> None:
    here, there = socket.socketpair()
    with here, there:
        sender = threading.Thread(target=events.send, args=(here, events.EVENTS, bytes(800_000)))
        sender.start()
        assert events.receive(there).numbers(events.WIDTH).shape == (25_000, 4)
        sender.join()
        here.close()
        with pytest.raises(EOFError):
            events.receive(there)


def captured(runtime: Runtime, expected: dict[int, float]) -> None:
    """Wait until the counters have these values in a capture, and no others are captured."""
    end, values = time.monotonic() + 300, dict[int, float]()
    while values != expected and time.monotonic() < end:
        values = {number: value for stamp in runtime.profiling.capture() for number, value in stamp.values.items()}
        time.sleep(0.005)
    assert values == expected


def test_the_selection_of_a_collector_reaches_the_context_in_the_child_and_its_successor() -> None:
    with Runtime(CreationOptions(isolate=["Counting"])) as runtime:
        runtime.registry.register("Counting", Selected)
        model = ip.load(adding(), ["Counting"], runtime=runtime, fallback=False)
        profiling = runtime.profiling
        assert profiling.own_counters("Counting") == [5, 6, 7, 8]
        profiling.enable(True, False)
        assert profiling.select(30_000, [6, 7]) == {}
        captured(runtime, {6: 30_000, 7: 0})
        assert profiling.select(50_000, [6]) == {}
        captured(runtime, {6: 50_000})
        assert profiling.select(20_000, [6, 8]) == {"Counting": "it has no register left"}
        profiling.enable(True, True)
        assert profiling.select(40_000, [6, 7]) == {}
        captured(runtime, {6: 40_000, 7: 1})
        os.kill(runtime.registry.get("Counting").supervisor.life.pid, signal.SIGKILL)
        model.run([X])
        captured(runtime, {6: 40_000, 7: 1})
        assert profiling.select(0, []) == {}
        time.sleep(0.05)
        profiling.capture()
        time.sleep(0.05)
        assert profiling.capture() == []
        profiling.enable(False, False)
        with ip.profile() as profile:
            model.run([X])
        samples = profile.recording.samples
        assert {sample.counter.name: sample.value for sample in samples if sample.counter.backend} == {
            "period": 10_000, "timelines": 2,
        }  # fmt: skip

"""Backends that take part in profiling: counters, intervals on device clocks, and being enabled at run time."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from time import perf_counter_ns
from typing import Any, ClassVar

import numpy as np
import pytest

import interposer as ip
from interposer import Network, Runtime, TensorInfo
from interposer.backend import (
    Backend,
    BackendProfiling,
    BackendProfilingContext,
    CounterClass,
    CounterTimestamp,
    DeviceClock,
    KernelTable,
    Options,
)
from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Array, DataType
from interposer.ops import Addition
from interposer.profiling import Category, Recorder
from interposer.profiling.backends import FIRST_COUNTER, CounterRegistration
from interposer.profiling.chrome import chrome_trace
from interposer.profiling.service import CAPTURE_PERIOD, ProfilingService

X = np.ones((2, 3), np.float32)
SKEW = 10**12
"""How far the clock of the device in this file is ahead of the host's, in nanoseconds."""


class Counts(BackendProfilingContext):
    """Counts additions, and reports each of them as an interval on the clock of a device."""

    def __init__(self, profiling: BackendProfiling) -> None:
        self.profiling = profiling
        self.log: list[str] = []
        self.added = 0
        self.clock = DeviceClock()
        self.numbers: list[int] = []

    def register_counters(self, current_max_counter_id: int) -> int:
        registration = self.profiling.counter_registration(current_max_counter_id)
        registration.register_category("work")
        device = registration.register_device("unit 0")
        self.numbers = [
            registration.register_counter("additions", "work", units="additions", device=device),
            registration.register_counter("heat", "work", units="K", kind=CounterClass.VALUE, multiplier=0.5, cores=2),
        ]
        return registration.current_max_counter_id

    def activate_counters(self, capture_period: int, counter_ids: Sequence[int]) -> str | None:
        self.log.append(f"activate {capture_period} {list(counter_ids)}")
        return None

    def report_counter_values(self) -> Iterable[CounterTimestamp]:
        count, self.added = self.added, 0
        additions, heat = self.numbers
        return [CounterTimestamp(perf_counter_ns(), {additions: count, heat: 600, heat + 1: 700})] if count else []

    def enable_profiling(self, enable: bool) -> bool:
        self.log.append(f"enable {enable}")
        before = perf_counter_ns()
        self.clock.correlate(perf_counter_ns() + SKEW, before, perf_counter_ns())
        return True

    def enable_timeline_reporting(self, enable: bool) -> bool:
        self.log.append(f"timeline {enable}")
        return True

    def worked(self) -> None:
        self.added += 1
        end = perf_counter_ns() + SKEW
        self.profiling.interval("add kernel", end - 1000, end, clock=self.clock, device="unit 0", bytes=72)
        self.profiling.interval("add call", end - SKEW - 2000, end - SKEW, layer="add")


table = KernelTable()
contexts: dict[str, Counts] = {}


class Counting(Backend):
    """Adds, and takes part in profiling."""

    id: ClassVar = "Counting"
    kernels: ClassVar = table

    def create_backend_profiling_context(
        self, options: Options, profiling: BackendProfiling
    ) -> BackendProfilingContext | None:
        contexts[self.id] = Counts(profiling)
        return contexts[self.id]


@table(Addition, dtypes={DataType.FLOAT32})
def add(op: Addition, a: Array, b: Array, *, out: Array) -> None:
    np.add(a, b, out=out)
    contexts["Counting"].worked()


def adding() -> Network:
    network = Network("adding")
    x = network.add_input_layer(0, TensorInfo((2, 3)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x, name="add"), name="y")
    return network


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as new_runtime:
        new_runtime.registry.register("Counting", Counting)
        yield new_runtime


@pytest.fixture
def model(runtime: Runtime) -> ip.Model:
    return ip.load(adding(), ["Counting"], runtime=runtime)


def test_a_backend_is_enabled_while_something_records(model: ip.Model) -> None:
    context = contexts["Counting"]
    assert context.log == []
    assert not context.profiling.is_profiling_enabled
    with Recorder():
        active = f"activate {CAPTURE_PERIOD} [5, 6, 7]"
        assert context.log == ["enable True", "timeline True", active]
        assert context.profiling.is_timeline_enabled
        assert [(status.number, status.capture_period) for status in context.profiling.active_counters] == [
            (5, CAPTURE_PERIOD),
            (6, CAPTURE_PERIOD),
            (7, CAPTURE_PERIOD),
        ]
        with Recorder():
            pass
        assert len(context.log) == 3
    assert context.log[3:] == ["activate 0 []", "timeline False", "enable False"]
    assert not context.profiling.counter_status(5).is_active
    assert not context.profiling.is_timeline_enabled


def test_a_backend_that_is_created_during_a_recording_is_enabled_at_once(runtime: Runtime) -> None:
    with Recorder():
        ip.load(adding(), ["Counting"], runtime=runtime)
        assert contexts["Counting"].log[0] == "enable True"
    assert contexts["Counting"].log[-1] == "enable False"


def test_counters_are_captured_until_the_end_with_their_units_and_multipliers(model: ip.Model) -> None:
    with ip.profile() as profile:
        for _ in range(3):
            model.run([X])
    samples = profile.recording.samples
    additions = [sample for sample in samples if sample.counter.name == "additions"]
    assert sum(sample.value for sample in additions) == 3
    counter = additions[0].counter
    assert (counter.number, counter.units, counter.backend, counter.device, counter.category, counter.kind) == (
        5, "additions", "Counting", "unit 0", "work", CounterClass.EVENT,
    )  # fmt: skip
    heat = {sample.counter.name: sample.value for sample in samples if sample.counter.name.startswith("heat")}
    assert heat == {"heat of core 0": 300, "heat of core 1": 350}


def test_intervals_are_inside_of_their_layer_and_belong_to_its_run(model: ip.Model) -> None:
    with ip.profile() as profile:
        for _ in range(2):
            model.run([X])
    intervals = profile.recording.intervals
    layers = {interval.run: interval for interval in intervals if interval.site.category is Category.LAYER}
    kernels = [interval for interval in intervals if interval.site.category is Category.KERNEL]
    assert len(kernels) == 4
    assert {interval.run for interval in kernels} == layers.keys()
    for interval in kernels:
        layer = layers[interval.run]
        assert layer.begin - 5000 <= interval.begin <= interval.end <= layer.end + 1_000_000
        assert interval.site.backend == "Counting"
    on_device = [interval for interval in kernels if interval.site.device == "unit 0"]
    assert [(interval.site.name, interval.thread, interval.site.bytes) for interval in on_device] == [
        ("add kernel", 0, 72)
    ] * 2


def test_the_profiler_of_a_network_lists_the_intervals_of_its_backends(model: ip.Model, runtime: Runtime) -> None:
    [number] = runtime.loaded_networks
    profiler = runtime.get_profiler(number)
    profiler.enable_profiling(True)
    model.run([X])
    log = profiler.event_log()
    assert "add kernel" in log
    assert '"add call_#' in profiler.as_json()


def test_nothing_is_reported_when_nothing_records(model: ip.Model) -> None:
    model.run([X])
    context = contexts["Counting"]
    context.profiling.report_counters([CounterTimestamp(perf_counter_ns(), {5: 1})])
    with ip.profile() as profile:
        pass
    assert profile.recording.intervals == ()


def test_a_closed_runtime_ends_the_profiling_of_its_backends_for_good(runtime: Runtime) -> None:
    ip.load(adding(), ["Counting"], runtime=runtime)
    context = contexts["Counting"]
    with Recorder():
        runtime.close()
        assert context.log[-1] == "enable False"
        count = len(context.log)
    with Recorder():
        pass
    assert len(context.log) == count
    assert runtime.profiling.counters == {}


def test_counters_of_two_backends_have_different_numbers() -> None:
    service = ProfilingService()
    service.add("A", Counts)
    service.add("B", Counts)
    assert sorted(service.counters) == list(range(FIRST_COUNTER, FIRST_COUNTER + 6))
    assert service.own_counters("B") == [8, 9, 10]


def test_selecting_counters_activates_only_the_backends_that_have_them() -> None:
    service = ProfilingService()
    made: list[Counts] = []

    def create(profiling: BackendProfiling) -> Counts:
        made.append(Counts(profiling))
        return made[-1]

    service.add("A", create)
    service.add("B", create)
    assert service.select(20_000, [6, 99]) == {}
    assert [context.log for context in made] == [["activate 20000 [6]"], ["activate 0 []"]]
    assert service.select(0, [6]) == {}
    assert made[0].log[-1] == "activate 0 []"


class Broken(BackendProfilingContext):
    """Raises in every method."""

    def register_counters(self, current_max_counter_id: int) -> int:
        raise ValueError("register")

    def report_counter_values(self) -> Iterable[CounterTimestamp]:
        raise ValueError("report")

    def enable_profiling(self, enable: bool) -> bool:
        raise ValueError("enable")

    def enable_timeline_reporting(self, enable: bool) -> bool:
        raise ValueError("timeline")


class Wrong(Counts):
    """Returns values of wrong types."""

    def register_counters(self, current_max_counter_id: int) -> int:
        return super().register_counters(current_max_counter_id) + 1

    def activate_counters(self, capture_period: int, counter_ids: Sequence[int]) -> str | None:
        return "out of counters"

    def report_counter_values(self) -> Any:
        return [{5: 1}]


def raises(profiling: BackendProfiling) -> BackendProfilingContext:
    raise RuntimeError("no licence")


@pytest.mark.parametrize(
    ("create", "messages"),
    [
        (raises, ["backend B could not make its profiling context: RuntimeError: no licence"]),
        (lambda profiling: 7, ["backend B: its profiling context is a int"]),
        (lambda profiling: None, []),
        (
            lambda profiling: Broken(),
            [
                "backend B: register_counters raised ValueError: register",
                "backend B: enable_profiling raised ValueError: enable",
                "backend B: enable_timeline_reporting raised ValueError: timeline",
                "backend B: report_counter_values raised ValueError: report",
            ],
        ),
        (
            Wrong,
            [
                "backend B: register_counters returned 8, but the greatest number of a counter is 7",
                "backend B does not capture its counters: out of counters",
                "backend B: report_counter_values raised TypeError: "
                "it returned {5: 1}, which is not a CounterTimestamp",
            ],
        ),
    ],
    ids=["raises", "no context", "none", "broken", "wrong"],
)
def test_a_context_that_misbehaves_is_logged_and_ignored(
    create: Any, messages: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    service = ProfilingService()
    with caplog.at_level(logging.WARNING, "interposer.profiling"):
        service.add("B", create)
        with Recorder():
            pass
    logged = [text.getMessage() for text in caplog.records]
    assert [text for text in messages if text not in logged] == []
    assert bool(logged) == bool(messages)


@pytest.mark.parametrize(
    "stamp",
    [
        CounterTimestamp(None, {5: 1}),
        CounterTimestamp(0, {5: "many"}),
        CounterTimestamp(0, None),
        CounterTimestamp(0.5, {5: 1}),
    ],
    ids=["no time", "text", "no values", "fraction"],
)
def test_counters_without_numbers_are_logged_once_and_reach_no_recorder(
    stamp: CounterTimestamp, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(Counts):
        def report_counter_values(self) -> Iterable[CounterTimestamp]:
            return [stamp]

    service = ProfilingService()
    service.add("B", Odd)
    with caplog.at_level(logging.WARNING, "interposer.profiling"), Recorder() as recorder:
        for _ in range(3):
            assert service.capture() == []
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.startswith("backend B: report_counter_values raised ")
    assert recorder.recording().samples == ()


def test_numbers_of_numpy_can_be_reported_and_written() -> None:
    counters: dict[int, Any] = {}
    profiling = BackendProfiling("B", counters)
    Counts(profiling).register_counters(FIRST_COUNTER - 1)
    now = np.int64(perf_counter_ns())
    with Recorder() as recorder:
        profiling.interval("step", now, now + np.uint64(5), bytes=np.prod((2, 3)), flops=np.int64(7))
        profiling.report_counters([CounterTimestamp(now, {5: np.float32(2)})])
    events = json.loads(chrome_trace(recorder.recording()))["traceEvents"]
    [step, _] = [event for event in events if event["ph"] == "X"]
    assert (step["args"]["bytes"], step["args"]["flops"]) == (6, 7)
    assert [event["args"] for event in events if event["ph"] == "C"] == [{"additions": 2}]


def test_counters_are_polled_while_a_recording_goes_on() -> None:
    polled = threading.Event()

    class Polled(Counts):
        def report_counter_values(self) -> Iterable[CounterTimestamp]:
            polled.set()
            return ()

    service = ProfilingService()
    service.add("B", Polled)
    with Recorder():
        assert polled.wait(300)
    assert service.capture() == []


# --- registration -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "the name of a counter must be a text that is not empty, not ''"),
        ({"category": "x"}, "the counter 'c' cannot be registered: the category 'x' is not registered"),
        ({"name": "old"}, "the counter 'old' cannot be registered: the category 'k' has a counter of this name"),
        ({"multiplier": 0.0}, "the counter 'c' cannot be registered: the multiplier is 0"),
        ({"cores": 0}, "the counter 'c' cannot be registered: it has 0 cores, and numbers go to 65535"),
        ({"cores": 70000}, "the counter 'c' cannot be registered: it has 70000 cores, and numbers go to 65535"),
        ({"device": 2}, "the counter 'c' cannot be registered: there is no device 2"),
        ({"counter_set": 1}, "the counter 'c' cannot be registered: there is no counter set 1"),
    ],
)
def test_a_counter_that_cannot_be_registered_says_why(arguments: dict[str, Any], message: str) -> None:
    registration = CounterRegistration("B", 4, {})
    registration.register_category("k")
    registration.register_device("d")
    assert registration.register_counter("old", "k") == 5
    with pytest.raises(InvalidArgumentError) as refused:
        registration.register_counter(**({"name": "c", "category": "k"} | arguments))
    assert str(refused.value) == message
    assert registration.current_max_counter_id == 5


def test_a_category_is_registered_once() -> None:
    registration = CounterRegistration("B", 4, {})
    registration.register_category("k")
    with pytest.raises(InvalidArgumentError, match="the category 'k' is registered already"):
        registration.register_category("k")
    with pytest.raises(InvalidArgumentError, match="the name of a device must be a text that is not empty, not None"):
        registration.register_device(None)  # type: ignore[arg-type]


# --- clocks -----------------------------------------------------------------------------------------------------------


def test_a_clock_without_pairs_is_the_hosts() -> None:
    clock = DeviceClock()
    assert (clock.to_host(17), clock.error_ns) == (17, 0)


def test_one_pair_gives_the_offset_and_two_give_the_drift() -> None:
    clock = DeviceClock()
    clock.correlate(1000, 90, 110)
    assert clock.to_host(1500) == 600
    assert clock.error_ns == 10
    clock.correlate(3000, 1095, 1105)  # half as fast: 2000 ns of the device are 1000 of the host
    assert [clock.to_host(device_ns) for device_ns in (1000, 2000, 3000, 5000)] == [100, 600, 1100, 2100]


def test_a_clock_that_stands_still_or_goes_back_keeps_its_offset() -> None:
    clock = DeviceClock()
    clock.correlate(1000, 0, 0)
    clock.correlate(1000, 50, 50)
    assert clock.to_host(1010) == 60
    with pytest.raises(InvalidArgumentError, match="host_after_ns is before host_before_ns"):
        clock.correlate(1, 5, 4)

"""Profiles in unusual orders: blocks in blocks, runs that fail, and runs inside of runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any, ClassVar

import numpy as np
import pytest

import interposer as ip
from interposer.backend import Backend, KernelTable
from interposer.core.errors import ExecutionError, InvalidArgumentError
from interposer.core.types import Array, DataType
from interposer.ops import Addition
from interposer.profiling import Category, Interval, OpenTelemetry, Profile, Recording, Site
from interposer.profiling.chrome import chrome_trace
from interposer.profiling.recorder import active, add_interval
from interposer.profiling.summary import summary_text
from interposer.runtime.runs import PendingRun

X = np.ones((2, 3), np.float32)
SEVEN = np.full((2, 3), 7, np.float32)
before_adding: list[Callable[[], object]] = []
table = KernelTable()


@table(Addition, dtypes={DataType.FLOAT32})
def add(op: Addition, a: Array, b: Array, *, out: Array) -> None:
    if a[0, 0] == 7:
        raise ValueError("seven cannot be added")
    for call in before_adding:
        call()
    np.add(a, b, out=out)


class Adding(Backend):
    """Adds numbers, but no sevens."""

    id: ClassVar = "Adding"
    kernels: ClassVar = table


def sum_of_two(name: str) -> ip.Network:
    network = ip.Network(name)
    x = network.add_input_layer(0, ip.TensorInfo((2, 3)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x, name="twice"), name="y")
    return network


@pytest.fixture
def runtime() -> Iterator[ip.Runtime]:
    with ip.Runtime() as new_runtime:
        new_runtime.registry.register("Adding", Adding)
        yield new_runtime
    assert active == []
    before_adding.clear()


@pytest.fixture
def model(runtime: ip.Runtime) -> ip.Model:
    return ip.load(sum_of_two("outer"), ["Adding"], runtime=runtime, fallback=False)


def runs(recording: Recording) -> list[Any]:
    return [interval for interval in recording.intervals if interval.site.category is Category.RUN]


# --- blocks -----------------------------------------------------------------------------------------------------------


def test_a_block_inside_a_block_of_the_same_profile_ends_nothing(model: ip.Model) -> None:
    profile = Profile()
    with profile:
        with profile:
            model.run([X])
        model.run([X])
    model.run([X])
    assert len(runs(profile.recording)) == 2


def test_the_last_of_overlapping_blocks_on_two_threads_ends_recording(model: ip.Model) -> None:
    profile, is_inside, may_end = Profile(), threading.Event(), threading.Event()

    def other() -> None:
        with profile:
            is_inside.set()
            may_end.wait(300)

    thread = threading.Thread(target=other)
    with profile:
        thread.start()
        is_inside.wait(300)
    model.run([X])
    may_end.set()
    thread.join()
    model.run([X])
    assert len(runs(profile.recording)) == 1


def test_a_call_that_is_given_the_profile_of_the_block_around_it_is_recorded_once(model: ip.Model) -> None:
    profile = Profile()
    with profile:
        model.run([X], profile=profile)
    assert len(runs(profile.recording)) == 1
    assert [layer.count for layer in profile.layers() if layer.name == "twice"] == [1]


def test_calls_with_one_profile_on_several_threads_are_all_recorded(model: ip.Model) -> None:
    profile = Profile()
    threads = [threading.Thread(target=lambda: [model.run([X], profile=profile) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs(profile.recording)) == 80
    assert profile.lost == 0


# --- runs that fail ---------------------------------------------------------------------------------------------------


def fails(model: ip.Model) -> None:
    with pytest.raises(ExecutionError, match="seven cannot be added"):
        model.run([SEVEN])


def test_a_run_that_fails_is_recorded_with_its_error(model: ip.Model) -> None:
    with ip.profile() as profile:
        fails(model)
        model.run([X])
    failed, whole = runs(profile.recording)
    [instant] = [event for event in profile.recording.instants if event.site.category is Category.RUN]
    assert (instant.run, instant.inference) == (failed.run, failed.inference) != (whole.run, whole.inference)
    assert failed.begin <= instant.at <= failed.end
    assert instant.site.name == "failed: ExecutionError"
    assert instant.site.network is failed.site.network
    assert "seven cannot be added" in dict(instant.site.details)["error"]
    assert "failed: ExecutionError" in chrome_trace(profile.recording)


def test_a_submitted_run_that_fails_is_recorded_with_its_error(model: ip.Model) -> None:
    with ip.profile() as profile:
        pending = model.submit([SEVEN])
        assert isinstance(pending, PendingRun)
        assert isinstance(pending.exception(), ExecutionError)
    assert len(runs(profile.recording)) == 1
    assert sum(instant.site.name == "failed: ExecutionError" for instant in profile.recording.instants) == 1


def test_a_run_that_another_backend_repeats_is_recorded_twice(runtime: ip.Runtime) -> None:
    model = ip.load(sum_of_two("repeated"), ["Adding", "CpuRef"], runtime=runtime, fallback=True)
    with ip.profile() as profile:
        [result] = model.run([SEVEN])
    np.testing.assert_array_equal(result, 2 * SEVEN)
    layers = [event for event in profile.recording.intervals if event.site.name == "twice"]
    assert [event.site.backend for event in layers if event.site.category is Category.LAYER] == ["Adding", "CpuRef"]
    assert len(runs(profile.recording)) == 2
    assert sum(event.site.category is Category.RUN for event in profile.recording.instants) == 1


def test_the_span_of_a_run_that_fails_has_the_status_error(model: ip.Model) -> None:
    trace = pytest.importorskip("opentelemetry.sdk.trace", reason="needs opentelemetry-sdk")
    spans = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter, tracers = memory.InMemorySpanExporter(), trace.TracerProvider()
    tracers.add_span_processor(spans.SimpleSpanProcessor(exporter))
    with OpenTelemetry(tracer_provider=tracers):
        fails(model)
        model.run([X])
    failed, whole = [span for span in exporter.get_finished_spans() if span.parent is None]
    assert failed.status.status_code.name == "ERROR"
    assert "seven cannot be added" in failed.status.description
    assert whole.status.status_code.name == "UNSET"


# --- runs inside of runs ----------------------------------------------------------------------------------------------


def test_steps_after_a_run_inside_a_layer_belong_to_the_outer_run(model: ip.Model) -> None:
    inner = ip.load(sum_of_two("inner"), ["CpuRef"])
    step = Site(Category.KERNEL, "step", backend="Adding")
    before_adding[:] = [
        lambda: inner.run([X]),
        lambda: add_interval(step, perf_counter_ns(), perf_counter_ns(), threading.get_ident()),
    ]
    with ip.profile() as profile:
        model.run([X])
    [outer] = [interval.run for interval in runs(profile.recording) if interval.site.name == "outer"]
    assert [interval.run for interval in profile.recording.intervals if interval.site is step] == [outer]
    assert sum(interval.site.name == "inner" for interval in runs(profile.recording)) == 1


# --- tables -----------------------------------------------------------------------------------------------------------


def test_names_cannot_control_the_terminal_by_the_tables() -> None:
    name = "a\x1b[31m\nb"
    layer = Interval(Site(Category.LAYER, name, "\x07", layer=name, backend="B"), 0, 5000, 7)
    table = summary_text(Recording((layer,)))
    assert len(table.splitlines()) == 2
    assert table.splitlines()[1].startswith("a?[31m?b" + 33 * " " + "?")
    assert "\x1b" not in table


@pytest.mark.parametrize("names", [None, ["y"], ["twice"]], ids=["all", "an output", "an inner value"])
def test_a_submitted_run_is_recorded_in_its_own_profile_alone(names: list[str] | None) -> None:
    network = ip.Network("net")
    x = network.add_input_layer(0, ip.TensorInfo((2, 3)), name="x")
    twice = network.add_addition_layer(x, x, name="twice")
    network.add_output_layer(0, network.add_activation_layer(twice, name="last"), name="y")
    model, mine, other = ip.load(network, ["CpuRef"]), ip.Profile(), ip.Profile()
    feed = np.ones((2, 3), np.float32)
    runs = [model.submit([feed], names, profile=profile) for profile in (mine, other, None)]
    for run in runs:
        run.result()
    asyncio.run(model.run_async([feed], names, profile=mine, deadline=60))
    assert {layer.count for layer in mine.layers()} == {2}
    assert {layer.count for layer in other.layers()} == {1}
    with pytest.raises(InvalidArgumentError, match="the profile must be a Profile"):
        model.submit([feed], profile="p.json")

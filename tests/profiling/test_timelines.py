"""Profiles as timelines: what the files of Chrome and Perfetto have, parsed by JSON and by Perfetto's own classes."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import CreationOptions, Network, OptimizerOptions, Runtime, TensorInfo
from interposer.core.errors import InvalidArgumentError
from interposer.ops import ActivationFunction
from interposer.profiling import Category, Interval, Profile, Recording, Sample, Site
from interposer.profiling import Counter as Measure
from interposer.profiling.chrome import chrome_trace
from interposer.profiling.events import Instant
from interposer.profiling.perfetto import perfetto_trace
from interposer.profiling.recorder import active, instant, interval
from interposer.profiling.tracks import BACKENDS, THREADS, timeline
from tests.devices import Device, Sums, single

INFO = TensorInfo((2, 3))
X = np.ones((2, 3), np.float32)


def three_parts() -> Network:
    """Return relu(x + x) + x, of which a device runs the ReLU."""
    network = Network("three")
    x = network.add_input_layer(0, INFO, name="x")
    first = network.add_addition_layer(x, x, name="first")
    middle = network.add_activation_layer(first, function=ActivationFunction.RELU, name="middle")
    last = network.add_addition_layer(middle, x, name="last")
    network.add_output_layer(0, last, name="y")
    return network


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as new_runtime:
        new_runtime.registry.register("Device", single(Device()))
        new_runtime.registry.register("Sums", Sums)
        yield new_runtime
    assert active == []


def model_on(runtime: Runtime) -> ip.Model:
    plain = OptimizerOptions(rewrite=False)
    return ip.load(three_parts(), ["Sums", "Device"], runtime=runtime, options=plain)


def events_of(profile: Profile, phase: str) -> list[dict[str, Any]]:
    return [event for event in json.loads(chrome_trace(profile.recording))["traceEvents"] if event["ph"] == phase]


# --- what is recorded -------------------------------------------------------------------------------------------------


def test_a_profile_has_the_optimizer_the_load_and_every_run_with_its_layers(runtime: Runtime) -> None:
    with ip.profile() as profile:
        model = model_on(runtime)
        for _ in range(2):
            model.run([X])
        model.close()
    names = Counter(interval.site.name for interval in profile.recording.intervals)
    assert names["optimize"] == 1
    assert names["assign layers to backends"] == names["place tensors"] == 1
    assert names["optimize_subgraph"] == 3
    assert names["load three"] == names["unload three"] == 1
    assert names["create workload"] == 5  # of three layers and two copies
    assert names["three"] == names["execute"] == names["first"] == names["middle"] == names["last"] == 2
    runs = [interval for interval in profile.recording.intervals if interval.site.category is Category.RUN]
    assert [interval.inference for interval in runs] == [0, 1]
    assert len({interval.run for interval in runs}) == 2


def test_the_argument_of_run_records_this_run_only(runtime: Runtime) -> None:
    model, profile = model_on(runtime), ip.Profile()
    model.run([X])
    model.run([X], profile=profile)
    model.run([X])
    model.run([X], profile=profile, deadline=60)
    assert [item.inference for item in profile.recording.intervals if item.site.category is Category.RUN] == [0, 1]
    assert [item.count for item in profile.layers()] == [2] * 5


def test_the_argument_of_run_must_be_a_profile(runtime: Runtime) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        model_on(runtime).run([X], profile="trace.json")  # type: ignore[arg-type]
    assert str(refused.value).startswith("the profile must be a Profile, such as interposer.profile()")


def test_the_layers_are_listed_with_their_times_work_and_backend(runtime: Runtime) -> None:
    model = model_on(runtime)
    with ip.profile() as profile:
        for _ in range(4):
            model.run([X])
    layers = {layer.name: layer for layer in profile.layers()}
    assert [layer.total for layer in profile.layers()] == sorted(
        (layer.total for layer in layers.values()), reverse=True
    )
    first = layers["first"]
    assert (first.site.backend, first.site.kind, first.site.bytes, first.site.flops) == ("Sums", "Addition", 48, 18)
    assert first.count == 4
    assert first.least <= first.median <= first.most <= first.total
    assert first.site.partition != layers["middle"].site.partition != layers["last"].site.partition
    described = first.to_dict()
    assert described["total_us"] == first.total / 1000
    assert described["network"] == "three"
    table = str(profile).splitlines()
    assert table[0].split() == ["layer", "operator", "backend", "count", "median", "us", "total", "us", "share"]
    assert len(table) == 1 + len(layers)


def test_memory_is_sampled_when_it_is_acquired_and_released(runtime: Runtime) -> None:
    with ip.profile() as profile:
        model = model_on(runtime)
        model.run([X])
        with ip.profile() as later:
            pass
        model.close()
    values = [sample.value for sample in profile.recording.samples if sample.counter.name == "three: arena of Sums"]
    assert values[0] > 0
    assert values[-1] == 0
    assert [sample.value for sample in later.recording.samples] == [values[0]]
    assert {sample.counter.units for sample in profile.recording.samples} == {"bytes"}


# --- tracks -----------------------------------------------------------------------------------------------------------


def test_intervals_that_overlap_are_on_different_tracks_and_nested_ones_on_the_same() -> None:
    site = Site(Category.KERNEL, "k", backend="B")
    spans = [(0, 100), (10, 90), (20, 5000), (90, 100), (5000, 6000)]
    line = timeline(Recording(tuple(Interval(site, begin, end, 7) for begin, end in spans), threads={7: "main"}))
    times = {(track.group, track.name): [(slice.begin, slice.end) for slice in track.slices] for track in line.tracks}
    first = [(0, 100), (10, 90), (20, 90), (90, 100), (5000, 6000)]
    assert times[THREADS, "main"][:2] == first[:2]
    assert times[THREADS, "main (2)"] == [(20, 5000)]
    assert times[BACKENDS, "B (2)"] == [(20, 5000)]


def test_an_interval_that_is_a_clock_reading_too_long_ends_with_the_one_around_it() -> None:
    site = Site(Category.USER, "u")
    spans = [(0, 100), (50, 100 + 900)]
    line = timeline(Recording(tuple(Interval(site, begin, end, 7) for begin, end in spans)))
    [track] = line.tracks
    assert [(slice.begin, slice.end) for slice in track.slices] == [(0, 100), (50, 100)]
    assert track.name == "thread 7"


def test_flows_follow_tensors_that_cross_backends_in_every_run(runtime: Runtime) -> None:
    model = model_on(runtime)
    with ip.profile() as profile:
        for _ in range(3):
            model.run([X])
    ways = Counter(
        (flow.source.interval.site.kind, flow.target.interval.site.kind)
        for flow in timeline(profile.recording).flows
        if flow.source.interval.run == flow.target.interval.run and flow.source.end <= flow.target.end
    )
    assert ways == {
        ("Addition", "MemCopy"): 3,
        ("MemCopy", "Activation"): 3,
        ("Activation", "MemCopy"): 3,
        ("MemCopy", "Addition"): 3,
    }


# --- Chrome -----------------------------------------------------------------------------------------------------------


def test_the_chrome_trace_has_all_events_in_microseconds_since_the_first(runtime: Runtime) -> None:
    with ip.profile() as profile:
        model = model_on(runtime)
        model.run([X])
        instant(Category.USER, "now")
    recording = profile.recording
    slices = events_of(profile, "X")
    threads = [event for event in slices if event["pid"] == 1]
    assert len(threads) == len(recording.intervals)
    assert min(event["ts"] for event in slices) >= 0
    [run] = [event for event in slices if event["cat"] == "run"]
    [original] = [event for event in recording.intervals if event.site.category is Category.RUN]
    assert run["dur"] == pytest.approx(original.duration / 1000)
    assert run["args"]["inference"] == 0
    [middle] = [event for event in threads if event["name"] == "middle"]
    assert middle["args"]["backend"] == "Device"
    assert middle["args"]["sources"] if "sources" in middle["args"] else middle["args"]["kind"] == "Activation"
    *memory, moment = events_of(profile, "i")
    assert {event["cat"] for event in memory} == {"memory"}
    assert moment["name"] == "now"
    starts, ends = events_of(profile, "s"), events_of(profile, "f")
    assert sorted(event["id"] for event in starts) == sorted(event["id"] for event in ends) == [1, 2, 3, 4]
    assert all(event["args"].keys() == {"bytes"} for event in events_of(profile, "C"))
    names = {event["args"]["name"] for event in events_of(profile, "M") if event["name"] == "thread_name"}
    assert {"MainThread", "Device", "Sums"} <= names


def test_an_empty_profile_is_a_valid_trace() -> None:
    assert json.loads(chrome_trace(Recording()))["traceEvents"] == []
    assert perfetto_trace(Recording())


# --- Perfetto ---------------------------------------------------------------------------------------------------------


def parsed(data: bytes) -> Any:
    """Return the packets of a trace, read by the classes that Perfetto publishes."""
    protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="needs perfetto")
    trace = protos.Trace()
    assert trace.ParseFromString(data) == len(data)
    return trace.packet


def test_the_perfetto_trace_has_the_same_events_and_every_slice_ends_inside_its_parent(runtime: Runtime) -> None:
    with ip.profile() as profile:
        model = model_on(runtime)
        for _ in range(3):
            model.run([X])
        instant(Category.USER, "now")
    packets = parsed(perfetto_trace(profile.recording))
    tracks = {
        item.track_descriptor.uuid: item.track_descriptor for item in packets if item.HasField("track_descriptor")
    }
    stacks: dict[int, list[int]] = {}
    counts: Counter[int] = Counter()
    previous = 0
    for packet in packets:
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        counts[event.type] += 1
        assert packet.timestamp_clock_id == 3
        assert packet.timestamp >= previous
        previous = packet.timestamp
        assert event.track_uuid in tracks
        stack = stacks.setdefault(event.track_uuid, [])
        if event.type == 1:
            stack.append(packet.timestamp)
        elif event.type == 2:
            assert stack.pop() <= packet.timestamp
    assert not any(stacks.values())
    line = timeline(profile.recording)
    total = sum(len(track.slices) for track in line.tracks)
    assert counts == {1: total, 2: total, 3: len(line.instants), 4: len(line.samples)}
    parents = {item.parent_uuid for item in tracks.values() if item.parent_uuid}
    assert parents <= tracks.keys()


def test_the_perfetto_trace_names_threads_backends_counters_and_facts(runtime: Runtime) -> None:
    with ip.profile() as profile:
        model_on(runtime).run([X])
    packets = parsed(perfetto_trace(profile.recording))
    described = [item.track_descriptor for item in packets if item.HasField("track_descriptor")]
    assert "MainThread" in {item.thread.thread_name for item in described}
    assert {"Backends", "Device", "Sums"} <= {item.name for item in described}
    [arena] = [item for item in described if item.name == "three: arena of Sums"]
    assert arena.counter.unit == 3
    [begin, _] = [item.track_event for item in packets if item.track_event.name == "middle"]
    facts = {item.name: item.string_value or item.int_value for item in begin.debug_annotations}
    assert facts["backend"] == "Device"
    assert facts["bytes"] == 48
    assert facts["run"] >= 0
    assert list(begin.categories) == ["layer"]
    leaving = [number for item in packets for number in item.track_event.flow_ids]
    arriving = [number for item in packets for number in item.track_event.terminating_flow_ids]
    assert sorted(leaving) == sorted(arriving) == [1, 2, 3, 4]


@pytest.mark.parametrize("value", [0, -1, 0.5, 1 << 40, -1e300])
def test_values_names_and_negative_numbers_survive(value: float) -> None:
    site = Site(Category.USER, "Größe\ud800", bytes=-1, details=(("läs", "ßen"),))
    counter = Measure("größe", "µm", backend="B")
    recording = Recording((Interval(site, 5, 9, 7),), (Instant(site, 6, 8),), (Sample(counter, 7, value),))
    packets = parsed(perfetto_trace(recording))
    [sample] = [item.track_event for item in packets if item.track_event.type == 4]
    assert sample.double_counter_value == float(value)
    [begin] = [item.track_event for item in packets if item.track_event.type == 1]
    assert begin.name == "Größe?"
    assert begin.debug_annotations[0].int_value == -1
    json.loads(chrome_trace(recording))


def test_the_clock_is_related_to_the_time_of_day() -> None:
    snapshot = parsed(perfetto_trace(Recording()))[0].clock_snapshot
    clocks = {item.clock_id: item.timestamp for item in snapshot.clocks}
    assert abs(clocks[1] - time.time_ns()) < 60e9
    assert abs(clocks[3] - time.perf_counter_ns()) < 60e9


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t.json", "t.pftrace", "t.perfetto-trace", "T.JSON"])
def test_a_block_writes_the_file_at_its_end_also_if_it_raises(name: str, tmp_path: Path) -> None:
    with pytest.raises(KeyError), ip.profile(tmp_path / name) as profile, interval(Category.USER, "inside"):
        raise KeyError(name)
    data = (tmp_path / name).read_bytes()
    assert b"inside" in data
    profile.save(tmp_path / f"again-{name}")
    assert (tmp_path / f"again-{name}").exists()


@pytest.mark.parametrize("name", ["trace", "trace.txt", "trace.json.gz", ""])
def test_a_suffix_without_a_format_is_refused_before_anything_runs(name: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        ip.profile(name)
    suffixes = ".json, .pftrace, .perfetto-trace, .html"
    assert str(refused.value) == f"a profile is written to a file with the suffix {suffixes}, not {str(Path(name))!r}"


# --- three backends ---------------------------------------------------------------------------------------------------


def test_an_isolated_backend_an_engine_and_a_plain_one_share_a_timeline_with_flows(cpuacc: None) -> None:
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    backends = {"first": "CpuAcc", "middle": "OnnxRuntime", "last": "Sums"}
    with Runtime(CreationOptions(isolate=["CpuAcc"])) as runtime:
        runtime.registry.register("Sums", Sums)
        for name in backends.values():
            if runtime.registry.reason_absent(name) is not None:
                pytest.skip(f"{name}: {runtime.registry.reason_absent(name)}")
        options = OptimizerOptions(hints=backends, rewrite=False)
        with ip.profile() as profile:
            model = ip.load(three_parts(), list(backends.values()), runtime=runtime, options=options)
            for _ in range(3):
                [result] = model.run([X])
    np.testing.assert_array_equal(result, 3 * X)
    packets = parsed(perfetto_trace(profile.recording))
    names = {item.track_descriptor.name for item in packets if item.HasField("track_descriptor")}
    assert set(backends.values()) <= names
    counts = Counter(item.site.backend for item in profile.recording.intervals if item.site.category is Category.LAYER)
    assert counts == dict.fromkeys(backends.values(), 3)
    flows = timeline(profile.recording).flows
    ends = {(flow.source.interval.site.backend, flow.target.interval.site.backend) for flow in flows}
    assert ("OnnxRuntime", "Sums") in ends or ("Sums", "Sums") in ends
    assert len(flows) % 3 == 0
    assert all(flow.source.interval.run == flow.target.interval.run for flow in flows)

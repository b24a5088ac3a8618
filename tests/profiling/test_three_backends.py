"""Traces of networks that are divided among three backends: an isolated one, an engine, and one of this process."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import interposer as ip
from interposer import CreationOptions, Network, OptimizerOptions, Runtime, TensorInfo
from interposer.core.types import Array
from interposer.profiling import Category, Interval, Recording
from interposer.profiling.chrome import chrome_trace
from interposer.profiling.perfetto import perfetto_trace
from interposer.profiling.tracks import BACKENDS, THREADS, timeline
from tests.counting import Counting
from tests.devices import Sums
from tests.isolating import needs_linux

pytestmark = needs_linux
INFO = TensorInfo((2, 3))
X = np.full((2, 3), 1.5, np.float32)
Row = tuple[bool, int, int, int]
"""A layer: whether it multiplies, the numbers of its two inputs among the values before it, and that of its backend."""


@pytest.fixture(scope="module")
def engine() -> str:
    """The first engine that is installed."""
    for name in ("OnnxRuntime", "Torch"):
        if ip.default_runtime().registry.reason_absent(name) is None:
            return name
    pytest.skip("needs onnxruntime or torch")


@pytest.fixture(scope="module")
def runtime(engine: str) -> Iterator[Runtime]:
    with Runtime(CreationOptions(isolate=["Counting"])) as new_runtime:
        new_runtime.registry.register("Counting", Counting)
        new_runtime.registry.register("Sums", Sums)
        yield new_runtime


def network_of(rows: Sequence[Row]) -> Network:
    network = Network("random")
    values = [network.add_input_layer(0, INFO, name="x")]
    for number, (multiplies, first, second, _) in enumerate(rows):
        add = network.add_multiplication_layer if multiplies else network.add_addition_layer
        values.append(add(values[first], values[second], name=f"layer{number}"))
    for number, position in enumerate(unused(rows)):
        network.add_output_layer(number, values[position], name=f"y{number}")
    return network


def unused(rows: Sequence[Row]) -> list[int]:
    """Return the numbers of the values that no layer reads."""
    used = {number for _, first, second, _ in rows for number in (first, second)}
    return [number for number in range(1, len(rows) + 1) if number not in used]


def computed(rows: Sequence[Row]) -> list[Array]:
    values = [X]
    for multiplies, first, second, _ in rows:
        values.append(values[first] * values[second] if multiplies else values[first] + values[second])
    return [values[number] for number in unused(rows)]


def recorded(rows: Sequence[Row], runtime: Runtime, engine: str, runs: int = 2) -> tuple[Recording, int]:
    """Return the recording of some runs, and the number of layers that ran in each."""
    backends = ("Counting", engine, "Sums")
    hints = {f"layer{number}": backends[row[3]] for number, row in enumerate(rows)}
    options = OptimizerOptions(hints=hints, rewrite=False)
    with ip.profile() as profile:
        model = ip.load(network_of(rows), backends, runtime=runtime, options=options, fallback=False)
        count = len(runtime._loaded(runtime.loaded_networks[-1]).steps)
        for _ in range(runs):
            for output, expected in zip(model.run([X]), computed(rows), strict=True):
                np.testing.assert_allclose(output, expected, rtol=1e-5)
        model.close()
    assert profile.lost == 0
    return profile.recording, count


def of(recording: Recording, *categories: Category) -> list[Interval]:
    return [interval for interval in recording.intervals if interval.site.category in categories and interval.run >= 0]


def check_nesting(recording: Recording) -> None:
    """Check that all is inside of its run, and that steps are inside of their layers."""
    runs = {interval.run: interval for interval in of(recording, Category.RUN)}
    layers: dict[tuple[int, str], list[Interval]] = {}
    for interval in of(recording, Category.LAYER, Category.COPY):
        assert runs[interval.run].begin <= interval.begin <= interval.end <= runs[interval.run].end
        layers.setdefault((interval.run, interval.site.backend), []).append(interval)
    for interval in of(recording, Category.KERNEL):
        if not interval.site.device:
            around = layers[interval.run, interval.site.backend]
            assert any(layer.begin <= interval.begin and interval.end <= layer.end for layer in around)
    for track in timeline(recording).tracks:
        path: list[int] = []
        for part in track.slices:
            while path and path[-1] <= part.begin:
                path.pop()
            assert not path or part.end <= path[-1]
            path.append(part.end)


def check_flows(recording: Recording) -> int:
    """Check that a flow goes along every tensor that crosses, and along no other; return their number."""
    sites = {
        (interval.run, interval.site.layer): interval.site for interval in of(recording, Category.LAYER, Category.COPY)
    }
    expected = {
        (run, name, site.layer)
        for (run, _), site in sites.items()
        for name in site.sources
        if (run, name) in sites
        and (sites[run, name].backend != site.backend or Category.COPY in (site.category, sites[run, name].category))
    }
    flows = timeline(recording).flows
    found = [
        (flow.source.interval.run, flow.source.interval.site.layer, flow.target.interval.site.layer) for flow in flows
    ]
    assert Counter(found) == Counter(expected)
    for flow in flows:
        assert flow.source.interval.run == flow.target.interval.run
        assert flow.source.begin <= flow.target.begin
        assert flow.number in flow.source.leaving
        assert flow.number in flow.target.arriving
    return len(flows)


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    rows_of_runs: list[Row] = []
    for number in range(draw(st.integers(1, 10))):
        inputs = st.integers(0, number)
        rows_of_runs.append((draw(st.booleans()), draw(inputs), draw(inputs), draw(st.integers(0, 2))))
    return rows_of_runs


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(rows=rows())
def test_in_random_divisions_all_is_nested_and_every_crossing_tensor_has_a_flow(
    rows: list[Row], runtime: Runtime, engine: str
) -> None:
    check(rows, runtime, engine)


@pytest.mark.slow
@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(rows=rows())
def test_in_many_random_divisions_all_is_nested_and_every_crossing_tensor_has_a_flow(
    rows: list[Row], runtime: Runtime, engine: str
) -> None:
    check(rows, runtime, engine)


def check(rows: list[Row], runtime: Runtime, engine: str) -> None:
    recording, count = recorded(rows, runtime, engine)
    layers = [interval for interval in of(recording, Category.LAYER, Category.COPY) if interval.site.layer]
    assert len(layers) == 2 * count
    assert Counter(interval.site.layer for interval in layers) == dict.fromkeys(
        [interval.site.layer for interval in layers], 2
    )
    check_nesting(recording)
    check_flows(recording)


BRANCHES: list[list[Row]] = [
    [*[(False, 0, 0, 0)] * 3, (False, 1, 3, 1), *[(False, 0, 0, 0)] * 3, (False, 0, 0, 2), (False, 0, 6, 2)],
    [(False, 0, 0, 0), (False, 0, 1, 0), *[(False, 0, 0, 0)] * 2, (False, 2, 0, 2), (True, 2, 0, 1)],
]
"""Networks of which two branches read different layers of the isolated backend at the same time."""


@pytest.mark.parametrize("rows", BRANCHES, ids=["two readers", "one tensor"])
def test_branches_of_one_run_wait_for_the_layers_of_the_child(rows: list[Row], runtime: Runtime, engine: str) -> None:
    for _ in range(5):
        check(rows, runtime, engine)


CHAIN: list[Row] = [(False, 0, 0, 0), (True, 1, 1, 1), (False, 2, 1, 2), (True, 3, 2, 1), (False, 4, 0, 0)]
"""Layers on the isolated backend, the engine, the plain one, the engine and the isolated one again."""


def test_a_perfetto_trace_of_three_backends_has_their_tracks_and_flows(runtime: Runtime, engine: str) -> None:
    protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="needs perfetto")
    recording, _ = recorded(CHAIN, runtime, engine, 3)
    check_nesting(recording)
    number = check_flows(recording)
    assert number >= 3 * 5
    trace = protos.Trace()
    trace.ParseFromString(perfetto_trace(recording))
    described = {
        item.track_descriptor.uuid: item.track_descriptor for item in trace.packet if item.HasField("track_descriptor")
    }
    assert {"Counting", engine, "Sums", "unit 0"} <= {item.name for item in described.values()}
    [child] = {item.process for item in recording.foreign.values()}
    processes = {item.process.pid: item.process.process_name for item in described.values() if item.HasField("process")}
    assert processes[child] == "child process of Counting"
    threads = {item.uuid: item.thread for item in described.values() if item.HasField("thread")}
    assert {(item.pid == child, item.thread_name) for item in threads.values()} >= {
        (True, "MainThread"), (False, "MainThread"),
    }  # fmt: skip
    begun = [item for item in trace.packet if item.track_event.type == 1]
    line = timeline(recording)
    assert len(begun) == sum(len(track.slices) for track in line.tracks)
    own = {uuid for uuid, thread in threads.items() if thread.pid == child}
    on_child = Counter(item.track_event.name for item in begun if item.track_event.track_uuid in own)
    assert on_child["layer0"] == on_child["layer4"] == 3
    assert on_child["add call"] == 6
    leaving = Counter(flow for item in trace.packet for flow in item.track_event.flow_ids)
    arriving = Counter(flow for item in trace.packet for flow in item.track_event.terminating_flow_ids)
    assert leaving == arriving == Counter(range(1, number + 1))
    check_stacks(trace.packet, described.keys())


def check_stacks(packets: Any, tracks: Any) -> None:
    stacks: dict[int, list[int]] = {}
    for packet in packets:
        event = packet.track_event
        if packet.HasField("track_event") and event.type in (1, 2):
            assert event.track_uuid in tracks
            stack = stacks.setdefault(event.track_uuid, [])
            if event.type == 1:
                stack.append(packet.timestamp)
            else:
                assert stack.pop() <= packet.timestamp
    assert not any(stacks.values())


def test_a_chrome_trace_of_three_backends_has_the_same_events_and_flows(runtime: Runtime, engine: str) -> None:
    recording, _ = recorded(CHAIN, runtime, engine, 3)
    events = json.loads(chrome_trace(recording))["traceEvents"]
    line = timeline(recording)
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == sum(len(track.slices) for track in line.tracks)
    starts, ends = ({event["id"]: event for event in events if event["ph"] == phase} for phase in "sf")
    assert starts.keys() == ends.keys() == set(range(1, check_flows(recording) + 1))
    assert all(starts[number]["ts"] <= ends[number]["ts"] for number in starts)
    for event in (*starts.values(), *ends.values()):
        track = event["pid"], event["tid"]
        around = [(part["ts"], part["ts"] + part["dur"]) for part in slices if (part["pid"], part["tid"]) == track]
        assert any(begin <= event["ts"] + 0.001 and event["ts"] <= end + 0.001 for begin, end in around)
    groups = {track.group for track in line.tracks}
    assert groups >= {THREADS, BACKENDS, "Devices"}
    kernels = [event for event in slices if event["cat"] == "kernel"]
    assert {event["args"]["backend"] for event in kernels} == {"Counting", engine}

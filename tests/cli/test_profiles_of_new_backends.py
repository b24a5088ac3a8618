"""What a project of ``new-backend`` measures is in every form of a profile: its intervals and both of its counters."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer import include
from interposer.cli.main import main
from interposer.profiling import Category, CounterClass, ExternalProfilingOptions, OpenTelemetry, Profile
from interposer.profiling.comparison import compare_counters, compare_profiles
from interposer.profiling.external.collector import Collector, Orders, Session
from tests.native import Natives, install_plugin

pytestmark = pytest.mark.usefixtures("warm_python")
RUNS = 5
ELEMENTS = RUNS * 2 * 3
DEVICE = "Npu 0"
BINDING = include.path() / "interposer" / "backend.rs"
Opened = Callable[..., ip.Model]
LANGUAGES = {"c": "c", "cpp": "c++", "rust": "rust"}


def sums() -> ip.Network:
    """Return the network (x + 1) + x."""
    network = ip.Network("sums")
    x = network.add_input_layer(0, ip.TensorInfo((3,)), name="x")
    more = network.add_addition_layer(x, network.add_constant_layer(np.float32([1, 1, 1])), name="more")
    network.add_output_layer(0, network.add_addition_layer(more, x, name="last"), name="y")
    return network


def project(language: str, folder: Path) -> Path:
    assert main(["new-backend", "Npu", "--lang", language, "--folder", str(folder)]) == 0
    return folder


def source(language: str, folder: Path) -> str:
    """Return the source of a native project as one text, with the file of the measurements inserted."""
    if language == "rust":
        text = (folder / "src" / "lib.rs").read_text()
        text = text.replace("mod profiling;", f"mod profiling {{\n{(folder / 'src' / 'profiling.rs').read_text()}}}")
        return text.replace("//!", "//").replace("mod interposer;", f'#[path = "{BINDING}"]\nmod interposer;')
    suffix = {"c": "", "cpp": "pp"}[language]
    text = (folder / "src" / f"backend.{language}").read_text()
    header = (folder / "src" / f"profiling.h{suffix}").read_text()
    return text.replace(f'#include "profiling.h{suffix}"', header.replace("#pragma once", ""))


@pytest.fixture(params=["c", "cpp", "rust", "python"])
def opened(
    request: pytest.FixtureRequest,
    natives: Natives,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Opened]:
    """Return a function that loads the network on the new backend, in a runtime with these options."""
    folder = project(request.param, tmp_path / "project")
    native = request.param in LANGUAGES
    if native:
        if not sys.platform.startswith("linux"):
            pytest.skip("dynamic backends are only for Linux")
        flags = [] if request.param == "rust" else ["-Wpedantic"]
        library = natives.compiled(source(request.param, folder), *flags, language=LANGUAGES[request.param])
        install_plugin(library, tmp_path / "plugins", "Local_Npu_backend.so")
    monkeypatch.syspath_prepend(str(folder))
    runtimes: list[ip.Runtime] = []

    def opened(**options: object) -> ip.Model:
        path = tmp_path / "plugins" if native else None
        runtimes.append(ip.Runtime(ip.CreationOptions(dynamic_backends_path=path, **options)))
        if request.param == "python":
            runtimes[-1].registry.register("Npu", importlib.import_module("npu_backend").NpuBackend)
        return ip.load(sums(), ["Npu"], runtime=runtimes[-1])

    yield opened
    for runtime in runtimes:
        runtime.close()
    for name in [name for name in sys.modules if name.partition(".")[0] == "npu_backend"]:
        del sys.modules[name]


def until(holds: Callable[[], bool]) -> None:
    """Wait until the function returns True."""
    end = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def selected(session: Session) -> int:
    """The number of counters that the program has said to send."""
    selection = session.stream.selection
    return 0 if selection is None else len(selection.counters)


def recorded(model: ip.Model) -> Profile:
    with ip.profile() as profile:
        for _ in range(RUNS):
            assert model.run([[1, 2, 3]])[0].tolist() == [3, 5, 7]
    return profile


@pytest.fixture
def profile(opened: Opened) -> Profile:
    return recorded(opened())


def test_the_profile_has_both_counters_and_an_interval_for_each_addition_in_its_layer(profile: Profile) -> None:
    steps = [item for item in profile.recording.intervals if item.site.device == DEVICE]
    layers = [item for item in profile.recording.intervals if item.site.category is Category.LAYER]
    assert len(steps) == RUNS * 2
    for step in steps:
        assert sum(layer.begin <= step.begin <= step.end <= layer.end for layer in layers) == 1
        assert (step.site.name, step.site.backend, step.site.bytes, step.site.flops) == ("add", "Npu", 36, 3)
    [times] = profile.steps()
    assert (times.name, times.count) == ("add", RUNS * 2)
    added, bandwidth = (item for item in profile.counters() if item.counter.backend == "Npu")
    assert (added.counter.name, added.counter.units, added.counter.kind, added.value) == (
        "elements added", "elements", CounterClass.EVENT, ELEMENTS,
    )  # fmt: skip
    assert (bandwidth.counter.units, bandwidth.counter.kind, bandwidth.counter.device) == (
        "MB/s", CounterClass.RATE, DEVICE,
    )  # fmt: skip
    assert bandwidth.value > 0


def test_nothing_is_measured_before_and_after_a_profile(opened: Opened) -> None:
    model = opened()
    model.run([[1, 2, 3]])
    recorded(model)
    model.run([[1, 2, 3]])
    [added, _] = (item for item in recorded(model).counters() if item.counter.backend == "Npu")
    assert added.value == ELEMENTS


def test_the_text_has_tables_of_the_steps_and_counters(profile: Profile) -> None:
    lines = [line.split() for line in str(profile).splitlines()]
    assert ["add", "Npu", "0", "Npu", str(RUNS * 2)] in [line[:5] for line in lines]
    assert ["elements", "added", "event", "Npu"] in [line[:4] for line in lines]
    assert [str(ELEMENTS), "elements"] in [line[-2:] for line in lines]
    assert ["bandwidth", "rate", "Npu"] in [line[:3] for line in lines]


def test_traces_have_the_track_of_the_device_and_those_of_the_counters(profile: Profile, tmp_path: Path) -> None:
    profile.save(tmp_path / "t.json")
    trace = json.loads((tmp_path / "t.json").read_text())
    events = trace["traceEvents"]
    [track] = [event["tid"] for event in events if event["ph"] == "M" and event["args"]["name"] == DEVICE]
    assert sum(event["ph"] == "X" and event["tid"] == track for event in events) == RUNS * 2
    samples = [event for event in events if event["ph"] == "C" and event["name"] == "Npu elements added"]
    assert sum(event["args"]["elements"] for event in samples) == ELEMENTS
    bandwidth = [event for event in events if event["ph"] == "C" and event["name"] == "Npu bandwidth"]
    assert bandwidth[0]["args"].keys() == {"MB/s"}
    assert {"Npu elements added": "event", "Npu bandwidth": "rate"}.items() <= {
        event["name"]: event["class"] for event in trace["otherData"]["counters"]
    }.items()


def test_perfettos_trace_has_them_as_well(profile: Profile, tmp_path: Path) -> None:
    protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="needs perfetto")
    profile.save(tmp_path / "t.pftrace")
    trace = protos.Trace()
    trace.ParseFromString((tmp_path / "t.pftrace").read_bytes())
    tracks = {
        item.track_descriptor.name: item.track_descriptor for item in trace.packet if item.HasField("track_descriptor")
    }
    assert tracks["Npu elements added"].counter.unit_name == "elements"
    assert tracks["Npu bandwidth"].counter.unit_name == "MB/s"
    events = [item.track_event for item in trace.packet if item.HasField("track_event")]
    on_device = [item for item in events if item.track_uuid == tracks[DEVICE].uuid and item.name == "add"]
    assert len(on_device) == RUNS * 2
    added = [item for item in events if item.track_uuid == tracks["Npu elements added"].uuid]
    assert sum(item.double_counter_value for item in added) == ELEMENTS


def test_the_page_has_the_steps_the_track_and_both_counters(profile: Profile, tmp_path: Path) -> None:
    profile.save(tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    [step] = [row for row in data["rows"] if row["what"] == "step"]
    assert (step["name"], step["device"], step["count"]) == ("add", DEVICE, RUNS * 2)
    [track] = [item for item in data["tracks"] if item["name"] == DEVICE]
    assert len(track["slices"]) == RUNS * 2 * 5
    counters = {item["name"]: item for item in data["counters"] if item["backend"] == "Npu"}
    assert (counters["elements added"]["value"], counters["bandwidth"]["units"]) == (ELEMENTS, "MB/s")


def test_a_collector_gets_the_counters_and_the_steps(
    opened: Opened, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, stored = str(tmp_path / "socket"), tmp_path / "raw.bin"
    with Collector(path, Orders(10_000), keep=True) as collector:
        options = ExternalProfilingOptions(True, timeline_enabled=True, socket=path)
        model = opened(profiling=options)
        until(lambda: [selected(session) for session in collector.sessions] == [7])
        for _ in range(RUNS):
            model.run([[1, 2, 3]])
        model.runtime.close()
        assert collector.wait(300, clients=1)
    [session] = collector.sessions
    names = {item.number: (item.name, item.units) for item in session.stream.directory.counters()}
    assert {("elements added", "elements"), ("bandwidth", "MB_s")} <= set(names.values())
    assert {(item.name, item.device, item.backend) for item in session.stream.steps()} == {("add", DEVICE, "Npu")}
    assert len(list(session.stream.steps())) == RUNS * 2
    captured = [pair for item in session.stream.captures for pair in item.values]
    [number] = [key for key, (name, _) in names.items() if name == "elements added"]
    assert sum(value for key, value in captured if key == number) == ELEMENTS
    stored.write_bytes(session.data)
    assert main(["profile", str(stored)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["add", "Npu", "0", "Npu", str(RUNS * 2)] in [line[:5] for line in lines]
    assert "bandwidth" in {word for line in lines for word in line}


def test_opentelemetry_gets_the_counters_and_the_layers(opened: Opened) -> None:
    metrics = pytest.importorskip("opentelemetry.sdk.metrics", reason="needs opentelemetry-sdk")
    exported = importlib.import_module("opentelemetry.sdk.metrics.export")
    trace = importlib.import_module("opentelemetry.sdk.trace")
    spans = importlib.import_module("opentelemetry.sdk.trace.export")
    memory = importlib.import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    reader, exporter, tracers = exported.InMemoryMetricReader(), memory.InMemorySpanExporter(), trace.TracerProvider()
    tracers.add_span_processor(spans.SimpleSpanProcessor(exporter))
    model = opened()
    with OpenTelemetry(layers=True, tracer_provider=tracers, meter_provider=metrics.MeterProvider([reader])):
        for _ in range(RUNS):
            model.run([[1, 2, 3]])
    [resource] = reader.get_metrics_data().resource_metrics
    found = {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
    added, bandwidth = (found[f"interposer.backend.{name}"] for name in ("elements_added", "bandwidth"))
    assert (added.unit, sum(point.value for point in added.data.data_points)) == ("{elements}", ELEMENTS)
    assert (bandwidth.unit, bandwidth.data.data_points[0].attributes["interposer.device"]) == ("{MB/s}", DEVICE)
    names = [span.name for span in exporter.get_finished_spans()]
    assert names.count("run sums") == RUNS
    layers = {name for name in names if name.startswith("layer ")}  # the two, or the part that is compiled from both
    assert layers in ({"layer more", "layer last"}, {"layer PreCompiled:more"})
    assert {names.count(name) for name in layers} == {RUNS}


def test_the_comparison_has_the_steps_and_counters(opened: Opened, tmp_path: Path) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file in files:
        recorded(opened()).save(file)
    assert ("add", "step", ("Npu", "Npu")) in [
        (item.layer, item.kind, item.backends) for item in compare_profiles(*files)
    ]
    counters = {item.counter: (item.before, item.after, item.units) for item in compare_counters(*files)}
    assert counters["Npu elements added"] == (ELEMENTS, ELEMENTS, "elements")
    assert "Npu bandwidth" in counters

"""Spans and metrics of OpenTelemetry, read from its SDK."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import MissingDependencyError
from interposer.profiling import OpenTelemetry
from interposer.profiling.events import Counter, CounterClass
from tests.devices import Device, Sums
from tests.profiling.test_backends import Counting
from tests.profiling.test_timelines import three_parts

X = np.ones((2, 3), np.float32)


class Sdk:
    """Providers of the SDK that keep everything in memory."""

    def __init__(self) -> None:
        metrics = pytest.importorskip("opentelemetry.sdk.metrics", reason="needs opentelemetry-sdk")
        exported = pytest.importorskip("opentelemetry.sdk.metrics.export")
        trace = pytest.importorskip("opentelemetry.sdk.trace")
        spans = pytest.importorskip("opentelemetry.sdk.trace.export")
        memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
        self.reader = exported.InMemoryMetricReader()
        self.meters = metrics.MeterProvider([self.reader])
        self.exporter = memory.InMemorySpanExporter()
        self.tracers = trace.TracerProvider()
        self.tracers.add_span_processor(spans.SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> list[Any]:
        return sorted(self.exporter.get_finished_spans(), key=lambda span: (span.start_time, -span.end_time))

    def children(self, parent: Any) -> list[Any]:
        return [span for span in self.spans if span.parent and span.parent.span_id == parent.context.span_id]

    def values(self) -> dict[str, Any]:
        """Return the points of each metric by its name."""
        data = self.reader.get_metrics_data()
        metrics = [m for r in data.resource_metrics for scope in r.scope_metrics for m in scope.metrics] if data else []
        return {metric.name: (metric.unit, list(metric.data.data_points)) for metric in metrics}


@pytest.fixture
def sdk() -> Sdk:
    return Sdk()


@pytest.fixture
def telemetry(sdk: Sdk):
    def telemetry(**options: Any) -> OpenTelemetry:
        return OpenTelemetry(tracer_provider=sdk.tracers, meter_provider=sdk.meters, **options)

    return telemetry


@pytest.fixture
def model() -> Any:
    with ip.Runtime() as runtime:
        runtime.registry.register("Device", Device)
        runtime.registry.register("Sums", Sums)
        yield ip.load(three_parts(), ["Device", "Sums"], runtime=runtime)


def test_a_run_is_a_span_with_its_parts_as_children_at_the_right_time(sdk, telemetry, model) -> None:
    before = time.time_ns()
    with telemetry():
        model.run([X])
    after = time.time_ns()
    [run] = [span for span in sdk.spans if span.parent is None]
    assert run.name == "run three"
    assert before - 1_000_000 <= run.start_time < run.end_time <= after + 1_000_000
    assert run.attributes["interposer.network"] == "three"
    assert run.attributes["interposer.inference"] == 0
    parts = [span for span in sdk.children(run) if span.name.startswith("part ")]
    assert [span.attributes["interposer.backend"] for span in parts] == ["Sums", "Device", "Sums"]
    for span in sdk.children(run):
        assert run.start_time <= span.start_time <= span.end_time <= run.end_time
    assert all(not sdk.children(span) for span in sdk.children(run))
    copies = [span for span in sdk.children(run) if span.name.startswith("copy ")]
    assert {span.attributes["interposer.category"] for span in copies} == {"copy"}


def test_layers_are_children_of_their_parts_if_they_are_requested(sdk, telemetry, model) -> None:
    with telemetry(layers=True):
        model.run([X])
    layers = {span.name: span for span in sdk.spans if span.name.startswith("layer ")}
    assert list(layers) == ["layer first", "layer middle", "layer last"]
    attributes = layers["layer middle"].attributes
    assert (attributes["interposer.backend"], attributes["interposer.operator"]) == ("Device", "Activation")
    parts = {span.context.span_id: span for span in sdk.spans if span.name.startswith("part ")}
    for span in layers.values():
        part = parts[span.parent.span_id]
        assert part.start_time <= span.start_time <= span.end_time <= part.end_time


def test_the_current_span_is_the_parent_of_a_run(sdk, telemetry, model) -> None:
    tracer = sdk.tracers.get_tracer("program")
    with telemetry(), tracer.start_as_current_span("request") as request:
        model.run([X])
        model.run([X])
    runs = [span for span in sdk.spans if span.name == "run three"]
    assert len(runs) == 2
    for span in runs:
        assert span.parent.span_id == request.get_span_context().span_id
        assert span.context.trace_id == request.get_span_context().trace_id
    [ended] = [span for span in sdk.spans if span.name == "request"]
    assert ended.start_time <= runs[0].start_time <= runs[1].end_time <= ended.end_time + 1_000_000


def test_runs_and_memory_are_metrics(sdk, telemetry, model) -> None:
    with telemetry():
        for _ in range(3):
            model.run([X])
    values = sdk.values()
    unit, [point] = values["interposer.run.duration"]
    assert (unit, point.count, dict(point.attributes)) == ("s", 3, {"interposer.network": "three"})
    assert 0 < point.sum < 60
    unit, points = values["interposer.memory"]
    assert unit == "By"
    assert {"three: arena of Sums"} <= {point.attributes["interposer.counter"] for point in points}


def test_counters_of_backends_are_metrics_of_their_class(sdk, telemetry) -> None:
    with ip.Runtime() as runtime:
        runtime.registry.register("Counting", Counting)
        network = ip.Network("sum")
        x = network.add_input_layer(0, ip.TensorInfo((2, 3)), name="x")
        network.add_output_layer(0, network.add_addition_layer(x, x, name="add"), name="y")
        model = ip.load(network, ["Counting"], runtime=runtime)
        with telemetry(layers=True):
            for _ in range(4):
                model.run([X])
    names = {name for name in sdk.values() if name.startswith("interposer.backend.")}
    assert names
    steps = [span for span in sdk.spans if span.attributes.get("interposer.category") == "kernel"]
    assert {span.attributes["interposer.backend"] for span in steps} <= {"Counting"}


@pytest.mark.parametrize(
    ("counter", "value", "name", "unit"),
    [
        (Counter("DMA bytes", "bytes", CounterClass.EVENT, backend="B"), 3, "interposer.backend.dma_bytes", "By"),
        (Counter("größe (µm)", "µm", backend="B", device="D"), 2.5, "interposer.backend.gr_e_m", "{_m}"),
        (Counter("", "", CounterClass.RATE, backend="B"), 1, "interposer.backend.counter", "1"),
        (Counter("x" * 400, "GB/s", CounterClass.RATE, backend="B"), 1, f"interposer.backend.{'x' * 236}", "{GB/s}"),
    ],
)
def test_names_and_units_of_counters_are_valid_for_opentelemetry(counter, value, name, unit, sdk, telemetry) -> None:
    reporter = telemetry()
    reporter.add([counter, 0, value, 0])
    reporter.add([counter, 1, value, 0])
    found_unit, [point] = sdk.values()[name]
    assert (found_unit, point.value) == (unit, value * 2 if counter.kind is CounterClass.EVENT else value)
    assert point.attributes["interposer.backend"] == "B"


def test_nothing_is_reported_after_the_block(sdk, telemetry, model) -> None:
    with telemetry():
        pass
    model.run([X])
    assert sdk.spans == []


def test_an_sdk_that_fails_does_not_stop_a_run(sdk, telemetry, model, caplog) -> None:
    class Failing:
        def get_tracer(self, *args: Any, **kwargs: Any) -> Any:
            return self

        def start_span(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("the exporter is full")

    with OpenTelemetry(tracer_provider=Failing(), meter_provider=sdk.meters):
        for _ in range(3):
            np.testing.assert_array_equal(model.run([X])[0], 3 * X)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "OpenTelemetry could not report; later failures are not logged"
    ]


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingDependencyError) as missing:
        OpenTelemetry()
    assert str(missing.value) == (
        "OpenTelemetry needs the package 'opentelemetry-api': pip install 'interposer-nn[opentelemetry]'"
    )

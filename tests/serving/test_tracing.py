"""Spans of requests in traces, with the SDK of OpenTelemetry."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serving.running import doubler, infer_body, model, running, serving

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the package opentelemetry-sdk is not installed")
for package in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = pytest.mark.needs_cpuref


def test_each_request_has_a_span_below_that_of_its_client():
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with running(serving({"doubler": model(doubler())})) as server:
        server.client.post("/v2/models/doubler/infer", infer_body(), traceparent=parent)
        server.client.post("/v2/models/doubler/infer", infer_body(datatype="INT8"))
    good, bad = exporter.get_finished_spans()
    attributes: Any = good.attributes
    assert (good.name, good.kind.name) == ("infer doubler", "SERVER")
    assert f"{good.context.trace_id:032x}" == parent.split("-")[1]
    assert attributes["interposer.backends"] == ("CpuRef",)
    assert attributes["interposer.batch_size"] == 1
    assert (bad.status.status_code.name, bad.attributes["error.type"]) == ("ERROR", "INVALID_ARGUMENT")

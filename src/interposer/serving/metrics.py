"""Metrics of a server for Prometheus."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Final

from interposer.core.errors import MissingDependencyError
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.served import ServedModel
from interposer.serving.statistics import Timing

__all__ = ["Metrics"]

_SECONDS: Final = (
    1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"


@cache
def _client() -> Any:
    try:
        import prometheus_client.core  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise MissingDependencyError("prometheus-client", "serve", "the server") from None
    return prometheus_client


class Metrics:
    """The metrics of one server: counters and histograms that requests update, and gauges that are read on demand."""

    def __init__(self) -> None:
        client = _client()
        self._registry = client.CollectorRegistry()
        labels = ("model", "version")

        def histogram(name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...] = _SECONDS) -> Any:
            return client.Histogram(f"interposer_{name}", text, labels, buckets=buckets, registry=self._registry)

        self._requests = client.Counter(
            "interposer_requests", "Requests by status code.", (*labels, "protocol", "code"), registry=self._registry
        )
        self._durations = histogram("request_duration_seconds", "From arrival to result.", (*labels, "protocol"))
        self._queue = histogram("queue_duration_seconds", "Wait for a free thread.", labels)
        self._compute = histogram("compute_duration_seconds", "Run of the model.", labels)
        self._batches = histogram("batch_size", "Rows that ran together.", labels, _SIZES)
        self._bound: dict[tuple[int, str], tuple[Any, ...]] = {}

    def refused(self, protocol: str, status: Status) -> None:
        """Count a request for which there was no model or no room; it has no model label, as clients choose names."""
        self._requests.labels("", "", protocol, status.grpc).inc()

    def ended(
        self, served: ServedModel, protocol: str, error: ServingError | None, seconds: float, timing: Timing
    ) -> None:
        """Count a request that has ended."""
        if error is not None:
            self._requests.labels(served.name, served.version, protocol, error.status.grpc).inc()
            return
        requests, durations, queue, compute, batches = self._of(served, protocol)
        requests.inc()
        durations.observe(seconds)
        queue.observe(timing.queue)
        compute.observe(timing.compute)
        batches.observe(timing.batch)

    def _of(self, served: ServedModel, protocol: str) -> tuple[Any, ...]:
        key = id(served), protocol
        result = self._bound.get(key)
        if result is None:
            if len(self._bound) > 1024:  # of models that were loaded again many times
                self._bound.clear()
            names = served.name, served.version
            result = self._bound[key] = (
                self._requests.labels(*names, protocol, "OK"),
                self._durations.labels(*names, protocol),
                self._queue.labels(*names),
                self._compute.labels(*names),
                self._batches.labels(*names),
            )
        return result

    def text(self, served: list[ServedModel]) -> tuple[bytes, str]:
        """Return all metrics in the text format of Prometheus, and its content type.

        `served` are the models that are loaded. If several processes share a folder for their metrics, the counters are
        those of all of them, and the gauges those of the process that answers.
        """
        client = _client()
        gauges = client.CollectorRegistry()
        _add_gauges(client, gauges, served)
        registry = self._registry
        if os.environ.get(_FOLDER):
            from prometheus_client import multiprocess  # noqa: PLC0415 - an optional dependency

            registry = client.CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)
        return client.generate_latest(registry) + gauges_text(client, gauges), client.CONTENT_TYPE_LATEST


def gauges_text(client: Any, registry: Any) -> bytes:
    """Return the gauges of a registry in the text format."""
    result: bytes = client.generate_latest(registry)
    return result


def _add_gauges(client: Any, registry: Any, served: list[ServedModel]) -> None:
    """Add metrics whose values are read when they are asked for."""
    core = client.core
    families = {
        "ready": core.GaugeMetricFamily("interposer_model_ready", "1 for a model that is ready.", labels=_MODEL),
        "flight": core.GaugeMetricFamily("interposer_requests_in_flight", "Requests that run or wait.", labels=_MODEL),
        "memory": core.GaugeMetricFamily("interposer_memory_bytes", "Memory of all models.", labels=("kind",)),
        "events": core.CounterMetricFamily(
            "interposer_backend_events", "Crashes, restarts and other events.", labels=("backend", "event")
        ),
    }
    for item in served:
        families["ready"].add_metric((item.name, item.version), 1)
        families["flight"].add_metric((item.name, item.version), item.in_flight)
    for kind, size in _memory(served).items():
        families["memory"].add_metric((kind,), size)
    for (backend, event), count in _events(served).items():
        families["events"].add_metric((backend, event), count)
    registry.register(_Fixed(list(families.values())))


_MODEL: Final = ("model", "version")


class _Fixed:
    """A collector of metrics that have their values already."""

    def __init__(self, families: list[Any]) -> None:
        self._families = families

    def collect(self) -> list[Any]:
        return self._families


def _memory(served: list[ServedModel]) -> dict[str, int]:
    sizes = {"constants": 0, "mapped_constants": 0, "arenas": 0, "parts": 0}
    for item in served:
        if item.model.is_prepared:
            report = item.model.memory()
            sizes["constants"] += report.constants
            sizes["mapped_constants"] += report.mapped_constants
            sizes["arenas"] += sum(report.arenas.values()) * report.working_memories
            sizes["parts"] += sum(report.parts.values())
    return sizes


def _events(served: list[ServedModel]) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for runtime in {id(item.model.runtime): item.model.runtime for item in served}.values():
        for event in runtime.events:
            key = event.backend, event.kind
            counts[key] = counts.get(key, 0) + 1
    return counts

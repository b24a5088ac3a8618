"""Metrics of a server for Prometheus."""

from __future__ import annotations

import os
from bisect import bisect_left
from functools import cache
from itertools import accumulate
from typing import Any, Final
from weakref import WeakKeyDictionary

from interposer.backend.events import BackendEvent
from interposer.core.errors import MissingDependencyError
from interposer.runtime import Runtime
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.served import ServedModel
from interposer.serving.statistics import FOLDER, Timing
from interposer.serving.triton_metrics import triton_families

__all__ = ["Metrics", "forget_process"]

_SECONDS: Final = (
    1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
_MODEL: Final = ("model", "version")
_TEXTS: Final = {
    "model_ready": "1 for a model that can run, else 0.",
    "requests_in_flight": "Requests that run or wait.",
    "memory_bytes": "Memory of all models.",
}


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

        is_shared = bool(os.environ.get(FOLDER))

        def histogram(name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...] = _SECONDS) -> Any:
            if is_shared:
                return client.Histogram(f"interposer_{name}", text, labels, buckets=buckets, registry=self._registry)
            own = _Histogram(f"interposer_{name}", text, labels, buckets)
            self._registry.register(own)
            return own

        self._requests = client.Counter(
            "interposer_requests", "Requests by status code.", (*labels, "protocol", "code"), registry=self._registry
        )
        self._durations = histogram("request_duration_seconds", "From arrival to result.", (*labels, "protocol"))
        self._queue = histogram("queue_duration_seconds", "Wait for a free thread.", labels)
        self._compute = histogram("compute_duration_seconds", "Run of the model.", labels)
        self._batches = histogram("batch_size", "Rows that ran together.", labels, _SIZES)
        self._bound: dict[tuple[str, str, str], tuple[Any, ...]] = {}
        self._events = client.Counter(
            "interposer_backend_events", "Crashes, restarts and other events.", ("backend", "event"),
            registry=self._registry,
        )  # fmt: skip
        self._last_events: WeakKeyDictionary[Runtime, BackendEvent] = WeakKeyDictionary()
        self._shared = _Shared(client, self._registry) if is_shared else None

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
        key = served.name, served.version, protocol
        children = self._bound.get(key)
        if children is None:
            names = served.name, served.version
            children = self._bound[key] = (
                self._requests.labels(*names, protocol, "OK"),
                self._durations.labels(*names, protocol),
                self._queue.labels(*names),
                self._compute.labels(*names),
                self._batches.labels(*names),
            )
        return children

    def update(self, served: list[ServedModel]) -> None:
        """Count new events of backends, and write the gauges to the folder that several processes share, if any."""
        for runtime in {id(runtime): runtime for model in served for runtime in model.runtimes}.values():
            for event in _new_events(runtime, self._last_events.get(runtime)):
                self._events.labels(event.backend, event.kind).inc()
                self._last_events[runtime] = event
        if self._shared is not None:
            self._shared.update(served)

    def text(self, served: list[ServedModel]) -> tuple[bytes, str]:
        """Return all metrics in the text format of Prometheus, and its content type.

        `served` are the models that are loaded. If several processes share a folder for their metrics, the counters are
        those of all of them, also of those that have died; the gauges are the sums of those that live, and as old as
        the last call of `update` in each of them.
        """
        client = _client()
        self.update(served)
        if self._shared is not None:
            from prometheus_client import multiprocess  # noqa: PLC0415 - an optional dependency

            registry = client.CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)
            registry.register(_Fixed(_families_of_all(client, served)))
            return client.generate_latest(registry), client.CONTENT_TYPE_LATEST
        families = _Fixed([*_families_of_process(client, served), *_families_of_all(client, served)])
        gauges = client.CollectorRegistry()
        gauges.register(families)
        return client.generate_latest(self._registry) + client.generate_latest(gauges), client.CONTENT_TYPE_LATEST


class _Histogram:
    """A histogram of one process. It counts an observation in a tenth of the time that one of the client takes."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> None:
        self._name, self._text, self._labels, self._bounds = name, text, labels, buckets
        self._children: dict[tuple[str, ...], _Observations] = {}

    def labels(self, *values: str) -> _Observations:
        """Return what counts the observations with these values of the labels."""
        return self._children.setdefault(values, _Observations(self._bounds))

    def collect(self) -> list[Any]:
        """Return the metric with all of its labels."""
        family = _client().core.HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for values, observations in self._children.items():
            counts = zip([*map(str, map(float, self._bounds)), "+Inf"], accumulate(observations.counts), strict=True)
            family.add_metric(values, list(counts), observations.total)
        return [family]


class _Observations:
    """How many observations there are between two bounds each, and their sum."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts, self.total = [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Count an observation."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class _Shared:
    """The gauges of one of several processes, in files of the folder that they share."""

    def __init__(self, client: Any, registry: Any) -> None:
        def gauge(name: str, labels: tuple[str, ...], mode: str) -> Any:
            help_text = _TEXTS[name]
            return client.Gauge(f"interposer_{name}", help_text, labels, registry=registry, multiprocess_mode=mode)

        self._ready = gauge("model_ready", _MODEL, "livemin")
        self._memory = gauge("memory_bytes", ("kind",), "livesum")

    def update(self, served: list[ServedModel]) -> None:
        """Write the values of this process."""
        for model in served:
            self._ready.labels(model.name, model.version).set(model.readiness.is_ready)
        for kind, size in _memory(served).items():
            self._memory.labels(kind).set(size)


def forget_process(number: int, folder: str) -> None:
    """Drop the gauges of a process that has died from the folder that several processes share; its counters stay."""
    _client()
    from prometheus_client import multiprocess  # noqa: PLC0415 - an optional dependency

    multiprocess.mark_process_dead(number, folder)


def _gauge(client: Any, name: str, labels: tuple[str, ...]) -> Any:
    return client.core.GaugeMetricFamily(f"interposer_{name}", _TEXTS[name], labels=labels)


def _families_of_process(client: Any, served: list[ServedModel]) -> list[Any]:
    """Return the gauges of one process."""
    ready, memory = _gauge(client, "model_ready", _MODEL), _gauge(client, "memory_bytes", ("kind",))
    for model in served:
        ready.add_metric((model.name, model.version), model.readiness.is_ready)
    for kind, size in _memory(served).items():
        memory.add_metric((kind,), size)
    return [ready, memory]


def _families_of_all(client: Any, served: list[ServedModel]) -> list[Any]:
    """Return the metrics whose values are those of all processes, from the statistics of the models."""
    in_flight = _gauge(client, "requests_in_flight", _MODEL)
    for model in served:
        in_flight.add_metric((model.name, model.version), model.statistics.all_in_flight())
    return [in_flight, *triton_families(client, served)]


class _Fixed:
    """A collector of metrics that have their values already."""

    def __init__(self, families: list[Any]) -> None:
        self._families = families

    def collect(self) -> list[Any]:
        return self._families


def _memory(served: list[ServedModel]) -> dict[str, int]:
    sizes = {"constants": 0, "mapped_constants": 0, "arenas": 0, "parts": 0}
    for model in served:
        if model.model.is_prepared:
            report = model.model.memory()
            sizes["constants"] += report.constants
            sizes["mapped_constants"] += report.mapped_constants
            sizes["arenas"] += sum(report.arenas.values()) * report.working_memories
            sizes["parts"] += sum(report.parts.values())
    return sizes


def _new_events(runtime: Runtime, last_event: BackendEvent | None) -> list[BackendEvent]:
    """Return the events after `last_event`, in their order; a runtime has only its latest events."""
    newest_first: list[BackendEvent] = []
    for event in reversed(runtime.events):
        if event is last_event:
            break
        newest_first.append(event)
    return newest_first[::-1]

"""OpenTelemetry: a span for each run with its parts as children, and metrics, through its API."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Sequence
from itertools import groupby
from types import ModuleType
from typing import Any, Final

from interposer.core.errors import MissingDependencyError
from interposer.profiling.events import Category, Counter, CounterClass, Interval, Site
from interposer.profiling.recorder import Fields, Record, Recorder, Shape, expanded
from interposer.profiling.rows import Rows
from interposer.profiling.summary import is_step

__all__ = ["OpenTelemetry"]

_log: Final = logging.getLogger("interposer.profiling")
_NAME: Final = "interposer"
_UNITS: Final = {"bytes": "By", "%": "%", "seconds": "s", "ns": "ns", "us": "us", "ms": "ms", "cycles": "{cycle}"}
"""Units as UCUM writes them, which OpenTelemetry asks for."""
_LONGEST_NAME: Final = 255


class OpenTelemetry(Recorder):
    """Reports runs as spans and counters as metrics, while it is started or in a ``with`` block.

    The span of a run is a child of the current span of the thread that executes it. Its children are the parts of the
    network that a backend runs without interruption, and copies between them. With `layers`, the layers are children
    of the parts, and the steps that a backend has measured in the run are children of their layers. The span of a run
    that raises has the status ERROR. Errors of the SDK never reach a run; they are logged. Thread-safe.

    Args:
        layers: whether layers have spans of their own.
        tracer_provider: where spans go; None for the global provider.
        meter_provider: where metrics go; None for the global provider.

    Raises:
        MissingDependencyError: the package opentelemetry-api is not installed.
    """

    def __init__(self, *, layers: bool = False, tracer_provider: Any = None, meter_provider: Any = None) -> None:
        super().__init__()
        self._trace, metrics = _modules()
        self._tracer = self._trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        self._metrics = _Metrics(metrics.get_meter(_NAME, meter_provider=meter_provider))
        self._layers = layers
        self._has_failed = False

    def add_record(self, shape: Shape, record: Record, fields: Fields) -> None:
        """Take a whole run, as `add` does."""
        _, thread, run, inference, *times = record
        self.add([*shape.fields(times, thread), *fields], run, inference)

    def add(self, fields: Fields | Rows, run: int = -1, inference: int = -1) -> None:
        """Report the run or the value of a counter that a recorder gets; steps outside of runs are left out."""
        if isinstance(fields, Rows):
            return
        try:
            if run >= 0:
                self._report_run(expanded(fields, run, inference), _error_of(fields))
            for subject, value in zip(fields[::4], fields[2::4], strict=True):
                if isinstance(subject, Counter):
                    self._metrics.sample(subject, value)
        except Exception:  # the run goes on
            if not self._has_failed:
                _log.exception("OpenTelemetry could not report; later failures are not logged")
            self._has_failed = True

    def _report_run(self, intervals: Sequence[Interval], error: str | None) -> None:
        run = next((interval for interval in intervals if interval.site.category is Category.RUN), None)
        if run is None:
            return
        offset = time.time_ns() - time.perf_counter_ns()
        name = "" if run.site.network is None else run.site.network.name
        self._metrics.run(name, run.duration)
        span = self._span(f"run {name}".rstrip(), run, None, offset)
        layers = [interval for interval in intervals if interval.site.layer and not is_step(interval)]
        layers.sort(key=lambda layer: (layer.begin, layer.end))
        steps = [interval for interval in intervals if is_step(interval)] if self._layers else []
        for (partition, backend, category), group in groupby(layers, _part):
            self._report_part(partition, backend, category, list(group), steps, span, offset)
        if error is not None:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, error))
        span.end(end_time=run.end + offset)

    def _report_part(
        self,
        partition: str,
        backend: str,
        category: Category,
        layers: Sequence[Interval],
        steps: Sequence[Interval],
        run: Any,
        offset: int,
    ) -> None:
        first_layer = layers[0]
        site = Site(
            category, partition or backend, network=first_layer.site.network, partition=partition, backend=backend
        )
        end = max(interval.end for interval in layers)
        part = Interval(site, first_layer.begin, end, first_layer.thread, first_layer.run, first_layer.inference)
        copy = f"copy {first_layer.site.name}"
        span = self._span(copy if category is Category.COPY else f"part {site.name}", part, run, offset)
        for interval in layers if self._layers and category is not Category.COPY else ():
            layer = self._span(f"layer {interval.site.name}", interval, span, offset)
            for step in steps:
                if step.site.backend == backend and interval.begin <= step.begin and step.end <= interval.end:
                    self._span(step.site.name, step, layer, offset).end(end_time=step.end + offset)
            layer.end(end_time=interval.end + offset)
        span.end(end_time=end + offset)

    def _span(self, name: str, interval: Interval, parent: Any, offset: int) -> Any:
        context = None if parent is None else self._trace.set_span_in_context(parent)
        return self._tracer.start_span(
            name, context=context, attributes=_attributes(interval), start_time=interval.begin + offset
        )


def _modules() -> tuple[ModuleType, ModuleType]:
    try:
        from opentelemetry import metrics, trace  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise MissingDependencyError("opentelemetry-api", "opentelemetry", "OpenTelemetry") from error
    return trace, metrics


def _error_of(fields: Fields) -> str | None:
    """Return the error with which the run of these events failed, or None."""
    sites = zip(fields[::4], fields[2::4], strict=True)
    failures = (site for site, end in sites if end is None and site.category is Category.RUN)
    return next((dict(site.details)["error"] for site in failures), None)


def _part(interval: Interval) -> tuple[str, str, Category]:
    return interval.site.partition or interval.site.layer, interval.site.backend, interval.site.category


def _attributes(interval: Interval) -> dict[str, Any]:
    site = interval.site
    facts: dict[str, Any] = {
        "interposer.network": None if site.network is None else site.network.name,
        "interposer.category": str(site.category),
        "interposer.inference": interval.inference if interval.inference >= 0 else None,
        "interposer.backend": site.backend,
        "interposer.device": site.device,
        "interposer.partition": site.partition,
        "interposer.layer": site.layer,
        "interposer.operator": site.kind,
        "interposer.layers": list(site.layers),
        "interposer.bytes": site.bytes,
        "interposer.operations": site.flops,
        "thread.id": interval.thread or None,
    }
    return {name: value for name, value in facts.items() if value not in (None, "", [])}


class _Metrics:
    """The instruments of a meter, which are created when they are first used. Thread-safe."""

    def __init__(self, meter: Any) -> None:
        self._meter = meter
        self._lock = threading.Lock()
        self._durations = meter.create_histogram("interposer.run.duration", "s", "The time of a run.")
        self._instruments: dict[str, tuple[CounterClass, Any]] = {}

    def run(self, network: str, duration: int) -> None:
        """Record the time of a run in nanoseconds."""
        self._durations.record(duration / 1e9, {"interposer.network": network})

    def sample(self, counter: Counter, value: float) -> None:
        """Record the value of a counter."""
        kind, instrument = self._instrument(counter)
        attributes = _facts(counter)
        if kind is not CounterClass.EVENT:
            instrument.set(value, attributes)
        elif value >= 0:
            instrument.add(value, attributes)

    def _instrument(self, counter: Counter) -> tuple[CounterClass, Any]:
        name, units = _name(counter), _unit(counter)
        with self._lock:
            if name not in self._instruments:
                is_event = counter.kind is CounterClass.EVENT
                create = self._meter.create_counter if is_event else self._meter.create_gauge
                self._instruments[name] = counter.kind, create(name, units, counter.description)
            return self._instruments[name]


def _name(counter: Counter) -> str:
    """Return the name of the instrument of a counter: ASCII letters, digits and ``_.-/``."""
    if not counter.backend:
        return "interposer.memory" if counter.units == "bytes" else f"interposer.{_plain(counter.name)}"
    return f"interposer.backend.{_plain(counter.name)}"[:_LONGEST_NAME]


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.\-/]+", "_", text).strip("_").lower() or "counter"


def _unit(counter: Counter) -> str:
    if counter.units in _UNITS:
        return _UNITS[counter.units]
    unit_text = re.sub(r"[^\x21-\x7e]|[{}]", "_", counter.units)[:61]
    return f"{{{unit_text}}}" if unit_text else "1"


def _facts(counter: Counter) -> dict[str, str]:
    facts = {"interposer.backend": counter.backend, "interposer.device": counter.device}
    facts |= {"interposer.category": counter.category, "interposer.counter": counter.name}
    return {name: value for name, value in facts.items() if value}

"""Spans of requests in traces, through the API of OpenTelemetry if it is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from interposer._version import __version__
from interposer.serving.protocol.errors import ServingError

__all__ = ["is_traced", "request_span"]


@cache
def _api() -> Any:
    """Return the modules ``trace`` and ``propagate`` of the API, or None if it is not installed."""
    try:
        from opentelemetry import propagate, trace  # noqa: PLC0415 - an optional dependency
    except ImportError:
        return None
    return trace, propagate


def is_traced() -> bool:
    """Return True if spans of requests go somewhere: OpenTelemetry is installed, and the program has a provider."""
    api = _api()
    return api is not None and not isinstance(api[0].get_tracer_provider(), api[0].ProxyTracerProvider)


@contextmanager
def request_span(model: str, version: str, protocol: str, carrier: Mapping[str, str]) -> Iterator[Any]:
    """Yield the server span of a request, a child of the span in ``traceparent``; None without OpenTelemetry.

    Args:
        model: the name of the model.
        version: its version.
        protocol: "http" or "grpc".
        carrier: the headers of the request by their names in lower case.
    """
    api = _api()
    if api is None:
        yield None
        return
    trace, propagate = api
    attributes = {"interposer.model": model, "interposer.version": version, "network.protocol.name": protocol}
    with trace.get_tracer("interposer.serving", __version__).start_as_current_span(
        f"infer {model}",
        propagate.extract(carrier),
        trace.SpanKind.SERVER,
        attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except ServingError as error:
            span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))
            span.set_attribute("error.type", error.status.grpc)
            raise

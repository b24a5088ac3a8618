"""The metrics of Triton Inference Server, from the statistics of the models.

The names are the same, without the ending `_total` that Prometheus has for counters, so their type is unknown there.
"""

from __future__ import annotations

from typing import Any, Final

from interposer.serving.served import ServedModel

__all__ = ["triton_families"]

_LABELS: Final = ("model", "version")
_COUNTS: Final = {
    "nv_inference_request_success": ("success", "count", "Requests that got a result."),
    "nv_inference_request_duration_us": ("success", "us", "Time of requests that got a result, the wait included."),
    "nv_inference_queue_duration_us": ("queue", "us", "Time in which requests waited."),
    "nv_inference_compute_input_duration_us": ("compute_input", "us", "Time in which inputs were read."),
    "nv_inference_compute_infer_duration_us": ("compute_infer", "us", "Time in which models ran."),
    "nv_inference_compute_output_duration_us": ("compute_output", "us", "Time in which outputs were written."),
    "nv_cache_num_hits_per_model": ("cache_hit", "count", "Requests whose result was cached."),
    "nv_cache_num_misses_per_model": ("cache_miss", "count", "Requests whose result was not cached."),
    "nv_cache_hit_duration_per_model": ("cache_hit", "us", "Time in which cached results were found."),
    "nv_cache_miss_duration_per_model": ("cache_miss", "us", "Time in which results were sought and cached."),
}
_TOTALS: Final = {
    "nv_inference_count": ("inference_count", "Rows that were computed."),
    "nv_inference_exec_count": ("execution_count", "Runs of models; a batch is one run."),
}


def triton_families(client: Any, served: list[ServedModel]) -> list[Any]:
    """Return the families of metrics for these models; `client` is the module prometheus_client."""
    statistics = [((model.name, model.version), model.statistics.to_dict()) for model in served]
    families = []
    for name, (kind, unit, text) in _COUNTS.items():
        family = client.core.UnknownMetricFamily(name, text, labels=_LABELS)
        for labels, numbers in statistics:
            duration = numbers["inference_stats"][kind]
            family.add_metric(labels, duration["count"] if unit == "count" else duration["ns"] / 1e3)
        families.append(family)
    for name, (key, text) in _TOTALS.items():
        family = client.core.UnknownMetricFamily(name, text, labels=_LABELS)
        for labels, numbers in statistics:
            family.add_metric(labels, numbers[key])
        families.append(family)
    return [*families, _failures(client, statistics), _pending(client, served)]


def _failures(client: Any, statistics: list[tuple[tuple[str, str], dict[str, Any]]]) -> Any:
    family = client.core.UnknownMetricFamily(
        "nv_inference_request_failure", "Requests that got an error.", labels=(*_LABELS, "reason")
    )
    for labels, numbers in statistics:
        for kind, reason in (("fail", "OTHER"), ("cancel", "CANCELED")):
            family.add_metric((*labels, reason), numbers["inference_stats"][kind]["count"])
    return family


def _pending(client: Any, served: list[ServedModel]) -> Any:
    family = client.core.GaugeMetricFamily(
        "nv_inference_pending_request_count", "Requests that run or wait.", labels=_LABELS
    )
    for model in served:
        family.add_metric((model.name, model.version), model.statistics.all_in_flight())
    return family

"""The times of inferences and of workloads, read from the JSON of a profiler."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from interposer import process_registry

if TYPE_CHECKING:
    from pyarmnn import IProfiler

__all__ = ["ProfilerData", "get_profiling_data"]

_PARTS: Final = {"ref": "CpuRef", "neon": "CpuAcc", "cl": "GpuAcc", "ethos": "EthosNAcc"}
"""What the names of Arm NN's workloads contain, and the backend to which they belong; the first match counts."""


class ProfilerData(NamedTuple):
    """Times of the inferences of a network.

    Attributes:
        inference_data: ``{"time_unit": "us", "execution_time": [time of each inference, ...]}``.
        per_workload_execution_data: the same for each workload by its name, with the workload's ``"backend"``.
    """

    inference_data: dict[str, Any]
    per_workload_execution_data: dict[str, dict[str, Any]]


def get_profiling_data(profiler: IProfiler) -> ProfilerData:
    """Return the times that a profiler has measured, one for each inference, in microseconds.

    Args:
        profiler: the profiler of a network, or any object whose method ``as_json()`` returns such a profile.

    Raises:
        KeyError: the profile has no inference: profiling was not enabled, or nothing has run since.
    """
    measurements = json.loads(profiler.as_json())["ArmNN"]["inference_measurements_#1"]
    name = next((name for name, _ in _events(measurements) if name.startswith("Execute_#")), None)
    if name is None:
        raise KeyError("Execute: the profile has no inference")
    execution = measurements[name]
    workloads = {
        workload: {**_times(workload, event), "backend": _backend(workload)} for workload, event in _events(execution)
    }
    return ProfilerData(_times(name, execution), workloads)


def _events(event: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and the content of each event that is directly inside another one."""
    for name, content in event.items():
        if isinstance(content, Mapping) and content.get("type") == "Event":
            yield name, content


def _times(name: str, event: Mapping[str, Any]) -> dict[str, Any]:
    times = event[f"Wall clock time_#{name.rpartition('#')[2]}"]
    return {"time_unit": times["unit"], "execution_time": times["raw"]}


def _backend(workload: str) -> str:
    """Return the backend of a workload, as its name shows it.

    The name starts with the id of the backend, or it contains a part that is typical for one of Arm NN's backends.
    """
    known = next((backend for backend in process_registry() if workload.startswith(backend)), None)
    return known or next((backend for part, backend in _PARTS.items() if part in workload.lower()), "Unknown")

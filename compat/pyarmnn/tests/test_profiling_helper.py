"""`get_profiling_data`, which reads the JSON of a profiler."""

from __future__ import annotations

import json
from typing import Any

import pyarmnn as ann
import pytest

TIMES = [1.1, 2.2, 3.3, 4.4, 5.5, 6.6]


def event(number: int, times: list[float], **inner: Any) -> dict[str, Any]:
    measurement = {"type": "Measurement", "raw": times, "unit": "us"}
    kinds = ("", " (Start)", " (Stop)")
    return {"type": "Event", **{f"Wall clock time{kind}_#{number}": measurement for kind in kinds}, **inner}


class Recorded:
    """A profile that was recorded earlier."""

    def __init__(self, **events: Any) -> None:
        execution = event(4, TIMES, **events)
        inference = event(1, [9.0] * 6, **{"PrepareInputs_#2": event(2, [1.0] * 6), "Execute_#4": execution})
        self.document = {"ArmNN": {"inference_measurements_#1": inference}}

    def as_json(self) -> str:
        return json.dumps(self.document)


def test_the_times_of_inferences_are_those_of_execute():
    data = ann.get_profiling_data(Recorded())
    assert isinstance(data, ann.ProfilerData)
    assert data.inference_data == {"time_unit": "us", "execution_time": TIMES}
    assert data.per_workload_execution_data == {}


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("RefSomeMock1dWorkload_Execute_#5", "CpuRef"),
        ("NeonSomeMock2Workload_Execute_#6", "CpuAcc"),
        ("ClSomeMock3dWorkload_Execute_#7", "GpuAcc"),
        ("EthosNSomeMock4dWorkload_Execute_#8", "EthosNAcc"),
        ("OnnxRuntimeClipWorkload_Execute_#9", "OnnxRuntime"),
        ("CopyMemGeneric_Execute_#10", "Unknown"),
    ],
)
def test_a_workload_has_its_times_and_the_backend_that_its_name_shows(name: str, backend: str):
    recorded = Recorded(**{name: event(int(name.split("#")[1]), [2.0] * 6)})
    assert ann.get_profiling_data(recorded).per_workload_execution_data == {
        name: {"time_unit": "us", "execution_time": [2.0] * 6, "backend": backend}
    }


def test_a_profile_without_inferences_is_refused():
    recorded = Recorded()
    recorded.document["ArmNN"]["inference_measurements_#1"] = {"type": "Event"}
    with pytest.raises(KeyError) as caught:
        ann.get_profiling_data(recorded)
    assert caught.value.args == ("Execute: the profile has no inference",)

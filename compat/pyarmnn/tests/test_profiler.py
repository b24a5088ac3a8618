"""`IProfiler`: the times of a network that was loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pyarmnn as ann
import pytest

from compat.pyarmnn.tests import small_models


class Loaded(NamedTuple):
    """A loaded network with the binding infos of its input and output."""

    runtime: Any
    network_id: int
    input: Any
    output: Any

    def run(self) -> None:
        inputs = ann.make_input_tensors([self.input], [small_models.IMAGE.copy()])
        self.runtime.EnqueueWorkload(self.network_id, inputs, ann.make_output_tensors([self.output]))


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    parser, runtime = ann.ITfLiteParser(), ann.IRuntime(ann.CreationOptions())
    network = parser.CreateNetworkFromBinaryFile(small_models.tflite(tmp_path / "mock.tflite"))
    preferred, options = [ann.BackendId("CpuRef")], ann.OptimizerOptions()
    optimized, _ = ann.Optimize(network, preferred, runtime.GetDeviceSpec(), options)
    network_id, _ = runtime.LoadNetwork(optimized)
    bindings = parser.GetNetworkInputBindingInfo(0, "input_1"), parser.GetNetworkOutputBindingInfo(0, "dense/Softmax")
    return Loaded(runtime, network_id, *bindings)


def test_the_runtime_owns_the_profiler_which_is_disabled_at_first(loaded: Loaded):
    profiler = loaded.runtime.GetProfiler(loaded.network_id)
    assert isinstance(profiler, ann.IProfiler)
    assert (profiler.thisown, profiler.IsProfilingEnabled()) == (False, False)
    profiler.EnableProfiling(True)
    assert loaded.runtime.GetProfiler(loaded.network_id).IsProfilingEnabled()


def test_a_profile_has_a_time_for_each_run_while_it_is_enabled(loaded: Loaded):
    profiler = loaded.runtime.GetProfiler(loaded.network_id)
    for enabled in (False, True, True, False):
        profiler.EnableProfiling(enabled)
        loaded.run()
    data = ann.get_profiling_data(profiler)
    assert len(data.inference_data["execution_time"]) == 2
    assert data.inference_data["time_unit"] == "us"
    workloads = data.per_workload_execution_data
    assert [name.partition("_#")[0] for name in workloads] == [
        "RefReshapeWorkload_Execute", "RefFullyConnectedWorkload_Execute", "RefSoftmaxWorkload_Execute",
    ]  # fmt: skip
    assert {workload["backend"] for workload in workloads.values()} == {"CpuRef"}
    assert {len(workload["execution_time"]) for workload in workloads.values()} == {2}


def test_the_profile_is_json_and_the_event_log_a_table(loaded: Loaded):
    profiler = loaded.runtime.GetProfiler(loaded.network_id)
    profiler.EnableProfiling(True)
    loaded.run()
    assert list(json.loads(profiler.as_json())) == ["ArmNN"]
    log = profiler.event_log()
    assert log.startswith("Event Sequence - Name | Duration (ms) | Start (ms) | Stop (ms) | Device\n")
    assert "EnqueueWorkload" in log


def test_a_profiler_can_be_read_after_its_network_is_unloaded(loaded: Loaded):
    profiler = loaded.runtime.GetProfiler(loaded.network_id)
    profiler.EnableProfiling(True)
    loaded.run()
    loaded.runtime.UnloadNetwork(loaded.network_id)
    assert len(ann.get_profiling_data(profiler).inference_data["execution_time"]) == 1


def test_the_profiler_of_an_unknown_network_is_refused(loaded: Loaded):
    with pytest.raises(RuntimeError) as caught:
        loaded.runtime.GetProfiler(77)
    assert str(caught.value) == "Failed to get profiler"


def test_a_profiler_takes_a_bool_and_programs_cannot_create_one(loaded: Loaded):
    with pytest.raises(TypeError) as caught:
        loaded.runtime.GetProfiler(loaded.network_id).EnableProfiling(1)
    assert str(caught.value) == "in method 'IProfiler_EnableProfiling', argument 2 of type 'bool'"
    with pytest.raises(AttributeError, match="^No constructor defined - class is abstract$"):
        ann.IProfiler()

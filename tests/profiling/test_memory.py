"""The memory of networks in profiles: its bytes over time, and the tensors and layers of its peak."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

import interposer as ip
from interposer import Network, Runtime, TensorInfo
from interposer.ops import ActivationFunction
from interposer.profiling import HeldTensor, MemoryProfile
from interposer.profiling.chrome import chrome_trace
from interposer.profiling.memory import live_at_peak
from interposer.profiling.tracks import timeline

pytestmark = pytest.mark.needs_cpuref
X = np.ones((64, 64), np.float32)
SIDE = 64 * 256 * 4
"""The bytes of the tensors inside of the network, and of its constant."""


def dense() -> Network:
    network = Network("dense")
    x = network.add_input_layer(0, TensorInfo((64, 64)), name="x")
    weights = network.add_constant_layer(np.ones((64, 256), np.float32), name="w")
    product = network.add_batch_mat_mul_layer(x, weights, name="product")
    positive = network.add_activation_layer(product, function=ActivationFunction.RELU, name="positive")
    total = network.add_addition_layer(product, positive, name="total")
    network.add_output_layer(0, network.add_softmax_layer(total, name="share"), name="y")
    return network


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as new_runtime:
        yield new_runtime


@pytest.fixture
def model(runtime: Runtime) -> ip.Model:
    return ip.load(dense(), ["CpuRef"], runtime=runtime)


def test_the_peak_has_the_live_tensors_of_the_arena_and_the_constants(model: ip.Model) -> None:
    with ip.profile() as profile:
        model.run([X])
    memory = profile.memory()
    assert memory.peak == 3 * SIDE
    owners = {(owner.kind, owner.backend, owner.layer, owner.tensor): owner.bytes for owner in memory.owners}
    assert owners == {
        ("constants", "", "w", "w"): SIDE,
        ("arena", "CpuRef", "product", "product"): SIDE,
        ("arena", "CpuRef", "positive", "positive"): SIDE,
    }
    assert {owner.network for owner in memory.owners} == {"dense"}
    assert memory.by_layer() == {("dense", name): SIDE for name in ("w", "product", "positive")}
    assert [size for _, size in memory.over_time] == [SIDE, 3 * SIDE]
    assert memory.peak_at == memory.over_time[-1][0]


def test_a_profile_that_begins_after_the_first_run_has_the_same_owners(model: ip.Model) -> None:
    model.run([X])
    with ip.profile() as profile:
        pass
    assert profile.memory().peak == 3 * SIDE
    assert {owner.layer for owner in profile.memory().owners} == {"w", "product", "positive"}


def test_allocations_and_releases_are_events_with_their_bytes(runtime: Runtime) -> None:
    with ip.profile() as profile:
        model = ip.load(dense(), ["CpuRef"], runtime=runtime)
        model.run([X])
        model.close()
        runtime.close()
    events = [(instant.site.name, instant.site.bytes) for instant in profile.recording.instants]
    assert events == [
        ("allocate dense: constants", SIDE),
        ("allocate dense: arena of CpuRef", 2 * SIDE),
        ("free dense: arena of CpuRef", 2 * SIDE),
        ("free dense: constants", SIDE),
    ]
    assert profile.memory().over_time[-1][1] == 0
    assert profile.memory().peak == 3 * SIDE


def test_each_concurrent_run_has_an_arena_of_its_own(model: ip.Model, runtime: Runtime) -> None:
    [number] = runtime.loaded_networks
    with ip.profile() as profile, runtime.create_working_mem_handle(number) as working:
        model.run([X])
        runtime.execute(number, working, {0: X})
    memory = profile.memory()
    assert memory.peak == 5 * SIDE
    assert {owner.layer: owner.bytes for owner in memory.owners if owner.kind == "arena"} == {
        "product": 2 * SIDE, "positive": 2 * SIDE,
    }  # fmt: skip


def test_workspaces_of_compiled_partitions_belong_to_their_layer(cpuacc: None) -> None:
    with Runtime() as runtime:
        model = ip.load(dense(), ["CpuAcc"], runtime=runtime)
        with ip.profile() as profile:
            model.run([X])
        held = runtime.memory(runtime.loaded_networks[0]).parts["CpuAcc"]
    [workspace] = [owner for owner in profile.memory().owners if owner.kind == "workspaces"]
    assert (workspace.backend, workspace.bytes) == ("CpuAcc", held)
    assert workspace.layer == "PreCompiled:product"


def test_both_traces_have_the_memory_over_time_and_the_live_tensors(model: ip.Model) -> None:
    with ip.profile() as profile:
        model.run([X])
    samples: dict[str, list[float]] = {}
    for sample in timeline(profile.recording).samples:
        samples.setdefault(sample.counter.name, []).append(sample.value)
    assert samples["memory"] == [SIDE, 3 * SIDE]
    assert samples["dense: live tensors"] == [0, SIDE, 2 * SIDE]  # the end of the run is that of its interval
    counters = {
        event["name"] for event in json.loads(chrome_trace(profile.recording))["traceEvents"] if event["ph"] == "C"
    }
    assert counters == {"memory", "dense: live tensors", "dense: constants", "dense: arena of CpuRef"}


def test_the_table_lists_the_largest_owners_and_the_rest(model: ip.Model) -> None:
    with ip.profile() as profile:
        model.run([X])
    memory = profile.memory()
    assert str(memory).splitlines()[0] == "peak of the memory: 196,608 bytes"
    assert memory.rows(1)[1] == ["2 more", "", "", "", "131,072", "66.7%"]
    assert memory.to_dict()["peak_bytes"] == 3 * SIDE
    assert str(MemoryProfile()) == "peak of the memory: 0 bytes"


def test_the_live_tensors_are_those_of_the_worst_moment() -> None:
    first, second, third = (
        HeldTensor(name, name, size, 0, begins, ends)
        for name, size, begins, ends in (("a", 10, 1, 3), ("b", 20, 2, 5), ("c", 15, 4, 6))
    )
    assert live_at_peak([first, second, third]) == [second, third]
    assert live_at_peak([]) == []

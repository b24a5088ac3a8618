"""The extension ``ipr.profiling/1``: intervals and counters of plug-ins, and those of CpuAcc."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer import Network, Runtime, TensorInfo, include
from interposer.profiling import Category, CounterClass
from tests.native import SOURCES

X = np.ones((2, 3), np.float32)


def adding() -> Network:
    network = Network("adding")
    x = network.add_input_layer(0, TensorInfo((2, 3)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x, name="sum"), name="y")
    return network


@pytest.fixture
def model(backend, runtime_with):
    return ip.load(adding(), ["Measured"], runtime=runtime_with(backend("measured.cpp")))


def test_intervals_of_a_plug_in_are_inside_of_its_layer_and_belong_to_its_run(model):
    with ip.profile() as profile:
        for _ in range(3):
            model.run([X])
    intervals = profile.recording.intervals
    layers = {item.run: item for item in intervals if item.site.category is Category.LAYER}
    kernels = [item for item in intervals if item.site.name == "add"]
    assert sorted(item.run for item in kernels) == sorted(layers)
    for item in kernels:
        layer = layers[item.run]
        assert layer.begin <= item.begin <= item.end <= layer.end
        assert (item.thread, item.inference) == (layer.thread, layer.inference)
        assert (item.site.backend, item.site.bytes, item.site.flops) == ("Measured", 72, 6)
        assert item.site.partition == layer.site.partition


def test_intervals_of_a_device_are_converted_to_the_clock_of_the_host(model):
    with ip.profile() as profile:
        model.run([X])
    [kernel] = [item for item in profile.recording.intervals if item.site.name == "add"]
    [device] = [item for item in profile.recording.intervals if item.site.name == "add on the device"]
    assert (device.site.device, device.thread) == ("unit 0", 0)
    assert abs(device.begin - kernel.begin) < 50_000_000
    assert device.duration == kernel.duration


def test_counters_of_a_plug_in_have_units_devices_and_values(model):
    with ip.profile() as profile:
        for _ in range(4):
            model.run([X])
    samples = profile.recording.samples
    assert sum(item.value for item in samples if item.counter.name == "additions") == 4
    heat = next(item for item in samples if item.counter.name == "heat")
    assert (heat.value, heat.counter.units, heat.counter.device, heat.counter.kind) == (
        300, "K", "unit 0", CounterClass.VALUE,
    )  # fmt: skip


def test_nothing_is_measured_while_nothing_records(model):
    model.run([X])
    with ip.profile() as profile:
        pass
    model.run([X])
    assert [item for item in profile.recording.intervals if item.site.category is Category.KERNEL] == []


def test_more_intervals_than_one_call_collects_arrive(model):
    with ip.profile() as profile:
        for _ in range(2500):
            model.run([X])
    kernels = [item for item in profile.recording.intervals if item.site.category is Category.KERNEL]
    assert len(kernels) == 5000


def test_a_profile_of_one_call_has_the_intervals_of_this_call(model):
    profile = ip.Profile()
    model.run([X])
    model.run([X], profile=profile)
    names = [item.site.name for item in profile.recording.intervals if item.site.category is Category.KERNEL]
    assert names.count("add") == 1


def test_a_plug_in_without_the_extension_has_no_context(backend, runtime_with):
    runtime = runtime_with(backend("kernels.cpp"))
    ip.load(adding(), ["Kernels"], runtime=runtime)
    with ip.profile():
        pass
    assert runtime.profiling.counters == {}


def test_cpuacc_reports_the_time_of_each_step_of_a_partition(cpuacc):
    network = Network("two")
    x = network.add_input_layer(0, TensorInfo((8, 16)), name="x")
    weights = network.add_constant_layer(np.ones((16, 16), np.float32))
    product = network.add_batch_mat_mul_layer(x, weights, name="product")
    soft = network.add_softmax_layer(product, name="soft")
    network.add_output_layer(0, soft, name="y")
    with Runtime() as runtime, ip.profile() as profile:
        model = ip.load(network, ["CpuAcc"], runtime=runtime)
        for _ in range(3):
            model.run([np.ones((8, 16), np.float32)])
    intervals = profile.recording.intervals
    layers = {item.run: item for item in intervals if item.site.category is Category.LAYER}
    steps = [item for item in intervals if item.site.category is Category.KERNEL]
    if not steps:
        pytest.skip("this CpuAcc was built without ipr.profiling/1")
    assert len(layers) == 3
    for run, layer in layers.items():
        own = [item for item in steps if item.run == run]
        assert any("product" in item.site.name for item in own)
        assert any("soft" in item.site.name for item in own)
        assert sum(item.duration for item in own) <= layer.duration
        assert all(layer.begin <= item.begin and item.end <= layer.end for item in own)


def captured(runtime: Runtime) -> dict[int, float]:
    return {number: value for stamp in runtime.profiling.capture() for number, value in stamp.values.items()}


def test_a_plug_in_gets_the_selection_of_counters_and_may_refuse_it(model):
    profiling = model.runtime.profiling
    profiling.enable(True, False)
    assert profiling.select(30_000, [6]) == {}
    model.run([X])
    assert captured(model.runtime) == {6: 30_000}
    assert profiling.select(30_000, [5, 6, 99]) == {}
    model.run([X])
    assert captured(model.runtime) == {5: 1, 6: 30_000}
    [error] = profiling.select(2_000_000, [5]).values()
    assert "the period is too long" in error
    assert profiling.select(0, [5]) == {}
    assert captured(model.runtime) == {}
    with ip.profile() as profile:
        model.run([X])
    assert {item.counter.name for item in profile.recording.samples if item.counter.backend} == {"additions", "heat"}
    profiling.enable(False, False)


@pytest.mark.parametrize("selected", [(), (5,)], ids=["no counters", "one counter"])
def test_a_profile_has_no_intervals_that_were_measured_for_a_collector_before_it_began(selected, model):
    profiling = model.runtime.profiling
    profiling.enable(True, False)
    profiling.select(30_000, selected)
    model.run([X])
    with ip.profile() as profile:
        model.run([X])
    profiling.enable(False, False)
    names = [item.site.name for item in profile.recording.intervals if item.site.category is Category.KERNEL]
    assert sorted(names) == ["add", "add on the device"]


@pytest.mark.parametrize("older", ["short", "null"])
def test_a_plug_in_without_a_function_for_selections_is_read_as_a_whole(older, backend, runtime_with):
    """One built with an older header has a shorter table."""
    text = (SOURCES / "measured.cpp").read_text(encoding="utf-8")
    header = (include.path() / "interposer/backend.hpp").read_text(encoding="utf-8")
    begin = header.index("        [](void* self, uint64_t period_us")
    end = header.index("        }};", begin)
    header = header[:begin] + "        nullptr};" + header[end + len("        }};") :]
    if older == "short":
        header = header.replace("sizeof(ipr_profiling_api),", "offsetof(ipr_profiling_api, select_counters),")
    text = text.replace('#include "interposer/backend.hpp"', header)
    old = ip.load(adding(), ["Measured"], runtime=runtime_with(backend(text, language="c++")))
    profiling = old.runtime.profiling
    profiling.enable(True, False)
    assert profiling.select(30_000, [5]) == {}
    old.run([X])
    assert captured(old.runtime) == {5: 1}
    profiling.enable(False, False)

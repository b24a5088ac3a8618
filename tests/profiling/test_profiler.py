"""The profiler of a network: its events in Arm NN's form, for every way to run a network."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

import interposer as ip
from interposer import Network, OptimizerOptions, Runtime, TensorInfo
from interposer.backend import Backend, KernelTable
from interposer.core.errors import ExecutionError, InvalidArgumentError, UnknownNetworkError
from interposer.core.types import Array, DataType
from interposer.ops import ActivationFunction, Addition
from interposer.profiling import Category, Profiler, Site, TracedNetwork
from interposer.profiling.recorder import active, begin_run
from tests.devices import Device, Sums, single

INFO = TensorInfo((1, 4))
X = np.float32([[-1, 2, -3, 4]])
table = KernelTable()


@table(Addition, dtypes={DataType.FLOAT32})
def add(op: Addition, a: Array, b: Array, *, out: Array) -> None:
    if np.isnan(a).any():
        raise ValueError("not a number")
    np.add(a, b, out=out)


class Touchy(Backend):
    """Adds, but fails for NaN."""

    id: ClassVar = "Touchy"
    kernels: ClassVar = table


TIMES = ("Wall clock time", "Wall clock time (Start)", "Wall clock time (Stop)")


def two_layers() -> Network:
    """Return relu(a + b)."""
    network = Network("two")
    a, b = (network.add_input_layer(index, INFO, name=name) for index, name in enumerate("ab"))
    add = network.add_addition_layer(a, b, name="add")
    relu = network.add_activation_layer(add, function=ActivationFunction.RELU, name="relu")
    network.add_output_layer(0, relu, name="y")
    return network


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as new_runtime:
        new_runtime.registry.register("Device", single(Device()))
        new_runtime.registry.register("Sums", Sums)
        yield new_runtime
    assert active == []


def load(runtime: Runtime, *backends: str, network: Network | None = None) -> int:
    plain = OptimizerOptions(rewrite=False)
    return runtime.load_network(ip.optimize(network or two_layers(), list(backends), runtime.device_spec, plain))


def measured(runtime: Runtime, number: int) -> dict[str, Any]:
    return json.loads(runtime.get_profiler(number).as_json())["ArmNN"]["inference_measurements_#1"]


def events(node: Mapping[str, Any]) -> list[str]:
    """Return the keys of the events directly inside an event."""
    return [key for key, value in node.items() if isinstance(value, dict) and value["type"] == "Event"]


def raw(node: Mapping[str, Any], key: str) -> list[float]:
    return node[f"Wall clock time_#{key.rpartition('#')[2]}"]["raw"]


def test_a_new_profiler_is_disabled_and_empty(runtime: Runtime) -> None:
    profiler = runtime.get_profiler(load(runtime, "Sums", "Device"))
    assert not profiler.is_profiling_enabled()
    assert profiler.event_log() == (
        "Event Sequence - Name | Duration (ms) | Start (ms) | Stop (ms) | Device\n\n"
        "Event Stats - Name | Avg (ms) | Min (ms) | Max (ms) | Total (ms) | Count\n\n"
        "\n***\n*** Per Inference Stats\n***\n\n"
    )
    assert (
        profiler.as_json()
        == '{\n\t"ArmNN": {\n\t\t"inference_measurements_#1": {\n\t\t\t"type": "Event"\n\t\t}\n\t}\n}\n'
    )


def test_an_unknown_network_has_no_profiler(runtime: Runtime) -> None:
    with pytest.raises(UnknownNetworkError):
        runtime.get_profiler(7)


def test_enabling_takes_a_truth_value(runtime: Runtime) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        runtime.get_profiler(load(runtime, "Sums", "Device")).enable_profiling(1)  # type: ignore[arg-type]
    assert str(refused.value) == "enable_profiling takes True or False, not 1"


@pytest.mark.needs_cpuref
def test_the_json_has_one_raw_value_for_each_inference_and_a_number_for_each_event(runtime: Runtime) -> None:
    number = load(runtime, "CpuRef")
    runtime.enqueue_workload(number, {0: X, 1: X})  # acquires the memory
    profiler = runtime.get_profiler(number)
    profiler.enable_profiling(True)
    for _ in range(3):
        runtime.enqueue_workload(number, {0: X, 1: X})
    tree = measured(runtime, number)
    assert events(tree) == ["Execute_#2", "CopyMemGeneric_Execute_#5"]
    assert events(tree["Execute_#2"]) == ["RefAdditionWorkload_Execute_#3", "RefActivationWorkload_Execute_#4"]
    add = tree["Execute_#2"]["RefAdditionWorkload_Execute_#3"]
    assert list(add) == ["type", *(f"{name}_#3" for name in TIMES)]
    for name in TIMES:
        assert add[f"{name}_#3"]["type"] == "Measurement"
        assert add[f"{name}_#3"]["unit"] == "us"
        assert len(add[f"{name}_#3"]["raw"]) == 3
    durations, starts, stops = (add[f"{name}_#3"]["raw"] for name in TIMES)
    np.testing.assert_allclose(np.subtract(stops, starts), durations, atol=0.01)
    assert starts == sorted(starts)


@pytest.mark.needs_cpuref
def test_the_json_is_indented_by_tabs_and_has_six_decimals(runtime: Runtime) -> None:
    number = load(runtime, "CpuRef")
    runtime.get_profiler(number).enable_profiling(True)
    runtime.enqueue_workload(number, {0: X, 1: X})
    stream = io.StringIO()
    runtime.get_profiler(number).print(stream)
    lines = stream.getvalue().split("\n")
    assert lines[:5] == [
        "{",
        '\t"ArmNN": {',
        '\t\t"inference_measurements_#1": {',
        '\t\t\t"type": "Event",',
        '\t\t\t"Wall clock time_#1": {',
    ]
    assert lines[5:7] == ['\t\t\t\t"type": "Measurement",', '\t\t\t\t"raw": [']
    assert lines[7].startswith("\t\t\t\t\t")
    assert len(lines[7].partition(".")[2]) == 6
    assert lines[8:10] == ["\t\t\t\t],", '\t\t\t\t"unit": "us"']


@pytest.mark.needs_cpuref
def test_the_log_lists_the_events_then_statistics_then_each_inference(runtime: Runtime) -> None:
    number = load(runtime, "CpuRef")
    profiler = runtime.get_profiler(number)
    profiler.enable_profiling(True)
    for _ in range(2):
        runtime.enqueue_workload(number, {0: X, 1: X})
    stream = io.StringIO()
    profiler.analyze_events_and_write_results(stream)
    log = stream.getvalue()
    everything, _, single_runs = log.partition("*** Per Inference Stats")
    rows = [line.split() for line in everything.splitlines() if line.startswith(" ")]
    assert [(row[0], row[-1]) for row in rows if len(row) == 5][:3] == [
        ("EnqueueWorkload", "Unknown"),
        ("CopyMemGeneric_Execute", "Unknown"),
        ("Execute", "Unknown"),
    ]
    assert sum(row[0] == "RefAdditionWorkload_Execute" and row[-1] == "CpuRef" for row in rows) == 2
    [statistics] = [line.split() for line in everything.splitlines() if line.startswith("\t") and "RefAdd" in line]
    average, least, most, total = map(float, statistics[1:5])
    assert statistics[5] == "2"
    assert least <= average <= most
    assert total == pytest.approx(2 * average, rel=1e-4)
    assert single_runs.count("Event Sequence - Name") == 2
    assert "> Begin Inference: 0\n" in single_runs
    assert "> End Inference: 1\n" in single_runs


def test_layers_and_copies_are_inside_of_execute_with_the_names_of_their_backends(runtime: Runtime) -> None:
    number = load(runtime, "Sums", "Device")
    runtime.get_profiler(number).enable_profiling(True)
    runtime.enqueue_workload(number, {0: X, 1: X})
    tree = measured(runtime, number)
    inside = [key.partition("_#")[0] for key in events(tree["Execute_#2"])]
    assert inside == ["SumsAdditionWorkload_Execute", "CopyMemGeneric_Execute", "DeviceActivationWorkload_Execute"]
    outside = {key.partition("_#")[0] for key in events(tree)}
    assert outside == {"Execute", "Working Memory Allocation", "CopyMemGeneric_Execute"}


def test_disabling_keeps_the_events_and_enabling_again_adds_to_them(runtime: Runtime) -> None:
    number = load(runtime, "Sums", "Device")
    profiler = runtime.get_profiler(number)
    for enable, runs in ((True, 1), (False, 1), (True, 2)):
        profiler.enable_profiling(enable)
        assert profiler.is_profiling_enabled() is enable
        runtime.enqueue_workload(number, {0: X, 1: X})
        assert len(raw(measured(runtime, number), "#1")) == runs
    profiler.clear()
    assert events(measured(runtime, number)) == []


def test_a_profiler_records_its_own_network_only_and_stays_readable_after_unloading(runtime: Runtime) -> None:
    first, second = load(runtime, "Sums", "Device"), load(runtime, "Sums", "Device")
    profiler = runtime.get_profiler(first)
    profiler.enable_profiling(True)
    for number in (first, second, first):
        runtime.enqueue_workload(number, {0: X, 1: X})
    assert events(measured(runtime, second)) == []
    runtime.unload_network(first)
    assert not profiler.is_profiling_enabled()
    assert profiler.as_json().count('"Execute_#2"') == 1
    assert len(json.loads(profiler.as_json())["ArmNN"]["inference_measurements_#1"]["Wall clock time_#1"]["raw"]) == 2


def _imported(runtime: Runtime, number: int) -> object:
    y = np.empty((1, 4), np.float32)
    ids = runtime.import_inputs(number, {0: X, 1: X}), runtime.import_outputs(number, {0: y})
    return runtime.enqueue_workload(number, imported_inputs=ids[0], imported_outputs=ids[1])


WAYS: dict[str, Callable[[Runtime, int], object]] = {
    "enqueue_workload": lambda runtime, number: runtime.enqueue_workload(number, {0: X, 1: X}),
    "a deadline": lambda runtime, number: runtime.enqueue_workload(number, {0: X, 1: X}, deadline=60),
    "submit": lambda runtime, number: runtime.submit(number, {0: X, 1: X}).result(),
    "execute": lambda runtime, number: runtime.execute(number, runtime.create_working_mem_handle(number), {0: X, 1: X}),
    "imports": _imported,
}


@pytest.mark.parametrize("way", WAYS)
def test_runs_of_every_kind_are_recorded(runtime: Runtime, way: str) -> None:
    number = load(runtime, "Sums", network=sum_of_two())
    runtime.get_profiler(number).enable_profiling(True)
    for _ in range(2):
        WAYS[way](runtime, number)
    tree = measured(runtime, number)
    assert len(raw(tree, "#1")) == 2
    assert [key.partition("_#")[0] for key in events(tree["Execute_#2"])] == ["SumsAdditionWorkload_Execute"]


def sum_of_two() -> Network:
    network = Network("sum")
    a, b = (network.add_input_layer(index, INFO, name=name) for index, name in enumerate("ab"))
    network.add_output_layer(0, network.add_addition_layer(a, b, name="add"), name="y")
    return network


def test_calls_of_models_and_bound_runs_are_recorded(runtime: Runtime) -> None:
    model = ip.load(sum_of_two(), ["Sums"], runtime=runtime)
    [number] = runtime.loaded_networks
    bound = model.bind([X, X])
    bound()
    runtime.get_profiler(number).enable_profiling(True)
    model.run([X, X])
    bound()
    model(a=X, b=X)
    assert len(raw(measured(runtime, number), "#1")) == 3


@pytest.mark.needs_cpuref
def test_a_layer_in_a_loop_has_a_value_for_each_iteration(runtime: Runtime) -> None:
    body = Network("body")
    step = body.add_input_layer(0, None, name="i")
    going = body.add_input_layer(1, None, name="c")
    x = body.add_input_layer(2, None, name="x")
    del step
    body.add_output_layer(0, going, name="again")
    body.add_output_layer(1, body.add_addition_layer(x, x, name="double"), name="next")
    network = Network("loop")
    start = network.add_input_layer(0, INFO, name="x")
    count = network.add_constant_layer(np.array(3, np.int64))
    true = network.add_constant_layer(np.array(True))
    loop = network.add_loop_layer(count, true, start, regions=(body,), num_carried=1, name="loop")
    network.add_output_layer(0, loop, name="y")
    number = load(runtime, "CpuRef", network=network)
    runtime.get_profiler(number).enable_profiling(True)
    [output] = runtime.enqueue_workload(number, {0: X}).values()
    np.testing.assert_array_equal(output, 8 * X)
    execute = measured(runtime, number)["Execute_#2"]
    [loop] = [execute[key] for key in events(execute)]
    [double] = [key for key in events(loop) if "Addition" in key]
    assert len(raw(loop[double], double)) == 3


def test_branches_on_two_threads_are_both_inside_of_execute(runtime: Runtime) -> None:
    network = Network("branches")
    x = network.add_input_layer(0, INFO, name="x")
    left = network.add_addition_layer(x, x, name="left")
    right = network.add_activation_layer(x, function=ActivationFunction.RELU, name="right")
    network.add_output_layer(0, left, name="y")
    network.add_output_layer(1, right, name="z")
    number = load(runtime, "Sums", "Device", network=network)
    runtime.get_profiler(number).enable_profiling(True)
    for _ in range(20):
        runtime.enqueue_workload(number, {0: X})
    execute = measured(runtime, number)["Execute_#2"]
    counts = {key.partition("_#")[0]: len(raw(execute[key], key)) for key in events(execute)}
    assert counts["SumsAdditionWorkload_Execute"] == counts["DeviceActivationWorkload_Execute"] == 20


def test_a_branch_that_seems_to_end_after_execute_is_inside_of_it() -> None:
    """The clocks of two processors may differ by a few nanoseconds."""
    network = TracedNetwork("net", 0, -1)
    profiler = Profiler(network)
    profiler.enable_profiling(True)
    trace = begin_run(network, iter([0]))
    assert trace is not None
    sites = [Site(Category.LAYER, name, name, network, name, backend="Sums") for name in ("left", "right")]
    for site, thread, end in zip(sites, (trace.thread, 1), (40, 52), strict=True):
        trace.fields += (site, trace.begin + 10, trace.begin + end, thread)
    trace.fields += (Site(Category.EXECUTE, "execute", network=network), trace.begin, trace.begin + 50, trace.thread)
    trace.fields += (Site(Category.RUN, "net", network=network), trace.begin, trace.begin + 60, trace.thread)
    trace.finish()
    profiler.enable_profiling(False)
    execute = json.loads(profiler.as_json())["ArmNN"]["inference_measurements_#1"]["Execute_#2"]
    assert {"SumsleftWorkload_Execute", "SumsrightWorkload_Execute"} <= {key.partition("_#")[0] for key in execute}


def test_runs_on_several_threads_are_separate_inferences(runtime: Runtime) -> None:
    number = load(runtime, "Sums", network=sum_of_two())
    profiler = runtime.get_profiler(number)
    profiler.enable_profiling(True)
    threads = [
        threading.Thread(target=lambda: [runtime.enqueue_workload(number, {0: X, 1: X}) for _ in range(10)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tree = measured(runtime, number)
    assert len(raw(tree, "#1")) == len(raw(tree["Execute_#2"], "#2")) == 40
    assert "> Begin Inference: 39\n" in profiler.event_log()


def test_a_run_that_fails_is_recorded_until_its_failure_and_the_next_one_is_whole(runtime: Runtime) -> None:
    runtime.registry.register("Touchy", Touchy)
    number = load(runtime, "Touchy", network=sum_of_two())
    runtime.get_profiler(number).enable_profiling(True)
    with pytest.raises(ExecutionError):
        runtime.enqueue_workload(number, {0: np.full_like(X, np.nan), 1: X})
    runtime.enqueue_workload(number, {0: X, 1: X})
    tree = measured(runtime, number)
    assert len(raw(tree, "#1")) == 2
    [add] = events(tree["Execute_#2"])
    assert len(raw(tree["Execute_#2"][add], add)) == 2


@pytest.mark.parametrize("way", ["run", "bound"])
def test_direct_calls_of_a_compiled_network_are_recorded(cpuacc: None, way: str) -> None:
    with Runtime() as runtime:
        if runtime.registry.reason_absent("CpuAcc") is not None:
            pytest.skip("CpuAcc is not built")
        model = ip.load(two_layers(), ["CpuAcc"], runtime=runtime)
        bound = model.bind([X, X])
        call = bound if way == "bound" else lambda: model.run([X, X])
        call()
        [number] = runtime.loaded_networks
        profile = ip.Profile()
        with profile:
            runtime.get_profiler(number).enable_profiling(True)
            for _ in range(3):
                call()
            runtime.get_profiler(number).enable_profiling(False)
        call()
        tree = measured(runtime, number)
        assert len(raw(tree, "#1")) == 3
        [part] = events(tree["Execute_#2"])
        assert part == "NeonPreCompiledWorkload_Execute_#3"
        [layer] = profile.layers()
        assert layer.count == 3
        assert set(layer.site.layers) == {"add", "relu"}

"""A plug-in as a backend: what it says of itself, its verdicts, its compiled parts, and running them."""

import ctypes
import gc
import logging
import os
import threading
import weakref

import numpy as np
import pytest

from interposer import Network, OptimizerOptions, TensorInfo, optimize
from interposer.backend import ArrayHandle, WorkloadInfo
from interposer.backend.views import OptimizationViews
from interposer.core.errors import (
    BackendUnavailableError,
    ExecutionError,
    InvalidArgumentError,
    LoadError,
    PluginError,
)
from interposer.ir.graph import Graph
from interposer.ir.inference import infer_graph
from interposer.ops import Activation, ActivationFunction, Addition, Input, PreCompiled
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.library.host import SLOTS, HostSettings, LogRing
from interposer.plugins.capi.library.library import open_library
from interposer.plugins.capi.running.backend import DynamicBackend
from interposer.plugins.capi.running.support import Verdict

RELU = ActivationFunction.RELU


def branching():
    """A sum, its ReLU and its square, and the sum of both; ``max(x + c, 0) + (x + c)**2``."""
    network = Network("branching")
    x = network.add_input_layer(0, TensorInfo((2, 3)), name="x")
    c = network.add_constant_layer(np.arange(-3, 3, dtype=np.float32).reshape(2, 3), name="c")
    a = network.add_addition_layer(x, c, name="a")
    r = network.add_activation_layer(a, function=RELU, name="r")
    s = network.add_multiplication_layer(a, a, name="s")
    network.add_output_layer(0, network.add_addition_layer(r, s, name="e"))
    return network


def expected(x, gain=1.0):
    a = gain * (x + np.arange(-3, 3, dtype=np.float32).reshape(2, 3))
    return gain * (np.maximum(a, 0) + gain * (a * a))


X = np.float32([[1, -2, 3], [0.5, 4, -1]])


def sum_layer(count):
    """A layer that adds a vector to itself, and what is known of that."""
    graph, info = Graph(), TensorInfo((count,))
    x = graph.add(Input(), outputs=[info]).output
    layer = graph.add(Addition(), [x, x])
    infer_graph(graph)
    return layer, info


def run(runtime, network, backends, options=None):
    optimized = optimize(network, backends, runtime.device_spec, OptimizerOptions(model_options=options or {}))
    network_id = runtime.load_network(optimized)
    return optimized, runtime.enqueue_workload(network_id, {0: X})[0]


# --- what it says of itself -------------------------------------------------------------------------------------------


def test_a_plug_in_describes_itself(backend):
    result = backend("arithmetic.cpp")
    info = result.library.info
    assert (result.id, result.version, result.api_version) == ("Arithmetic", "2.1", (1, 0))
    assert (info.vendor, info.name, info.description) == ("Tests", "Arithmetic", "Sums and products")
    assert result.capabilities.to_dict() == {"HasFp16": False, "Lanes": 8}
    assert result.capabilities.describe("Lanes").doc == "how wide it is"
    assert [(option.name, option.default) for option in info.options[:2]] == [("gain", 1.0), ("groups", False)]


def test_capability_bits_become_named_capabilities(backend):
    assert backend("kernels.cpp").capabilities.to_dict() == {
        "DynamicShapes": True, "ConcurrentExecute": True, "Deterministic": False,
    }  # fmt: skip


def test_options_for_init_reach_the_plug_in_and_its_log_lines_come_out(opened, caplog):
    library = opened("arithmetic.cpp", options={"greeting": "grüße"}, settings=HostSettings(threads=3))
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("interposer.backend.Arithmetic", f"grüße from {library.path}")
    ]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"missin": True}, "backend 'Arithmetic' has no option 'missin'; did you mean 'missing'?"),
        ({"missing": 1}, "option 'missing' of backend 'Arithmetic' must be a bool, not 1"),
        ({"gain": 2.0}, "option 'gain' of backend 'Arithmetic' is given for a network, not for a runtime"),
    ],
)
def test_wrong_options_are_refused_before_the_plug_in_sees_them(options, text, opened):
    with pytest.raises(InvalidArgumentError, match=text.replace("(", r"\(").replace("?", r"\?")):
        opened("arithmetic.cpp", options=options)


def test_a_plug_in_without_its_device_is_unavailable_with_its_reason(opened):
    with pytest.raises(BackendUnavailableError, match="backend 'Arithmetic' is not available: there is no device"):
        opened("arithmetic.cpp", options={"missing": True})


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_verdicts_carry_reasons_preferences_and_estimates(backend):
    layer, info = sum_layer(6)
    support = backend("arithmetic.cpp").layer_support({})
    yes = support.is_layer_supported(layer)
    assert yes and isinstance(yes, Verdict)
    assert (yes.preferred, yes.group, yes.seconds, yes.bytes) == (True, None, pytest.approx(6e-9), None)
    layer.op = Activation(ActivationFunction.TANH)
    no = support.is_layer_supported(layer)
    assert (no.reasons, no.code) == (("no Activation",), 1)


def test_groups_hold_together_and_are_given_back_where_they_are_torn_apart(backend, runtime_with):
    runtime = runtime_with(backend("arithmetic.cpp"))
    options = OptimizerOptions(model_options={"Arithmetic": {"groups": True}})
    together = optimize(branching(), ["Arithmetic", "CpuRef"], runtime.device_spec, options)
    assert {placement.backend for placement in together.placements} == {"Arithmetic"}
    hinted = OptimizerOptions(model_options={"Arithmetic": {"groups": True}}, hints={"a": "CpuRef"})
    apart = optimize(branching(), ["Arithmetic", "CpuRef"], runtime.device_spec, hinted)
    assert {placement.layer: placement.backend for placement in apart.placements} == {
        "a": "CpuRef", "r": "CpuRef", "s": "Arithmetic", "e": "Arithmetic",
    }  # fmt: skip
    [refusal] = [refusal for refusal in apart.refusals if refusal.layer == "r"]
    assert refusal.reasons == ("only after a sum",)


def test_options_for_a_network_are_checked_when_support_is_asked(backend, runtime_with):
    runtime = runtime_with(backend("arithmetic.cpp"))
    options = OptimizerOptions(model_options={"Arithmetic": {"gian": 2.0}})
    with pytest.raises(InvalidArgumentError, match="backend 'Arithmetic' has no option 'gian'; did you mean 'gain'"):
        optimize(branching(), ["Arithmetic"], runtime.device_spec, options)


# --- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["arithmetic.cpp", "kernels.cpp"])
def test_a_connected_part_becomes_one_unit_and_computes_the_same(source, backend, runtime_with):
    plugin = backend(source)
    optimized, result = run(runtime_with(plugin), branching(), [plugin.id])
    assert [layer.kind for layer in optimized.graph if layer.backend == plugin.id] == ["Input", "PreCompiled"]
    np.testing.assert_allclose(result, expected(X), rtol=1e-6)


def test_options_for_a_network_reach_compile(backend, runtime_with):
    plugin = backend("arithmetic.cpp")
    _, result = run(runtime_with(plugin), branching(), ["Arithmetic"], {"Arithmetic": {"gain": 2}})
    np.testing.assert_allclose(result, expected(X, 2.0), rtol=1e-6)


def test_a_layer_that_cannot_be_compiled_is_given_back_and_the_rest_compiled_without_it(backend, runtime_with):
    network = branching()
    network.graph.rename(network.graph.layer("s"), "poison")
    plugin = backend("arithmetic.cpp")
    optimized, result = run(runtime_with(plugin), network, ["Arithmetic", "CpuRef"])
    backends = {placement.layer: placement.backend for placement in optimized.placements}
    assert {name: backends[name] for name in ("a", "r", "poison", "e")} == {
        "a": "Arithmetic", "r": "Arithmetic", "poison": "CpuRef", "e": "Arithmetic",
    }  # fmt: skip
    [refusal] = [refusal for refusal in optimized.refusals if refusal.layer == "poison"]
    assert refusal.reasons == ("it is poisonous (at layer 'poison' (Multiplication))",)
    np.testing.assert_allclose(result, expected(X), rtol=1e-6)


def test_layers_alone_are_compiled_when_workloads_are_made(backend, runtime_with, monkeypatch):
    monkeypatch.setattr(DynamicBackend, "optimize_subgraph", lambda self, view, options: OptimizationViews(view))
    plugin = backend("arithmetic.cpp")
    optimized, result = run(runtime_with(plugin), branching(), ["Arithmetic"])
    assert PreCompiled not in {type(layer.op) for layer in optimized.graph}
    np.testing.assert_allclose(result, expected(X), rtol=1e-6)


def test_a_unit_of_another_backend_is_refused(backend, runtime_with):
    first, second = backend("arithmetic.cpp"), backend("kernels.cpp")
    runtime = runtime_with(first, second)
    optimized = optimize(branching(), ["Arithmetic"], runtime.device_spec)
    for layer in optimized.graph:
        layer.backend = layer.backend and "Kernels"
    optimized.backends["Kernels"] = second
    with pytest.raises(LoadError, match="was not compiled by Kernels"):
        runtime.load_network(optimized)


# --- running ----------------------------------------------------------------------------------------------------------


def test_tensors_are_used_in_place(backend):
    """No copy: the plug-in is given the very memory of the handles."""
    plugin = backend("kernels.cpp")
    factory = plugin.create_workload_factory(None, {})
    layer, info = sum_layer(4)
    workload = factory.create_workload(layer, WorkloadInfo.of(layer))
    array, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    workload.execute([ArrayHandle(info, array)] * 2, [ArrayHandle(info, out)])
    [created] = workload.free
    assert created._inputs._structs[0].data == array.ctypes.data
    assert created._outputs._structs[0].data == out.ctypes.data
    assert out.tolist() == [0, 2, 4, 6]


def test_tensors_that_lie_oddly_are_copied(backend):
    plugin = backend("arithmetic.cpp")  # wants 64 bytes
    layer, info = sum_layer(4)
    workload = plugin.create_workload_factory(None, {}).create_workload(layer, WorkloadInfo.of(layer))
    raw, target = np.arange(40, dtype=np.float32), np.zeros((4, 40), np.float32)
    for start in (1, 2):
        workload.execute([ArrayHandle(info, raw[start : start + 4])] * 2, [ArrayHandle(info, target[:, start])])
    assert target[:, 1].tolist() == [2, 4, 6, 8]
    assert target[:, 2].tolist() == [4, 6, 8, 10]


@pytest.mark.parametrize("concurrent", [False, True])
def test_many_threads_may_run_one_executable(concurrent, backend):
    plugin = backend("arithmetic.cpp")
    options = {"concurrent": concurrent}
    layer, info = sum_layer(64)
    workload = plugin.create_workload_factory(None, options).create_workload(layer, WorkloadInfo.of(layer))
    assert workload.executable.concurrent is concurrent
    wrong = []

    def work(number):
        array, out = np.full(64, number, np.float32), np.zeros(64, np.float32)
        for _ in range(200):
            workload.execute([ArrayHandle(info, array)] * 2, [ArrayHandle(info, out)])
            if not (out == 2 * number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_shapes_that_depend_on_data_are_asked_for_by_resize(backend, runtime_with):
    plugin = backend("kernels.cpp")
    runtime = runtime_with(plugin)
    network = Network()
    x = network.add_input_layer(0, TensorInfo((6,)))
    network.add_output_layer(0, network.add_non_zero_layer(x, name="found"))
    network_id = runtime.load_network(optimize(network, ["Kernels"], runtime.device_spec))
    for values in ([0, 1, 0, 2, 3, 0], [0] * 6, [1] * 6):
        result = runtime.enqueue_workload(network_id, {0: np.float32(values)})[0]
        assert result.tolist() == np.argwhere(values).T.tolist()
    options = OptimizerOptions(model_options={"Kernels": {"forget": True}})
    forgetful = runtime.load_network(optimize(network, ["Kernels"], runtime.device_spec, options))
    with pytest.raises(ExecutionError, match="did not give output 0, int64.*, a shape: call `resize` for it"):
        runtime.enqueue_workload(forgetful, {0: np.float32([1] * 6)})


# --- the end ----------------------------------------------------------------------------------------------------------


def test_what_was_compiled_is_released_with_the_last_user(backend, runtime_with):
    plugin = backend("arithmetic.cpp")
    runtime = runtime_with(plugin)
    optimized, _ = run(runtime, branching(), ["Arithmetic"])
    assert len(plugin.library._held) == 2  # the unit, and the context
    runtime.close()
    del optimized
    gc.collect()
    assert plugin.library._held == {}


def test_closing_releases_what_is_left_and_later_uses_say_so(backend, runtime_with, caplog):
    plugin = backend("arithmetic.cpp")
    runtime = runtime_with(plugin)
    optimized, _ = run(runtime, branching(), ["Arithmetic"])
    plugin.library.close()
    plugin.library.close()
    assert plugin.library._held == {} and plugin.library.closed
    assert [record.getMessage() for record in caplog.records][-2:] == ["destroyed -1", "shut down"]
    with pytest.raises(ExecutionError, match="backend 'Arithmetic' is not available: it was shut down"):
        runtime.enqueue_workload(runtime.loaded_networks[0], {0: X})
    del optimized


def test_a_library_can_be_opened_again(built, caplog):
    path = str(built("arithmetic.cpp"))
    for _ in range(3):
        opened = open_library(ctypes.CDLL(path), path)
        assert opened.close()
    assert [record.getMessage() for record in caplog.records] == ["shut down"] * 3


def test_a_backend_in_a_forked_child_is_refused_unless_it_says_that_it_is_fork_safe(backend):
    plugin = backend("kernels.cpp")
    layer, _ = sum_layer(2)
    plugin.library._pid = -1  # as a child would find it
    with pytest.raises(BackendUnavailableError, match="it was opened before this process was forked"):
        plugin.layer_support({}).is_layer_supported(layer)
    plugin.library._pid = os.getpid()
    assert plugin.layer_support({}).is_layer_supported(layer)


def test_a_library_without_the_functions_is_refused(opened):
    with pytest.raises(PluginError) as caught:
        opened("int nothing(void);\nint nothing(void) { return 0; }\n")
    assert caught.value.check == "symbols"
    assert "does not export GetBackendId" in str(caught.value)


def test_a_line_is_not_lost_because_other_threads_were_quicker(natives):
    """The writer has read the head; at the same time others have written, and the host has taken it all."""
    code = '#include "interposer/backend.h"\nvoid say(const ipr_host* host) { ipr_log(host, IPR_LOG_ERROR, "late"); }\n'
    library = ctypes.CDLL(str(natives.compiled(code)))
    ring = LogRing()
    ring.header.tail = 1
    host = abi.Host(struct_size=ctypes.sizeof(abi.Host), log=ctypes.addressof(ring.header))
    library.say(ctypes.byref(host))
    assert (ring.header.head, ring.header.lost) == (1, 0)


def test_a_full_log_counts_what_is_lost(caplog):
    ring = LogRing()
    ring.header.head, ring.header.lost = 5, 3
    ring.drain(logging.getLogger("interposer.backend.ring"))
    assert [record.getMessage() for record in caplog.records] == ["3 lines found no place in the log"]
    assert SLOTS & (SLOTS - 1) == 0


def test_what_a_backend_made_keeps_it_alive(opened):
    library = opened("kernels.cpp")
    layer, _ = sum_layer(2)
    backend = DynamicBackend(library)
    alive = weakref.ref(backend)
    created = backend.layer_support({}), backend.create_workload_factory(None, {})
    workload = created[1].create_workload(layer, WorkloadInfo.of(layer))
    del backend, created
    gc.collect()
    assert alive() is not None
    del workload
    gc.collect()
    assert alive() is None


def test_a_finalizer_that_runs_while_the_log_is_read_waits_for_nobody(opened):
    library = opened("kernels.cpp")
    with library._ring._reading:
        library.read_log()
    with library._compiling:
        library.let_go(library.hold_call(lambda: None))
        assert len(library._held) == 1
    with library.serialized():
        pass
    assert library._held == {}

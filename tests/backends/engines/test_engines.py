"""Every engine that is installed: single layers, parts of several, whole models, threads, options and refusals."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import BackendUnavailableError, InvalidArgumentError
from interposer.frontends import tflite
from interposer.ops import Activation, ActivationFunction, Addition
from interposer.plugins import BackendRegistry, DeviceSpec
from tests.backends.engines.adapters import PLACES, engine_class, installed, runtime_with_engines

MODELS = Path(__file__).parents[4] / "shared" / "models"
FLOATS = ["ad01_fp32", "pretrainedResnet", "vww_96_float", "kws_ref_model_float32"]
QUANTIZED = ["ad01_int8", "kws_ref_model", "mobilenet_v1_0.25_128_quant", "str_ww_ref_model", "vww_96_int8"]

needs_models = pytest.mark.skipif(not MODELS.is_dir(), reason=f"no real models in {MODELS.parent.name}/{MODELS.name}")


@pytest.fixture(params=PLACES)
def engine(request):
    if request.param not in installed():
        pytest.skip(engine_class(request.param).unavailable())
    return request.param


@pytest.fixture
def runtime():
    with runtime_with_engines() as created:
        yield created


def small_network() -> ip.Network:
    """Two inputs, a product with large constant weights, a clamp and a share: one part of three layers."""
    network = ip.Network("small")
    x = network.add_input_layer(0, ip.TensorInfo((2, 64)), name="x")
    scale = network.add_input_layer(1, ip.TensorInfo((2, 32)), name="scale")
    weights = network.add_constant_layer(np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(32, 64), name="w")
    dense = network.add_fully_connected_layer(x, weights, transpose_weight_matrix=True, name="dense")
    clamped = network.add_activation_layer(dense, function=ActivationFunction.RELU, name="clamped")
    network.add_output_layer(0, network.add_multiplication_layer(clamped, scale, name="scaled"), name="y")
    network.add_output_layer(1, clamped, name="z")
    return network


def feeds(seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(np.float32) for shape in ((2, 64), (2, 32))]


# --- being there or not -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLACES)
def test_an_engine_whose_package_is_missing_is_absent_and_says_what_to_install(name, monkeypatch):
    kind = engine_class(name)
    monkeypatch.setattr(kind, "packages", ("a_package_that_nobody_has",))
    registry = BackendRegistry()
    registry.register(name, kind)
    with pytest.raises(BackendUnavailableError) as caught:
        ip.optimize(small_network(), [name], DeviceSpec(registry))
    assert caught.value.reason.startswith(
        f"{name}: the package a_package_that_nobody_has is not installed: pip install 'interposer-nn[{kind.extra}]'"
    )


@pytest.mark.needs_cpuref
def test_an_engine_is_used_only_where_it_is_named(engine, runtime):
    assert engine in runtime.device_spec.supported_backends
    assert engine not in runtime.device_spec.default_backends
    model = ip.load(small_network(), runtime=runtime)
    assert engine not in {placement.backend for placement in model.optimized.placements}


# --- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.needs_cpuref
def test_a_network_becomes_one_part_and_gives_what_the_reference_gives(engine, runtime):
    model = ip.load(small_network(), [engine], runtime=runtime)
    result = model.run(feeds())
    expected = ip.load(small_network(), ["CpuRef"], runtime=runtime).run(feeds())
    assert len({placement.runs_in for placement in model.optimized.placements}) == 1
    for ours, theirs in zip(result, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_results_are_written_to_arrays_of_the_caller_also_where_these_change(engine, runtime):
    optimized = ip.optimize(small_network(), [engine], runtime.device_spec)
    loaded = runtime.load_network(optimized)
    x, scale = feeds()
    expected = runtime.enqueue_workload(loaded, {0: x, 1: scale})
    for _ in range(3):
        out = {0: np.zeros((2, 32), np.float32), 1: np.zeros((2, 32), np.float32)}
        runtime.enqueue_workload(loaded, {0: x.copy(), 1: scale.copy()}, out)
        for key, array in out.items():
            np.testing.assert_array_equal(array, expected[key])


def test_layers_whose_results_nobody_reads_do_not_disturb_the_others(engine, runtime):
    network = ip.Network("unread")
    x = network.add_input_layer(0, ip.TensorInfo((2, 3)))
    network.add_layer(Addition(), x, x, name="unread")
    network.add_output_layer(0, network.add_layer(Activation(ActivationFunction.RELU), x))
    optimized = ip.optimize(network, [engine], runtime.device_spec, ip.OptimizerOptions(rewrite=False))
    loaded = runtime.load_network(optimized)
    array = np.float32([[1, -2, 3], [-4, 5, -6]])
    np.testing.assert_array_equal(runtime.enqueue_workload(loaded, {0: array})[0], np.maximum(array, 0))


def test_several_threads_get_what_one_alone_gets(engine, runtime):
    model = ip.load(small_network(), [engine], runtime=runtime)
    expected = [model.run(feeds(seed)) for seed in range(4)]
    result: dict[int, list[list[np.ndarray]]] = {}

    def work(seed: int) -> None:
        result[seed] = [model.run(feeds(seed)) for _ in range(20)]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, runs in result.items():
        assert all(np.array_equal(*pair) for run in runs for pair in zip(run, expected[seed], strict=True))


def test_large_weights_are_not_copied_into_the_model(engine):
    pytest.importorskip("onnx", reason="the package onnx is not installed")
    from interposer.backends.engines.models import onnx_part
    from interposer.ir.subgraph import SubgraphView

    graph = small_network().graph
    view = SubgraphView(graph, [layer for layer in graph if layer.kind == "FullyConnected"])
    part = onnx_part(view, exact=True)
    [array] = part.constants.values()
    assert np.shares_memory(array, graph.layer("w").op.value)
    assert len(part.model.SerializeToString()) < 1024


# --- options ----------------------------------------------------------------------------------------------------------


def options_for(engine: str, **values: object) -> ip.OptimizerOptions:
    return ip.OptimizerOptions(model_options={engine: values})


def test_options_are_capabilities_with_a_line_about_each(engine):
    kind = engine_class(engine)
    for option in kind.options:
        result = kind.capabilities.describe(option.name)
        assert (result.value, result.doc) == (option.default, f"An option: {option.doc}")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"thread": 2}, "has no option 'thread'; did you mean 'threads'?"),
        ({"threads": "2"}, "the option 'threads' of backend {} must be a whole number, not '2'"),
        ({"threads": -1}, "the option 'threads' of backend {} is -1; expected 0 or more"),
        ({"threads": 10**7}, "the option 'threads' of backend {} is 10000000; expected 1024 or fewer"),
    ],
)
def test_wrong_options_are_errors_that_say_so(engine, runtime, given, text):
    with pytest.raises(InvalidArgumentError) as caught:
        ip.optimize(small_network(), [engine, "CpuRef"], runtime.device_spec, options_for(engine, **given))
    assert text.format(engine) in str(caught.value)


@pytest.mark.parametrize(("name", "text"), [("thread", "did you mean 'threads'?"), ("threads", "not for a runtime")])
def test_options_of_a_runtime_are_errors_and_move_nothing_to_another_backend(engine, name, text):
    with ip.Runtime(ip.CreationOptions(backend_options={engine: {name: 2}})) as runtime:
        with pytest.raises(ip.errors.OptionError) as caught:
            ip.load(small_network(), [engine, "CpuRef"], runtime=runtime)
        assert text in str(caught.value)


def test_a_number_of_threads_can_be_chosen(engine, runtime):
    model = ip.load(small_network(), [engine], runtime=runtime, options=options_for(engine, threads=2))
    assert len(model.run(feeds())) == 2


# --- real models ------------------------------------------------------------------------------------------------------


def golden(name: str, case: int = 0) -> tuple[ip.Network, list[np.ndarray], np.ndarray]:
    network = tflite.load(MODELS / f"{name}.tflite")
    with np.load(MODELS / f"{name}.golden.npz") as arrays:
        return network, [arrays[f"case{case}_input0"]], arrays[f"case{case}_output0_reference"]


@needs_models
@pytest.mark.parametrize("name", FLOATS)
def test_a_float_model_runs_whole_on_an_engine(engine, runtime, name):
    network, value, expected = golden(name)
    [result] = ip.load(network, [engine], runtime=runtime).run(value)
    np.testing.assert_allclose(result, expected, rtol=0, atol=0.01 if "kws" in name else 1e-5 * np.abs(expected).max())


@needs_models
@pytest.mark.parametrize("name", QUANTIZED)
def test_a_quantized_model_runs_whole_on_an_engine_and_finds_the_same(engine, runtime, name):
    network, value, expected = golden(name)
    [result] = ip.load(network, [engine], runtime=runtime).run(value)
    assert result.argmax() == expected.argmax()
    assert np.abs(result.astype(int) - expected.astype(int)).mean() <= 1


@needs_models
@pytest.mark.needs_cpuref
@pytest.mark.parametrize("name", ["vww_96_float", "vww_96_int8"])
def test_a_model_runs_by_turns_on_an_engine_and_the_reference(engine, runtime, name):
    network, value, expected = golden(name)
    for layer in network:
        if layer.kind in ("DepthwiseConvolution2d", "Softmax"):
            layer.hint = "CpuRef"
    model = ip.load(network, [engine, "CpuRef"], runtime=runtime)
    assert {placement.backend for placement in model.optimized.placements} == {engine, "CpuRef"}
    [result] = model.run(value)
    np.testing.assert_allclose(
        result.astype(float), expected.astype(float), atol=1e-5 if expected.dtype.kind == "f" else 2
    )

"""Layers that inference engines measured inside of their partitions."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer import Network, OptimizerOptions, Runtime, TensorInfo
from interposer.ops import ActivationFunction
from interposer.profiling import Category, Interval
from interposer.profiling.profiles import Profile
from interposer.runtime import CreationOptions
from tests.isolating import needs_linux

X = np.ones((8, 16), np.float32)
MEASURED = ("OnnxRuntime", "OpenVino", "Torch")


def dense() -> Network:
    network = Network("dense")
    x = network.add_input_layer(0, TensorInfo((8, 16)), name="x")
    weights = network.add_constant_layer(np.full((16, 16), 0.01, np.float32))
    y = network.add_batch_mat_mul_layer(x, weights, name="product")
    y = network.add_activation_layer(y, function=ActivationFunction.RELU, name="positive")
    network.add_output_layer(0, network.add_softmax_layer(y, name="share"), name="y")
    return network


def runtime_with(engine: str, isolate: tuple[str, ...] = ()) -> Runtime:
    runtime = Runtime(CreationOptions(isolate=list(isolate)))
    reason = runtime.registry.reason_absent(engine)
    if reason is not None:
        runtime.close()
        pytest.skip(f"needs {engine}: {reason}")
    return runtime


def of(profile: Profile, category: Category) -> list[Interval]:
    return [interval for interval in profile.recording.intervals if interval.site.category is category]


def check_nested(profile: Profile) -> None:
    layers = {interval.run: interval for interval in of(profile, Category.LAYER)}
    for interval in of(profile, Category.KERNEL):
        layer = layers[interval.run]
        assert layer.begin <= interval.begin <= interval.end <= layer.end
        assert (interval.thread, interval.inference) == (layer.thread, layer.inference)


@pytest.mark.parametrize("isolated", [False, pytest.param(True, marks=needs_linux)], ids=["here", "isolated"])
@pytest.mark.parametrize("engine", MEASURED)
def test_the_layers_of_an_engine_are_inside_of_its_partition_in_every_run(engine: str, isolated: bool) -> None:
    with runtime_with(engine, (engine,) if isolated else ()) as runtime:
        model = ip.load(dense(), [engine], runtime=runtime)
        expected = model.run([X])
        with ip.profile() as profile:
            results = [model.run([X]) for _ in range(3)]
        outputs_afterwards = model.run([X])
    for outputs in (*results, outputs_afterwards):
        np.testing.assert_allclose(outputs[0], expected[0], rtol=1e-6)
    kernels = of(profile, Category.KERNEL)
    runs = Counter(interval.run for interval in kernels if interval.site.layer == "product")
    assert list(runs.values()) == [1, 1, 1]
    assert {"product", "share"} <= {interval.site.layer for interval in kernels}
    assert all(interval.site.kind and interval.site.backend == engine for interval in kernels)
    check_nested(profile)


@pytest.mark.parametrize("engine", MEASURED)
def test_a_profile_of_one_call_and_a_second_recording_have_the_layers_too(engine: str) -> None:
    with runtime_with(engine) as runtime:
        model = ip.load(dense(), [engine], runtime=runtime)
        one, two = ip.Profile(), ip.Profile()
        model.run([X], profile=one)
        with two:
            model.run([X])
            model.run([X])
    for profile, count in ((one, 1), (two, 2)):
        assert sum(interval.site.layer == "product" for interval in of(profile, Category.KERNEL)) == count
        check_nested(profile)


@pytest.mark.parametrize("engine", MEASURED)
def test_a_model_that_is_closed_before_the_recording_ends_has_its_layers(engine: str) -> None:
    with runtime_with(engine) as runtime:
        with ip.profile() as profile, ip.load(dense(), [engine], runtime=runtime) as model:
            model.run([X])
        assert of(profile, Category.KERNEL)
        check_nested(profile)


@pytest.mark.parametrize("engine", ["OnnxRuntime", "OpenVino"])
def test_an_option_prevents_that_an_engine_compiles_for_profiles(engine: str) -> None:
    with runtime_with(engine) as runtime:
        options = OptimizerOptions(model_options={engine: {"layer_times": False}})
        model = ip.load(dense(), [engine], runtime=runtime, options=options)
        with ip.profile() as profile:
            model.run([X])
    assert of(profile, Category.KERNEL) == []
    assert len(of(profile, Category.LAYER)) == 1


@pytest.mark.parametrize("engine", MEASURED)
def test_concurrent_runs_keep_their_own_layers(engine: str) -> None:
    with runtime_with(engine) as runtime:
        model = ip.load(dense(), [engine], runtime=runtime)
        with ip.profile() as profile:
            workers = [threading.Thread(target=lambda: [model.run([X]) for _ in range(4)]) for _ in range(3)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
    counts = Counter(interval.run for interval in of(profile, Category.KERNEL) if interval.site.layer == "product")
    assert len(counts) == 12
    assert set(counts.values()) == {1}
    check_nested(profile)


def test_onnxruntime_measures_so_many_runs_that_its_profile_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interposer.backends.engines.onnxruntime_profiles._MOST_RUNS", 2)
    with runtime_with("OnnxRuntime") as runtime:
        model = ip.load(dense(), ["OnnxRuntime"], runtime=runtime)
        with ip.profile() as profile:
            for _ in range(4):
                model.run([X])
    assert sum(interval.site.layer == "product" for interval in of(profile, Category.KERNEL)) == 2
    assert len(of(profile, Category.LAYER)) == 4


def test_without_a_temporary_folder_onnxruntime_measures_nothing_and_runs_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with runtime_with("OnnxRuntime") as runtime:
        model = ip.load(dense(), ["OnnxRuntime"], runtime=runtime, fallback=False)
        with ip.profile() as profile:
            model.run([X])
            model.run([X])
    assert of(profile, Category.KERNEL) == []
    assert len(of(profile, Category.LAYER)) == 2


def test_litert_is_one_interval() -> None:
    with runtime_with("LiteRt") as runtime:
        model = ip.load(dense(), ["LiteRt"], runtime=runtime)
        with ip.profile() as profile:
            model.run([X])
    assert len(of(profile, Category.LAYER)) == 1
    assert of(profile, Category.KERNEL) == []

"""CpuAcc's options: what they are, what is refused, threads of every runtime, and kernels that are chosen by timing."""

from __future__ import annotations

import json
import os
import subprocess

import numpy as np
import pytest

import interposer as ip
from interposer.cli.main import main
from interposer.core.cache import cached_files
from interposer.core.errors import OptionError
from interposer.core.types import DataLayout, TensorInfo
from interposer.ops import Activation, ActivationFunction, Convolution2d, DepthwiseConvolution2d, FullyConnected
from interposer.plugins.capi.caching.blobs import Blobs
from tests import warm
from tests.instruction_sets import needs_instruction_set

pytestmark = pytest.mark.usefixtures("cpuacc")

RELU = Activation(function=ActivationFunction.RELU)
NHWC = {"data_layout": DataLayout.NHWC}
SAME = {"pad_left": 1, "pad_right": 1, "pad_top": 1, "pad_bottom": 1, "stride_x": 1, "stride_y": 1, **NHWC}
POINT = {"stride_x": 1, "stride_y": 1, **NHWC}


def block():
    """Return a 3 x 3 convolution and an inverted residual block after it; CpuAcc has alternatives for both."""
    draw = np.random.default_rng(7)
    weights = lambda *shape: network.add_constant_layer(draw.standard_normal(shape).astype(np.float32) / 12)  # noqa: E731
    network = ip.Network("block")
    x = network.add_input_layer(0, TensorInfo((1, 20, 24, 32)), name="x")
    y = network.add_layer(RELU, network.add_layer(Convolution2d(**SAME), x, weights(48, 3, 3, 32)))
    y = network.add_layer(RELU, network.add_layer(Convolution2d(**POINT), y, weights(96, 1, 1, 48)))
    y = network.add_layer(RELU, network.add_layer(DepthwiseConvolution2d(**SAME), y, weights(1, 3, 3, 96)))
    y = network.add_layer(Convolution2d(**POINT), y, weights(48, 1, 1, 96))
    network.add_output_layer(0, y, name="y")
    return network


X = np.random.default_rng(8).standard_normal((1, 20, 24, 32), np.float32)


def tuned(level):
    options = ip.OptimizerOptions(model_options={"CpuAcc": {"TuningLevel": level}})
    return ip.load(block(), ["CpuAcc"], options=options)


def test_kernels_chosen_by_timing_are_within_the_tolerance_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    [by_rules], [first], [again] = tuned(0).run([X]), tuned(1).run([X]), tuned(1).run([X])
    np.testing.assert_allclose(first, by_rules, rtol=0, atol=1e-4 * float(np.abs(by_rules).max()))
    np.testing.assert_array_equal(again, first)
    assert len(cached_files("compiled")) == 2


@pytest.mark.parametrize(("name", "value", "expected"), [
    ("NumberOfThreads", -1, "NumberOfThreads is -1; expected 0 to 256"),
    ("NumberOfThreads", 1000, "NumberOfThreads is 1000; expected 0 to 256"),
    ("TuningLevel", 3, "TuningLevel is 3; expected 0 to 2"),
    ("TuningLevel", "high", "option 'TuningLevel' of backend 'CpuAcc' must be a int, not 'high'"),
    ("NumberOfThread", 2, "did you mean 'NumberOfThreads'?"),
])  # fmt: skip
def test_options_that_cannot_be_meant_are_refused_by_name(name, value, expected):
    options = ip.OptimizerOptions(model_options={"CpuAcc": {name: value}})
    with pytest.raises(ip.errors.InterposerError) as caught:
        ip.load(block(), ["CpuAcc"], options=options)
    assert expected in str(caught.value)


def test_runtimes_have_threads_of_their_own():
    result = []
    for threads in (1, 2, 3):
        with ip.Runtime(ip.CreationOptions(backend_options={"CpuAcc": {"NumberOfThreads": threads}})) as runtime:
            model = ip.load(block(), ["CpuAcc"], runtime=runtime)
            result.append(model.run([X])[0])
            backend = runtime.registry.get("CpuAcc")
            assert f"threads {threads} " in backend.blobs.fingerprint(backend._options({}))
    for other in result[1:]:
        np.testing.assert_allclose(other, result[0], rtol=0, atol=1e-4 * float(np.abs(result[0]).max()))


def test_the_options_are_listed_with_a_line_about_each(capsys):
    assert main(["backends", "--json"]) == 0
    [record] = [load for load in json.loads(capsys.readouterr().out) if load["id"] == "CpuAcc"]
    options = {item["name"]: item for item in record["options"]}
    assert set(options) == {
        "NumberOfThreads", "FastRequantization", "FastMathEnabled", "TuningLevel", "CacheDirectory",
    }  # fmt: skip
    assert all(option["doc"] and option["for"] == ["runtime", "network"] for option in options.values())


def cached_in(folder):
    return [file.name.partition("/")[0] for file in cached_files(folder=str(folder))]


def test_networks_name_the_folder_in_which_they_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "package"))
    [plain] = ip.load(block(), ["CpuAcc"]).run([X])
    for name in ("one", "two"):
        options = ip.OptimizerOptions(model_options={"CpuAcc": {"CacheDirectory": str(tmp_path / name)}})
        np.testing.assert_array_equal(ip.load(block(), ["CpuAcc"], options=options).run([X])[0], plain)
    assert [cached_in(tmp_path / name) for name in ("package", "one", "two")] == [["compiled"]] * 3
    names = {file.name for folder in ("package", "one", "two") for file in cached_files(folder=str(tmp_path / folder))}
    assert len(names) == 1  # where a part lies says nothing of what it is


def large(seed):
    """Return a fully connected layer whose weights are so large that they are cached after the first result."""
    network = ip.Network("large")
    x = network.add_input_layer(0, TensorInfo((1, 1024)), name="x")
    weights = np.random.default_rng(seed).standard_normal((512, 1024), np.float32)
    y = network.add_layer(FullyConnected(), x, network.add_constant_layer(weights))
    network.add_output_layer(0, y, name="y")
    return network


def test_large_parts_are_kept_after_the_first_answer_and_before_their_runtime_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    restored, plain = [], Blobs.restore_tables
    monkeypatch.setattr(Blobs, "restore_tables", lambda *value: restored.append(value) or plain(*value))
    x = np.linspace(-1, 1, 1024, dtype=np.float32).reshape(1, 1024)
    result = []
    for seed in (1, 2, 1, 2):  # their tables have the same outline
        with ip.Runtime() as runtime:
            result.append(ip.load(large(seed), ["CpuAcc"], runtime=runtime).run([x])[0])
    assert len(cached_files("compiled")) == len(restored) == 2
    assert np.any(result[0] != result[1])
    np.testing.assert_array_equal(result[2:], result[:2])


def backends_with(level: str) -> str:
    """What `interposer backends` prints with a value of INTERPOSER_CPUACC_ISA."""
    command = [*warm.python(), "-m", "interposer", "backends"]
    environment = {**os.environ, "INTERPOSER_CPUACC_ISA": level}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout


def test_an_unknown_instruction_set_is_refused_with_those_that_there_are():
    said = (
        "INTERPOSER_CPUACC_ISA is 'avx3'; expected one of baseline, avx2, avx512, avx512vnni, avx512bf16, amx "
        "(this processor has baseline"
    )
    assert said in backends_with("avx3")


@pytest.mark.parametrize("level", ["", "baseline"])
def test_an_instruction_set_that_is_known_or_empty_is_taken(level):
    needs_instruction_set(level or "amx")
    [line] = [line for line in backends_with(level).splitlines() if line.startswith("CpuAcc")]
    assert f"InstructionSet={level}" in line


@pytest.mark.needs_cpuref
def test_a_value_that_is_refused_is_an_error_and_no_reason_to_use_the_next_backend():
    options = ip.OptimizerOptions(model_options={"CpuAcc": {"TuningLevel": 3}})
    with pytest.raises(OptionError, match="^backend 'CpuAcc' refuses its options: TuningLevel is 3; expected 0 to 2$"):
        ip.load(block(), ["CpuAcc", "CpuRef"], options=options)

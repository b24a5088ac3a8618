"""``native/cpuref``, the reference backend in C++: loaded in the place of the one in Python, asked, run and checked."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from interposer import Network, Quantization, TensorInfo, ops, optimize
from interposer.core.types import DataLayout
from interposer.ops import Activation, ActivationFunction, Convolution2d, FullyConnected, Pooling2d, Reshape, Softmax
from interposer.plugins.capi.loading.open_libraries import backend_of_file
from interposer.plugins.capi.loading.records import State
from interposer.testing import check_backend, samples_of
from interposer.testing.bench import Bench
from interposer.testing.oracle import reference_outputs
from interposer.testing.trial import Trial
from tests.native import compiler_for, install_plugin, mapped_files

FOLDER = Path(__file__).parents[3] / "native" / "cpuref"
NAME = "Interposer_CpuRef_backend.so"
FLAGS = ("-O1", "-ffp-contract=off", "-fvisibility=hidden", f"-I{FOLDER.parent}")
TYPES = [
    "Activation", "Addition", "Concat", "Convolution2d", "DepthwiseConvolution2d", "Dequantize", "FullyConnected",
    "Multiplication", "Pooling2d", "Quantize", "Reshape", "Softmax",
]  # fmt: skip
FAMILIES = ["activation", "convolution", "elementwise", "matmul", "pooling", "quantization", "rearrange", "reshape"]
LAYERS = ["--only=results/*", *(f"--family={name}" for name in FAMILIES)]
NETWORKS = ["--only=*/chain-*"]
NHWC = DataLayout.NHWC
RANDOM = np.random.default_rng(20240229)


@pytest.fixture
def library(natives, tmp_path):
    """Return the path of the shared object, alone in a folder."""
    if not sys.platform.startswith("linux"):
        pytest.skip("dynamic backends are only for Linux")
    return install_plugin(natives.compiled(FOLDER / "cpuref.cpp", *FLAGS), tmp_path / "plugins", NAME)


@pytest.fixture
def instead(library, runtime_of):
    """A runtime in which it is CpuRef."""
    return runtime_of(disabled_backends=["CpuRef"])


def codes(*shape):
    return RANDOM.integers(-128, 128, shape).astype(np.int8)


def info_of(shape, scale=None, zero_point=0):
    if scale is None:
        return TensorInfo(shape, "float32")
    return TensorInfo(shape, "int8", Quantization(scale, zero_point))


def convolution_network(quantized):
    """A convolution in two groups, with dilation, padding, a bias, and for int8 a scale for each output channel."""
    network = Network("convolution")
    if quantized:
        scales = [0.5, 0.031, 0.25, 0.0007]
        x = network.add_input_layer(0, info_of((2, 9, 8, 6), 0.37, -5))
        weights = network.add_constant_layer(codes(4, 3, 2, 3), Quantization(scales, axis=0))
        bias = network.add_constant_layer(np.int32([70, -200, 0, 100_000]))
        outputs = [info_of((2, 5, 4, 4), 7.1, 11)]
    else:
        x = network.add_input_layer(0, info_of((2, 9, 8, 6)))
        weights = network.add_constant_layer(RANDOM.standard_normal((4, 3, 2, 3), np.float32))
        bias = network.add_constant_layer(np.float32([1, -2, 0, 5]))
        outputs = None
    op = Convolution2d(
        groups=2, stride_x=2, stride_y=2, dilation_y=2, pad_top=2, pad_bottom=2, pad_right=1, data_layout=NHWC
    )
    result = network.add_layer(op, x, weights, bias, name="convolution", outputs=outputs)
    network.add_output_layer(0, result)
    return network, codes(2, 9, 8, 6) if quantized else RANDOM.standard_normal((2, 9, 8, 6), np.float32)


def run(runtime, network, x):
    network_id = runtime.load_network(optimize(network, ["CpuRef"], runtime.device_spec))
    result = runtime.enqueue_workload(network_id, {0: x})[0]
    runtime.unload_network(network_id)
    return result


# --- in the place of the one in Python --------------------------------------------------------------------------------


@pytest.mark.parametrize("quantized", [False, True], ids=["float32", "int8"])
def test_a_convolution_is_supported_loaded_and_run(instead, library, quantized):
    [record] = instead.dynamic_backends()
    assert (record.id, record.state, record.path) == ("CpuRef", State.LOADED, str(library))
    network, x = convolution_network(quantized)
    layer = network.graph.layer("convolution")
    assert instead.registry.get("CpuRef").layer_support({}).is_layer_supported(layer)

    result = run(instead, network, x)
    expected = reference_outputs(network.graph, {0: x})[0]
    if quantized:
        np.testing.assert_array_equal(result, expected)
        assert len(np.unique(result)) > 50
    else:
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.needs_cpuref
def test_beside_the_one_in_python_its_id_is_registered_already(library, runtime_of):
    [record] = runtime_of().dynamic_backends()
    assert (record.state, record.id) == (State.SKIPPED, "CpuRef")
    assert record.reason == "the id 'CpuRef' is registered already (entry point of interposer-nn)"


def test_library_and_registration_are_gone_with_the_runtime(library, runtime_of):
    runtime = runtime_of(disabled_backends=["CpuRef"], unload_libraries=True)
    assert str(library) in mapped_files()
    run(runtime, *convolution_network(quantized=True))
    runtime.close()
    gc.collect()
    assert [dynamic_backend.state for dynamic_backend in runtime.dynamic_backends()] == [State.CLOSED]
    assert runtime.registry.reason_absent("CpuRef") == "it is disabled"
    assert str(library) not in mapped_files()


def test_a_small_quantized_network_gives_what_the_reference_gives_bit_for_bit(instead):
    network = Network("small")
    x = network.add_input_layer(0, info_of((1, 12, 12, 3), 1 / 255, -128))
    weights = network.add_constant_layer(codes(8, 3, 3, 3), Quantization([0.01] * 8, axis=0))
    value = network.add_layer(
        Convolution2d(data_layout=NHWC), x, weights, outputs=[info_of((1, 10, 10, 8), 0.05, -20)], name="c"
    )
    value = network.add_layer(Activation(function=ActivationFunction.RELU), value)
    pool = Pooling2d(pool_width=2, pool_height=2, stride_x=2, stride_y=2, data_layout=NHWC)
    value = network.add_layer(Reshape(target_shape=(1, 200)), network.add_layer(pool, value))
    dense = network.add_constant_layer(codes(10, 200), Quantization(0.02))
    scores = [info_of((1, 10), 0.3, 4)]
    value = network.add_layer(FullyConnected(transpose_weight_matrix=True), value, dense, outputs=scores)
    network.add_output_layer(0, network.add_layer(Softmax(), value))
    image = codes(1, 12, 12, 3)
    np.testing.assert_array_equal(run(instead, network, image), reference_outputs(network.graph, {0: image})[0])


# --- each type of layer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TYPES)
def test_int8_is_bit_for_bit_what_the_reference_gives(library, name):
    bench = Bench(backend_of_file(str(library)), ())
    trials = [Trial(bench, sample) for sample in samples_of(getattr(ops, name)) if "int8" in sample.id]
    ran = [trial for trial in trials if trial.ran]
    for item in ran:
        for key, expected in item.expected().items():
            if expected.dtype == np.int8:
                np.testing.assert_array_equal(item.first_outputs[key], expected, item.sample.id)
    bench.close()
    assert ran
    assert not any(trial.failure for trial in trials)


@pytest.mark.parametrize("function", ["RELU", "BOUNDED_RELU", "LEAKY_RELU", "ABS", "SIGMOID", "TANH"])
def test_functions_of_every_int8_number_are_those_of_the_reference(instead, function):
    x = np.arange(-128, 128).astype(np.int8)
    for scale, zero_point in ((0.043, 3), (0.0071, -100)):
        network = Network("function")
        op = Activation(function=ActivationFunction[function], a=1.3, b=0.4)
        value = network.add_input_layer(0, info_of((256,), 0.05, 10))
        outputs = [info_of((256,), scale, zero_point)]
        network.add_output_layer(0, network.add_layer(op, value, outputs=outputs))
        np.testing.assert_array_equal(run(instead, network, x), reference_outputs(network.graph, {0: x})[0])


def test_what_it_does_not_run_it_refuses_with_reasons(library):
    bench = Bench(backend_of_file(str(library)), ())
    reasons = {
        reason
        for name in ("Activation", "Pad")
        for sample in samples_of(getattr(ops, name))
        for reason in Trial(bench, sample).reasons
    }
    bench.close()
    assert {
        "no kernel for Pad",
        "input is float16; takes float32, or int8 with a scale",
        "GELU is not computed here",
        "ELU of int8 is not computed here",
    } <= reasons


def test_windows_that_a_file_can_only_lie_about_are_refused(library):
    network = Network("far")
    x = network.add_input_layer(0, info_of((1, 1, 4, 4)))
    layer = Pooling2d(pool_width=2, pool_height=2, stride_x=2**62, stride_y=2**62, pad_left=2**62)
    network.add_output_layer(0, network.add_layer(layer, x, name="far"))
    verdict = backend_of_file(str(library)).layer_support({}).is_layer_supported(network.graph.layer("far"))
    assert verdict.reasons == ("pad_left is greater than 2**31",)


@pytest.mark.parametrize("length", [8191, 8192])
def test_a_softmax_of_int8_sums_as_many_elements_as_32_bits_can_hold(instead, length):
    network = Network("long")
    x = network.add_input_layer(0, info_of((1, length), 0.1))
    network.add_output_layer(0, network.add_layer(Softmax(), x, name="long"))
    verdict = instead.registry.get("CpuRef").layer_support({}).is_layer_supported(network.graph.layer("long"))
    if length > 8191:
        assert verdict.reasons == ("rows of int8 have more than 8191 elements",)
        return
    equal = np.zeros((1, length), np.int8)
    np.testing.assert_array_equal(run(instead, network, equal), reference_outputs(network.graph, {0: equal})[0])


# --- as a whole -------------------------------------------------------------------------------------------------------


def test_it_conforms_on_some_samples(library):
    some = [sample for name in TYPES for sample in samples_of(getattr(ops, name))[:2]]
    patterns = ["[rsiop]*/*2d-*", "*/Softmax-*", "*/chain-[01]", "context/*"]
    report = check_backend(str(library), samples=some, only=patterns)
    assert {result.id.partition("/")[0] for result in report.results} >= {"results", "support", "division", "context"}
    assert report.ok, str(report)


def check(library, *arguments, **environment):
    words = [sys.executable, "-m", "interposer", "check-backend", str(library), "--json", "--timeout=300", *arguments]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_it_passes_the_whole_conformance_kit(library):
    status, report = check(library, "--examples=30", INTERPOSER_CHECK_BACKENDS="yes")
    assert status == 0, report
    assert report["backend"] == "CpuRef"


def sanitizers(compiler):
    """The libraries that must be loaded before a shared object built with sanitizers."""
    words = [[compiler, f"-print-file-name={name}"] for name in ("libasan.so", "libubsan.so", "libstdc++.so")]
    paths = [subprocess.run(word, capture_output=True, text=True, check=True).stdout.strip() for word in words]
    if not all(map(os.path.isabs, paths)):
        pytest.skip(f"{compiler} has no sanitizers")
    return ":".join(map(os.path.realpath, paths))


@pytest.fixture
def sanitized(natives, tmp_path):
    """Builds a source with sanitizers, and checks it in a process that has them."""
    if not sys.platform.startswith("linux"):
        pytest.skip("dynamic backends are only for Linux")
    preload = sanitizers(compiler_for("c++"))
    flags = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")

    def sanitized(source, *arguments, statements=()):
        library = install_plugin(natives.compiled(source, *flags, *statements), tmp_path / "sanitized", NAME)
        # Python itself does not free all memory when it ends
        return check(library, *arguments, LD_PRELOAD=preload, ASAN_OPTIONS="detect_leaks=0", PYTHONMALLOC="malloc")

    return sanitized


@pytest.mark.slow
@pytest.mark.parametrize("cases", [LAYERS, NETWORKS], ids=["layers", "networks"])
def test_sanitizers_find_nothing(sanitized, cases):
    status, report = sanitized(FOLDER / "cpuref.cpp", *cases, statements=["-ffp-contract=off", f"-I{FOLDER.parent}"])
    assert status == 0, report
    assert report["counts"]["pass"] > 10


PROBLEMS = {
    "a write past its memory": "volatile int at = 8; ((volatile char*)malloc(8))[at] = 1;",
    "an overflow": "volatile int most = 2147483647; most = most + 1;",
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", PROBLEMS.values(), ids=PROBLEMS.keys())
def test_sanitizers_would_find(sanitized, fault):
    status, report = sanitized(Path("adder.c"), "--only=results/Addition-float32", statements=[f"-DAT_EXECUTE={fault}"])
    assert status == 1
    assert "the backend ended its process with status 1" in str(report)


@pytest.mark.slow
def test_the_makefile_builds_it(tmp_path):
    if not sys.platform.startswith("linux") or shutil.which("make") is None:
        pytest.skip("dynamic backends are only for Linux, and make builds this one")
    for folder in (FOLDER, FOLDER.parent / "common"):
        shutil.copytree(folder, tmp_path / folder.name, ignore=shutil.ignore_patterns("build"))
    words = ["make", f"CXX={compiler_for('c++')}", f"PYTHON={sys.executable}", "CXXFLAGS=-O0 -Wall -Wextra -Werror"]
    done = subprocess.run(words, cwd=tmp_path / "cpuref", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    backend = backend_of_file(str(tmp_path / "cpuref" / "build" / NAME))
    assert (backend.id, backend.version) == ("CpuRef", "1.0.0")

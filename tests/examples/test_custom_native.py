"""The example of a backend in C, C++ and Rust: built by its Makefile, checked, and run."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from interposer import CreationOptions, Network, Runtime, TensorInfo, optimize
from interposer.ops import Addition, PreCompiled, Softmax
from interposer.testing import check_backend, samples_of
from tests import warm
from tests.native import compiler_for

FOLDER = Path(__file__).parents[2] / "examples" / "custom_native"
SOURCES = {"c": "c/custom.c", "cpp": "cpp/custom.cpp", "rust": "rust/custom.rs"}
VARIABLES = {"c": ("CC", "c"), "cpp": ("CXX", "c++"), "rust": ("RUSTC", "rust")}
NOTICES = ["before_load", "after_load", "before_unload", "after_unload"]

A = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
B = np.arange(100, 1300, 100, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module", params=SOURCES)
def built(request, tmp_path_factory):
    """Return the folder of the shared object in one of the languages."""
    if not sys.platform.startswith("linux") or shutil.which("make") is None:
        pytest.skip("dynamic backends are only for Linux, and make builds this one")
    variable, language = VARIABLES[request.param]
    work = tmp_path_factory.mktemp("custom_native") / "example"
    shutil.copytree(FOLDER, work, ignore=shutil.ignore_patterns("build"))
    settings = [f"PYTHON={warm.executable()}", f"{variable}={compiler_for(language)}"]
    done = subprocess.run(["make", request.param, *settings], cwd=work, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    return work / "build" / request.param


@pytest.fixture
def runtime(built):
    with Runtime(CreationOptions(dynamic_backends_path=built)) as runtime:
        [record] = runtime.dynamic_backends()
        assert (record.id, record.state.value) == ("Custom", "loaded"), record
        yield runtime


def run(runtime, network, inputs):
    optimized = optimize(network, ["Custom"], runtime.device_spec)
    network_id = runtime.load_network(optimized)
    outputs = runtime.enqueue_workload(network_id, inputs)
    runtime.unload_network(network_id)
    return optimized, outputs


@pytest.mark.parametrize("source", SOURCES.values())
def test_each_is_one_file_of_under_200_lines(source):
    assert len((FOLDER / source).read_text(encoding="utf-8").splitlines()) < 200


def test_it_conforms_to_the_interface(built):
    samples = [*samples_of(Addition)[::3], *samples_of(Softmax)[:5]]
    patterns = ["*/Addition-*", "*/Softmax-*", "*/chain-[01]", "context/*"]
    report = check_backend(str(built / "Example_Custom_backend.so"), only=patterns, samples=samples)
    assert {result.id.partition("/")[0] for result in report.results} >= {"results", "support", "division", "context"}
    assert report.ok, str(report)


def test_it_says_who_it_is_and_what_it_can(runtime):
    backend = runtime.registry.get("Custom")
    assert (backend.id, backend.version) == ("Custom", "1.0.0")
    assert backend.capabilities.get("ConstantTensorsAsInputs") is True
    assert backend.capabilities.get("NonConstWeights") is False


def test_two_inputs_are_added(runtime):
    network = Network("addition")
    x, y = (network.add_input_layer(n, TensorInfo((3, 4))) for n in (0, 1))
    network.add_output_layer(0, network.add_layer(Addition(), x, y))
    optimized, outputs = run(runtime, network, {0: A, 1: B})
    assert sum(isinstance(layer.op, PreCompiled) for layer in optimized.graph) == 1
    np.testing.assert_array_equal(outputs[0], A + B)


def test_a_chain_shares_memory_and_a_constant_is_broadcast(runtime):
    row = np.float32([10, 20, 30, 40])
    network = Network("chain")
    x, c = network.add_input_layer(0, TensorInfo((3, 4))), network.add_constant_layer(row)
    value = network.add_layer(Addition(), x, c)
    for _ in range(6):
        value = network.add_layer(Addition(), value, value)
    network.add_output_layer(0, value)
    _, outputs = run(runtime, network, {0: A})
    np.testing.assert_array_equal(outputs[0], 64 * (A + row))


def test_its_context_is_told_of_the_network(runtime, caplog):
    caplog.set_level(logging.INFO, logger="interposer.backend.Custom")
    network = Network("twice")
    x = network.add_input_layer(0, TensorInfo((3, 4)))
    network.add_output_layer(0, network.add_layer(Addition(), x, x))
    run(runtime, network, {0: A})
    assert [record.getMessage() for record in caplog.records if record.name.endswith("Custom")] == NOTICES

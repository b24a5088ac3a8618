"""Folders of plug-ins, runtimes that search them, and a check for files and processes that remain."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from interposer import CreationOptions, Network, Runtime, TensorInfo, optimize
from tests.native import children, install_plugin, shared_memory

ADDER = Path("adder.c")


@pytest.fixture
def install(natives, tmp_path):
    """Puts a copy of the adder into a folder; ``-D`` flags make it another backend, or one with errors."""
    if not sys.platform.startswith("linux"):
        pytest.skip("dynamic backends are only for Linux")

    def install(name="Tests_Adder_backend.so", *flags, folder=tmp_path / "plugins", **statements):
        settings = [f"-D{key}={value}" for key, value in statements.items()]
        return install_plugin(natives.compiled(ADDER, *flags, *settings), folder, name)

    return install


@pytest.fixture
def runtime_of(tmp_path):
    """Return a function that creates runtimes, which search `tmp_path`/plugins and are closed at the end."""
    created = []

    def runtime_of(path=tmp_path / "plugins", **options):
        created.append(Runtime(CreationOptions(dynamic_backends_path=path, **options)))
        return created[-1]

    yield runtime_of
    for runtime in created:
        runtime.close()


@pytest.fixture
def user_cache(tmp_path, monkeypatch):
    """An empty cache folder, so that nothing is known of any file."""
    from interposer.plugins.capi.loading import loader

    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    loader.forget_verdicts()
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def nothing_stays(warm_python: None) -> Iterator[None]:
    """Check that no process and no shared memory remains. Trials of plug-ins are forks of a warm process."""
    processes, memory = children(), shared_memory()
    yield
    gc.collect()
    end = time.monotonic() + 60
    while children() - processes and time.monotonic() < end:  # a fork is killed soon after its client
        time.sleep(0.01)
    assert children() <= processes
    assert shared_memory() <= memory


def add_twice(runtime, *backends):
    """What ``(x + x) + x`` of 1, 2 and 3 gives."""
    network = Network("sums")
    x = network.add_input_layer(0, TensorInfo((3,)), name="x")
    network.add_output_layer(0, network.add_addition_layer(network.add_addition_layer(x, x), x))
    optimized = optimize(network, backends, runtime.device_spec)
    network_id = runtime.load_network(optimized)
    result = runtime.enqueue_workload(network_id, {0: np.float32([1, 2, 3])})
    runtime.unload_network(network_id)
    return result[0].tolist()

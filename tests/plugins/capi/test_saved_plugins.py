"""Networks of native plug-ins that are saved and loaded, with blobs and without."""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.plugins.capi.library.library import open_library
from interposer.plugins.capi.running.backend import DynamicBackend
from tests.plugins.capi.test_native_cpuref import convolution_network, instead, library

__all__ = ["instead", "library"]  # fixtures


def sums() -> ip.Network:
    """A network of the operators that the plug-in ``arithmetic.cpp`` has: (x + 2) + (x + 2)."""
    network = ip.Network("sums")
    x = network.add_input_layer(0, ip.TensorInfo((3,)), name="x")
    first = network.add_addition_layer(x, network.add_constant_layer(np.full(3, 2, np.float32), name="c"), name="first")
    network.add_output_layer(0, network.add_addition_layer(first, first, name="last"), name="y")
    return network


@pytest.fixture
def runtime(natives, tmp_path):
    path = str(natives.install(tmp_path / "libraries", "arithmetic.so", Path("arithmetic.cpp")))
    with ip.Runtime() as created:
        backend = DynamicBackend(open_library(ctypes.CDLL(path), path))
        created.registry.register("Arithmetic", lambda: backend)
        yield created


def test_a_blob_is_saved_and_restored(runtime, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    with ip.load(sums(), ["Arithmetic"], runtime=runtime) as model:
        model.save(tmp_path / "net.ipn")
    [variant] = ip.saved.check(tmp_path / "net.ipn").variants
    assert variant.parts == variant.compiled == {"Arithmetic": 1}
    with ip.load(tmp_path / "net.ipn", runtime=runtime) as loaded:
        assert loaded.run([np.float32([1, 2, 3])])[0].tolist() == [6, 8, 10]
    assert [record for record in caplog.records if record.name == "interposer.session"] == []


def test_the_native_reference_is_saved_without_blobs_and_compiled_again(instead, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    network = convolution_network(False)[0]
    shape = network.inputs[0].output.known.shape
    x = np.random.default_rng(1).standard_normal(tuple(map(int, shape)), np.float32)
    with ip.load(network, ["CpuRef"], runtime=instead) as model:
        model.save(tmp_path / "net.ipn")
        [variant] = ip.saved.check(tmp_path / "net.ipn").variants
        with ip.load(tmp_path / "net.ipn", runtime=instead) as loaded:
            np.testing.assert_array_equal(loaded.run([x])[0], model.run([x])[0])
    assert (bool(variant.parts), variant.compiled) == (True, {})
    assert [record for record in caplog.records if record.name == "interposer.session"] == []

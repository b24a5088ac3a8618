"""Packed weights: equal ones of several networks are in memory once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from tests.parameters import slow_unless

HERE = Path(__file__).parent
NATIVE = HERE.parents[2] / "native"
SOURCES = (
    HERE / "packed_pieces.cpp", NATIVE / "cpuacc/packed.cpp", NATIVE / "cpuacc/checksum.cpp",
    NATIVE / "common/arena.cpp",
)  # fmt: skip


@pytest.mark.parametrize("sanitizers", [*slow_unless("thread".__eq__, ["", "thread", "address,undefined"])])
def test_equal_pieces_are_there_once_and_as_long_as_somebody_has_them(natives, sanitizers):
    flags = [f"-fsanitize={sanitizers}", "-g"] if sanitizers else []
    program = natives.program(*SOURCES, flags=flags, folders=[NATIVE])
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=300)
    if "FATAL: ThreadSanitizer" in done.stderr:
        pytest.skip("the sanitizer does not run on this system")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.usefixtures("cpuacc")
def test_a_network_goes_on_when_the_one_that_packed_its_weights_is_gone():
    network = ip.Network("products")
    x = network.add_input_layer(0, ip.TensorInfo(("n", 64)), name="x")
    weights = np.random.default_rng(4).standard_normal((64, 64), np.float32)
    layer = network.add_fully_connected_layer(x, network.add_constant_layer(weights))
    network.add_output_layer(0, layer, name="y")
    first, second = (ip.load(network, backends=["CpuAcc"]) for _ in range(2))
    value = np.random.default_rng(5).standard_normal((3, 64), np.float32)
    [before] = first.run([value])
    [same] = second.run([value])
    [more] = second.run([np.concatenate([value, value])])
    first.close()
    [after] = second.run([value])
    assert np.array_equal(before, same) and np.array_equal(before, after)
    np.testing.assert_allclose(more, np.concatenate([before, before]), rtol=1e-5, atol=1e-5)

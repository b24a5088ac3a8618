"""Compiled networks of GpuAcc in the cache: damaged, of another network, in folders that cannot be written to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from interposer.core.cache import cached_files, read_cached, write_cached
from interposer.plugins.capi.caching.blobs import Blob, Blobs
from interposer.plugins.capi.caching.part_cache import CachedPart, read_part
from interposer.session.runtimes import default_runtime
from tests import warm
from tests.backends.gpuacc.test_gpuacc_runs import IMAGE, branches, in_a_process, loaded, small_network
from tests.parameters import slow_unless

ROOT = Path(__file__).parents[3]
RUN = """
import logging, sys
import numpy as np, interposer as ip
from tests.backends.gpuacc.test_gpuacc_runs import IMAGE, branches, loaded
logging.basicConfig(level=logging.INFO, format="%(message)s")
with ip.profile() as profile:
    result = loaded(branches(), ["GpuAcc"]).run([IMAGE])[0]
np.save(sys.argv[1], result)
[built] = [total for total in profile.counters() if total.counter.name == "Programs built"]
print("built", int(built.value))
"""


@pytest.fixture
def folder(gpuacc, tmp_path, monkeypatch):
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def kept(network):
    """Return the name of the cached file of a network that was just loaded, and the part in it."""
    before = {file.name for file in cached_files("compiled")}
    loaded(network, ["GpuAcc"])
    [name] = {file.name for file in cached_files("compiled")} - before
    return name, read_part(read_cached(name))


def check(result):
    np.testing.assert_allclose(result, loaded(branches(), ["CpuRef"]).run([IMAGE])[0], rtol=1e-5)


def test_every_damage_of_a_compiled_network_is_found(folder):
    _, part = kept(branches())
    blobs, data = Blobs.of(default_runtime().registry.get("GpuAcc").library), bytes(part.blob.data)
    assert blobs.fault(part.blob) is None
    for place in [*range(40), *range(40, len(data), len(data) // 150), len(data) - 1]:
        changed = data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :]
        for damaged in (changed, data[:place]):
            assert "damaged" in blobs.fault(Blob(damaged, True))


DAMAGES = {
    "truncated": lambda old, _: old[: len(old) // 2],
    "empty": lambda old, _: b"",
    "one byte": lambda old, _: old[:-900] + bytes([old[-900] ^ 1]) + old[-899:],
    "of another network": lambda old, other: b"".join(
        map(bytes, CachedPart(read_part(old).origin, Blob(bytes(other.blob.data), True)).content())
    ),
}


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("damage", slow_unless("of another network".__eq__, DAMAGES))
def test_a_file_that_cannot_be_used_is_logged_compiled_again_and_replaced(damage, folder, tmp_path):
    name, _ = kept(branches())
    _, other = kept(small_network())
    write_cached(name, DAMAGES[damage](bytes(read_cached(name)), other))
    first = in_a_process(RUN, str(tmp_path / "1.npy"))
    assert "built 0" not in first.stdout, first.stdout + first.stderr
    assert damage == "empty" or "a part that GpuAcc compiled before is compiled again" in first.stderr
    second = in_a_process(RUN, str(tmp_path / "2.npy"))
    assert "built 0" in second.stdout, second.stdout + second.stderr
    for number in (1, 2):
        check(np.load(tmp_path / f"{number}.npy"))


MEASURED = """
import numpy as np, interposer as ip
from interposer.ops import Convolution2d
network = ip.Network("measured")
x = network.add_input_layer(0, ip.TensorInfo((1, 64, 20, 20)))
network.add_output_layer(0, network.add_layer(
    Convolution2d(), x, network.add_constant_layer(np.ones((64, 64, 3, 3), np.float32))))
with ip.profile() as profile:
    ip.load(network, ["GpuAcc"])
[built] = [total for total in profile.counters() if total.counter.name == "Programs built"]
print("built", int(built.value))
"""


def test_what_was_measured_is_cached(folder):
    """A measurement builds the programs of both ways to compute a convolution."""
    builds = [int(in_a_process(MEASURED).stdout.split()[-1]) for _ in range(2)]
    assert builds[0] > 3
    assert builds[1] == 0


@pytest.mark.needs_cpuref
def test_a_cache_folder_that_cannot_be_written_to_is_logged_and_results_are_right(folder, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    done = in_a_process(RUN, str(tmp_path / "1.npy"), INTERPOSER_CACHE_DIR=str(tmp_path / "file" / "cache"))
    assert "cannot be" in done.stderr, done.stdout + done.stderr
    check(np.load(tmp_path / "1.npy"))


@pytest.mark.needs_cpuref
def test_processes_that_compile_one_network_at_the_same_time_have_right_results(folder, tmp_path):
    paths = [tmp_path / f"{number}.npy" for number in range(2)]
    words = [[*warm.python(), "-c", RUN, str(path)] for path in paths]
    processes = [subprocess.Popen(each, cwd=ROOT) for each in words]
    assert [process.wait(300) for process in processes] == [0, 0]
    for path in paths:
        check(np.load(path))
    assert "built 0" in in_a_process(RUN, str(tmp_path / "3.npy")).stdout


BOTH = """
import logging
import numpy as np, interposer as ip
from interposer.ops import Convolution2d
from tests.backends.gpuacc.test_gpuacc_runs import IMAGE, branches, loaded
logging.basicConfig(level=logging.WARNING, format="%(message)s")
random = np.random.default_rng(0)
measured = ip.Network("measured")
x = measured.add_input_layer(0, ip.TensorInfo((1, 64, 20, 20)))
weights = measured.add_constant_layer(random.normal(0, 0.1, (64, 64, 3, 3)).astype(np.float32))
measured.add_output_layer(0, measured.add_layer(Convolution2d(), x, weights))
image = random.normal(0, 1, (1, 64, 20, 20)).astype(np.float32)
with ip.profile() as profile:
    results = [loaded(branches(), ["GpuAcc"]).run([IMAGE])[0], loaded(measured, ["GpuAcc"]).run([image])[0]]
expected = [loaded(branches(), ["CpuRef"]).run([IMAGE])[0], loaded(measured, ["CpuRef"]).run([image])[0]]
for result, values in zip(results, expected):
    np.testing.assert_allclose(result, values, rtol=0, atol=1e-5 * np.abs(values).max())
[built] = [total for total in profile.counters() if total.counter.name == "Programs built"]
print("built", int(built.value))
"""

DISK = """
set -e
mount -t tmpfs -o size="$1" tmpfs "$2"
"$3" -c "$4"
find "$2" -type f | wc -l
mount -o remount,size=64m "$2"
"$3" -c "$4"
"$3" -c "$4"
"""
"""Runs a program three times: with a cache folder on a full disk, when the disk has room again, and once more."""


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("fits", slow_unless("one network".__eq__, ["no network", "one network"]))
def test_a_full_disk_is_logged_once_and_nothing_incomplete_is_read_later(folder, tmp_path, fits):
    """Of two networks, none or the first can be cached; the way to compute the second one is measured."""
    own_file_systems = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run([*own_file_systems, f"mount -t tmpfs tmpfs {disk}"], check=False, capture_output=True).returncode:
        pytest.skip("this system lets a user mount no file system")
    name, _ = kept(branches())
    size = (folder / name).stat().st_size + 32768 if fits == "one network" else 32768
    words = [*own_file_systems, DISK, "sh", str(size), str(disk), sys.executable, BOTH]
    settings = {**os.environ, "INTERPOSER_CACHE_DIR": str(disk / "cache"), "INTERPOSER_DISABLED_BACKENDS": "CpuAcc"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=settings, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    full, files, room, last = done.stdout.splitlines()
    assert done.stderr.count("cannot be stored in the cache folder") == 1, done.stderr
    assert "No space left on device" in done.stderr
    assert (files, last) == ("1" if fits == "one network" else "0", "built 0")
    assert full != "built 0"
    assert (room == full) == (fits == "no network")

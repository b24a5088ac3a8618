"""Marks for NVTX and for the trace of the Linux kernel."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer import Network, TensorInfo
from interposer.core.errors import BindingError, InvalidArgumentError, MissingDependencyError
from interposer.profiling import NvtxRanges, TraceMarks
from interposer.profiling.marks import active_marks, marked

X = np.ones((2, 3), np.float32)


@pytest.fixture
def model():
    network = Network("ma|in\nnet")
    x = network.add_input_layer(0, TensorInfo((2, 3)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x, name="twice"), name="y")
    return ip.load(network, ["CpuRef"])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "trace_marker"
    path.touch()
    return path


@pytest.mark.needs_cpuref
def test_each_run_is_a_slice_in_the_trace_of_the_kernel(model, file: Path) -> None:
    model.run([X])
    with TraceMarks(file):
        for _ in range(2):
            np.testing.assert_array_equal(model.run([X])[0], 2 * X)
    model.run([X])
    begins, end = [f"B|{os.getpid()}|{name}" for name in ("run ma_in_net", "twice (CpuRef)")], f"E|{os.getpid()}"
    assert file.read_text().splitlines() == [*begins, end, end] * 2


@pytest.mark.needs_cpuref
def test_a_run_that_raises_ends_as_well(model, file: Path) -> None:
    with TraceMarks(file), pytest.raises(BindingError):
        model.run([np.ones((3, 3), np.float32)])
    assert [line[0] for line in file.read_text().splitlines()] == ["B", "E"]


@pytest.mark.needs_cpuref
def test_runs_of_several_threads_and_a_profile_are_marked_once_each(model, file: Path) -> None:
    with TraceMarks(file), ip.profile() as profile:
        threads = [threading.Thread(target=model.run, args=([X],)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        model.run([X], profile=profile)
    lines = file.read_text().splitlines()
    assert sorted(line[0] for line in lines) == ["B"] * 10 + ["E"] * 10
    assert sum("|run " in line for line in lines) == 5
    assert sum(layer.count for layer in profile.layers()) == 5


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("records", [False, True])
def test_the_layers_of_every_kind_of_run_are_marked(records: bool, model, file: Path) -> None:
    x, y = np.ones((2, 3), np.float32), np.empty((2, 3), np.float32)
    with TraceMarks(file), ip.profile() if records else nullcontext():
        bound = model.bind([x], [y])
        bound()
        model.submit([x]).result()
        model.run([x], deadline=60)
    lines = [line for line in file.read_text().splitlines() if "twice" in line]
    assert lines == [f"B|{os.getpid()}|twice (CpuRef)"] * 3


def test_a_compiled_partition_is_marked_as_one_layer(cpuacc: None, file: Path) -> None:
    network = Network("net")
    x = network.add_input_layer(0, TensorInfo((2, 3)), name="x")
    sums = network.add_addition_layer(x, x, name="twice")
    network.add_output_layer(0, network.add_multiplication_layer(sums, x, name="more"), name="y")
    model = ip.load(network, ["CpuAcc"])
    with TraceMarks(file):
        np.testing.assert_array_equal(model.run([X])[0], 2 * X)
    lines = [line.split("|")[-1] for line in file.read_text().splitlines() if line[0] == "B"]
    assert lines[0] == "run net"
    assert len(lines) == 2
    assert lines[1].endswith("(CpuAcc)")


def test_a_mark_that_fails_does_not_stop_the_program(file: Path) -> None:
    class Failing(TraceMarks):
        def begin(self, name: str) -> None:
            raise OSError("full")

    with Failing(file), TraceMarks(file), marked("inside"):
        pass
    assert active_marks == []
    assert [line[0] for line in file.read_text().splitlines()] == ["B", "E"]


def test_a_missing_trace_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        TraceMarks(tmp_path / "no")
    assert str(refused.value) == (
        f"the trace of the kernel cannot be written: {tmp_path / 'no'}: No such file or directory; it needs Linux with "
        "tracefs mounted, and permission to write to this file"
    )


@pytest.mark.needs_cpuref
def test_runs_are_nvtx_ranges(model) -> None:
    nvtx = pytest.importorskip("nvtx", reason="needs nvtx")
    with NvtxRanges() as ranges:
        for _ in range(3):
            np.testing.assert_array_equal(model.run([X])[0], 2 * X)
    assert ranges not in active_marks
    assert nvtx is sys.modules["nvtx"]


def test_without_nvtx_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with pytest.raises(MissingDependencyError) as missing:
        NvtxRanges()
    assert str(missing.value) == "NVTX needs the package 'nvtx': pip install 'interposer-nn[nvtx]'"

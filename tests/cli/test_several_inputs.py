"""Several sets of inputs, and remarks about inputs that are valid but probably not meant."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import numpy as np
import pytest

from interposer.cli.main import main
from tests.cli import networks

pytest.importorskip("onnx", reason="the package onnx is not installed")
pytestmark = pytest.mark.needs_cpuref


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """Run a command in a folder with inputs, and return its exit status, its output and its messages."""
    Path(networks.doubler(tmp_path)).rename(tmp_path / "net.onnx")
    Path(networks.splitter(tmp_path)).rename(tmp_path / "two.onnx")
    monkeypatch.chdir(tmp_path)
    for number in (1, 2, 10):
        save(f"set/x{number}.npy", np.full((1, 4), number, np.float32))
        save(f"a{number}.npy", np.full((1, 3), number, np.float32))
        save(f"b{number}.npy", np.full((2, 3), 0, np.float32))

    def run(line: str) -> tuple[int, str, str]:
        status = main([*shlex.split(line), *([] if "backends" in line else ["--backends", "CpuRef"])])
        return status, *capsys.readouterr()

    return run


def save(path: str, array: np.ndarray) -> None:
    Path(path).parent.mkdir(exist_ok=True)
    np.save(path, array)


def results(output: str) -> list[tuple[str, float]]:
    return [(entry["inputs"], entry["outputs"][0]["max"]) for entry in json.loads(output)["sets"]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run net.onnx --input set", [("set/x1.npy", 2), ("set/x2.npy", 4), ("set/x10.npy", 20)]),
        ("run net.onnx --input x=set", [("x=set/x1.npy", 2), ("x=set/x2.npy", 4), ("x=set/x10.npy", 20)]),
        ("run net.onnx --input set/x2.npy set/x1.npy", [("set/x2.npy", 4), ("set/x1.npy", 2)]),
        ("run --input set/x2.npy set/x1.npy net.onnx", [("set/x2.npy", 4), ("set/x1.npy", 2)]),
        ("run two.onnx --input a1.npy b1.npy a2.npy b2.npy", [("a=a1.npy b=b1.npy", 1), ("a=a2.npy b=b2.npy", 2)]),
        ("run two.onnx --input b=b1.npy --input a=a1.npy a2.npy", [("b=b1.npy a=a1.npy", 1), ("b=b1.npy a=a2.npy", 2)]),
        ("run two.onnx --input a1.npy a2.npy --input b1.npy b2.npy", [("a1.npy b1.npy", 1), ("a2.npy b2.npy", 2)]),
        ("run two.onnx --input a=a1.npy a2.npy b=b1.npy b2.npy", [("a=a1.npy b=b1.npy", 1), ("a=a2.npy b=b2.npy", 2)]),
    ],
)
def test_a_network_runs_on_each_set_of_inputs(line, expected, said):
    status, output, messages = said(f"{line} --json")
    assert (status, messages) == (0, "")
    assert results(output) == expected


def test_every_set_is_repeated(said):
    assert json.loads(said("run net.onnx --input set --repeat 4 --json")[1])["runs"] == 12


def test_the_outputs_of_each_set_have_a_file_of_their_own(said):
    assert said("run net.onnx --input set --save out.npz")[0] == 0
    assert [float(np.load(f"out-{number}.npz")["y"][0, 0]) for number in range(3)] == [2, 4, 20]
    assert not Path("out.npz").exists()


@pytest.mark.parametrize(
    ("line", "target"),
    [
        ("run net.onnx --input in-0.npy in-1.npy --save in.npy", "in-0.npy"),
        ("run net.onnx --input x=set in-0.npy in-1.npy --save set/x.npy", "set/x-1.npy"),
        ("run net.onnx --input set --save set/x1.npy", "set/x1.npy"),
    ],
)
def test_the_inputs_are_not_overwritten_by_the_outputs_of_a_set(line, target, said):
    for path in ("in-0.npy", "in-1.npy", "set/x-1.npy"):
        save(path, np.ones((1, 4), np.float32))
    message = f"interposer: --save would overwrite {target!r}, which the command reads; name another file\n"
    assert said(line) == (2, "", message)
    assert float(np.load("in-0.npy")[0, 0]) == 1


def test_each_file_of_the_sets_must_be_writable_before_the_runs(said):
    Path("out-1.npy").mkdir()
    message = "interposer: --save cannot be written to 'out-1.npy': it is a folder\n"
    assert said("run net.onnx --input set --save out.npy") == (2, "", message)
    assert not Path("out-0.npy").exists()


def test_an_archive_has_all_inputs_of_a_run(said):
    for number in (1, 2):
        np.savez(f"set/p{number}.npz", a=np.full((1, 3), number, np.float32), b=np.zeros((2, 3), np.float32))
    for path in Path("set").glob("x*"):
        path.unlink()
    assert results(said("run two.onnx --input set --json")[1]) == [("set/p1.npz", 1), ("set/p2.npz", 2)]


def test_a_trace_takes_the_sets_in_turns(said):
    status, output, _ = said("trace net.onnx --input set --runs 6 -o t.json")
    assert status == 0
    assert "with 6 runs on: set\n" in output


def test_a_trace_has_a_run_on_each_set(said):
    status, output, _ = said("trace net.onnx --input set --runs 1 -o t.json")
    assert status == 0
    assert "with 3 runs on: set\n" in output
    assert "median of 3 recorded runs" in output
    assert "with 1 run on: set/x1.npy\n" in said("trace net.onnx --input set/x1.npy --runs 1 -o t.json")[1]


def test_a_pipe_is_refused_among_several_files(said):
    os.mkfifo("pipe.npy")
    status, _, messages = said("run two.onnx --input a1.npy pipe.npy a2.npy b1.npy")
    assert (status, messages) == (2, "interposer: pipe.npy: it is a pipe, not a regular file\n")
    assert said("run two.onnx --input pipe.npy a1.npy a2.npy b1.npy")[0] == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run two.onnx --input a1.npy b1.npy a2.npy",
         "3 files for 2 inputs (a, b); expected a multiple of 2, or the names of the inputs"),
        ("run two.onnx --input a=a1.npy a2.npy b=b1.npy b2.npy b10.npy",
         "the inputs have different numbers of files: a has 2, b has 3"),
        ("run net.onnx --input set set/none.npy", "set/none.npy: No such file or directory"),
        ("run net.onnx --input set --save-intermediates all.npz",
         "--save-intermediates takes one set of inputs, but 3 are given"),
        ("bench net.onnx --input set",
         "bench takes one set of inputs, but 3 are given; interposer run and trace take several"),
        ("explain net.onnx --measure --input set",
         "explain takes one set of inputs, but 3 are given; interposer run and trace take several"),
    ],
)  # fmt: skip
def test_sets_that_do_not_fit_are_refused(line, message, said):
    assert said(line) == (2, "", f"interposer: {message}\n")


def test_other_files_of_a_folder_are_remarked(said):
    Path("set/README.md").write_text("Numbers.\n")
    assert said("run net.onnx --input set")[2] == "interposer: set: left out, as they are no inputs: README.md\n"


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.full((1, 4), 200, np.uint8),
         "x.npy has uint8 values for input 'x' float32[1, 4]; they become 0.0 to 255.0, and are not divided by 255"),
        (np.float32([[1, np.nan, 3, np.nan]]), "x.npy: 2 of 4 elements of input 'x' are NaN"),
        (np.float32([[1, np.inf, 3, -np.inf]]), "x.npy: 2 of 4 elements of input 'x' are infinite"),
    ],
)  # fmt: skip
def test_values_that_are_probably_not_meant_are_remarked(array, message, said):
    np.save("x.npy", array)
    status, _, messages = said("run net.onnx --input x.npy")
    assert (status, messages) == (0, f"interposer: {message}\n")
    assert said("run net.onnx --input x.npy --log-level error")[2] == ""


def test_an_array_under_another_name_is_remarked(said):
    np.savez("x.npz", np.ones((1, 4), np.float32))
    assert said("run net.onnx --input x.npz")[2] == (
        "interposer: x.npz has no array 'x'; its only array, 'arr_0', is used for this input\n"
    )


def test_ordinary_inputs_are_not_remarked(said):
    np.savez("x.npz", x=np.ones((1, 4), np.float32))
    assert said("run net.onnx --input x.npz")[2] == ""

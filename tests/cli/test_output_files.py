"""Files that commands write: a failure keeps the old file, and what a command reads is never overwritten."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from interposer.cli.main import main
from tests.cli import networks

pytestmark = pytest.mark.needs_cpuref


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    networks.doubler(tmp_path)
    np.save("x.npy", np.ones((1, 4), np.float32))
    return tmp_path


RUN = ["run", "doubler.onnx", "--backends", "CpuRef", "--input", "x.npy", "--save"]
WRITERS = {
    "convert": ["convert", "doubler.onnx"],
    "explain": ["explain", "doubler.onnx", "--backends", "CpuRef", "--html"],
    "run": RUN,
    "plan": ["plan", "doubler.onnx", "--backends", "CpuRef", "--budget", "0.01", "-o"],
    "bench": ["bench", "doubler.onnx", "--backends", "CpuRef", "--input", "x.npy", "--rounds", "1", "--plot"],
    "compare": ["compare", "doubler.onnx", "--backends", "CpuRef,CpuAcc", "--input", "x.npy", "--cut"],
    "check-backend": ["check-backend", "doubler.onnx", "--junit"],
}


@pytest.mark.parametrize("command", WRITERS)
@pytest.mark.parametrize("kind", ["itself", "relative", "symbolic", "hard"])
def test_no_command_overwrites_a_file_that_it_reads(command, kind, folder, capsys):
    before = Path("doubler.onnx").read_bytes()
    target = {"itself": "doubler.onnx", "relative": "./sub/../doubler.onnx"}.get(kind, f"{kind}.onnx")
    (folder / "sub").mkdir()
    if kind == "symbolic":
        Path(target).symlink_to("doubler.onnx")
    if kind == "hard":
        Path(target).hardlink_to("doubler.onnx")
    if command == "run":  # which writes no .onnx
        Path("out.npz").hardlink_to("x.npy")
        target = "out.npz"
    assert main([*WRITERS[command], target]) == 2
    said = capsys.readouterr().err
    option = {"convert": "the output", "plan": "--output"}.get(command, WRITERS[command][-1])
    shown = target.removeprefix("./")
    assert said == f"interposer: {option} would overwrite {shown!r}, which the command reads; name another file\n"
    assert Path("doubler.onnx").read_bytes() == before


def test_the_weights_of_a_network_are_not_overwritten_either(folder, capsys):
    weights = np.ones((64, 64), np.float32)
    nodes = [networks.node("MatMul", "x w", "y")]
    networks.written(folder / "big.onnx", nodes, {"x": (1, 64)}, {"y": (1, 64)}, w=weights)
    assert main(["convert", "big.onnx", "apart.onnx", "--external-data"]) == 0
    before = Path("apart.onnx.data").read_bytes()
    Path("copy.onnx").write_bytes(Path("apart.onnx").read_bytes())
    capsys.readouterr()
    for target in ("apart.onnx", "apart.onnx.data"):
        assert main(["convert", "copy.onnx", "apart.onnx", "--external-data"]) == 2
        assert main(["explain", "copy.onnx", "--html", target]) == (2 if target.endswith("data") else 0)
        Path("apart.onnx").write_bytes(Path("copy.onnx").read_bytes())
    assert "--html would overwrite 'apart.onnx.data', which the command reads" in capsys.readouterr().err
    assert Path("apart.onnx.data").read_bytes() == before


@pytest.mark.parametrize("command", ["explain", "bench"])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_told_with_the_name_of_the_file(command, folder, capsys):
    assert main([*WRITERS[command], "/dev/full"]) == 2
    said = capsys.readouterr().err
    assert said.endswith("interposer: /dev/full: the file cannot be written: No space left on device\n")


def test_a_run_is_saved_in_the_format_of_the_suffix(folder, capsys):
    for name in ("y.npz", "y.npy", "y.json"):
        assert main([*RUN, name]) == 0
    assert np.load("y.npz")["y"].tolist() == [[2, 2, 2, 2]]
    assert np.load("y.npy").tolist() == [[2, 2, 2, 2]]
    assert json.loads(Path("y.json").read_text()) == {
        "y": {"type": "float32", "shape": [1, 4], "values": [2.0, 2.0, 2.0, 2.0]}
    }


def test_numbers_that_json_lacks_are_saved_as_texts(folder):
    np.save("x.npy", np.array([[np.nan, np.inf, -np.inf, 1]], np.float32))
    assert main([*RUN, "y.json"]) == 0
    assert json.loads(Path("y.json").read_text())["y"]["values"] == ["nan", "inf", "-inf", 2.0]


@pytest.mark.parametrize(("name", "text"), [
    ("out.jpg", "--save takes a file with the suffix .npz, .npy, .json, .txt, .bin, .raw, not 'out.jpg'"),
    ("out", "--save takes a file with the suffix .npz, .npy, .json, .txt, .bin, .raw, not 'out'"),
    ("no/out.npz", "--save cannot be written to 'no/out.npz': there is no folder 'no'"),
])  # fmt: skip
def test_a_target_that_cannot_be_saved_to_is_told_before_the_run(name, text, folder, capsys):
    assert main([*RUN, name]) == 2
    assert capsys.readouterr() == ("", f"interposer: {text}\n")


def test_several_outputs_do_not_fit_into_one_array(folder, capsys):
    networks.splitter(folder)
    np.savez("both.npz", a=np.ones((1, 3), np.float32), b=np.ones((2, 3), np.float32))
    assert main(["run", "splitter.onnx", "--backends", "CpuRef", "--input", "both.npz", "--save", "y.npy"]) == 2
    assert capsys.readouterr().err == (
        "interposer: --save y.npy: a .npy file holds one array, but there are 2; use .npz\n"
    )
    assert not os.path.exists("y.npy")


def test_a_project_that_cannot_be_written_leaves_nothing(folder, capsys, monkeypatch):
    monkeypatch.setattr("interposer.include.path", lambda: folder / "nowhere")
    assert main(["new-backend", "Npu", "--lang", "c"]) == 2
    assert "No such file or directory" in capsys.readouterr().err
    assert not os.path.exists("npu-backend")

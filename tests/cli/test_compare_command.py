"""``interposer compare``: what it prints, its exit status, and the files that it cuts out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interposer import process_registry
from interposer.cli.main import main
from interposer.ir.text import print_graph
from tests.analysis.test_compare import PRODUCT, RELU, SUM, Fuses, WrongProducts, chain

pytestmark = pytest.mark.needs_cpuref


@pytest.fixture(autouse=True)
def wrong_backends() -> Iterator[None]:
    registry = process_registry()
    for kind in (WrongProducts, Fuses):
        registry.register(kind.id, kind, source="registered by a test")
    yield
    for kind in (WrongProducts, Fuses):
        registry.deregister(kind.id)


def written(folder: Path, *ops: Any) -> str:
    path = folder / "chain.txt"
    path.write_text(print_graph(chain(*ops).graph), encoding="utf-8")
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["compare", *words, *([] if "--input" in words else ["--random"])])
    out, err = capsys.readouterr()
    return status, out, err


def test_backends_that_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, written(tmp_path, SUM, SUM), "--backends", "CpuRef,WrongProducts")
    assert status == 0
    assert out.splitlines() == [
        "output 'y' of the whole network: equal",
        "WrongProducts agrees with CpuRef on 2 layers",
        "inputs: random numbers, seed 0",
    ]


def test_one_that_differs_is_told_with_the_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, SUM, RELU, PRODUCT, SUM)
    status, out, _ = run(capsys, path, "--backends", "WrongProducts", "--all")
    assert status == 1
    assert "first layer that differs too much: '2 Multiplication' (Multiplication)" in out
    assert "WrongProducts differs, layer '2 Multiplication' by itself: " in out
    assert "WrongProducts does not run '1 Activation' (Activation): no kernel for Activation; it is taken from" in out
    assert [line.split("  ")[0] for line in out.splitlines()[:5]] == [
        "layer", "0 Addition", "1 Activation", "2 Multiplication", "3 Addition",
    ]  # fmt: skip


def test_tolerances_are_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, SUM, PRODUCT)
    status, _, _ = run(capsys, path, "--backends", "CpuRef,WrongProducts", "--tolerance", "0.02")
    assert status == 0


def test_it_is_told_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, written(tmp_path, PRODUCT), "--backends", "CpuRef,WrongProducts", "--json")
    comparison = json.loads(out)
    assert (status, comparison["agrees"], comparison["culprit"]["kind"], comparison["cut"]) == (1, False, "layer", None)


@pytest.mark.parametrize("suffix", [".txt", ".onnx", ".tflite"])
def test_the_part_is_cut_out_and_seen_again(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if suffix != ".txt":
        pytest.importorskip(suffix[1:], reason=f"the package {suffix[1:]} is not installed")
    path, cut = written(tmp_path, PRODUCT, SUM, SUM, PRODUCT, SUM), tmp_path / f"part{suffix}"
    status, out, _ = run(capsys, path, "--backends", "CpuRef,Fuses", "--cut", str(cut))
    assert status == 1
    assert (
        "3 layers from '1 Addition' to '3 Multiplication', right one by one, when Fuses compiles them together" in out
    )
    assert f"written: {cut} (3 layers), with inputs in {tmp_path / 'part.npz'}" in out
    assert "it was compared again, and differs in the same way: 3 layers from " in out
    command = out.splitlines()[-1].split()
    assert command[:2] == ["interposer", "compare"]
    status, out, _ = run(capsys, *command[2:])
    assert status == 1
    assert "right one by one, when Fuses compiles them together" in out


SLOPED = """
import numpy as np

from interposer.backend import Backend, Capabilities, Capability, KernelTable
from interposer.ops import Activation

kernel = KernelTable()
slopes = [0.0]


@kernel(Activation)
def sloped(op, x, *, out):
    np.maximum(x, slopes[-1] * x, out=out)


class Sloped(Backend):
    id = "Sloped"
    kernels = kernel
    capabilities = Capabilities(Capability("slope", 0.0, "The slope of RELU for negative numbers."))

    def layer_support(self, options):
        slopes.append(options.get("slope", 0.0))
        return super().layer_support(options)
"""


def test_the_part_is_compared_again_with_the_class_and_the_options_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "sloped_backend.py").write_text(SLOPED, encoding="utf-8")
    words = ["--backends", "CpuRef,sloped_backend:Sloped", "--tolerance", "0.001", "--option", "Sloped.slope=0.1"]
    status, out, _ = run(capsys, written(tmp_path, SUM, RELU, SUM), *words, "--cut", "part.txt")
    assert status == 1
    assert "  it was compared again, and differs in the same way: " in out
    assert out.splitlines()[-1] == (
        "  interposer compare part.txt --backends CpuRef,sloped_backend:Sloped --input part.npz "
        "--option Sloped.slope=0.1 --tolerance 0.001"
    )
    process_registry().deregister("Sloped")


def test_inputs_are_taken_from_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 4), np.float32))
    words = ["--backends", "CpuRef,WrongProducts", "--input", str(tmp_path / "x.npy")]
    assert run(capsys, written(tmp_path, PRODUCT), *words)[0] == 0


def test_a_part_that_cannot_be_written_is_told_before_anything_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "nowhere"
    words = ["--backends", "CpuRef,WrongProducts", "--cut", str(folder / "part.txt")]
    status, out, err = run(capsys, written(tmp_path, PRODUCT), *words)
    assert (status, out) == (2, "")
    assert err == (
        f"interposer: --cut cannot be written to {str(folder / 'part.txt')!r}: there is no folder {str(folder)!r}\n"
    )


@pytest.mark.parametrize("cut", ["x.txt", "chain.txt"])
def test_a_part_is_not_written_over_what_is_read(cut: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value, x = written(tmp_path, PRODUCT), tmp_path / "x.npz"
    np.savez(x, x=np.ones((3, 4), np.float32))
    before = x.read_bytes()
    words = ["--backends", "CpuRef,WrongProducts", "--input", str(x), "--cut", str(tmp_path / cut)]
    status, _, err = run(capsys, value, *words)
    over = tmp_path / ("x.npz" if cut == "x.txt" else cut)
    assert (status, x.read_bytes()) == (2, before)
    assert f"--cut would overwrite {str(over)!r}, which the command reads; name another file" in err


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--backends", "A,B,C"], "give the two backends that are to be compared: --backends A,B"),
        ([], "give the two backends that are to be compared: --backends A,B"),
        (["--backends", "CpuRef"], "--backends compares 'CpuRef' with itself; name another backend"),
        (["--backends", "A,A"], "--backends compares 'A' with itself; name another backend"),
        (["--backends", "CpuRef,CpuReg"], "unknown backend 'CpuReg'; did you mean 'CpuRef'?"),
        (
            ["--backends", "Fuses", "--cut", "part.bin"],
            "expected a file with the suffix .armnn, .onnx, .txt or .tflite",
        ),
        (["--backends", "Fuses", "--seed", "-1"], "argument --seed: expected a whole number of 0 or more, not '-1'"),
        (["--backends", "Fuses", "--input", "nowhere.npy"], "nowhere.npy: No such file or directory"),
    ],
)
def test_what_cannot_be_meant_is_an_error_with_a_status_of_its_own(
    words: list[str], fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, written(tmp_path, SUM), *words)
    assert status == 2
    assert fault in err
    assert "Traceback" not in err


def test_networks_are_read_from_their_text_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", written(tmp_path, SUM), "--input", f"{saved(tmp_path)}", "--backends", "CpuRef"]) == 0
    (tmp_path / "bad.txt").write_text("graph {\n  %x = Inptu\n}\n", encoding="utf-8")
    assert main(["run", str(tmp_path / "bad.txt")]) == 2
    assert "bad.txt" in capsys.readouterr().err


def saved(folder: Path) -> Path:
    np.save(folder / "x.npy", np.ones((3, 4), np.float32))
    return folder / "x.npy"

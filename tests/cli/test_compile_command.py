"""``interposer compile`` and ``interposer saved``: what they write and say, and all commands on a saved network."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.cli.main import main
from tests.cli.networks import doubler
from tests.cli.test_explain_command import summed
from tests.instruction_sets import INSTRUCTION_SETS, needs_instruction_set

pytestmark = [pytest.mark.needs_cpuref, pytest.mark.usefixtures("warm_python")]


@pytest.fixture
def saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    target = tmp_path / "net.ipn"
    assert main(["compile", doubler(tmp_path), "--backends", "CpuRef", "-o", str(target)]) == 0
    said = capsys.readouterr().out
    assert said == f"{target}: {target.stat().st_size:,} bytes, 1 variant, 0 of 0 compiled parts\n"
    return str(target)


@pytest.mark.parametrize("name", ["net.onnx", "NET.TFLITE", "net.pb", "net.xml", "net.pt2"])
def test_a_saved_network_does_not_get_the_suffix_of_another_format(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "folder" / name
    target.parent.mkdir()
    assert main(["compile", doubler(tmp_path), "--backends", "CpuRef", "-o", str(target)]) == 2
    assert "has the suffix of another format; use .ipn" in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--random"],
        ["explain"],
        ["bench", "--random", "--rounds", "1", "--seconds", "0.001", "--no-auto", "--backends", "CpuRef"],
        ["trace", "--random", "-o", "trace.json"],
    ],
    ids=["run", "explain", "bench", "trace"],
)
def test_every_command_takes_a_saved_network(
    saved: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([words[0], saved, *words[1:]]) == 0


def test_compare_takes_a_saved_network(cpuacc: None, saved: str) -> None:
    assert main(["compare", saved, "--backends", "CpuAcc", "--random"]) == 0


def test_a_saved_network_can_be_converted(saved: str, tmp_path: Path) -> None:
    assert main(["convert", saved, str(tmp_path / "back.onnx")]) == 0
    assert ip.load(tmp_path / "back.onnx", ["CpuRef"])(np.ones((1, 4), np.float32)).tolist() == [[2, 2, 2, 2]]


def test_explain_says_what_it_said_before(saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", str(tmp_path / "doubler.onnx"), "--backends", "CpuRef", "--json"])
    before = json.loads(capsys.readouterr().out)
    main(["explain", saved, "--json"])
    assert json.loads(capsys.readouterr().out) == before


def test_the_index_is_shown_and_the_file_is_checked(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["saved", saved, "--check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("network 'doubler': ") and lines[-1] == "every checksum is right"
    assert "  input x: float32[1, 4]" in lines and "  not signed" in lines
    assert main(["saved", saved, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["variants"][0]["backends"] == ["CpuRef"]


def test_variants_and_several_lists_of_backends_are_in_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = doubler(tmp_path, ("batch", 4)), tmp_path / "net.ipn"
    words = ["--variant", "batch=1", "--variant", "batch=8", "--also", "CpuRef,LiteRt"]
    assert main(["compile", source, "--backends", "CpuRef", *words, "-o", str(target)]) == 0
    variants = ip.saved.check(target).variants
    assert [variant.shapes["x"] for variant in variants] == [(1, 4), (8, 4)] * 2
    with ip.load(target) as model:
        assert model(np.ones((8, 4), np.float32)).shape == (8, 4)
        assert model(np.ones((3, 4), np.float32)).shape == (3, 4)


def test_inputs_of_unknown_values_are_named_with_the_option_that_gives_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compile", str(summed(tmp_path)), "--backends", "CpuRef", "-o", str(tmp_path / "net.ipn")]
    assert main(words) == 2
    assert "the values of these inputs: 'axes' int64[1]; give them, as in --value axes=0,1" in capsys.readouterr().err
    assert main([*words, "--value", "axes=1"]) == 0


def test_cpuacc_is_compiled_for_several_instruction_sets(cpuacc: None, tmp_path: Path) -> None:
    needs_instruction_set("baseline", "avx2")
    source, target = doubler(tmp_path), tmp_path / "net.ipn"
    words = ["compile", source, "--backends", "CpuAcc,CpuRef", "--isa", "baseline,avx2", "-o", str(target)]
    if main(words):
        pytest.skip("the processor has no avx2")
    made = [variant.fingerprints["CpuAcc"] for variant in ip.saved.check(target).variants]
    assert [name for text, name in zip(made, ("baseline", "avx2"), strict=True) if f" {name} " in text] == [
        "baseline",
        "avx2",
    ]


def test_a_level_that_the_processor_lacks_is_refused(
    cpuacc: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compile", doubler(tmp_path), "--backends", "CpuAcc,CpuRef", "--isa", "sse9", "-o", str(tmp_path / "a")]
    assert main(words) == 2
    assert (
        "--isa: CpuAcc compiles nothing of this network for 'sse9' here; the processor lacks" in capsys.readouterr().err
    )
    assert not (tmp_path / "a").exists()


def test_an_instruction_set_can_be_a_default_of_the_user(
    cpuacc: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = doubler(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert main(["compile", source, "--backends", "CpuAcc,CpuRef", "-o", "best.ipn"]) == 0
    fingerprint = ip.saved.check("best.ipn").variants[0].fingerprints["CpuAcc"].split()
    level = next(name for name in reversed(INSTRUCTION_SETS) if name in fingerprint)
    settings = tmp_path / "config/interposer/interposer.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"[cli.compile]\nisa = '{level}'\nbackends = 'CpuAcc,CpuRef'\nlimit-bytes = '1G'\n")
    assert main(["compile", "-onet.ipn", "--also", "CpuAcc", "--", source]) == 0
    assert len(ip.saved.check("net.ipn").variants) == 2

"""``interposer plan``, and plans that the other commands follow. Nothing here says how long anything takes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interposer.cli.main import main
from interposer.cli.network import runtime_with_threads
from interposer.core.config import NUM_THREADS, thread_budget
from interposer.session.placement import Plan
from tests.cli import networks

pytestmark = pytest.mark.needs_cpuref
BUDGET = ("--budget", "1")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))


def said(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> tuple[str, str]:
    assert main([str(word) for word in words]) == status
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return out, err


def placement(capsys: pytest.CaptureFixture[str], file: str, *words: object) -> dict[str, str]:
    out, _ = said(capsys, "explain", file, "--json", *words)
    return {load["layer"]: load["backend"] for load in json.loads(out)["layers"]}


def test_a_plan_is_made_written_and_followed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, more_backends: None
) -> None:
    file, plan = networks.alternating(tmp_path), tmp_path / "plan.json"
    words = ("--backends", "Sums,Device,CpuRef", "--pin", "twice=CpuRef", "--exclude", "Multiplication=Sums")
    out, _ = said(capsys, "plan", file, "-o", plan, *words, *BUDGET)
    assert out.splitlines()[0].split() == ["plan", "ms"]
    assert f"written: {plan}, with " in out
    written = Plan.load(plan)
    assert next(iter(written.layers.items())) == ("twice", "CpuRef")
    assert dict(written.exclude) == {"Multiplication": ("Sums",)}
    np.save(tmp_path / "x.npy", np.ones((1, 4), np.float32))
    ran, _ = said(capsys, "run", file, "--input", tmp_path / "x.npy", "--plan", plan, "--json")
    assert json.loads(ran)["placement"]["CpuRef"] >= 2
    placed = placement(capsys, file, "--plan", plan)
    assert placed["twice"] == "CpuRef"
    assert placed["product"] == "CpuRef"


def test_pins_are_patterns_and_types_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, more_backends: None
) -> None:
    file, plan = networks.alternating(tmp_path), tmp_path / "plan.json"
    pins = ("--pin", "type:Addition=Sums", "--pin", "prod*=Sums")
    said(capsys, "plan", file, "-o", plan, "--backends", "CpuRef,Sums", *pins, *BUDGET)
    placed = placement(capsys, file, "--plan", plan)
    assert (placed["twice"], placed["product"]) == ("Sums", "Sums")


def test_what_is_different_where_a_plan_is_followed_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, plan = networks.alternating(tmp_path), tmp_path / "plan.json"
    Plan("alternating", ("Npu", "CpuRef"), {"gone": "Npu"}, made_with={"threads": 1000}).save(plan)
    _, err = said(capsys, "explain", file, "--plan", plan)
    assert "backend Npu is not available here" in err
    assert "1 layers of the plan are not in this network, such as 'gone'" in err
    assert "and was 1000 where the plan was made" in err


def test_a_plan_is_printed_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("--backends", "CpuRef", "--objective", "memory", "--limit-memory", "1M", "--json", *BUDGET)
    out, _ = said(capsys, "plan", networks.doubler(tmp_path), *words)
    printed = json.loads(out)
    assert (printed["plan"], printed["chosen"], printed["backends"]) == (1, "CpuRef", ["CpuRef"])


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("--pin", "twise=CpuRef"), "no layer of the network is 'twise', which was pinned; did you mean 'twice'?"),
        (("--pin", "twice=CpuReg"), "names backend 'CpuReg', which is not among those in use (CpuRef)"),
        (("--limit-time", "1e-9"), "is within most_seconds=1e-12: the least that was found is"),
        (("--exclude", "Addition=CpuRef"), "no backend in ['CpuRef'] can run layer 'twice'"),
    ],
)
def test_what_cannot_be_done_is_an_error(
    words: tuple[Any, ...], fault: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, err = said(capsys, "plan", networks.alternating(tmp_path), "--backends", "CpuRef", *words, *BUDGET, status=2)
    assert fault in err


@pytest.mark.parametrize("words", [("--pin", "conv"), ("--budget", "-1"), ("--limit-memory", "much")])
def test_wrong_words_are_wrong_usage(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said(capsys, "plan", networks.doubler(tmp_path), *words, status=2)


def test_a_file_that_is_no_plan_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("[]", encoding="utf-8")
    _, err = said(capsys, "explain", networks.doubler(tmp_path), "--plan", tmp_path / "plan.json", status=2)
    assert 'it has no member "plan" with the value 1' in err


def test_the_fastest_mix_and_a_plan_are_measured_side_by_side(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, more_backends: None
) -> None:
    file, plan = networks.doubler(tmp_path), tmp_path / "plan.json"
    Plan("doubler", ("Sums", "CpuRef"), {}).save(plan)
    words = ("--plan", plan, "--rounds", "1", "--seconds", "0", *BUDGET, "--json")
    out, _ = said(capsys, "bench", file, "--random", *words)
    names = [load["name"] for load in json.loads(out)["candidates"]]
    assert {"auto", "plan", "Sums", "CpuRef"} <= set(names)
    out, _ = said(capsys, "bench", file, "--random", "--no-auto", "--rounds", "1", "--seconds", "0", "--json")
    assert "auto" not in [load["name"] for load in json.loads(out)["candidates"]]


@pytest.mark.parametrize("before", [None, "7"])
def test_backends_are_told_of_the_threads_that_are_given(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NUM_THREADS, raising=False)
    if before is not None:
        monkeypatch.setenv(NUM_THREADS, before)
    with runtime_with_threads(3):
        assert thread_budget() == 3
    assert os.environ.get(NUM_THREADS) == before
    with runtime_with_threads(None):
        assert os.environ.get(NUM_THREADS) == before


def test_what_was_not_timed_is_printed_once(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--backends", "CpuAcc,CpuRef", "--budget", "0.000001"]
    assert main(["plan", str(networks.doubler(tmp_path)), *words]) == 0
    captured = capsys.readouterr()
    assert "CpuRef was not timed: the budget of 1e-06 s was spent" in captured.out
    assert captured.err == ""

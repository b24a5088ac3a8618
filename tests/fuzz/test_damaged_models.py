"""Damaged model files are run or refused with an exception of ours: no crash, no hang, no hunger for memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import warm
from tests.fuzz.small_models import MODELS, ONNX_MODELS
from tests.parameters import one_in

CHILD = Path(__file__).parent / "child.py"
SEED = 20260
ALL, SLICE, BATCH = 500, 40, 100
MOST_BYTES = 1 << 30


def go_through(path: Path, first: int, last: int, kind: str = "bytes", backends: str = "CpuRef") -> Counter[str]:
    command = [*warm.python(), str(CHILD), str(path), str(SEED), str(first), str(last), kind, backends]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    ended = [line for line in lines if "ended" in line]
    assert done.returncode == 0, f"stopped in {lines[-1] if lines else 'the beginning'}\n{done.stderr[-3000:]}"
    assert len(ended) == last - first
    assert max(line["peak"] for line in ended) < MOST_BYTES
    return Counter(line["ended"] for line in ended)


@pytest.mark.parametrize("name", one_in(2, MODELS))
def test_damaged_models_are_run_or_refused(name: str, tmp_path: Path) -> None:
    result = go_through(MODELS[name](tmp_path), 0, SLICE)
    assert sum(result.values()) == SLICE
    assert len(result) > 1


@pytest.mark.parametrize("name", one_in(2, ["digits", "keyword_spotting"]))
def test_networks_of_many_layers_with_damaged_structure_are_run_or_refused_by_cpuacc(name: str, tmp_path: Path) -> None:
    result = go_through(MODELS[name](tmp_path), 0, SLICE, "structure", "CpuAcc,CpuRef")
    assert sum(result.values()) == SLICE
    assert len(result) > 1


@pytest.mark.slow
def test_thousands_of_damaged_files_are_run_or_refused_by_cpuacc() -> None:
    words = [sys.executable, "-m", "tests.fuzz.campaign", "--count", "6000"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=CHILD.parents[2])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, ALL, BATCH))
@pytest.mark.parametrize("name", MODELS)
def test_all_damaged_models_are_run_or_refused(name: str, first: int, tmp_path: Path) -> None:
    assert sum(go_through(MODELS[name](tmp_path), first, first + BATCH).values()) == BATCH


@pytest.mark.parametrize("name", one_in(2, ONNX_MODELS))
def test_models_that_say_wrong_things_are_run_or_refused(name: str, tmp_path: Path) -> None:
    result = go_through(ONNX_MODELS[name](tmp_path), 0, SLICE, "fields")
    assert sum(result.values()) == SLICE
    assert len(result) > 1


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, ALL, BATCH))
@pytest.mark.parametrize("name", ONNX_MODELS)
def test_all_models_that_say_wrong_things_are_run_or_refused(name: str, first: int, tmp_path: Path) -> None:
    assert sum(go_through(ONNX_MODELS[name](tmp_path), first, first + BATCH, "fields").values()) == BATCH

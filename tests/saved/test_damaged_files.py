"""Damaged and hostile saved networks: each gets an error of Interposer, or gives what the whole file gives."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import InterposerError
from tests.damage import damaged_variants
from tests.saved.rewriting import X, mixed, mutate, rewritten

pytestmark = pytest.mark.needs_cpuref


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = tmp_path_factory.mktemp("saved") / "net.ipn"
    with ip.load(mixed(), ["CpuRef"]) as model:
        model.save(result)
    return result


def outcome(path: Path) -> tuple[str, list[Any]]:
    """Load a file, explain it and run it once; return the name of an error, and the outputs. Others are raised."""
    try:
        with ip.load(path) as model:
            model.explain()
            return "", model.run([X])
    except InterposerError as error:
        assert str(error)
        return type(error).__name__, []


def damage(path: Path, count: int, folder: Path) -> Counter[str]:
    """Load damaged copies; a copy that loads nevertheless gives the right outputs."""
    _, right = outcome(path)
    counted: Counter[str] = Counter()
    for name, data in damaged_variants(path.read_bytes(), count, seed=20):
        bad = folder / "bad.ipn"
        bad.write_bytes(data)
        error, outputs = outcome(bad)
        assert error or all(map(np.array_equal, outputs, right)), name
        counted[error] += 1
    return counted


def hostility(path: Path, count: int, folder: Path) -> Counter[str]:
    """Load copies with one wrong member of the JSON data each, whose checksums are right."""
    counted: Counter[str] = Counter()
    for number in range(count):
        rng = random.Random(number)

        def change(index: dict[str, Any], facts: dict[str, Any], rng: random.Random = rng) -> None:
            mutate(rng.choice([index, facts]), rng)

        try:
            bad = rewritten(path, folder / "bad.ipn", change)
        except (TypeError, ValueError, KeyError, AssertionError):
            continue  # the index has no form any more in which it can be written
        counted[outcome(bad)[0]] += 1
    return counted


def test_damaged_files_are_refused(path: Path, tmp_path: Path) -> None:
    counted = damage(path, 200, tmp_path)
    assert counted["DamagedFileError"] > 100


def test_hostile_files_are_refused(path: Path, tmp_path: Path) -> None:
    counted = hostility(path, 200, tmp_path)
    assert counted["ParseError"] > 50


@pytest.mark.slow
def test_5000_damaged_files_are_refused(path: Path, tmp_path: Path) -> None:
    counted = damage(path, 5000, tmp_path)
    assert counted["DamagedFileError"] > 2500


@pytest.mark.slow
def test_5000_hostile_files_are_refused(path: Path, tmp_path: Path) -> None:
    counted = hostility(path, 5000, tmp_path)
    assert counted["ParseError"] > 1500

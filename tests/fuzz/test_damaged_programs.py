"""Damaged .pt2 files are run or refused with an exception of ours: no crash, no hang, no hunger for memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.programs import PROGRAMS
from tests.fuzz.test_damaged_models import go_through
from tests.parameters import one_in

ALL, SLICE, BATCH = 1250, 40, 250


@pytest.mark.parametrize("kind", ["bytes", "programs"])
@pytest.mark.parametrize("name", one_in(2, PROGRAMS))
def test_damaged_programs_are_run_or_refused(name: str, kind: str, tmp_path: Path) -> None:
    result = go_through(PROGRAMS[name](tmp_path), 0, SLICE, kind)
    assert sum(result.values()) == SLICE


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, ALL, BATCH))
@pytest.mark.parametrize("kind", ["bytes", "programs"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_thousands_of_damaged_programs_are_run_or_refused(name: str, kind: str, first: int, tmp_path: Path) -> None:
    assert sum(go_through(PROGRAMS[name](tmp_path), first, first + BATCH, kind).values()) == BATCH

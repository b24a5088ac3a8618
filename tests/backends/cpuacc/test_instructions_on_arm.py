"""The code that a cross compiler makes of the kernels' helpers for Arm."""

from __future__ import annotations

import shutil

import pytest

from tools.arm_helpers import COMPILER, HELPERS, LEVELS, OTHERS, costs, declared, loops_over_lanes, table


def test_the_table_has_each_helper():
    helpers = {name.partition("<")[0] for name in HELPERS}
    assert declared() - OTHERS <= helpers


@pytest.fixture
def compiler():
    if shutil.which(COMPILER) is None:
        pytest.skip("the cross compiler for 64-bit Arm is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_no_helper_moves_single_lanes(compiler, level):
    assert loops_over_lanes(level) == []


@pytest.mark.slow
def test_dot_products_of_four_bytes_take_an_instruction_if_there_is_one(compiler):
    by_level = {level: costs(level) for level in ("neon", "dotprod")}
    assert by_level["dotprod"]["dot"].instructions == ("sdot",)
    assert len(by_level["neon"]["dot"].instructions) <= 6
    assert any(line.startswith("| `dot` | 16 | 6 (0.38) | 1 (0.06)") for line in table(by_level))

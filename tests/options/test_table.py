"""Each option has a row in `table.txt`: where it is given, its name, and a test that shows its effect or its refusal.

A new option without a row fails. Add the row, and the test if there is none.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.options.enumerated import options

TABLE = Path(__file__).with_name("table.txt")
ROOT = Path(__file__).parents[2]


def rows() -> list[tuple[str, str, str]]:
    lines = [line.split(" | ") for line in TABLE.read_text(encoding="utf-8").splitlines()]
    return [(where, name, test) for where, name, test in lines]


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_each_option_has_one_row_and_each_row_an_option() -> None:
    given = [(where, name) for where, name, _ in rows()]
    present = set(options())
    assert sorted(set(given)) == sorted(given)
    assert sorted(present - set(given)) == []
    built = {where for where, _ in present}
    assert sorted(row for row in given if row not in present and row[0] in built) == []


@pytest.mark.parametrize("file", sorted({test.partition("::")[0] for _, _, test in rows()}))
def test_each_row_names_a_test(file: str) -> None:
    named = {test.partition("::")[2] for _, _, test in rows() if test.startswith(f"{file}::")}
    assert sorted(named - functions_of(file)) == []

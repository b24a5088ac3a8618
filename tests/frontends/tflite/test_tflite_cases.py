"""Operators on values: worked examples, and what LiteRT's interpreter returns for the same files."""

from __future__ import annotations

import pytest

from tests.parameters import one_in

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")

from tests.frontends.tflite.cases.all_cases import CASES
from tests.frontends.tflite.cases.comparison import compared, difference_to_example

WORKED = [case for case in CASES if case.expected is not None]


@pytest.mark.parametrize("case", one_in(3, WORKED), ids=lambda case: case.id)
def test_an_operator_gives_the_worked_example(case):
    assert difference_to_example(case) == ""


@pytest.mark.parametrize("case", one_in(8, CASES), ids=lambda case: case.id)
def test_an_operator_gives_what_litert_gives(case):
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    outcome = compared(case)
    assert outcome.status in {"agrees", "refused by LiteRT"}, outcome.reason

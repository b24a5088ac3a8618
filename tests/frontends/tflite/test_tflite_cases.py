"""Operators on values: worked examples, and what LiteRT's interpreter returns for the same files."""

from __future__ import annotations

import pytest

from tests.parameters import divided, one_in

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")

from tests.frontends.tflite.cases.all_cases import CASES
from tests.frontends.tflite.cases.comparison import compared, difference_to_example

WORKED = [case for case in CASES if case.expected is not None]
IN_EVERY_RUN, GROUPS = divided(8, CASES)


@pytest.mark.parametrize("case", one_in(3, WORKED), ids=lambda case: case.id)
def test_an_operator_gives_the_worked_example(case):
    assert difference_to_example(case) == ""


def difference_to_litert(case):
    """How the results differ from those of LiteRT; empty if they agree, or if LiteRT refuses the file."""
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    outcome = compared(case)
    return "" if outcome.status in {"agrees", "refused by LiteRT"} else f"{case.id}: {outcome.reason}"


@pytest.mark.parametrize("case", IN_EVERY_RUN, ids=lambda case: case.id)
def test_an_operator_gives_what_litert_gives(case):
    assert difference_to_litert(case) == ""


@pytest.mark.slow
@pytest.mark.parametrize("cases", GROUPS)
def test_all_operators_give_what_litert_gives(cases):
    assert [*filter(None, map(difference_to_litert, cases))] == []

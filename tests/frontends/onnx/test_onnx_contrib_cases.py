"""ONNX Runtime's own operators: what ONNX Runtime returns for the same models."""

from __future__ import annotations

import pytest

from tests.frontends.onnx.contrib.all_cases import CASES
from tests.frontends.onnx.contrib.case import Case
from tests.frontends.onnx.contrib.comparison import compared
from tests.parameters import divided
from tools.contrib_cases import expected

IN_EVERY_RUN, GROUPS = divided(8, CASES)


def difference(case: Case) -> str:
    """How the results differ from those of ONNX Runtime; empty if they agree, or if the page lists the case."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    outcome = compared(case)
    return "" if expected(case, outcome.status) else f"{case.id}: {outcome.status}: {outcome.reason}"


@pytest.mark.parametrize("case", IN_EVERY_RUN, ids=lambda case: case.id)
def test_an_operator_gives_what_onnx_runtime_gives(case):
    assert difference(case) == ""


@pytest.mark.slow
@pytest.mark.parametrize("cases", GROUPS)
def test_all_operators_give_what_onnx_runtime_gives(cases):
    assert [*filter(None, map(difference, cases))] == []

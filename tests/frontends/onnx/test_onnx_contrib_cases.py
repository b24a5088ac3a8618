"""ONNX Runtime's own operators: what ONNX Runtime returns for the same models."""

from __future__ import annotations

import pytest

from tests.frontends.onnx.contrib.all_cases import CASES
from tests.frontends.onnx.contrib.comparison import compared
from tests.parameters import one_in
from tools.contrib_cases import expected


@pytest.mark.parametrize("case", one_in(8, CASES), ids=lambda case: case.id)
def test_an_operator_gives_what_onnx_runtime_gives(case):
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    outcome = compared(case)
    assert expected(case, outcome.status), f"{outcome.status}: {outcome.reason}"

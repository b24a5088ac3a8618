"""The test cases that come with the package onnx, through its own runner and with its own tolerances."""

from collections import Counter

import onnx
import pytest

from tools import onnx_cases

pytestmark = [
    pytest.mark.needs_cpuref,
    pytest.mark.skipif(onnx.__version__ != onnx_cases.VERSION, reason=f"the cases of onnx {onnx_cases.VERSION}"),
]
EVERY = 31
"""One of how many cases of nodes is run unless all are."""
GRADIENT = "ai.onnx.preview.training.Gradient: it computes derivatives; load the model for inference, without it"


def checked(found):
    """Counts by status, where nothing is wrong that is not listed."""
    wrong = [
        item for item in found if item.status in {"different", "crashed"} and item.name not in onnx_cases.DIFFERENT
    ]
    assert wrong == []
    return Counter(item.status for item in found)


def of_group(*groups):
    return [name for name in onnx_cases.names() if name[0] in groups]


def test_some_cases_of_nodes_pass():
    counts = checked([onnx_cases.outcome(*item) for item in of_group("node")[::EVERY]])
    assert counts["passed"] >= 0.98 * counts.total(), counts


def test_models_that_pytorch_exported_pass():
    counts = checked([onnx_cases.outcome(*item) for item in of_group("pytorch-converted", "pytorch-operator")])
    assert counts == {"passed": 117}


def test_simple_models_pass_unless_they_are_for_training():
    result = [onnx_cases.outcome(*item) for item in of_group("simple")]
    assert checked(result)["passed"] == 21
    assert {item.status for item in result if "gradient" in item.name} == {"refused"}


@pytest.mark.slow
def test_all_cases_of_nodes_pass_or_are_refused_and_the_page_tells():
    result = onnx_cases.outcomes()
    counts = checked([item for item in result if item.group == "node"])
    assert counts.total() == 1884
    assert counts["passed"] >= 1870, counts
    page = (onnx_cases.ROOT / onnx_cases.PAGE).read_text(encoding="utf-8")
    assert page == onnx_cases.page(result), "run: python tools/onnx_cases.py"


def test_a_refusal_is_told_without_the_names_of_nodes():
    [training] = onnx_cases.outcomes("^test_gradient_of_add_cpu$")
    assert training.status == "refused"
    assert training.reasons == (GRADIENT,)


def test_the_command_prints_what_became_of_the_cases_that_match(capsys):
    assert onnx_cases.main(["^test_(abs|gradient_of_add)_cpu$"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "passed    test_abs",
        f"refused   test_gradient_of_add {GRADIENT}",
    ]

"""The conformance kit inside LiteRT: ``interposer check-backend ID --through litert``."""

from __future__ import annotations

import pytest

from interposer.cli.main import main
from tests.bridges.litert.hosting import ROOT

pytestmark = pytest.mark.needs_cpuref
assert ROOT  # its module skips these tests where LiteRT is missing


@pytest.fixture
def shown(capsys):
    def run(*words, status=0):
        assert main(["check-backend", *words, "--through", "litert"]) == status
        return capsys.readouterr().out.splitlines()

    return run


def test_a_native_backend_conforms_inside_the_host(shown):
    lines = shown("CpuAcc", "--only", "through-litert/Softmax-float32*,through-litert/Transpose-*")
    assert any(line.startswith("CpuAcc conforms") for line in lines)


def test_what_the_backend_leaves_to_the_host_is_refused_with_its_reason(shown):
    lines = shown("examples.compute_backend:TinyBackend", "--only", "*/Addition-*,*/Softmax-*", "--refusals")
    assert any(line.startswith("Softmax") and line.endswith("Tiny: no kernel for Softmax") for line in lines)
    assert any(line.startswith("Tiny conforms") for line in lines)


def test_a_wrong_result_in_the_host_is_a_failure(shown):
    lines = shown("tests.testing.wrong:WrongSums", "--only", "through-litert/Addition-float32", status=1)
    assert "fail: through-litert/Addition-float32" in lines
    assert lines[-1] == "WrongSums does not conform: 1 of 1 cases failed"


def test_a_pattern_without_a_case_says_how_cases_are_named(capsys):
    assert main(["check-backend", "CpuAcc", "--through", "litert", "--only", "results/*"]) == 2
    assert "cases are named through-litert/OPERATOR-..." in capsys.readouterr().err

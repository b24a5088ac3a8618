"""The conformance kit inside ONNX Runtime: ``interposer check-backend ID --through onnxruntime``."""

from __future__ import annotations

import pytest

from interposer.cli.main import main

pytestmark = [pytest.mark.needs_cpuref, pytest.mark.usefixtures("host")]


@pytest.fixture
def shown(capsys):
    def run(*words, status=0):
        assert main(["check-backend", *words, "--through", "onnxruntime"]) == status
        return capsys.readouterr().out.splitlines()

    return run


def test_a_backend_conforms_inside_the_host(shown):
    lines = shown("CpuRef", "--only", "through-onnxruntime/Softmax-float32*,through-onnxruntime/Transpose-*")
    assert any(line.startswith("CpuRef conforms") for line in lines)


def test_what_the_backend_leaves_to_the_host_is_refused_with_its_reason(shown):
    lines = shown("examples.compute_backend:TinyBackend", "--only", "*/Addition-*,*/Softmax-*", "--refusals")
    assert any(line.startswith("Softmax") and line.endswith("Tiny: no kernel for Softmax") for line in lines)
    assert any(line.startswith("Tiny conforms") for line in lines)


def test_a_wrong_result_in_the_host_is_a_failure(shown):
    lines = shown("tests.testing.wrong:WrongSums", "--only", "through-onnxruntime/Addition-float32", status=1)
    assert "fail: through-onnxruntime/Addition-float32" in lines

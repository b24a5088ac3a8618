"""What a plug-in in C does wrong is found by the kit, which names the layer and the tensor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from interposer.cli.main import main
from interposer.testing import Status, check_backend
from tests.native import compiler_for

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="dynamic backends are only for Linux")


@pytest.fixture
def plugin(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Builds the plug-in that `new-backend` writes, after a change of its source, and gives its path."""

    def plugin(right: str, wrong: str) -> str:
        folder = tmp_path / "project"
        assert main(["new-backend", "Npu", "--lang", "c", "--folder", str(folder)]) == 0
        source, target = folder / "src" / "backend.c", folder / "Local_Npu_backend.so"
        text = source.read_text()
        assert text.count(right) == 1
        source.write_text(text.replace(right, wrong))
        words = [compiler_for("c"), "-shared", "-fPIC", f"-I{folder / 'include'}", source, "-o", target]
        subprocess.run([str(word) for word in words], check=True)
        return str(target)

    return plugin


def test_a_write_past_the_end_of_an_output_is_reported_with_the_layer_and_the_output(plugin) -> None:
    path = plugin("for (n = 0; n < made->count; ++n)", "for (n = 0; n < made->count + 1; ++n)")
    [result] = check_backend(path, only="results/Addition-float32").results
    assert (result.status, result.text) == (
        Status.FAIL,
        "it said yes, but then: layer 'layer' (Addition) failed on backend Npu: execute wrote outside of output 0, at "
        "byte 96 of 96",
    )


def test_a_write_to_an_input_is_reported_with_the_layer_and_the_input(plugin) -> None:
    path = plugin("sum[n] = a[n] + b[n]", "sum[n] = a[n] + b[n], ((float*)a)[n] = 0")
    results = check_backend(path, only=["results/Addition-float32", "inputs/Addition-float32"]).failures
    assert any("layer 'layer' (Addition)" in result.text and "input 0" in result.text for result in results), results

"""The benchmark of ONNX Runtime and LiteRT with a backend of Interposer in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

from benchmarks import bridges
from interposer.bridges.files import library

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(library(check=False)).is_file(), reason="the library of the bridges was not built"),
]


@pytest.mark.usefixtures("cpuacc")
def test_both_hosts_are_measured_alone_and_with_the_backend(tmp_path, capsys):
    from benchmarks.designs import adding
    from interposer.bridges.options import _runtime
    from interposer.writers import tflite

    _runtime.cache_clear()
    tflite.save(adding(), tmp_path / "sum.tflite")
    files = [str(bridges.DIGITS), str(tmp_path / "sum.tflite")]
    report = tmp_path / "bridges.json"
    assert bridges.main([*files, "--threads", "1", "--seconds", "0.01", "--json", str(report)]) == 0
    figures = json.loads(report.read_text())
    assert [(row["file"], row["taken"], row["nodes"]) for row in figures["rows"]] == [
        ("digits.onnx", 10, 10), ("sum.tflite", 1, 1)
    ]  # fmt: skip
    assert {row["host"] for row in figures["threads"]} == {"alone", "with"}
    assert "LiteRT with the example" in capsys.readouterr().out

"""The benchmark of placement: what it does with results that are there already. Nothing here is timed."""

import json

import pytest

pytest.importorskip("onnx", reason="the networks of the benchmark are built with it")

from benchmarks.placement import main


def test_a_file_of_an_older_version_is_gone_on_with(tmp_path, capsys):
    row = {
        "network": "mobilenet_v1", "threads": 1, "milliseconds": {"auto": 2.0, "CpuAcc": 1.0}, "best": "CpuAcc",
        "ratio": 2.0, "noise": 0.01, "passes": False, "chosen": "CpuAcc", "mix": False, "search_s": 4.0, "again_s": 0.1,
    }  # fmt: skip
    file = tmp_path / "placement.json"
    file.write_text(json.dumps({"rows": [row], "summary": []}))

    words = ["--resume", "--json", file, "--networks", "mobilenet_v1", "--threads", "1", "--models", tmp_path]
    assert main([str(word) for word in words]) == 0

    said = capsys.readouterr().out
    assert "1 threads: auto is near enough to the best alone in 0 of 1 networks" in said
    assert "in 0 of the other 1 it is the very plan of the best engine alone" in said

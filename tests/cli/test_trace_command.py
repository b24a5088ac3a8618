"""``interposer trace``: the timeline of a network's runs as a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer import OptimizerOptions
from interposer.cli.main import main
from tests.cli import networks

pytestmark = pytest.mark.needs_cpuref
BACKENDS = ("--backends", "Device,Sums,CpuRef")


def test_the_trace_has_the_optimizer_and_as_many_runs_as_requested(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, more_backends: None
) -> None:
    file, target = networks.alternating(tmp_path), tmp_path / "t.json"
    assert main(["trace", str(file), "-o", str(target), "--random", "--runs", "3", *BACKENDS]) == 0
    events = json.loads(target.read_text())["traceEvents"]
    kinds = [event["cat"] for event in events if event["ph"] == "X" and event["pid"] == 1]
    assert kinds.count("run") == 3
    assert "optimize" in kinds
    assert "acquire memory" not in {event["name"] for event in events}  # a run before the recorded ones did
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["layer", "operator", "backend", "count", "median", "us", "share"]
    assert lines[-1] == f"written: {target}, with 3 runs on: random numbers, seed 0"


def test_the_search_for_a_placement_is_not_traced(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    budgets = iter([0.1, None])  # of the search, and of the plan that it found
    options = lambda args: OptimizerOptions(budget_seconds=next(budgets))  # noqa: E731
    monkeypatch.setattr("interposer.cli.network._options_of", options)
    file, target = networks.doubler(tmp_path), tmp_path / "t.json"
    words = ["trace", file, "-o", str(target), "--random", "--runs", "2", "--backends", "auto", "--json"]
    assert main(words) == 0
    summary = json.loads(capsys.readouterr().out)
    assert {layer["network"] for layer in summary["layers"]} == {"doubler"}
    assert {layer["count"] for layer in summary["layers"]} == {2}
    kinds = [event["cat"] for event in json.loads(target.read_text())["traceEvents"] if event["ph"] == "X"]
    assert kinds.count("run") == 2


def test_the_times_of_the_layers_can_be_json(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, more_backends: None
) -> None:
    file, target = networks.alternating(tmp_path), tmp_path / "t.pftrace"
    assert main(["trace", str(file), "--output", str(target), "--random", "--json", *BACKENDS]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["runs"] == 10
    assert summary["lost"] == 0
    counts = {layer["name"]: (layer["backend"], layer["count"]) for layer in summary["layers"]}
    assert counts["positive"] == ("Device", 10)
    assert target.stat().st_size > 1000


def test_a_network_of_open_shapes_is_traced_with_the_optimizer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    network = ip.Network("open")
    x = network.add_input_layer(0, ip.TensorInfo((None, 3)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x, name="sum"), name="y")
    file, values, target = tmp_path / "open.txt", tmp_path / "x.npy", tmp_path / "t.json"
    file.write_text(str(network))
    np.save(values, np.ones((2, 3), np.float32))
    words = ["trace", str(file), "-o", str(target), "--input", str(values), "--runs", "2", "--backends", "CpuRef"]
    assert main(words) == 0
    events = json.loads(target.read_text())["traceEvents"]
    kinds = [event["cat"] for event in events if event["ph"] == "X" and event["pid"] == 1]
    assert (kinds.count("run"), kinds.count("optimize") > 0) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "the following arguments are required: -o/--output"),
        (("-o", "t.txt"), "--output takes a file with the suffix .json, .pftrace, .perfetto-trace, .html, not t.txt"),
        (("-o", "no/t.json"), "--output cannot be written to 'no/t.json': there is no folder 'no'"),
        (("-o", "t.json", "--runs", "0"), "argument --runs: expected a whole number of 1 or more, not '0'"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["trace", str(networks.alternating(tmp_path)), "--random", *words]) == 2
    assert message in capsys.readouterr().err

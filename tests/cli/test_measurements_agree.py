"""All commands that measure a network report the same time, within the noise that they report."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from interposer import process_registry
from interposer.backend import Backend, KernelTable
from interposer.cli.main import main
from interposer.core.types import Array
from interposer.ops import Activation, Addition
from tests.cli import networks

SECONDS = {"slow": 0.03, "fast": 0.01}
"""What the additions and the activations take; the noise of a busy machine is small against these."""
sleeping = KernelTable()


@sleeping(Addition)
def add(op: Addition, a: Array, b: Array, *, out: Array) -> None:
    time.sleep(SECONDS["slow"])
    np.add(a, b, out=out)


@sleeping(Activation)
def activate(op: Activation, x: Array, *, out: Array) -> None:
    time.sleep(SECONDS["fast"])
    np.maximum(x, 0, out=out)


class Sleeps(Backend):
    """Takes a known time for each layer."""

    id: ClassVar = "Sleeps"
    kernels: ClassVar = sleeping

    def __init__(self) -> None:
        time.sleep(0.2)  # no command may count this


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    process_registry().register("Sleeps", Sleeps, source="registered by a test")
    nodes = [networks.node("Add", "x x", "sum"), networks.node("Relu", "sum", "y")]
    yield networks.written(tmp_path / "sleepy.onnx", nodes, {"x": (1, 4)}, {"y": (1, 4)})
    process_registry().deregister("Sleeps")


def measured(capsys: pytest.CaptureFixture[str], command: str, file: str, *words: str) -> Any:
    assert main([command, file, "--backends", "Sleeps", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def assert_close(times: Mapping[str, tuple[float, float]]) -> None:
    """Compare milliseconds, each with its relative spread, in pairs; half of a time more is granted."""
    for name, (ms, spread) in times.items():
        for other, (other_ms, other_spread) in times.items():
            assert ms <= other_ms * (1.5 + 3 * (spread + other_spread)), (name, other, times)


def test_all_commands_report_the_same_time_of_a_run(
    network: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = str(tmp_path / "t.json")
    [bench] = measured(capsys, "bench", network, "--random", "--rounds", "3", "--seconds", "0.15")["candidates"]
    plan = measured(capsys, "plan", network, "--budget", "1")
    explained = measured(capsys, "explain", network, "--measure", "--random", "--budget", "0.5")
    traced = measured(capsys, "trace", network, "--random", "--runs", "5", "-o", trace)
    ran = measured(capsys, "run", network, "--random", "--repeat", "5")
    assert_close({
        "bench": (bench["median_ms"], bench["spread"]),
        "plan": (plan["milliseconds"]["Sleeps"], plan["spread"].get("Sleeps", 0.0)),
        "explain": (explained["times"]["whole_ms"], explained["times"]["spread"]),
        "trace": (traced["run"]["median_us"] / 1000, traced["run"]["spread"]),
        "run": (ran["ms"], 0.0),
    })  # fmt: skip


def test_all_commands_report_the_same_shares_of_the_layers(
    network: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = str(tmp_path / "t.json")
    explained = measured(capsys, "explain", network, "--measure", "--random", "--budget", "0.5")
    traced = measured(capsys, "trace", network, "--random", "--runs", "5", "-o", trace)
    by_plan = measured(capsys, "plan", network, "--budget", "1.5")["units"]
    layers = {layer["layer"]: layer["time"] for layer in explained["layers"]}
    assert {time["how"] for time in layers.values()} == {"measured"}
    recorded = {layer["name"]: layer["median_us"] / 1000 for layer in traced["layers"]}
    noise = explained["times"]["spread"] + traced["run"]["spread"]
    for name, time_of_layer in layers.items():
        times = {"explain": (time_of_layer["ms"], noise), "trace": (recorded[name], noise)}
        assert_close(times | ({"plan": (by_plan[name], noise)} if name in by_plan else {}))
    slow, fast = (time_of_layer["ms"] for time_of_layer in layers.values())
    assert slow > fast

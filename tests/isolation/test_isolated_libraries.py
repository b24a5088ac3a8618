"""Backends in shared objects that run in child processes: the host never opens the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import BackendCrashedError, ExecutionError
from interposer.isolation import CRASHED, QUARANTINED, REPLACED, RESTARTED
from tests.isolating import X, limit_calls, needs_linux, no_trace_left
from tests.native import Natives, mapped_files

pytestmark = [needs_linux, pytest.mark.needs_cpuref]
ADDER = Path("adder.c")
BACKENDS = ["Adder", "CpuRef"]
COUNTING = (
    '{ int f = open(getenv("ADDER_COUNT"), O_CREAT | O_WRONLY | O_APPEND, 0600);'
    'if (f < 0 || write(f, "x", 1) != 1) abort();'
    "long n = lseek(f, 0, SEEK_END);"
    "close(f);"
    "if (n % 7 == 3) CRASH }"
)


def network() -> ip.Network:
    """relu(x + x) - it adds only what is not constant - and x once more."""
    created = ip.Network("sums")
    x = created.add_input_layer(0, ip.TensorInfo(X.shape), name="x")
    relu = created.add_activation_layer(
        created.add_addition_layer(x, x, name="first"), function=ip.ops.ActivationFunction.RELU, name="relu"
    )
    created.add_output_layer(0, created.add_addition_layer(relu, x, name="last"), name="y")
    return created


def expected(x: Any) -> Any:
    return np.maximum(x + x, 0) + x


@contextmanager
def adder(
    natives: Natives, folder: Path, *flags: str, probe_seconds: float | None = None, **isolation: Any
) -> Iterator[ip.Runtime]:
    """Return a runtime with the plug-in, isolated."""
    natives.install(folder, "Test_Adder_backend.so", ADDER, *flags)
    how = {"Adder": ip.Isolation(**isolation)}
    options = ip.CreationOptions(dynamic_backends_path=str(folder), isolate=how, probe_seconds=probe_seconds)
    with no_trace_left(), ip.Runtime(options) as runtime:
        yield runtime


def test_it_computes_and_the_host_never_opens_it(natives: Natives, tmp_path: Path) -> None:
    with adder(natives, tmp_path) as runtime:
        model = ip.load(network(), BACKENDS, runtime=runtime)
        assert model.optimized.graph.layer("relu").backend == "CpuRef"
        assert {placement.backend for placement in model.optimized.placements if placement.layer != "relu"} == {"Adder"}
        for number in range(3):
            np.testing.assert_array_equal(model.run([(number - 2) * X])[0], expected((number - 2) * X))
        assert not [path for path in mapped_files() if str(tmp_path) in path]


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize(
    ("where", "fault"),
    [
        *((where, "CRASH") for where in ("SUPPORT", "COMPILE", "EXECUTE")),
        ("EXECUTE", "HANG"),
        pytest.param("SUPPORT", "HANG", marks=pytest.mark.slow),
        pytest.param("COMPILE", "HANG", marks=pytest.mark.slow),
    ],
)
def test_wherever_it_fails_the_network_runs_on_the_next_backend(
    where: str, fault: str, natives: Natives, tmp_path: Path
) -> None:
    limits = {"deadline_seconds": 10} if fault == "HANG" and where != "EXECUTE" else {}
    probe_seconds = 3 if fault == "HANG" else None  # the trial of the file hangs at the same place
    flag = f"-DAT_{where}={fault}"
    with adder(natives, tmp_path, flag, max_restarts=0, probe_seconds=probe_seconds, **limits) as runtime:
        model = ip.load(network(), BACKENDS, runtime=runtime, fallback=True)
        if (where, fault) == ("EXECUTE", "HANG"):
            limit_calls(runtime, 3, "Adder")
        np.testing.assert_array_equal(model.run([X])[0], expected(X))
        kinds = [event.kind for event in runtime.events]
        assert kinds == [CRASHED, QUARANTINED, *([REPLACED] if where in ("COMPILE", "EXECUTE") else [])]


def test_the_error_tells_the_signal_and_the_layer(natives: Natives, tmp_path: Path) -> None:
    with adder(natives, tmp_path, "-DAT_EXECUTE=CRASH", max_restarts=0) as runtime:
        model = ip.load(network(), BACKENDS, runtime=runtime, fallback=False)
        with pytest.raises(ExecutionError) as caught:
            model.run([X])
        crash = caught.value.__cause__
        assert isinstance(crash, BackendCrashedError)
        assert (crash.reason, crash.backend) == ("was killed by SIGSEGV", "Adder")
        assert "first" in crash.layer


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("runs", [9, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("restarts", [None, 3])
def test_with_a_fault_in_every_third_run_every_answer_is_right(
    restarts: int | None, runs: int, natives: Natives, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADDER_COUNT", str(tmp_path / "count"))
    flags = ("-include", "fcntl.h", f"-DAT_EXECUTE={COUNTING}")
    with adder(natives, tmp_path / "backends", *flags, max_restarts=restarts) as runtime:
        model = ip.load(network(), BACKENDS, runtime=runtime, fallback=True)
        for number in range(runs):
            np.testing.assert_array_equal(model.run([(number - 2) * X])[0], expected((number - 2) * X))
        kinds = [event.kind for event in runtime.events]
    requested = runs // 3 if restarts is None else min(runs // 3, restarts)
    assert kinds.count(RESTARTED) == pytest.approx(requested, abs=1)  # a run that is repeated counts its steps again
    assert (REPLACED in kinds) == (restarts is not None and runs > 9)

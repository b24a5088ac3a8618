"""Settings of all tests, and no recorder that outlives its test."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator

import pytest
from _pytest.runner import runtestprotocol

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # before any test imports ONNX Runtime

# Threads of OpenBLAS and OpenMP wait busily for 20 ms after each product, which takes longer than the tests themselves.
# NumPy reads the variables when it is imported; programs of tests inherit them.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

NOTABLE = 0.05
"""Seconds from which on the time of a fixture is reported."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells do in the background; programs of tests inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Let a worker of xdist send one message for most tests instead of five, which take longer than a short test."""
    if not hasattr(item.config, "workerinput"):
        return None
    runtestprotocol(item, log=False, nextitem=nextitem)
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Send a report from a worker of xdist at once: the error of a test also if a fixture then ends the process.

    The controller needs the reports of fixtures only if they fail or take long.
    """
    report = yield
    is_needed = report.when == "call" or not report.passed or report.duration >= NOTABLE
    if is_needed and hasattr(item.config, "workerinput"):
        item.ihook.pytest_runtest_logreport(report=report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None]:
    """Stop the recorders that a test leaves active, such as the profiler of a runtime that is not closed yet.

    While one is active, the profiling hooks of all backends stay enabled, which checks in other tests would see.
    """
    try:
        return (yield)
    finally:
        module = sys.modules.get("interposer.profiling.recorder")
        for recorder in tuple(module.active) if module else ():
            recorder.stop()

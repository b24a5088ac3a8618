"""Fixtures of all tests and doctests: names for the examples of operators, and no recorder that outlives its test."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # before any test imports ONNX Runtime
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells do in the background; programs of tests inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _names_for_operators_examples(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> Iterator[None]:
    if not isinstance(request.node, pytest.DoctestItem) or not request.node.name.startswith("interposer.ops."):
        yield
        return
    import interposer  # noqa: PLC0415 - only for doctests
    from interposer import ops  # noqa: PLC0415

    exported = {name: getattr(interposer, name) for name in interposer.__all__} | vars(ops)
    names = {name: found for name, found in exported.items() if not isinstance(found, ModuleType)}
    doctest_namespace.update({"np": np}, **names)
    yield
    doctest_namespace.clear()


@pytest.fixture(autouse=True)
def _recorders_end_with_their_test() -> Iterator[None]:
    """Stop the recorders that a test leaves active, such as the profiler of a runtime that is not closed yet.

    While one is active, the profiling hooks of all backends stay enabled, which checks in other tests would see.
    """
    yield
    module = sys.modules.get("interposer.profiling.recorder")
    for recorder in tuple(module.active) if module else ():
        recorder.stop()

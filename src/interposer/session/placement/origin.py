"""The environment that a plan depends on: the backends with their versions, and the machine."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from interposer._version import __version__
from interposer.core.config import thread_budget
from interposer.runtime import Runtime

__all__ = ["made_with"]


def made_with(runtime: Runtime, ids: Iterable[str]) -> dict[str, Any]:
    """Return the versions, machine and threads that a plan depends on, as JSON values."""
    records = {record.id: record.version for record in runtime.registry.records()}
    return {
        "interposer": __version__,
        "machine": f"{platform.machine()} {_processor()}".strip(),
        "threads": thread_budget(runtime.options.num_threads),
        "versions": {item: records.get(item, "") for item in ids},
        "builds": {item: build for item in ids if (build := _build(runtime, item))},
    }


def _build(runtime: Runtime, backend: str) -> str:
    """Return a string that distinguishes builds of a backend with equal versions; empty if it is not available."""
    registry = runtime.registry
    if not registry.is_registered(backend) or registry.reason_absent(backend) is not None:
        return ""
    return registry.get(backend).identity


@cache
def _processor() -> str:
    """Return the model name of the processor from /proc/cpuinfo, or whatever `platform.processor` returns."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model", "cpu model")))
    return next(names, "") or platform.processor()

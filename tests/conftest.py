"""What all tests share: no clocks; those that need CpuRef are skipped where the environment disables it, only there."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # how long a test takes says nothing on a busy machine
settings.load_profile("untimed")

MARKER = "needs_cpuref: runs networks on CpuRef; skipped where INTERPOSER_DISABLED_BACKENDS names that backend"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    from interposer.config import DISABLED_BACKENDS, disabled_backends

    if "CpuRef" not in disabled_backends():
        return
    skip = pytest.mark.skip(reason=f"{DISABLED_BACKENDS} disables CpuRef")
    for item in items:
        if item.get_closest_marker("needs_cpuref"):
            item.add_marker(skip)

"""What all tests share: no clocks, and no settings or caches of whoever runs them; compiled plug-ins.

Tests that need CpuRef are skipped where the environment disables it, and only there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from tests.native import Natives

settings.register_profile("untimed", deadline=None)  # how long a test takes says nothing on a busy machine
settings.load_profile("untimed")

MARKER = "needs_cpuref: runs networks on CpuRef; skipped where INTERPOSER_DISABLED_BACKENDS names that backend"
OWN_FOLDERS = {"INTERPOSER_CACHE_DIR": "cache", "XDG_CONFIG_HOME": "settings"}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    if not hasattr(config, "workerinput"):  # workers of xdist have the environment of whoever started them
        folder = tempfile.mkdtemp(prefix="interposer-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ.update({name: str(Path(folder, below)) for name, below in OWN_FOLDERS.items()})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    from interposer.config import DISABLED_BACKENDS, disabled_backends

    if "CpuRef" not in disabled_backends():
        return
    skip = pytest.mark.skip(reason=f"{DISABLED_BACKENDS} disables CpuRef")
    for item in items:
        if item.get_closest_marker("needs_cpuref"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def natives() -> Natives:
    """Compiles shared objects, each once in a session."""
    return Natives(Path(os.environ["INTERPOSER_CACHE_DIR"]).parent / "natives")

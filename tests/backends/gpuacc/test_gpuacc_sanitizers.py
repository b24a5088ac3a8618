"""The host code of GpuAcc under sanitizers: samples of the kit, and random networks for each profile.

Kernels and the driver are not built with sanitizers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interposer.testing import campaign
from tests.backends.cpuacc.building import built, sanitizer_environment

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]


@pytest.fixture
def sanitized(gpuacc, natives):
    """Variables of processes that open GpuAcc with sanitizers instead of the one of the package."""
    library = built(natives.folder / "gpuacc-sanitized", backend="GpuAcc", sanitize="address,undefined")
    return sanitizer_environment() | {
        "INTERPOSER_DISABLED_BACKENDS": "CpuAcc,GpuAcc",
        "INTERPOSER_BACKEND_PATH": str(library.parent),
        "INTERPOSER_PROBE_SECONDS": "0",
    }


KIT = """
import sys
from interposer.testing import Settings, check_backend
report = check_backend("GpuAcc", only=sys.argv[1], settings=Settings({"Profile": sys.argv[2]}))
print(report)
sys.exit(not (report.ok and report.counts["pass"]))
"""


@pytest.mark.parametrize("profile", ["cpu", "mobile", "desktop"])
@pytest.mark.parametrize("only", ["results/*-0-*", "[cdt]*/*"])
def test_sanitizers_find_nothing_in_a_part_of_the_kit(sanitized, only, profile):
    words = [sys.executable, "-c", KIT, only, profile]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | sanitized, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("profile", ["cpu", "mobile", "desktop"])
def test_sanitizers_find_nothing_in_random_networks(sanitized, profile):
    options = {"GpuAcc": {"Profile": profile}}
    report = campaign("GpuAcc", 150, seed=5, jobs=2, shrink=0, options=options, environment=sanitized)
    assert report.ok, report

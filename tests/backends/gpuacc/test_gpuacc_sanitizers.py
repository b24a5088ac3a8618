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


def opened_instead(library):
    """Variables of processes that open a shared object instead of the one of the package."""
    return {
        "INTERPOSER_DISABLED_BACKENDS": "CpuAcc,GpuAcc",
        "INTERPOSER_BACKEND_PATH": str(library.parent),
        "INTERPOSER_PROBE_SECONDS": "0",
    }


@pytest.fixture
def sanitized(gpuacc, natives):
    """Variables of processes that open GpuAcc with AddressSanitizer and UndefinedBehaviorSanitizer."""
    library = built(natives.folder / "gpuacc-sanitized", backend="GpuAcc", sanitize="address,undefined")
    return sanitizer_environment() | opened_instead(library)


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


THREADS = """
import threading, time
from concurrent.futures import CancelledError
import numpy as np, interposer as ip
from tests.backends.gpuacc.test_gpuacc_runs import IMAGE, branches, loaded
expected = loaded(branches(), ["CpuRef"]).run([IMAGE])[0]
one = loaded(branches(), ["GpuAcc"])
hints = {"left": "GpuAcc:1", "left end": "GpuAcc:1"}
two = ip.load(branches(), ["GpuAcc", "GpuAcc:1"], options=ip.OptimizerOptions(hints=hints))

def check(results):
    np.testing.assert_allclose(results[0], expected, rtol=1e-5)

def run(n):
    check(one.run([IMAGE]))

def submit(n):
    for pending in [two.submit([IMAGE]) for _ in range(4)]:
        check(pending.result())

def cancel(n):
    pending = two.submit([IMAGE])
    time.sleep(0.0003 * (n % 7))
    pending.cancel()
    try:
        check(pending.result())
    except (ip.errors.RunCancelledError, CancelledError):
        pass

def late(n):
    try:
        check(one.run([IMAGE], deadline=0.0004 * (1 + n % 5)))
    except ip.errors.DeadlineExceededError:
        pass

def load(n):
    if n % 5 == 0:
        with loaded(branches(), ["GpuAcc"]) as model:
            check(model.run([IMAGE]))

def profile(n):
    with ip.profile() as profile:
        check(one.run([IMAGE]))
    profile.steps()

def repeated(call):
    for n in range(40):
        call(n)
    done.append(call)

done = []
calls = (run, run, submit, submit, cancel, late, load, profile)
threads = [threading.Thread(target=repeated, args=[call]) for call in calls]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(done))
"""

DRIVERS = """
race:libpocl
mutex:libpocl
race:libLLVM
mutex:libclang
"""
"""Reports about code that the sanitizer does not know: PoCL and its compiler."""


def test_sanitizers_find_no_race_of_threads_that_load_run_cancel_and_profile(gpuacc, natives, tmp_path):
    library = built(natives.folder / "gpuacc-threads", backend="GpuAcc", sanitize="thread")
    (tmp_path / "suppressions").write_text(DRIVERS)
    options = f"suppressions={tmp_path / 'suppressions'} exitcode=9 report_signal_unsafe=0"
    environment = sanitizer_environment("libtsan.so") | opened_instead(library)
    environment |= {"TSAN_OPTIONS": options, "POCL_DEVICES": "pthread pthread"}
    words = [sys.executable, "-c", THREADS]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | environment, cwd=ROOT)
    if "FATAL: ThreadSanitizer" in done.stderr:
        pytest.skip("the sanitizer does not run on this system")
    assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr

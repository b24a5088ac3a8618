"""The threads of native backends: many callers at once, sleeping and waking, and forks at any moment."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[2] / "native"
SOURCES = (HERE / "pool_stress.cpp", NATIVE / "common" / "pool.cpp", NATIVE / "common" / "cpu.cpp")


def built(natives, *flags):
    return natives.program(*SOURCES, flags=["-DNATIVE_BASELINE", *flags], folders=[NATIVE])


def test_all_parts_are_done_whoever_calls_and_forks_meanwhile(natives):
    program = built(natives)
    done = subprocess.run([program, "fork"], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_no_two_threads_race(natives):
    program = built(natives, "-fsanitize=thread", "-g")
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=300)
    if "FATAL: ThreadSanitizer" in done.stderr:
        pytest.skip("the sanitizer does not run on this system")
    assert done.returncode == 0, done.stdout + done.stderr

"""The threads of native backends: many callers at once, sleeping and waking, and forks at any moment."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native import compiler_for

HERE = Path(__file__).parent
NATIVE = HERE.parents[2] / "native"


def built(folder, *flags):
    program = folder / "pool_stress"
    words = [
        compiler_for("c++"),
        "-std=c++17",
        "-O1",
        "-pthread",
        "-DNATIVE_BASELINE",
        *flags,
        f"-I{NATIVE}",
        HERE / "pool_stress.cpp",
    ]
    sources = [NATIVE / "common" / name for name in ("pool.cpp", "cpu.cpp")]
    return program, subprocess.run([*words, *sources, "-o", program], capture_output=True, text=True, check=False)


def test_all_parts_are_done_whoever_calls_and_forks_meanwhile(tmp_path):
    program, done = built(tmp_path)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([program, "fork"], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_no_two_threads_race(tmp_path):
    program, done = built(tmp_path, "-fsanitize=thread", "-g")
    if "tsan" in done.stderr:  # its library is absent
        pytest.skip("the compiler has no sanitizer of threads")
    assert done.returncode == 0, done.stderr
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=300)
    if "FATAL: ThreadSanitizer" in done.stderr:
        pytest.skip("the sanitizer does not run on this system")
    assert done.returncode == 0, done.stdout + done.stderr

"""The unit tests of the native kernels, which are C++: every kernel at every instruction set against a plain loop."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native import compiler_for

SOURCES = Path(__file__).parents[3] / "native"


def has_header(name):
    words = [compiler_for("c++"), "-fsyntax-only", "-x", "c++", "-"]
    done = subprocess.run(words, input=f"#include <{name}>", text=True, capture_output=True, check=False)
    return done.returncode == 0


def run(*words):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_every_kernel_agrees_with_a_plain_loop_at_every_instruction_set(tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("CMake is not installed")
    if not has_header("gtest/gtest.h"):
        pytest.skip("GoogleTest is not installed (Debian and Ubuntu: apt install libgtest-dev)")
    run("cmake", "-S", SOURCES, "-B", tmp_path, "-DCMAKE_BUILD_TYPE=Release", "-DNATIVE_TESTS=ON")
    run("cmake", "--build", tmp_path, "--target", "native_tests", "--parallel", os.cpu_count() or 1)
    run(tmp_path / "tests" / "native_tests", "--gtest_brief=1")

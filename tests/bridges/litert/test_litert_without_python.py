"""A program in C that has no Python loads the delegate, which starts Python in the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interposer.bridges.files import library
from tests.conftest import DISABLED
from tests.native import compiler_for


@pytest.fixture
def program(tmp_path):
    if not Path(library(check=False)).is_file():
        pytest.skip("the library of the bridges was not built")
    target = tmp_path / "external"
    source = Path(__file__).with_name("external.c")
    subprocess.run([compiler_for("c"), "-std=c11", "-Wall", "-o", target, source, "-ldl"], check=True)

    def run(*options):
        environment = {name: text for name, text in os.environ.items() if name != DISABLED}
        environment["INTERPOSER_PYTHON"] = sys.executable
        ended = subprocess.run(
            [target, library(), *options], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        if "the library of Python cannot be opened" in ended.stdout:
            pytest.skip("this Python has no shared library")
        return ended.stdout.splitlines()

    return run


def test_a_delegate_is_created_and_destroyed(program):
    assert program("backends", "CpuRef", "min-nodes", "2") == ["created"]


def test_a_wrong_option_is_reported_to_the_program(program):
    lines = program("backnds", "CpuRef")
    assert lines[0].startswith("Interposer: there is no option 'backnds'; did you mean 'backends'")
    assert lines[-1] == "refused"

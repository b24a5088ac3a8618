"""Processes that use the delegate end by themselves and without an error, however they end."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.bridges.litert.hosting import ROOT
from tests.bridges.litert.scenarios import SCENARIOS
from tests.conftest import DISABLED

FAST = ("alive", "thread", "thread_in_python", "cycle", "reopened")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in SCENARIOS]
)
def test_a_process_ends_by_itself_and_without_an_error(name):
    environment = {key: text for key, text in os.environ.items() if key != DISABLED}
    environment["MALLOC_PERTURB_"] = "90"  # glibc overwrites memory that is freed, so that later uses are noticed
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.bridges.litert.scenarios", name]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, "Fatal" in ended.stderr) == (0, False), ended.stderr

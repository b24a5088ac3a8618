"""The messages that a worker of pytest-xdist sends about its tests; `conftest.py` leaves most of them out."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.quick import ROOT

TESTS = """
import os
import pytest

@pytest.fixture
def fails_first():
    raise RuntimeError("fails first")

@pytest.fixture
def fails_last():
    yield
    raise RuntimeError("fails last")

@pytest.fixture
def ends_the_process():
    yield
    os._exit(3)

def test_that_passes(): pass
def test_that_fails(): assert not "the test fails"
def test_that_is_skipped(): pytest.skip("not now")
@pytest.mark.xfail
def test_that_is_expected_to_fail(): assert False
def test_without_a_beginning(fails_first): pass
def test_without_an_end(fails_last): pass
def test_before_the_process_ends(ends_the_process): assert not "the last words"
"""


def test_a_worker_reports_every_failure_and_every_result(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    (tmp_path / "conftest.py").write_bytes((ROOT / "conftest.py").read_bytes())
    (tmp_path / "test_all.py").write_text(TESTS, "utf-8")
    words = ["-q", "-n", "1", "-p", "no:cacheprovider", "-rA", "--rootdir", tmp_path, tmp_path]
    done = subprocess.run([sys.executable, "-m", "pytest", *words], capture_output=True, text=True, check=False)
    results = re.findall(r"^([A-Z]+) .*::(\w+)", done.stdout, re.MULTILINE)
    assert sorted(results) == [
        ("ERROR", "test_without_a_beginning"),
        ("ERROR", "test_without_an_end"),
        ("FAILED", "test_before_the_process_ends"),
        ("FAILED", "test_before_the_process_ends"),  # the failure, and the end of the worker
        ("FAILED", "test_that_fails"),
        ("PASSED", "test_that_passes"),
        ("PASSED", "test_without_an_end"),
        ("XFAIL", "test_that_is_expected_to_fail"),
    ], done.stdout
    assert "assert not 'the last words'" in done.stdout
    assert "3 failed, 2 passed, 1 skipped, 1 xfailed, 2 errors" in done.stdout

"""The delegate in other versions of LiteRT, each installed in a folder: the tests of the delegate run with it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.bridges.litert.hosting import ROOT

VERSIONS = ("1.2.0", "1.4.0", "2.0.3")
TESTS = ("test_litert_layout.py", "test_litert_graph.py", "test_litert_delegate.py", "test_litert_left.py")
ALL_FILES = "not what_the_file_has and not an_operator_gives"


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_the_delegate_works_in_another_version(version, tmp_path):
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path)]
    installed = subprocess.run([*install, f"ai-edge-litert=={version}"], capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"ai-edge-litert {version} cannot be installed here")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    which = "import ai_edge_litert; print(ai_edge_litert.__file__)"
    found = subprocess.run([sys.executable, "-c", which], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(tmp_path))
    folder = ROOT / "tests" / "bridges" / "litert"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", "-k", ALL_FILES]
    files = [str(folder / name) for name in TESTS]
    tests = subprocess.run([*command, *files], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert tests.returncode == 0, tests.stdout[-5000:]
    assert " passed" in tests.stdout

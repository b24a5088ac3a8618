"""The provider in other versions of ONNX Runtime, each installed in a folder: its tests run with each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interposer.bridges.files import library

pytest.importorskip("onnx", reason="onnx is not installed")
if not Path(library(check=False)).is_file():
    pytest.skip("the library of the bridges was not built", allow_module_level=True)
ROOT = Path(__file__).parents[3]
VERSIONS = ("1.23.1", "1.24.4", "1.25.0", "1.27.0")
OLD = ("1.23", "1.24")
"""The beginnings of versions in which a plug-in provider has no name for `InferenceSession(providers=...)`."""
TESTS = ("test_contexts.py", "test_life_cycles.py")
REGISTER = """
import onnxruntime
from interposer.bridges.files import library
print(onnxruntime.__version__, flush=True)
onnxruntime.register_execution_provider_library("Interposer", library())
"""


@pytest.fixture
def installed(tmp_path):
    """A function that installs a version, and returns the environment of processes that use it."""

    def installed(version):
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path)]
        done = subprocess.run([*command, f"onnxruntime=={version}"], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"onnxruntime {version} cannot be installed here")
        return {**os.environ, "PYTHONPATH": str(tmp_path)}

    return installed


def registered(environment):
    command = [sys.executable, "-c", REGISTER]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_the_provider_works_in_another_version(version, installed):
    environment = installed(version)
    found = registered(environment)
    assert (found.returncode, found.stdout.strip()) == (0, version), found.stderr
    left_out = ["many_sessions", *(("providers", "asked_second") if version.startswith(OLD) else ())]
    chosen = " and ".join(f"not {name}" for name in left_out)
    files = [str(Path(__file__).with_name(name)) for name in TESTS]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, *files]
    tests = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert tests.returncode == 0, tests.stdout[-5000:]
    assert " passed" in tests.stdout


@pytest.mark.slow
def test_a_version_that_cannot_divide_networks_is_refused(installed):
    found = registered(installed("1.23.0"))
    assert "Interposer needs ONNX Runtime 1.23.1 or a later 1.x; this is 1.23.0" in found.stderr

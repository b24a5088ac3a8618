"""The package is built and installed as a distribution of its own."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import interposer

pytest.importorskip("hatchling", reason="hatchling, which builds the package, is not installed")

PACKAGE = Path(__file__).resolve().parents[1]
PROGRAM = """
import pyarmnn as ann
runtime = ann.IRuntime(ann.CreationOptions())
print(ann.__file__, ann.__version__, runtime.GetDeviceSpec())
"""


def test_the_built_package_has_all_modules_and_runs(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    environment = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run([*build, "--wheel-dir", str(tmp_path), str(PACKAGE)], check=True, env=environment)
    [wheel] = tmp_path.glob("pyarmnn-22.0.0-*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "installed")
    source, installed = PACKAGE / "src", tmp_path / "installed"
    modules = {path.relative_to(source) for path in source.rglob("*.py")}
    assert modules <= {path.relative_to(installed) for path in installed.rglob("*.py")}
    assert (installed / "pyarmnn" / "py.typed").exists()

    paths = os.pathsep.join([str(installed), str(Path(interposer.__file__).parents[1])])
    command = [sys.executable, "-c", PROGRAM]
    completed = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": paths}
    )
    where, version, *spec = completed.stdout.split()
    assert (Path(where).parents[1], version) == (installed, "22.0.0")
    assert spec[:3] == ["IDeviceSpec", "{", "supportedBackends:"]

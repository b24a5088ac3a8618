"""A program in C that has no Python loads the library through ONNX Runtime, and the library finds Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.bridges.files import library

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytestmark = [
    pytest.mark.needs_cpuref,
    pytest.mark.skipif(not Path(library(check=False)).is_file(), reason="the library of the bridges was not built"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler for C"),
]
MODEL = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
IMAGE = (np.arange(64) * 7 % 16 / np.float32(16)).astype(np.float32).reshape(1, 1, 8, 8)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    built = tmp_path_factory.mktemp("host") / "host"
    source = Path(__file__).with_name("host.c")
    subprocess.run(["cc", "-std=gnu11", "-o", built, source, "-ldl"], check=True)
    return built


def ended(program, **environment):
    pytest.importorskip("onnx", reason="onnx is not installed")
    [host] = (Path(ort.__file__).parent / "capi").glob("libonnxruntime.so.*")
    variables = {"INTERPOSER_PYTHON": sys.executable, "INTERPOSER_DISABLED_BACKENDS": "", "BACKENDS": "CpuRef"}
    return subprocess.run(
        [program, host, library(), MODEL],
        env=os.environ | variables | environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_the_results_are_those_of_interposer(program):
    done = ended(program)
    assert done.returncode == 0, done.stdout + done.stderr
    model = ip.load(MODEL, backends=["CpuRef"])
    np.testing.assert_allclose([float(text) for text in done.stdout.split()], model(IMAGE)[0], atol=2e-5)


def test_a_python_that_is_missing_is_an_error_of_the_host(program):
    done = ended(program, INTERPOSER_LIBPYTHON="/nowhere/libpython.so")
    assert done.returncode == 1
    assert done.stdout.startswith("Interposer: the library of Python cannot be opened (/nowhere/libpython.so: ")
    assert "name it with INTERPOSER_LIBPYTHON" in done.stdout


def test_an_unknown_backend_is_an_error_of_the_host(program):
    done = ended(program, BACKENDS="CpuReff")
    assert done.returncode == 1
    assert "no backend has the id 'CpuReff'; did you mean 'CpuRef'?" in done.stdout

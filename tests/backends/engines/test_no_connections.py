"""Engines report nothing to their makers: a run with every installed engine opens no connection."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RUN = """
import numpy as np
import interposer as ip
network = ip.Network("double")
x = network.add_input_layer(0, ip.TensorInfo((1, 4)), name="x")
network.add_output_layer(0, network.add_addition_layer(x, x, name="sum"), name="y")
runtime = ip.Runtime()
for backend in runtime.registry.ids:
    if runtime.registry.reason_absent(backend) is None:
        with ip.load(network, [backend, "CpuRef"], runtime=runtime) as model:
            assert model.run([np.ones((1, 4), np.float32)])[0].tolist() == [[2, 2, 2, 2]]
        print(backend)
"""


def traced(code: str, tmp_path: Path) -> tuple[str, list[str]]:
    """Return what a program prints, and its system calls that reach the network, also of its child processes."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("the program strace is not installed")
    log = tmp_path / "calls"
    calls = "trace=connect,sendto,sendmsg,sendmmsg"
    environment = {**os.environ, "HOME": str(tmp_path), "INTERPOSER_CACHE_DIR": ""}
    environment.pop("CI", None)  # with it, some packages send nothing
    result = subprocess.run(
        [strace, "-f", "-qq", "-e", calls, "-o", str(log), sys.executable, "-P", "-c", code],
        check=False, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=600,
    )  # fmt: skip
    if result.returncode and not log.exists() or "ptrace" in result.stderr:
        pytest.skip("strace may not trace programs here")
    assert result.returncode == 0, result.stderr
    return result.stdout, [line for line in log.read_text().splitlines() if "AF_INET" in line]


def test_the_trace_shows_connections(tmp_path):
    code = "import socket\ntry: socket.create_connection(('127.0.0.1', 9))\nexcept OSError: pass"
    _, connections = traced(code, tmp_path)
    assert len(connections) == 1


def test_a_run_with_every_engine_opens_no_connection(tmp_path):
    printed, connections = traced(RUN, tmp_path)
    assert "CpuRef" in printed
    assert connections == []


def test_the_telemetry_of_openvino_can_be_imported_after_it():
    pytest.importorskip("openvino_telemetry", reason="the package openvino-telemetry is not installed")
    code = (
        "import sys\nfrom interposer.core.telemetry import without_openvino_telemetry\n"
        "with without_openvino_telemetry():\n    assert sys.modules['openvino_telemetry'] is None\n"
        "import openvino_telemetry"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False, timeout=600).returncode == 0


def test_a_user_can_allow_the_telemetry_of_openvino(tmp_path):
    consent = tmp_path / "intel" / "openvino_telemetry"
    consent.parent.mkdir()
    code = (
        "import sys\nfrom interposer.core.telemetry import without_openvino_telemetry\n"
        "with without_openvino_telemetry():\n    print('openvino_telemetry' in sys.modules)\n"
    )
    for text, is_blocked in (("1", False), ("0", True)):
        consent.write_text(text)
        environment = {**os.environ, "HOME": str(tmp_path)}
        command = [sys.executable, "-P", "-c", code]
        result = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=600)
        assert result.stdout.strip() == str(is_blocked)

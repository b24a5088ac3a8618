"""Ctrl-C at any moment: a process that is interrupted at random times ends with status 130 and without a traceback."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from interposer.cli import interrupts
from tests.cli import networks
from tests.parameters import one_in

pytest.importorskip("onnx", reason="the package onnx is not installed")
pytestmark = pytest.mark.needs_cpuref

PROGRAM = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # what Python does before the program is not its own

def allow(event, args):
    if event == "import" and args[0] == "interposer.cli.interrupts":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

sys.addaudithook(allow)
print("begun", file=sys.stderr, flush=True)
from interposer.__main__ import main
sys.exit(main())
"""
LINES = [
    "ops Softmax", "run net.onnx --random --repeat 100000000", "explain net.onnx", "backends",
    "bench net.onnx --random --rounds 1000 --backends CpuRef", "compare net.onnx --random --backends CpuRef,CpuAcc",
    "quantize net.onnx --scheme float16 -o half.onnx", "check-backend CpuRef --family elementwise",
    "run net.onnx --random --repeat 100000000 --concurrent 2",
]  # fmt: skip


def interrupted(line: str, seconds: float, folder: Path, *, group: bool = False) -> tuple[int, str]:
    """Return the exit status and the messages of a command that is interrupted after so many seconds."""
    words = [sys.executable, "-c", PROGRAM, *line.split(), "--log-level", "error"]
    program = subprocess.Popen(
        words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    with program:
        assert program.stderr is not None
        assert program.stderr.readline() == "begun\n"
        time.sleep(seconds)
        if group:
            os.killpg(program.pid, signal.SIGINT)
        else:
            program.send_signal(signal.SIGINT)
        try:
            return program.wait(60), program.stderr.read()
        finally:
            program.kill()  # or leaving the block would wait for ever


@pytest.fixture
def folder(tmp_path):
    Path(networks.doubler(tmp_path)).rename(tmp_path / "net.onnx")
    return tmp_path


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("number", one_in(4, range(8)))
def test_an_interruption_at_a_random_time_is_an_end_without_a_trace(line, number, folder, request):
    if "CpuAcc" in line:
        request.getfixturevalue("cpuacc")
    seconds = random.Random(f"{line} {number}").uniform(0, 2)
    status, messages = interrupted(line, seconds, folder, group=number % 2 == 1)
    at_exit = -signal.SIGINT  # the interpreter's last steps have no handler
    assert (status in (0, 1, interrupts.STATUS, at_exit), messages) == (True, "")
    if "100000000" in line:
        assert status == interrupts.STATUS
    assert not [path for path in folder.iterdir() if path.name.startswith(".") or "tmp" in path.name]


def test_a_swallowed_interruption_ends_the_command_too(folder):
    code = """
import signal, sys
from interposer.cli import interrupts, ops
from interposer.__main__ import main

def execute(args):
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        print("caught")

ops.execute = execute
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", code, "ops"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


def test_an_interruption_in_a_finalizer_leaves_no_trace():
    code = """
import signal, sys, time
from interposer.cli import ops
from interposer.__main__ import main

class Last:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def execute(args):
    last = Last()
    del last
    time.sleep(60)

ops.execute = execute
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", code, "ops"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_second_interruption_ends_a_command_that_cleans_up():
    code = """
import signal, sys, time
from interposer.cli import ops
from interposer.__main__ import main

def execute(args):
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.raise_signal(signal.SIGINT)
        time.sleep(60)

ops.execute = execute
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", code, "ops"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_program_that_calls_the_command_line_keeps_its_handler():
    code = """
import signal
from interposer.cli.main import main

before = signal.getsignal(signal.SIGINT)
main(["ops", "Softmax"])
assert signal.getsignal(signal.SIGINT) is before
"""
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_a_command_in_the_background_of_a_shell_ignores_it():
    code = """
import signal, sys
from interposer.cli import ops
from interposer.__main__ import main

signal.signal(signal.SIGINT, signal.SIG_IGN)
ops.execute = lambda args: signal.raise_signal(signal.SIGINT)
sys.exit(main())
"""
    assert subprocess.run([sys.executable, "-c", code, "ops"], check=False).returncode == 0

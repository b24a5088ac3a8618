"""The progress line: what it says, when it is shown, and that it is removed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from interposer.cli.progress import Progress, duration, progress_line


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


def test_the_remaining_time_follows_from_that_of_the_steps_so_far(clock):
    progress = Progress(clock)
    progress("taking turns", 0, 10)
    clock.seconds = 4
    assert progress.line() == "taking turns (0 of 10), 4 s so far"
    progress("taking turns", 2, 10)
    assert progress.line() == "taking turns (2 of 10), about 16 s left"
    clock.seconds = 20
    progress("taking turns", 10, 10)
    assert progress.line() == "taking turns (10 of 10), nearly done"


def test_each_activity_has_a_time_of_its_own(clock):
    progress = Progress(clock)
    progress("loading", 1, 2)
    clock.seconds = 100
    progress("running", 0, 2, ", 3 failed")
    clock.seconds = 101
    assert progress.line() == "running (0 of 2, 3 failed), 1 s so far"


def test_an_activity_without_steps_has_the_time_that_is_expected_or_has_passed(clock):
    progress = Progress(clock)
    assert progress.line() == ""
    progress.wait("looking", 30)
    clock.seconds = 12
    assert progress.line() == "looking, about 18 s left"
    clock.seconds = 40
    assert progress.line() == "looking, nearly done"
    progress.wait("loading net\x1b.onnx")
    assert progress.line() == "loading net\\x1b.onnx, 0 s so far"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (200, "3 min 20 s"), (3600, "1 h 0 min"), (7500, "2 h 5 min")],
)
def test_a_time_is_written_in_words(seconds, text):
    assert duration(seconds) == text


PROGRAM = """
import time
from interposer.cli import progress
progress._FIRST, progress._TICK = 0.0, 0.01
with progress.progress_line() as line:
    line("working", 1, 4)
    time.sleep(0.3)
"""


def test_nothing_is_shown_if_standard_error_is_no_terminal(capsys):
    with progress_line() as progress:
        progress("working", 1, 4)
    assert capsys.readouterr().err == ""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(("terminal", "is_shown"), [("xterm", True), ("dumb", False)])
def test_a_terminal_shows_the_line_and_it_is_removed(terminal, is_shown):
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": terminal}
    subprocess.run([sys.executable, "-c", PROGRAM], stderr=theirs, check=True, env=environment)
    os.write(theirs, b"end")
    shown = ""
    while not shown.endswith("end"):
        shown += os.read(ours, 65536).decode()
    os.close(ours)
    os.close(theirs)
    assert ("working (1 of 4)" in shown) is is_shown
    assert shown.endswith("\r\x1b[Kend" if is_shown else "end")

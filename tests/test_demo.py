"""What `make demo` says until the first answer: errors of commands, and how far the steps are."""

from __future__ import annotations

import importlib.util
import sys
import threading
from pathlib import Path

import pytest

PATH = Path(__file__).parents[1] / "tools" / "demo.py"


@pytest.fixture
def demo():
    if not PATH.exists():
        pytest.skip("the tools are not part of an installed package")
    spec = importlib.util.spec_from_file_location("demo", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_command_that_fails_is_shown_with_its_last_lines(demo):
    command = [sys.executable, "-c", "print('one'); print('two'); raise SystemExit(3)"]
    with pytest.raises(demo.CommandError) as caught:
        list(demo.lines_of(command))
    assert str(caught.value) == f"{' '.join(command)}: exit status 3\none\ntwo"


def test_steps_that_take_long_are_printed_with_how_far_they_are(demo, monkeypatch, capsys):
    monkeypatch.setattr(demo, "SECONDS", 0.01)
    printed = threading.Event()
    with demo.Progress() as progress:
        monkeypatch.setattr(demo, "print", lambda *words, **_: printed.set() or print(*words), raising=False)
        with progress.step("compiling"), progress.step("installing"):
            progress.update("compiling", "3 of 4 files")
            printed.clear()
            assert printed.wait(60)
        progress.say("ready")
    lines = capsys.readouterr().out.splitlines()
    assert any(line.endswith(" s  compiling: 3 of 4 files; installing") for line in lines)
    assert "ready" in lines

"""Programs that are forked from a warm process behave as those of a new interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests import warm

PRINTED = """
import os, sys
print(sys.argv, __name__, sys.stdin.read(), os.environ.get("WARM"), os.getcwd(), os.getppid() == int(sys.argv[1]))
print("to", "errors", file=sys.stderr)
sys.exit(7)
"""


def results(words: list[str], **settings: object) -> list[tuple[int, str, str]]:
    """Return the exit status and the output of a program in a new interpreter, and in a fork of the warm process."""
    commands = [[sys.executable, *words], [*warm.python(), *words]]
    done = [subprocess.run(words, capture_output=True, text=True, check=False, **settings) for words in commands]
    return [(program.returncode, program.stdout, program.stderr) for program in done]


def test_arguments_streams_environment_folder_and_status_are_those_of_the_command(tmp_path):
    cold, hot = results(
        ["-c", PRINTED, str(os.getpid()), "more"], cwd=tmp_path, env={**os.environ, "WARM": "yes"}, input="given"
    )
    assert cold == hot
    assert cold[0] == 7


def test_the_environment_of_the_server_is_not_inherited(monkeypatch):
    monkeypatch.setenv("ADDED_LATER", "yes")
    code = "import os; print(sorted(os.environ))"
    cold, hot = results(["-c", code], env={"PATH": os.environ["PATH"], "LC_CTYPE": "C.UTF-8"})
    assert cold == hot


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("def f():\n    raise ValueError('why')\nf()", "ValueError: why"),
        ("import sys; sys.exit('a message')", "a message"),
        ("import atexit; atexit.register(print, 'the end')", "the end"),
        ("import threading; threading.Timer(0.05, print, ['a thread']).start()", "a thread"),
        ("import os; os.kill(os.getpid(), 9)", ""),
        ("import os; os.abort()", ""),
    ],
)
def test_a_program_ends_as_in_a_new_interpreter(code, text):
    cold, hot = results(["-c", code])
    assert cold == hot
    assert text in "".join(hot[1:])


def test_modules_are_found_in_the_folder_and_on_the_path_of_the_command(tmp_path):
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
    (tmp_path / "here" / "warm_program.py").write_text("import sys, warm_helper; print(__name__, sys.argv[1:])")
    (tmp_path / "there" / "warm_helper.py").touch()
    paths = {**os.environ, "PYTHONPATH": str(tmp_path / "there")}
    for words in (["-m", "warm_program", "a"], [str(tmp_path / "here" / "warm_program.py"), "a"]):
        cold, hot = results(words, cwd=tmp_path / "here", env=paths)
        assert cold == hot == (0, "__main__ ['a']\n", "")
    assert [status for status, _, _ in results(["-P", "-m", "warm_program"], cwd=tmp_path / "here")] == [1, 1]


def test_further_descriptors_are_inherited_with_their_numbers():
    reading, writing = os.pipe()
    subprocess.run([*warm.python(), "-c", f"import os; os.write({writing}, b'hi')"], pass_fds=[writing], check=True)
    os.close(writing)
    assert os.read(reading, 9) == b"hi"
    os.close(reading)


def test_a_program_is_killed_with_its_client():
    words = [*warm.python(), "-c", "import time; print('begun', flush=True); time.sleep(600)"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "begun\n"
        program.kill()
        assert program.stdout.read() == ""  # at the end of the program, the pipe is closed
    assert program.returncode == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_sent_on_to_a_program(number):
    code = (
        f"import signal; signal.signal({number:d}, lambda number, _: exit(number)); print(flush=True); signal.pause()"
    )
    with subprocess.Popen([*warm.python(), "-c", code], stdout=subprocess.PIPE, text=True) as program:
        program.stdout.readline()
        program.send_signal(number)
    assert program.returncode == number


def test_a_signal_that_a_program_does_not_handle_ends_it():
    code = "import signal; print(flush=True); signal.pause()"
    with subprocess.Popen([*warm.python(), "-c", code], stdout=subprocess.PIPE, text=True) as program:
        program.stdout.readline()
        program.terminate()
    assert program.returncode == -signal.SIGTERM


def test_what_a_program_leaves_running_is_killed():
    code = "import os; os.fork() or __import__('time').sleep(600)"
    done = subprocess.run([*warm.python(), "-c", code], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b""  # nobody has the pipe any more


def test_a_program_does_not_see_what_another_has_changed():
    code = "import interposer.core.config as c; print(hasattr(c, 'changed')); c.changed = True"
    assert [results(["-c", code])[1][1] for _ in range(2)] == ["False\n"] * 2


def test_scripts_stand_for_python_and_for_the_installed_command():
    for words in ([warm.executable(), "-m", "interposer", "--version"], [warm.command(), "--version"]):
        assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.startswith("interposer ")

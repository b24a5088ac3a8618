"""Programs of Python that start in a twentieth of the time: forks of a process that has imported the package.

A test that only looks at what a program prints, writes or returns starts it with the words of `python` in place of
``sys.executable``. The fixture `warm_python` does the same for programs that the package starts. Arguments,
environment, folder, streams, other descriptors and exit status are as of any process.

A program differs from a new interpreter in its beginning and its end. Modules are imported already. The variables that
Python and native libraries read when they start have no effect. The program is no child of the process that has started
it: what that process starts sends signals on to it, but SIGSTOP and SIGCONT do not reach it. At its end, its modules
are not destroyed. Tests of child processes, of imports and of the end of an interpreter start a new one.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
NEW_INTERPRETER = sys.executable
"""The path of Python, which `warm_python` does not change."""


@cache
def _folder() -> Path:
    """Start the server, and return the folder of its socket; both end with this process."""
    folder = Path(tempfile.mkdtemp(prefix="interposer-warm-"))
    address = folder / "socket"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    server = subprocess.Popen(
        [NEW_INTERPRETER, "-P", str(HERE / "server.py"), str(address)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment, start_new_session=True,
    )  # fmt: skip
    atexit.register(_end, server, folder, os.getpid())
    while not address.exists():
        assert server.poll() is None, "the server of programs has ended"
        time.sleep(0.01)
    return folder


def _end(server: subprocess.Popen[bytes], folder: Path, owner: int) -> None:
    """End the server and delete its folder, but not at the end of a fork of the process that has started it."""
    if os.getpid() == owner:
        server.communicate()  # it ends with its standard input
        shutil.rmtree(folder, ignore_errors=True)


def python() -> list[str]:
    """Return the first words of a command, in place of ``sys.executable``."""
    return [NEW_INTERPRETER, "-I", "-S", str(HERE / "client.py"), str(_folder() / "socket")]


@cache
def executable() -> str:
    """Return the path of a program that stands for Python."""
    return _script("python3", f'exec {shlex.join(python())} "$@"')


@cache
def command() -> str:
    """Return the path of a program that stands for the installed ``interposer``."""
    return _script("interposer", f'exec {shlex.join(python())} -P -m interposer "$@"')


def _script(name: str, text: str) -> str:
    path = _folder() / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)
